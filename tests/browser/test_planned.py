"""The page says when waiting work is planned to start, how long runs like it took, and need and have exactly."""

from collections.abc import Iterator

import pytest

from tests.browser.driver import Page
from tests.browser.product import Product

pytestmark = pytest.mark.browser
SMALL = """
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoQueue
metadata: {name: small}
spec: {resources: {gpu: {quota: 8, limit: 8}}}
"""


@pytest.fixture(scope="module")
def busy(browser: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """Eight nodes that are full for half an hour, and a gang that waits for four of them."""
    product = Product(tmp_path_factory.mktemp("busy"))
    product.start()
    product.run("submit", "filler", "--pods", "8", "--gpus", "8", "--simulate", "30m", "--estimate", "30m")
    product.run("wait", "filler", "--for", "running")
    product.run("submit", "large", "--pods", "4", "--gpus", "8", "--simulate", "20m", "--estimate", "20m")
    yield product
    product.stop()


def test_the_list_and_the_detail_say_when_waiting_work_is_planned_to_start(browser: Page, busy: Product) -> None:
    browser.open(busy.new_login())
    browser.see(".work-table tr", "large")
    browser.until("/^planned to start in (29|30) min$/.test(document.querySelector('.work-table .planned')?.innerText)")
    assert browser.count(".work-table .planned") == 1, "what runs has no planned start"
    browser.click(".work-table button.link", "large")
    browser.see(".detail .why .planned", "Planned start")
    said = browser.text(".detail .why .planned")
    assert "because filler is expected to end by then" in said
    assert said.endswith("it is expected to run for 20 min, by its owner's estimate.")
    assert browser.errors() == []


def test_what_is_planned_is_gone_when_the_work_is_held(browser: Page, busy: Product) -> None:
    busy.run("submit", "second", "--pods", "2", "--gpus", "8", "--simulate", "20m", "--estimate", "20m")
    browser.open(busy.new_login("#work=default/second"))
    browser.see(".detail .why .planned")
    busy.run("hold", "second")
    browser.see(".detail .state", "held")
    browser.miss(".detail .why .planned")
    browser.until("document.querySelectorAll('.work-table .planned').length === 1")
    busy.run("cancel", "second")


def test_earlier_runs_stand_beside_the_estimate(browser: Page, busy: Product) -> None:
    busy.run("submit", "sweep", "--array", "1-3", "--cpu", "1", "--simulate", "1s")
    for number in range(1, 4):
        busy.run("wait", f"sweep-{number}", "--for", "succeeded")
    busy.run("submit", "sweep-4", "--cpu", "1", "--simulate", "1h")
    browser.open(busy.new_login("#work=default/sweep-4"))
    browser.see(".detail .facts div", "Earlier runs")
    facts = browser.evaluate("[...document.querySelectorAll('.detail .facts div')].map((fact) => fact.innerText)")
    (earlier,) = [fact for fact in facts if fact.startswith("Earlier runs")]
    assert "up to" in earlier


def test_need_and_have_are_as_exact_as_the_sentence(browser: Page, busy: Product) -> None:
    """Nine times 0.889 of a GPU are a thousandth more than eight."""
    (busy.home / "small.yaml").write_text(SMALL)
    busy.run("apply", "-f", "small.yaml")
    busy.run("submit", "just-over", "--pods", "9", "--fraction", "0.889", "-q", "small", "--simulate", "1h")
    browser.open(busy.new_login("#work=default/just-over"))
    browser.see(".detail .obstacles li", "8.001 GPUs")
    numbers = browser.evaluate("[...document.querySelectorAll('.detail .need-have')].map((each) => each.innerText)")
    assert any("8.001 GPUs" in each and "8 GPUs" in each.splitlines() for each in numbers), numbers
