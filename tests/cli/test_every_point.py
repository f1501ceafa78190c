"""Every point of plugins in a real `kaiwo up`, confined and trusted: each is asked, and none is set aside."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kaiwo.plugins.registry import ALL_POINTS
from tests.browser.product import Product
from tests.plugins.every_point import POLICY, write_all
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
IN_TOTAL = """
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoQueue
metadata: {name: lab}
spec: {}
---
apiVersion: kaiwo.silogen.ai/v1alpha1
kind: KaiwoJob
metadata: {name: total, annotations: {kaiwo.ai/simulate: 10m}}
spec: {user: ada@example.com, ray: true, gpus: 3, gpuVendor: amd, image: example/finetune, entrypoint: python main.py}
"""


@pytest.fixture(params=["confined", "trusted"])
def product(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Product]:
    file, policy = write_all(tmp_path, request.param), tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    made = Product(tmp_path / "home", "--nodes", "3", "--plugins", str(file), "--policy", str(policy))
    made.start()
    yield made
    made.stop()


def strangers(product: Product) -> dict[str, dict[str, str]]:
    items = json.loads(product.run("plugins", "list", "-o", "json"))["items"]
    return {each["name"]: each for each in items if each["run"] != "built-in"}


def unasked(product: Product) -> list[str]:
    return [name for name, each in strangers(product).items() if not each["calls"]]


@pytest.mark.timeout(600)
def test_every_point_is_asked_in_a_running_kaiwo(product: Product, tmp_path: Path) -> None:
    assert set(strangers(product)) == {point.replace("_", "-") for point in ALL_POINTS}
    product.run("submit", "one", "--gpus", "1", "--simulate", "10m")
    product.run("wait", "one", "--for", "running", "--timeout", "90s")
    wait_until(lambda: "topology-source" in product.run("topology"), "the topology of the plugin")
    on_rack = ("--required-level", "rack", "--placement-strategy", "plugin:placement-strategy")
    product.run("submit", "gang", "--pods", "2", "--gpus", "1", *on_rack, "--simulate", "10m")
    product.run("wait", "gang", "--for", "running", "--timeout", "90s")
    (tmp_path / "total.yaml").write_text(IN_TOTAL)
    product.run("apply", "-f", str(tmp_path / "total.yaml"))
    assert "2 GPUs + 1 GPU" in product.run("get", "workloads", "-o", "wide")  # as the strategy divides three
    for number in range(3):
        product.run("submit", f"full-{number}", "--gpus", "4", "--simulate", "10m")
    product.run("submit", "urgent", "--gpus", "8", "--priority", "90", "--simulate", "10m")  # somebody makes room
    for queue in ("default", "lab"):
        product.run("submit", f"{queue}-waits", "--gpus", "8", "--queue", queue, "--simulate", "10m")
    product.run("cancel", "one")
    wait_until(lambda: not unasked(product), "every point to be asked")
    assert {name: each["state"] for name, each in strangers(product).items() if each["state"] != "active"} == {}
