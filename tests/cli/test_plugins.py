"""Plugins of others in a real `kaiwo up`: allowed, used, set aside, switched, audited and replayed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kaiwo.runtime.plugin_worker.plugin_files import plugin_in, read_files
from tests.browser.product import Product
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

FAVOURITE = """
import numpy as np
class Favourite:
    name, version, weight = "favourite", "1", 1000
    def score(self, view, want, nodes):
        while want.cpu_milli == 777:
            pass
        return np.array([1000 * (view.nodes.names[row] == view.nodes.names[-1]) for row in nodes])
"""


def write_plugin(folder: Path, code: str) -> str:
    package = folder / "favourite"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code)
    (package / "kaiwo-plugin.toml").write_text(
        'name = "favourite"\nversion = "1.0"\nkinds = ["score"]\nobject = "favourite:Favourite"\n'
    )
    return read_files(plugin_in(str(folder))).sha256


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    code, file = tmp_path / "code", tmp_path / "plugins.yaml"
    sha256 = write_plugin(code, FAVOURITE)
    file.write_text(f"plugins: [{{name: favourite, path: {code}, sha256: {sha256}, deadlineMs: 500}}]")
    made = Product(tmp_path / "home", "--nodes", "3", "--plugins", str(file))
    made.start()
    yield made
    made.stop()


def favourite(product: Product) -> dict[str, object]:
    found: dict[str, object] = json.loads(product.run("plugins", "info", "favourite", "-o", "json"))
    return found


def node_of(product: Product, name: str) -> str:
    product.run("wait", name, "--for", "running", "--timeout", "90s")
    return product.run("describe", "workload", name)


@pytest.mark.timeout(600)
def test_a_plugin_lives_through_a_day(product: Product, tmp_path: Path) -> None:
    assert favourite(product)["state"] == "active"
    assert favourite(product)["run"] == "confined"
    last = sorted(json.loads(product.run("get", "nodes", "-o", "json"))["items"], key=lambda node: node["name"])[-1]
    product.run("submit", "one", "--gpus", "1", "--", "sleep", "1000")
    assert last["name"] in node_of(product, "one")
    assert int(str(favourite(product)["calls"])) >= 1

    product.run("submit", "slow", "--gpus", "1", "--cpu", "0.777", "--", "sleep", "1000")
    product.run("wait", "slow", "--for", "running", "--timeout", "90s")
    wait_until(lambda: favourite(product)["state"] == "set-aside", "the plugin to be set aside")
    assert favourite(product)["last_fault"] == "did not answer within 500 ms"
    assert "kaiwo_plugin_faults_total" in metrics(product)
    cycles = json.loads(product.run("get", "cycles", "-o", "json"))["items"]
    noted = [each["number"] for each in cycles if "plugin-set-aside" in json.dumps(each)]
    assert noted
    again = product.run("replay", str(noted[0]), "--plugins", str(tmp_path / "plugins.yaml"))
    assert "the same plan, byte for byte" in again

    assert product.run("plugins", "enable", "favourite") == "plugin favourite is active\n"
    assert product.run("plugins", "disable", "favourite", "--reason", "enough") == "plugin favourite is disabled\n"
    assert product.run("plugins", "reload", "favourite") == "plugin favourite is active\n"
    audit = product.run("audit", "-o", "wide")
    assert all(action in audit for action in ("enable-plugin", "disable-plugin", "reload-plugin", "enough"))
    assert "favourite" in product.run("plugins")
    assert "confined" in product.run("plugins", "list", "-o", "wide")


def metrics(product: Product) -> str:
    import urllib.request

    token = (product.home / "token").read_text().strip()
    request = urllib.request.Request(f"{product.url}metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request) as answer:
        return str(answer.read().decode())
