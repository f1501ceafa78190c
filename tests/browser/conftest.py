"""The browser and the product that its tests look at. Both are started once; every test gets a fresh window."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.driver import Page
from tests.browser.product import Product
from tests.conftest import ROOT

NEEDED = {
    ROOT / "src" / "kaiwo" / "api" / "static" / "index.html": "the web page is not built (make ui)",
    ROOT / "ui" / "node_modules" / "playwright-core": "playwright-core is not installed (make ui)",
}


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Page]:
    node = shutil.which("node") or shutil.which("node", path=str(Path(sys.executable).parent))
    if node is None:
        pytest.skip("no Node.js on this machine to drive Chromium with (make ui installs one)")
    for path, reason in NEEDED.items():
        if not path.exists():
            pytest.skip(reason)
    browser = Page(chromium, node)
    browser.open("about:blank")  # Chromium has started when the first test begins
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def product(browser: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The demo, shared by all tests that only look or that touch their own work."""
    product = Product(tmp_path_factory.mktemp("home"), "--demo")
    product.start()
    yield product
    product.stop()


@pytest.fixture
def page(browser: Page, product: Product) -> Iterator[Page]:
    """A fresh window on the product. Nothing may be logged, and nobody else may be asked."""
    browser.open(product.new_login())
    yield browser
    assert browser.errors() == []
    assert browser.foreign_hosts() == []
