"""The pages beside the overview: a node, usage over time, the network, decisions; and what the map's colours mean."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.driver import Page
from tests.browser.product import Product
from tests.browser.test_reach import LOW_CONTRAST
from tests.conftest import ROOT

pytestmark = pytest.mark.browser

# How many different colours the first canvas of a selector shows: a blank one shows one.
COLOURS = """
(() => {
  const canvas = document.querySelector('SELECTOR')
  if (!canvas || !canvas.width) return 0
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data
  const seen = new Set()
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200) seen.add(`${data[i]},${data[i + 1]},${data[i + 2]}`)
  return seen.size
})()
"""
AXE = ROOT / "ui" / "node_modules" / "axe-core" / "axe.min.js"
COMPLAINTS = """
axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }).then((found) =>
  found.violations.map((each) => `${each.id}: ${each.help}: ${each.nodes.map((node) => node.target).join(' ')}`))
"""
SWATCH = """getComputedStyle(document.querySelector('.legend .swatch.name-0')).backgroundColor"""
IS_ON_THE_MAP = """
(() => {
  const [r, g, b] = COLOUR.match(/\\d+/g).map(Number)
  const canvas = document.querySelector('.map canvas')
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data
  for (let i = 0; i < data.length; i += 4) {
    if (Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 4) return true
  }
  return false
})()
"""
# In coarse steps it is the mean of a time in which the work was not there yet.
ALLOCATED = (
    "[...document.querySelectorAll('.chart-lines li')].some(each => /Allocated\\s[1-9][\\d.]*$/.test(each.innerText))"
)
PIXELS = "document.querySelector('.map canvas').toDataURL()"
SIGNS = {
    "": ".work-table",
    "page=usage": ".chart-lines li",
    "page=network": ".domain",
    "page=decisions": ".plain-table",
    "page=alerts": ".plain-table",
    "page=what-if": ".submit-form",
    "page=advice": ".panel .muted",
    "page=operations": ".plain-table",
    "node=node-2": ".chart-lines li",
    "work=default/wide": ".detail .facts",
}
PARTS = tuple(part for part in SIGNS if part and not part.startswith("work"))
SLURM = """
SwitchName=leaf1 Nodes=node-[1-2]
SwitchName=leaf2 Nodes=node-[3-4]
SwitchName=spine Switches=leaf[1-2]
"""


@pytest.fixture(scope="module")
def fabric(browser: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """Four nodes below two leaves, with work of a user in a queue over both leaves."""
    folder = tmp_path_factory.mktemp("fabric")
    (folder / "topology.conf").write_text(SLURM)
    product = Product(folder / "home", "--nodes", "4", "--topology", f"slurm={folder / 'topology.conf'}")
    product.start()
    product.run("submit", "wide", "--pods", "3", "--gpus", "8", "--simulate", "60m")
    product.run("wait", "wide", "--for", "running", "--timeout", "90s")
    yield product
    product.stop()


def test_every_page_has_an_address_and_no_page_complains(page: Page, product: Product) -> None:
    page.see(".work-table")
    for link, sign in (
        ("Usage", ".chart"),
        ("Network", ".panel"),
        ("Decisions", ".plain-table td"),
        ("Alerts", ".plain-table td"),
        ("What if", ".submit-form"),
        ("Advice", ".panel .muted"),
        ("Overview", ".map"),
    ):
        page.click(".pages a", link)
        page.see(sign)
        page.see(".pages a[aria-current]", link)
        page.reload()
        page.see(sign)
    assert page.errors() == []
    assert page.foreign_hosts() == []


def test_a_node_is_cordoned_drained_and_opened_again(browser: Page, fabric: Product) -> None:
    browser.open(fabric.new_login("#node=node-1"))
    browser.see(".node-detail h2", "node-1")
    browser.see(".node-detail .bar-line", "100 % allocated")
    browser.see(".node-detail .unknown-bar", "use unknown")
    browser.click(".node-detail .buttons button", "Cordon")
    browser.see(".node-detail .outcome", "node node-1 cordoned")
    browser.see(".node-detail .node-out", "cordoned")
    browser.click(".node-detail .buttons button", "Drain")
    browser.see(".node-detail .confirm", "It stops wide")
    browser.click(".node-detail .confirm button", "Leave it")
    assert "wide" in "".join(fabric.names("running")), "asking stops nothing"
    browser.click(".node-detail .buttons button", "Drain")
    browser.click(".node-detail .confirm button", "Yes, drain it")
    browser.see(".node-detail .outcome", "wide waits again")
    browser.click(".node-detail .buttons button", "Uncordon")
    browser.see(".node-detail .outcome", "node node-1 uncordoned")
    fabric.run("wait", "wide", "--for", "running", "--timeout", "90s")
    assert browser.errors() == []


def test_a_viewer_is_not_offered_to_change_a_node(browser: Page, fabric: Product) -> None:
    browser.open(fabric.login_of("eve", "viewer") + "#node=node-2")
    browser.see(".node-detail .device-rows", "gpu-0")
    browser.until("performance.getEntriesByType('resource').some(each => each.name.endsWith('/whoami'))")
    assert browser.count(".node-detail .buttons") == 0
    browser.open(fabric.new_login("#node=node-2"))
    browser.see(".node-detail .buttons button", "Drain")


def test_usage_over_time_is_drawn(browser: Page, fabric: Product) -> None:
    browser.open(fabric.new_login("#page=usage"))
    browser.until(ALLOCATED)
    browser.until(COLOURS.replace("SELECTOR", ".chart canvas") + " > 3")
    browser.click(".range-buttons button", "week")
    browser.see(".range-buttons button[aria-pressed=true]", "week")
    browser.until(ALLOCATED)
    assert browser.errors() == []


def test_the_network_shows_domains_links_and_the_work_over_them(browser: Page, fabric: Product, tmp_path: Path) -> None:
    browser.open(fabric.new_login("#page=network&work=default/wide"))
    browser.see(".panel-aside", "1 spine, 2 leaves")
    browser.until("document.querySelectorAll('.network line.link').length === 2")
    browser.see(".network .link.chosen")
    browser.click(".domain", "leaf1")
    browser.see(".domain-facts", "2 nodes")
    browser.screenshot(tmp_path / "network.png")
    browser.click(".domain-facts .work-link", "wide")
    browser.see(".detail h2", "wide")
    assert browser.errors() == []


def test_a_decision_says_how_to_decide_it_again(page: Page, product: Product) -> None:
    page.click(".pages a", "Decisions")
    page.click(".plain-table tbody tr:last-child button.link")  # the first cycle started the demo
    page.see(".replay", "the same plan, byte for byte")
    page.see(".replay .plain-table tr", "Score, and of the next best")
    page.see(".replay .candidates li", "=")
    page.see(".replay code", "replay")
    number = page.text(".replay code").split()[2]
    page.reload()
    page.see(".replay h3", f"Cycle {number}")
    assert page.evaluate("location.hash") == f"#page=decisions&cycle={number}"
    assert "gives the same plan" in product.run("replay", number)


def test_requeuing_running_work_says_first_what_stops_where(browser: Page, fabric: Product) -> None:
    browser.open(fabric.new_login("#work=default/wide"))
    browser.click(".detail .buttons button", "Requeue")
    browser.see(".detail .confirm", "It stops on node-")
    browser.click(".detail .confirm button", "Keep it")
    browser.miss(".detail .confirm")
    assert "wide" in "".join(fabric.names("running")), "asking stops nothing"
    assert browser.errors() == []


def test_a_queue_leads_to_its_history(page: Page) -> None:
    page.click("button[aria-label='over time (queue vision)']")
    page.see("figure figcaption", "GPUs of vision")
    assert page.evaluate("location.hash") == "#page=usage&queue=vision"


def test_operators_see_failures_reservations_and_who_changed_what(browser: Page, fabric: Product) -> None:
    fabric.run("nodes", "fail", "node-4", "--reason", "lost power")
    fabric.run(
        "reservations", "create", "course", "--gpus", "2", "--for-queue", "default", "--start", "2h", "--end", "3h"
    )
    browser.open(fabric.new_login("#page=operations"))
    browser.see(".plain-table tr", "lost power")
    browser.see(".plain-table tr", "course")
    browser.see(".plain-table tr", "queue default")
    browser.see(".plain-table tr", "fail node/node-4")
    fabric.run("nodes", "restore", "node-4")
    browser.miss(".tables .plain-table tr", "lost power")
    fabric.run("reservations", "delete", "course")
    browser.see(".panel", "No GPUs are reserved.")
    browser.open(fabric.login_of("nora", "viewer") + "#page=operations")
    browser.see(".panel", "No GPUs are reserved.")
    assert browser.count(".panel h2") == 4, "the audit is for operators"
    assert browser.errors() == []


def test_colours_mean_what_the_legend_says(browser: Page, fabric: Product) -> None:
    browser.open(fabric.new_login())
    browser.see(".map .colour-buttons button[aria-pressed=true]", "allocation")
    for meaning, name in (
        ("queue", "default"),
        ("GPU model", "MI300X"),
        ("partition mode", "not partitioned"),
        ("health", "healthy"),
    ):
        browser.click(".colour-buttons button", meaning)
        browser.see(".legend li", name)
        browser.until(IS_ON_THE_MAP.replace("COLOUR", SWATCH))
    browser.click(".colour-buttons button", "how busy")
    browser.see(".legend li", "use unknown")
    browser.see(".legend li", "held, and does nothing")
    browser.click(".colour-buttons button", "reservation")
    browser.see(".legend li", "nothing is reserved")
    browser.click(".colour-buttons button", "stranded")
    browser.see(".legend li", "no kind of request")
    ours = [each for each in browser.errors() if "willReadFrequently" not in each]  # this test reads the canvas
    assert ours == []


def test_a_map_that_changed_a_little_is_the_map_drawn_anew(browser: Page, fabric: Product) -> None:
    browser.open(fabric.new_login())
    browser.see(".map canvas")
    browser.until(f"(window.first = {PIXELS}).length > 5000")
    fabric.run("submit", "one-more", "--gpus", "3", "--simulate", "60m")
    browser.see(".work-table tr", "one-more")
    fabric.run("wait", "one-more", "--for", "running", "--timeout", "90s")
    browser.until(f"{PIXELS} !== window.first")
    fabric.run("cancel", "one-more")
    browser.until(f"{PIXELS} === window.first")


def test_advice_capacity_and_adjustments_are_told(browser: Page, fabric: Product) -> None:
    fabric.run("submit", "queued", "--pods", "4", "--gpus", "8", "--estimate", "1h", "--simulate", "1h")
    browser.open(fabric.new_login("#page=advice"))
    browser.see(".panel", "The policy says adjustment: advise")
    browser.see(".plain-table tr", "as it is", within_s=180)
    browser.see(".plain-table tr", "more node")
    assert browser.errors() == []
    fabric.run("cancel", "queued")


def test_what_if_shows_what_more_nodes_would_bring(browser: Page, fabric: Product) -> None:
    fabric.run("submit", "later", "--pods", "4", "--gpus", "8", "--estimate", "1h", "--simulate", "1h")
    browser.open(fabric.new_login("#page=what-if"))
    browser.click(".submit-form button", "Ask")
    browser.see(".trouble", "Change something first")
    browser.fill(".submit-form [name=nodes]", "4")
    browser.click(".submit-form button", "Ask")
    browser.see(".what-if-answer tr", "default")
    browser.see(".what-if-answer p", "of 64 GPUs")
    browser.fill(".submit-form [name=without]", "node-77")
    browser.click(".submit-form button", "Ask")
    browser.see(".trouble", "there is no node 'node-77'")
    assert [each for each in browser.errors() if "400" not in each] == []
    fabric.run("cancel", "later")


def test_alerts_are_listed_silenced_and_heard_again(browser: Page, fabric: Product) -> None:
    browser.open(fabric.new_login("#page=alerts"))
    browser.see(".plain-table tr", "node-not-ready" if "node-not-ready" in fabric.run("alerts", "rules") else "node")
    fabric.run("alerts", "silence", "gpu-*", "--subject", "node-3/*", "--for", "4h")
    browser.see(".plain-table tr", "node-3/*")
    browser.click("[aria-label^='End now']")
    browser.see(".panel", "No alert is silenced.")
    browser.open(fabric.login_of("vera", "viewer") + "#page=alerts")
    browser.see(".panel", "No alert is silenced.")
    fabric.run("alerts", "silence", "gpu-*", "--for", "4h")
    browser.see(".plain-table tr", "gpu-*")
    assert browser.count("[aria-label^='End now']") == 0, "silences are for operators"
    assert browser.errors() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("part", tuple(SIGNS))
def test_axe_finds_nothing_to_complain_about(browser: Page, fabric: Product, scheme: str, part: str) -> None:
    """axe-core checks names, roles, contrast, landmarks and the order of headings, by the rules of WCAG 2.2 AA."""
    browser.open(fabric.new_login(f"#{part}"), scheme=scheme)
    browser.see(SIGNS[part])
    browser.until("document.getAnimations().every(a => a.playState !== 'running')")
    browser.evaluate(AXE.read_text() + "; 0")
    assert browser.evaluate(COMPLAINTS) == []


def test_the_list_is_searched_by_user_node_and_label_and_the_counts_follow(browser: Page, fabric: Product) -> None:
    fabric.run("submit", "labelled", "--gpus", "1", "--label", "team=ml", "--simulate", "60m")
    fabric.run("submit", "elsewhere", "--gpus", "8", "--pods", "4", "--simulate", "60m")
    browser.open(fabric.new_login("#tab=active"))
    browser.see(".work-table tr", "labelled")
    for words, shown, hidden in (
        ("team=ml", "labelled", "elsewhere"),
        ("else", "elsewhere", "labelled"),
        ("node:node-1", "wide", "elsewhere"),
    ):
        browser.fill(".filters input", words)
        browser.miss(".work-table tr", hidden)
        browser.see(".work-table tr", shown)
        rows = browser.count(".work-table tbody tr")
        browser.see(".tabs button[aria-pressed=true]", f"Active{rows}")
    browser.fill(".filters input", "user:nobody-of-this-name")
    browser.see(".teach", "No active work matches")
    browser.see(".tabs button[aria-pressed=true]", "Active0")
    assert browser.errors() == []
    fabric.run("cancel", "labelled", "elsewhere")


def test_a_search_on_the_map_makes_the_rest_faint(browser: Page, fabric: Product) -> None:
    browser.open(fabric.new_login())
    browser.see(".map canvas")
    browser.click(".colour-buttons button", "queue")
    browser.until(IS_ON_THE_MAP.replace("COLOUR", SWATCH))
    browser.fill("[aria-label='Find on the map']", "no-such-node")
    browser.until(f"!{IS_ON_THE_MAP.replace('COLOUR', SWATCH).strip()}")
    browser.fill("[aria-label='Find on the map']", "wide")
    browser.until(IS_ON_THE_MAP.replace("COLOUR", SWATCH))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("part", PARTS)
def test_every_text_of_the_pages_stands_out(browser: Page, fabric: Product, scheme: str, part: str) -> None:
    browser.open(fabric.new_login(f"#{part}"), scheme=scheme, width=1280)
    browser.see(SIGNS[part])
    browser.until("document.getAnimations().every(a => a.playState !== 'running')")
    assert browser.evaluate(LOW_CONTRAST) == []
    browser.resize(390, 844)
    assert browser.evaluate("document.documentElement.scrollWidth > window.innerWidth") is False
    if part.startswith("node="):
        browser.see(".node-detail .range-buttons button", "week")
