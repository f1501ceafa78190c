"""The day of docs/daily-work.md on the page: submit, ask why, change, be evicted and see by whom, end, run again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.driver import Page
from tests.browser.product import Product
from tests.conftest import ROOT

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def product(browser: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    product = Product(tmp_path_factory.mktemp("day"), "--nodes", "2")
    product.start()
    product.run("apply", "-f", str(ROOT / "examples" / "queue.yaml"))
    yield product
    product.stop()


def submit(page: Page, name: str, queue: str, gpus: int, command: str = "") -> None:
    page.click(".submit button", "Submit …")
    page.fill(".submit-form input[name=name]", name)
    page.choose(".submit-form select[name=queue]", queue)
    page.fill(".submit-form input[name=gpus]", str(gpus))
    page.fill(".submit-form input[name=command]", command)
    page.click(".submit-form button", "Submit")
    page.see(".detail h2", name)


def change(page: Page, **fields: str) -> None:
    page.click(".change-form button", "Change …")
    for name, value in fields.items():
        page.fill(f".change-form input[name={name}]", value)
    page.click(".change-form form button", "Change")


def show(page: Page, name: str) -> None:
    page.click(".work-table button.link", name)
    page.see(".detail h2", name)


def test_a_day_on_the_page(browser: Page, product: Product, tmp_path: Path) -> None:
    page = browser
    page.open(product.new_login(), height=1200)
    page.see(".teach")
    submit(page, "first", "speech", 8)
    page.see(".detail .state.running")
    submit(page, "second", "speech", 8)
    page.see(".detail .state.running")
    submit(page, "train", "speech", 8, "echo training; sleep 600")
    submit(page, "validate", "speech", 8)
    page.see(".detail .state.waiting")
    page.see(".why", "It is number 2 of its queue")

    show(page, "train")
    page.see(".why", "To start it now")
    change(page, priority="40", time="2")
    page.see(".change-form .trouble", "2 has no unit; write 2m for minutes or 2h for hours.")
    page.fill(".change-form input[name=time]", "12h")
    page.click(".change-form form button", "Change")
    page.see(".change-form .confirm", "Change Priority 50 → 40, Time limit none → 12h? It keeps its age.")
    page.screenshot(tmp_path / "confirm.png")
    page.click(".confirm button", "Yes, change it")
    page.see(".change-form .outcome", "priority 50 -> 40, time none -> 12 h")
    page.see(".facts", "40")
    show(page, "validate")
    page.see(".why", "It is number 1 of its queue")

    for name in ("first", "second"):
        show(page, name)
        page.click(".detail .buttons button", "Cancel")
        page.click(".confirm button", "Yes, cancel it")
        page.see(".detail .state.cancelled")
    show(page, "train")
    page.see(".detail .state.running")

    submit(page, "urgent", "robotics", 8)
    page.see(".detail .state.running")
    show(page, "train")
    page.see(".detail .answer", "stopped by the scheduler (reclaim for default/urgent of ")
    page.see(".attempts", ", queue robotics)")
    page.screenshot(tmp_path / "evicted.png")

    show(page, "urgent")
    page.click(".detail .buttons button", "Cancel")
    page.click(".confirm button", "Yes, cancel it")
    show(page, "train")
    page.see(".detail .state.running")
    page.click(".detail .buttons button", "Cancel")
    page.click(".confirm button", "Yes, cancel it")
    page.see(".detail .state.cancelled")
    page.click(".detail .buttons button", "Requeue")
    page.see(".detail .state.running")
    assert page.errors() == []
    assert page.foreign_hosts() == []
