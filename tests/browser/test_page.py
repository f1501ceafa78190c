"""The page shows a living cluster, says why work waits, and lets a person who logged in change things."""

import pytest

from tests.browser.driver import Page
from tests.browser.product import Product

pytestmark = pytest.mark.browser
TOO_LARGE = ("--pods", "40", "--gpus", "8", "--simulate", "10m")  # more than the demo's cluster has


def test_the_page_shows_the_cluster_its_queues_and_its_work(page: Page) -> None:
    page.see(".line.live", "live")
    page.see("canvas")
    page.see(".summary", "of 64")
    page.see(".queues", "default")
    page.see(".work-table .state.running")
    page.until("document.title.includes('running')")


def test_submitted_work_appears_without_a_reload(page: Page, product: Product) -> None:
    page.see(".work-table")
    page.evaluate("window.stillTheSamePage = true")
    product.run("submit", "fresh", "--fraction", "0.1", "--simulate", "10m")
    page.see(".work-table tr", "fresh")
    assert page.evaluate("window.stillTheSamePage") is True


def test_waiting_work_says_why_and_what_would_start_it(page: Page, product: Product) -> None:
    product.run("submit", "too-large", *TOO_LARGE)
    page.click(".tabs button", "Waiting")
    page.see(".work-table tr", "too-large")
    page.until("[...document.querySelectorAll('tr')].some(r => /too-large.*\\S.*GPU/s.test(r.innerText))")
    page.click(".work-table button.link", "too-large")
    page.see(".detail .why .answer")
    page.see(".detail .obstacles li")
    page.see(".detail .need-have", "Need")
    assert page.text(".detail .why .answer").strip()
    assert page.count(".detail .change, .detail .why > .muted") > 0


def test_a_link_to_a_workload_opens_it(page: Page, product: Product) -> None:
    product.run("submit", "linked", *TOO_LARGE)
    page.goto(f"{product.url}#work=default/linked")
    page.reload()
    page.see(".detail h2", "linked")
    page.click(".detail [aria-label='Close the details']")
    page.miss(".detail")


def test_a_workload_that_is_gone_is_said_to_be_gone(browser: Page, product: Product) -> None:
    browser.open(product.new_login("#work=default/never-was"))
    browser.see(".detail .trouble", "never-was")


def test_search_and_queue_narrow_the_list(page: Page, product: Product) -> None:
    product.run("submit", "needle-in-hay", *TOO_LARGE)
    page.see(".work-table")
    page.fill("input[type=search]", "needle")
    page.until("document.querySelectorAll('.work-table tbody tr').length === 1")
    page.see(".work-table tr", "needle-in-hay")
    page.fill("input[type=search]", "no such thing")
    page.see(".teach", "matches")
    page.click(".teach button", "Clear the filters")
    page.until("document.querySelectorAll('.work-table tbody tr').length > 1")
    page.choose("select", "default")
    page.until(
        "[...document.querySelectorAll('.work-table tbody .col-queue')].every(cell => cell.innerText === 'default')"
    )


def test_without_a_login_the_page_shows_nothing_and_says_how_to_log_in(browser: Page, product: Product) -> None:
    product.run("submit", "not-yours", *TOO_LARGE)
    browser.open(f"{product.url}#work=default/not-yours")
    browser.see(".login", "kaiwo login")
    assert browser.count(".work-table, .detail, canvas") == 0
    assert "not-yours" not in browser.evaluate("document.body.innerText")
    browser.goto(product.new_login("#work=default/not-yours"))
    browser.see(".detail h2", "not-yours")
    assert browser.evaluate("document.cookie") == ""


def test_a_login_address_that_was_used_says_so(browser: Page, product: Product) -> None:
    address = product.new_login()
    browser.open(address)
    browser.see(".work-table")
    browser.open(address)  # another browser
    browser.see(".login", "was already used")
    browser.see(".login", "kaiwo login")


def test_logging_out_ends_the_login_in_every_window_and_for_good(browser: Page, product: Product) -> None:
    browser.open(product.new_login())
    browser.see(".line.live")
    token = browser.evaluate("localStorage.getItem('kaiwo-token')")
    browser.open_beside(product.url)
    browser.see(".work-table")
    browser.click(".top button", "Log out")
    browser.see(".login")
    browser.look_at(0)
    browser.see(".login")
    again = f"fetch('/api/v1/status', {{headers: {{authorization: 'Bearer {token}'}}}}).then((answer) => answer.status)"
    assert browser.evaluate(again) == 401


def test_work_is_held_released_and_cancelled_after_the_one_time_login(browser: Page, product: Product) -> None:
    product.run("submit", "mine", *TOO_LARGE)
    browser.open(product.login_address())
    browser.see(".work-table")
    assert "code=" not in browser.evaluate("location.href")
    browser.fill("input[type=search]", "mine")
    browser.click(".work-table button.link", "mine")
    browser.click(".detail button", "Hold")
    browser.see(".detail .state", "held")
    browser.see(".work-table .state", "held")
    browser.click(".detail button", "Release")
    browser.see(".detail .state", "waiting")
    browser.click(".detail button", "Cancel")
    browser.see(".detail .confirm", "Cancel this workload")
    assert "default/mine" in product.names("waiting")
    browser.click(".detail button", "Yes, cancel it")
    browser.see(".detail .state", "cancelled")
    assert "default/mine" in product.names("cancelled")
    assert browser.errors() == []


def test_a_viewer_is_offered_nothing_that_the_server_would_refuse(browser: Page, product: Product) -> None:
    product.run("submit", "not-hers", *TOO_LARGE)
    browser.open(product.login_of("eve", "viewer") + "#work=default/not-hers")
    browser.see(".detail .state", "waiting")
    browser.see(".detail .answer, .detail dl")
    assert browser.evaluate("document.querySelectorAll('.detail .actions button').length") == 0
    assert browser.evaluate("document.querySelectorAll('.submit').length") == 0
    browser.open(product.new_login("#work=default/not-hers"))
    browser.see(".detail .actions button", "Cancel")
    browser.see(".detail .change-form button", "Change")
    browser.see(".submit button", "Submit")
    assert browser.errors() == []


def test_a_device_shows_its_tenants_and_leads_to_their_work(page: Page) -> None:
    page.see("canvas")
    page.until("document.querySelector('.work-table .state.running')")
    page.evaluate("document.querySelector('canvas').focus()")
    for _ in range(64):
        page.press("ArrowRight")
        if ":" in page.evaluate("document.getElementById('map-spot').textContent"):
            break
    page.see(".device-card li button")
    page.click(".device-card li button")
    page.see(".detail .state")
    page.see(".detail .pods li")


def test_a_queue_shows_how_its_fair_share_comes_about(page: Page) -> None:
    page.see(".queue-legend", "fair share")
    page.see(".queue-words", "fair share")
    button = "button[aria-label$='(queue vision)']"
    assert page.evaluate(f'document.querySelector("{button}").getAttribute("aria-expanded")') == "false"
    page.click(button)
    for words in ("divided", "wants", "deserved", "share"):
        page.see(".arithmetic li", words)
    page.see(".arithmetic", "Reclaim: aggressive")
    assert page.evaluate(SUMS_ARE_RIGHT) == []
    page.click(button)
    page.miss(".arithmetic")
    assert page.count(".queue-bar .share") > 0


# Recomputes every "share 12 = deserved 8 + 4 (...) + 0 remainder" that the page shows; the wrong ones are left.
SUMS_ARE_RIGHT = r"""
[...document.querySelectorAll('.arithmetic li')].map((item) => item.textContent).filter((line) => {
  const amount = '([\\d.]+)(?: [MGT]iB)?'
  const sum = `^share ${amount} = deserved ${amount} \\+ ${amount} \\(.*\\) \\+ ${amount} remainder$`
  const found = line.match(new RegExp(sum))
  if (!line.startsWith('share')) return false
  return !found || Math.abs(found[1] - found[2] - found[3] - found[4]) > 1e-6
})
"""
