"""The page comes up fast, outlives its server and its login, and teaches when there is nothing to show."""

import time
from pathlib import Path

import pytest

from tests.browser.driver import Page
from tests.browser.product import Product
from tests.waiting import is_in_time

pytestmark = pytest.mark.browser


@pytest.mark.serial
def test_a_living_cluster_is_visible_five_seconds_after_the_start(browser: Page, tmp_path: Path) -> None:
    product = Product(tmp_path, "--demo")
    began = product.start()
    try:
        browser.open(product.new_login())
        browser.see(".work-table .state.running")
        browser.see("canvas")
        took_s = time.monotonic() - began
        assert is_in_time(took_s, 5), f"it took {took_s:.1f} s"
    finally:
        product.stop()


def test_the_page_outlives_its_server_and_a_restart_asks_for_a_new_login(browser: Page, tmp_path: Path) -> None:
    product = Product(tmp_path, "--demo")
    product.start()
    try:
        browser.open(product.new_login())
        browser.see(".work-table tbody tr")
        browser.see(".line.live")
        browser.evaluate("window.stillTheSamePage = true")
        product.kill()
        browser.see(".line.reconnecting")
        assert browser.count(".work-table tbody tr") > 0, "what was known stays on the screen"
        product.start()
        browser.see(".login", "Your login has ended")
        browser.see(".login", "kaiwo login")
        assert browser.evaluate("window.stillTheSamePage") is True
        browser.open_beside(product.new_login())
        browser.see(".line.live")
        product.run("submit", "after-the-fall", "--fraction", "0.1", "--simulate", "10m")
        browser.look_at(0)
        browser.see(".work-table tr", "after-the-fall")
        assert browser.evaluate("window.stillTheSamePage") is True, "the other window's login is this one's, too"
    finally:
        product.stop()


def test_several_windows_are_all_up_to_date(browser: Page, product: Product) -> None:
    """A browser opens six connections to one host in all, and a window that streams takes four."""
    browser.open(product.new_login())
    browser.see(".work-table tbody tr")
    for _ in range(2):
        browser.open_beside(product.url)
        browser.see(".work-table tbody tr")
    product.run("submit", "seen-everywhere", "--pods", "40", "--gpus", "8", "--simulate", "10m")
    for window in range(3):
        browser.look_at(window)
        browser.see(".work-table tr", "seen-everywhere")
    browser.look_at(0)
    browser.close_window()
    product.run("submit", "seen-by-the-rest", "--pods", "40", "--gpus", "8", "--simulate", "10m")
    for window in range(2):
        browser.look_at(window)
        browser.see(".work-table tr", "seen-by-the-rest")
        browser.see(".line.live")
    assert browser.errors() == []


def test_an_empty_cluster_teaches_how_to_submit(browser: Page, tmp_path: Path) -> None:
    product = Product(tmp_path)
    product.start()
    try:
        browser.open(product.new_login())
        browser.see(".teach", "No work yet")
        browser.see(".teach code", "kaiwo submit")
        words = browser.text(".teach code").split()
        product.run(*words[1:])  # the line it teaches works
        browser.see(".work-table tr", "hello")
        product.run("cancel", "hello")
        browser.miss(".work-table tr", "hello")
        assert browser.errors() == []
    finally:
        product.stop()
