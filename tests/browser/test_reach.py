"""The page can be used in light and dark, on a phone, with the keyboard alone, and by people with weak eyes."""

import pytest

from tests.browser.driver import Page
from tests.browser.product import Product

pytestmark = pytest.mark.browser

GROUND = "getComputedStyle(document.body).backgroundColor"
LIGHTNESS = f"(() => {{ const [r, g, b] = {GROUND}.match(/[\\d.]+/g).map(Number); return r + g + b }})()"

# Every visible piece of text against what lies under it, by the formula of WCAG 2; large text may have less.
LOW_CONTRAST = """
(() => {
  const parse = (text) => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a] }
  const light = ([r, g, b]) => {
    const part = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 }
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b)
  }
  const under = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor)
      if (colour[3] === 1) return colour
    }
    return [255, 255, 255, 1]
  }
  const low = []
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())
    const style = getComputedStyle(element)
    if (!own || element.disabled || !element.checkVisibility() || element.tagName === 'NOSCRIPT') continue
    const [a, b] = [light(parse(style.color)), light(under(element))].sort((x, y) => y - x)
    const needed = parseFloat(style.fontSize) >= 24 ? 3 : 4.5
    if ((a + 0.05) / (b + 0.05) < needed) low.push(`${element.textContent.slice(0, 40)} (${style.color})`)
  }
  return low
})()
"""

FOCUS = (
    "(() => { const e = document.activeElement; return e.getAttribute('aria-label') || e.innerText || e.tagName })()"
)
IS_MARKED = "getComputedStyle(document.activeElement).outlineStyle !== 'none'"


def test_the_theme_follows_the_system_until_one_is_chosen(page: Page) -> None:
    page.see(".work-table")
    assert page.evaluate(LIGHTNESS) > 600
    page.prefer("dark")
    page.until(f"{LIGHTNESS} < 150")
    page.click("[aria-label='Use the light theme']")
    page.until(f"{LIGHTNESS} > 600")
    page.reload()
    page.see("[aria-label='Use the dark theme']")
    assert page.evaluate(LIGHTNESS) > 600, "the choice is remembered"
    page.click("[aria-label='Use the dark theme']")
    page.prefer("light")
    page.until(f"{LIGHTNESS} > 600")  # dark was the system's own, so the page follows the system again


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(browser: Page, product: Product, scheme: str) -> None:
    product.run("submit", f"contrast-{scheme}", "--pods", "40", "--gpus", "8", "--simulate", "10m")
    browser.open(product.new_login(f"#work=default/contrast-{scheme}"), scheme=scheme)
    browser.see(".work-table")
    browser.see(".detail .obstacles li")
    browser.until("document.getAnimations().every(a => a.playState !== 'running')")
    assert browser.evaluate(LOW_CONTRAST) == []


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768), (390, 844)])
def test_no_width_scrolls_sideways(browser: Page, product: Product, width: int, height: int) -> None:
    name = "a-workload-with-quite-a-long-name-that-nobody-would-type-twice"
    if f"default/{name}" not in product.names("waiting"):
        product.run("submit", name, "--pods", "40", "--gpus", "8", "--simulate", "10m")
    browser.open(product.new_login(), width=width, height=height)
    browser.see(".work-table tr", name)
    sideways = "document.documentElement.scrollWidth > window.innerWidth"
    assert browser.evaluate(sideways) is False
    browser.click(".work-table button.link", name)
    browser.see(".detail .obstacles li")
    assert browser.evaluate(sideways) is False
    assert browser.evaluate("(d => d.scrollWidth > d.clientWidth)(document.querySelector('.detail'))") is False


def test_everything_can_be_reached_with_the_keyboard(page: Page, product: Product) -> None:
    product.run("submit", "by-keyboard", "--pods", "40", "--gpus", "8", "--simulate", "10m")
    page.see(".work-table tr", "by-keyboard")
    reached: list[str] = []
    for _ in range(60):
        page.press("Tab")
        reached.append(page.evaluate(FOCUS))
        assert page.evaluate(IS_MARKED), f"the focus on {reached[-1]} cannot be seen"
        if reached[-1] == "by-keyboard":
            break
    for wanted in ("Use the dark theme", "Map of", "default", "Search the work", "Queue", "Active", "Waiting"):
        assert any(each.startswith(wanted) for each in reached), f"{wanted} is not among {reached}"
    page.press("Enter")
    page.see(".detail h2", "by-keyboard")
    assert page.evaluate(FOCUS) == "by-keyboard"
    page.press("Escape")
    page.miss(".detail")
    assert page.evaluate("document.activeElement.className") == "link", "the focus is back in the list"


def test_the_map_is_heard_as_it_is_walked(page: Page) -> None:
    page.see("canvas")
    page.evaluate("document.querySelector('canvas').focus()")
    page.press("ArrowRight")
    first = page.evaluate("document.getElementById('map-spot').textContent")
    page.press("ArrowRight", "ArrowDown")
    assert page.evaluate("document.getElementById('map-spot').textContent") != first
    page.press("Home")
    page.until(f"document.getElementById('map-spot').textContent.split(',')[0] === {first.split(',')[0]!r}")
    page.press("Escape")
    page.miss(".device-card")


def test_the_page_has_landmarks_and_one_heading(page: Page) -> None:
    page.see(".work-table")
    for landmark in ("header", "main", "footer", "search", "h1"):
        assert page.count(landmark) >= 1, landmark
    assert page.count("h1") == 1
    unnamed = """[...document.querySelectorAll('button, input, select, canvas')]
        .filter(e => !(e.getAttribute('aria-label') || e.innerText.trim())).map(e => e.outerHTML)"""
    assert page.evaluate(unnamed) == []
    assert page.count(".line[aria-live]") == 1
