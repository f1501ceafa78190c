"""Plugins come, go and change their settings while work arrives and ends: all of it starts, and every cycle replays."""

import asyncio
import random
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from kaiwo.history.journal_reader import JournalReader
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.registry import Registry
from kaiwo.runtime.loop.replay import _cycles, _decide_again
from kaiwo.runtime.plugin_worker.plugin_object import configured
from kaiwo.runtime.plugin_worker.plugin_set import PluginSet
from tests.plugins.sites import Running, Site, node, running

NODES, WAVES, EACH = 4, 20, 3
CHANGES = {"trusted": 100, "confined": 10}  # a confined one starts a process each time
SCORE = """
import msgspec
import numpy as np
class Config(msgspec.Struct, forbid_unknown_fields=True):
    best: int = 0
class Favourite:
    name, version, weight = "{name}", "1.0", 5_000
    Config = Config
    def __init__(self, config=Config()):
        self.config = config
    def score(self, view, want, nodes):
        return np.array([1000 * (row == self.config.best) for row in nodes.tolist()])
"""
FILTER = """
import numpy as np
from kaiwo.plugins import Reason
class Favourite:
    name, version, reason, is_static = "{name}", "1.0", Reason.PLUGIN, False
    def filter(self, view, want, nodes):
        return nodes != view.now_s % 4
"""
ORDER = """
class Favourite:
    name, version = "{name}", "1.0"
    def workload_order(self, workload, policy):
        return (-len(workload.name),)
    def queue_order(self, view, queues, next_need, next_since_s):
        return -next_since_s
"""
PERMIT = """
from kaiwo.plugins import ALLOWED, Verdict
class Favourite:
    name, version = "{name}", "1.0"
    calls = 0
    def permit(self, placements, now_s):
        self.calls += 1
        return [Verdict("not in this second", 1) if self.calls % 3 == 0 else ALLOWED for _ in placements]
"""
CODES = {
    "best": (SCORE, '["score"]'), "not-now": (FILTER, '["filter"]'),
    "longest": (ORDER, '["workload_order", "queue_order"]'), "gate": (PERMIT, '["permit"]'),
}  # fmt: skip


class Change(NamedTuple):
    kind: str
    name: str
    state: str  # of the plugin, afterwards


class Operator:
    """An administrator who never rests."""

    def __init__(self, site: Site, plugins: PluginSet, run: str) -> None:
        self.site, self.plugins, self.run, self.dice = site, plugins, run, random.Random(7)
        self.changes: list[Change] = []
        self.configs: dict[tuple[str, str], dict[str, Any]] = {}  # by name and version of what took part

    def note_versions(self) -> None:
        for name in CODES:
            entry = self.plugins._entries[name]
            if entry.plugin is not None and entry.setting is not None:
                self.configs[name, entry.plugin.version] = entry.setting.config

    async def work(self, kaiwo: Running, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            name = self.dice.choice(list(CODES))
            kind = self.dice.choice(("enable", "enable", "disable", "reload", "configure", "rewrite"))
            if kind == "rewrite":
                code, kinds = CODES[name]
                self.site.plugin(name, f"{code}\n# {len(self.changes)}\n", kinds=kinds)
            if kind in ("rewrite", "configure"):
                config = {"best": self.dice.randrange(1, NODES)} if name == "best" else {}
                self.site.allow(name, run=self.run, deadlineMs=5_000, config=config)
            act = {"enable": self.plugins.enable, "disable": self.plugins.disable}.get(kind, self.plugins.reload)
            status = await act(name, kaiwo.loop.ask)
            kaiwo.cluster.advance(1)  # also for what a plugin refused for a second
            self.changes.append(Change(kind, name, status.state))
            self.note_versions()


async def stream(site: Site, run: str) -> Operator:
    plugins = site.load()
    operator = Operator(site, plugins, run)
    operator.note_versions()
    names = [f"w{at}{'x' * (at % 5)}" for at in range(WAVES * EACH)]
    seen: set[str] = set()

    def has_started(*wanted: str) -> bool:
        seen.update(name.partition("/")[2] for name, pods in kaiwo.loop.state.pods.items() if pods)
        return seen.issuperset(wanted)

    async with running(plugins, site.home, [node(f"node-{at}", gpus=8) for at in range(NODES)]) as kaiwo:
        is_over = asyncio.Event()
        operating = asyncio.create_task(operator.work(kaiwo, is_over))
        for at in range(0, len(names), EACH):
            await kaiwo.submit(*names[at : at + EACH], gpus=2)
            made = (at // EACH + 1) * CHANGES[run] // WAVES
            await kaiwo.until(lambda made=made: operating.done() or len(operator.changes) >= made)
            before, last = max(0, at - 2 * EACH), max(0, at - EACH)
            await kaiwo.until(lambda last=last: operating.done() or has_started(*names[:last]))
            await kaiwo.cluster.work.remove((), [f"default/{name}" for name in names[before:last]])
        await kaiwo.until(lambda: operating.done() or has_started(*names))
        is_over.set()
        await operating
        assert kaiwo.loop.health.failures == 0
        assert {status.faults for status in plugins.statuses()} == {0}
    return operator


def made(name: str, version: str, config: dict[str, Any]) -> Any:
    """The same plugin in this process."""
    module: dict[str, Any] = {"__name__": name}
    exec(CODES[name][0].replace("{name}", name), module)
    plugin = configured(module["Favourite"], config)
    plugin.version = version
    return plugin


def registry_of(versions: Iterable[tuple[str, str]], operator: Operator) -> Registry:
    own = builtin_registry()
    taking_part = [made(*each, operator.configs[each]) for each in versions if each[0] in CODES]
    own.replace_all([*taking_part, *own.plugins])
    return own


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("run", CHANGES)
def test_no_decision_is_lost_while_plugins_come_go_and_change(run: str, site: Site) -> None:
    for name, (code, kinds) in CODES.items():
        site.plugin(name, code, kinds=kinds)
        site.allow(name, run=run, deadlineMs=5_000, config={"best": 3} if name == "best" else {})
    operator = asyncio.run(stream(site, run))
    if run == "trusted":
        assert {each.kind for each in operator.changes} == {"enable", "disable", "reload", "configure", "rewrite"}
    versions: set[tuple[tuple[str, str], ...]] = set()
    everything = registry_of(sorted({name: (name, version) for name, version in operator.configs}.values()), operator)
    reader = JournalReader(site.home / "journal")
    kept = (each for end in reader.last_of_segments() for each in _cycles(reader.entries_until(end), everything))
    for state, cycle, entries in kept:
        found = _decide_again(state, cycle, entries, registry_of(cycle.setting.plugins, operator))
        assert found.is_same, (found.head.number, found.differences, cycle.setting.plugins)
        versions.add(tuple(each for each in cycle.setting.plugins if each[0] in CODES))
    assert len(versions) >= 4, "the cycles had about the same plugins"
