"""The page shows plugins of others as `kaiwo plugins` does: allowed, refused, set aside, and not allowed at all."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kaiwo.runtime.plugin_worker.plugin_files import plugin_in, read_files
from tests.browser.driver import Page
from tests.browser.product import Product
from tests.waiting import wait_until

pytestmark = pytest.mark.browser
GOOD = """
import numpy as np
class Favourite:
    name, version, weight = "NAME", "1", 10
    def score(self, view, want, nodes):
        return np.zeros(len(nodes), np.int64)
"""
BAD = GOOD.replace("return", "raise RuntimeError('the price list is empty')\n        return")


def write_plugin(folder: Path, name: str, code: str) -> tuple[Path, str]:
    package = folder / name / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code.replace("NAME", name))
    (package / "kaiwo-plugin.toml").write_text(
        f'name = "{name}"\nversion = "1.7"\nkinds = ["score"]\nobject = "{name}:Favourite"\n'
    )
    return package, read_files(plugin_in(str(package))).sha256


@pytest.fixture
def plugins(browser: Page, tmp_path: Path) -> Iterator[Product]:
    good, bad, changed, inside = (
        write_plugin(tmp_path, name, BAD if name == "bad" else GOOD) for name in ("good", "bad", "changed", "inside")
    )
    lines = [
        f"- {{name: good, path: {good[0]}, sha256: {good[1]}}}",
        f"- {{name: bad, path: {bad[0]}, sha256: {bad[1]}}}",
        f"- {{name: changed, path: {changed[0]}, sha256: {'0' * 64}}}",
        f"- {{name: inside, path: {inside[0]}, sha256: {inside[1]}, run: trusted}}",
    ]
    file = tmp_path / "plugins.yaml"
    file.write_text("plugins:\n" + "\n".join(lines))
    made = Product(tmp_path / "home", "--nodes", "2", "--plugins", str(file))
    made.start()
    made.run("submit", "one", "--gpus", "1", "--simulate", "10m")
    made.run("wait", "one", "--for", "running", "--timeout", "90s")
    wait_until(lambda: listed(made)["bad"]["state"] == "set-aside", "the plugin to be set aside")
    yield made
    made.stop()


def listed(product: Product) -> dict[str, dict[str, str]]:
    items = json.loads(product.run("plugins", "list", "-o", "json"))["items"]
    return {each["name"]: each for each in items}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_and_the_command_line_say_the_same_about_plugins(
    browser: Page, plugins: Product, scheme: str, tmp_path: Path
) -> None:
    browser.open(plugins.new_login(), scheme=scheme)
    browser.see(".plugin-table tr", "bad")
    script = "[...document.querySelectorAll('.plugin-table tbody tr')].map(r => [...r.children].map(c => c.innerText))"
    rows = {cells[0].split()[0]: cells for cells in browser.evaluate(script)}
    table = {line.split()[0]: line for line in plugins.run("plugins").splitlines()}
    assert set(rows) == {"good", "bad", "changed", "inside"}
    for name, about in listed(plugins).items():
        if name not in rows:
            continue
        runs = f"{about['run']} ({about['grade']})" if about["grade"] else about["run"]
        for part in (about["version"], about["state"], runs, about["source"]):
            assert any(part in cell for cell in rows[name]), (part, rows[name])
            assert part in table[name], (part, table[name])
        assert about["sha256"][:12] in rows[name][-1]
    assert [rows[name][5] == "never" for name in ("good", "bad")] == [True, False]
    assert "call" in rows["good"][4]
    browser.see(".plugins .trouble", "bad was set aside: raised RuntimeError: the price list is empty")
    browser.see(".plugins .trouble", "changed is not used: its files have the sha256")
    browser.screenshot(tmp_path / f"{scheme}.png", full=True)
    assert browser.errors() == []
