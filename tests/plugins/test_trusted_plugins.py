"""Plugins inside the scheduler, which an administrator trusts: what one changes by mistake does not spread."""

import asyncio
import sys
import threading
import time
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.workload import Workload
from kaiwo.plugins import Metric
from kaiwo.plugins.guarded_calls import MAX_ORDER
from kaiwo.plugins.registry import Ordering
from kaiwo.runtime.edge_points.edge_calls import EdgeCalls
from tests.plugins.sites import CODE, Site
from tests.plugins.test_plugin_set import place

STRICT = CODE.replace("class Favourite", "np.seterr(all='raise')\nclass Favourite").replace(
    "        return", "        np.seterr(all='raise')\n        return"
)


def test_how_it_sets_up_numpy_is_not_how_the_scheduler_computes(site: Site) -> None:
    before = np.geterr()
    site.plugin("favourite", STRICT)
    plugins = site.allow("favourite", run="trusted").load()
    assert plugins.status("favourite").state == "active", plugins.status("favourite").detail
    assert np.geterr() == before
    place(plugins)
    assert np.geterr() == before


def test_two_of_them_with_one_package_do_not_get_each_others_modules(site: Site) -> None:
    """The second would take the first one's modules away, which then imports the second's."""
    for name in ("rules-a", "rules-b"):
        folder = Path(site.plugin(name))
        (package,) = (each for each in folder.iterdir() if each.is_dir())
        manifest = package / "kaiwo-plugin.toml"
        manifest.write_text(manifest.read_text().replace(package.name, "same_rules"))
        package.rename(folder / "same_rules")
        site.allow(name, run="trusted")
    plugins = site.load()
    states = {name: plugins.status(name).state for name in ("rules-a", "rules-b")}
    assert states == {"rules-a": "active", "rules-b": "refused"}
    assert "another" in plugins.status("rules-b").detail
    assert sys.modules["same_rules"].__file__ is not None
    assert "rules-a-" in sys.modules["same_rules"].__file__


def test_a_module_below_some_folder_called_plugins_is_not_taken_for_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = types.ModuleType("favourite")
    theirs.__file__ = "/opt/plugins/venv/lib/favourite.py"
    monkeypatch.setitem(sys.modules, "favourite", theirs)
    site.plugin("favourite")
    plugins = site.allow("favourite", run="trusted").load()
    assert plugins.status("favourite").state == "refused"
    assert "has the name of another module" in plugins.status("favourite").detail
    assert sys.modules["favourite"] is theirs


class Sly(int):
    """Its own code would run whenever the scheduler compares two workloads."""


@pytest.mark.parametrize("key", [(Sly(1),), (1,) * (MAX_ORDER + 1), [1], (1.0,)])
def test_the_key_of_a_workload_is_a_few_plain_integers(key: object) -> None:
    class Orders:
        name, version = "orders", "1"

        def workload_order(self, workload: object, policy: object) -> object:
            return key

    keys, faults = Ordering((Orders(),), DEFAULT_POLICY)(Workload("a/b", ()))  # type: ignore[arg-type]
    assert [each.plugin for each in faults] == ["orders"]
    assert len(keys[0]) == 1
    assert type(keys[0][0]) is int


def test_one_at_the_edge_that_never_comes_back_is_set_aside_and_lets_kaiwo_end() -> None:
    """It takes no thread from others, however often it hangs, and nobody waits for it at the end."""
    comes_back = threading.Event()

    class Hangs:
        name, version = "hangs", "1"

        def metrics(self, sample: object) -> object:
            comes_back.wait(60)
            return []

    class Plugins:
        aside: ClassVar[list[tuple[str, str]]] = []

        def active_at(self, point: str) -> list[Any]:
            return [hangs]

        def add_cost(self, name: str, took_us: int) -> None: ...

        def set_aside(self, faults: Sequence[tuple[str, str]]) -> None:
            self.aside.extend(faults)

    async def ask(question: Any) -> Any:
        return question(None)

    async def story() -> None:
        calls = EdgeCalls(Plugins(), ask)  # type: ignore[arg-type]
        calls.late_s = 0.05
        for _ in range(40):
            assert await calls.call(hangs, "metrics", list[Metric], None) is None  # type: ignore[arg-type]
        assert await asyncio.to_thread(lambda: 7) == 7

    hangs, began_s = Hangs(), time.monotonic()
    try:
        asyncio.run(story())
        assert time.monotonic() - began_s < 50, "somebody waited for it"
    finally:
        comes_back.set()
    assert Plugins.aside == [("hangs", "metrics: did not answer within 0.05 s")] * 40
