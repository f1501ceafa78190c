"""Plugins that misbehave during a live stream of work: each is set aside by name, and no decision is lost."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kaiwo.decide import decide
from kaiwo.model.plan import Plan, encode_plan
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.plugins.registry import Registry
from kaiwo.runtime.plugin_worker import worker_process
from kaiwo.runtime.plugin_worker.confined_plugin import ConfinedPlugin
from kaiwo.runtime.plugin_worker.messages import Load
from kaiwo.runtime.plugin_worker.worker_process import WorkerProcess
from tests.plugins.strangers import hostile
from tests.worlds import World

DEADLINE_MS = 500  # a busy machine must not look like a plugin that hangs
CYCLES, EACH = 6, 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The staged files of a plugin, beside something that it must not read."""
    staged = tmp_path / "plugin"
    staged.mkdir()
    (staged / "hostile.py").write_text(Path(hostile.__file__).read_text())
    (tmp_path / "signing.key").write_text("secret")
    return staged


def start(name: str, folder: Path, faults: list[tuple[str, str]]) -> ConfinedPlugin:
    load = Load(name, str(folder), f"hostile:{name}")
    worker = WorkerProcess(load, DEADLINE_MS, lambda detail: faults.append((name, detail)))
    return ConfinedPlugin(name, "1", worker)


def with_plugin(plugin: ConfinedPlugin) -> Registry:
    registry = builtin_registry()
    registry.add(plugin)
    return registry


def stream(world: World, registry: Registry) -> Iterator[tuple[Plan, Plan, float]]:
    """New work arrives before every cycle. Each plan comes with the plan without the plugin, and how long it took."""
    for number in range(CYCLES):
        world.now_s += 1
        world.node("node-7", labels={"cycle": str(number)})  # something to tell the worker
        for at in range(EACH):
            world.submit(f"w{number}-{at}", gpus_each=1 + at, submitted_s=world.now_s)
        snapshot = world.snapshot()
        began = time.monotonic()
        plan = decide(snapshot, DEFAULT_POLICY, registry)
        took_s = time.monotonic() - began
        yield plan, decide(snapshot, DEFAULT_POLICY, builtin_registry()), took_s
        world.after(plan)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", hostile.KINDS)
def test_a_hostile_plugin_is_set_aside_by_name_and_costs_no_decision(name: str, folder: Path) -> None:
    faults: list[tuple[str, str]] = []
    plugin = start(name, folder, faults)
    registry, world, reports = with_plugin(plugin), World(nodes=8), []
    try:
        for plan, without, took_s in stream(world, registry):
            notes = [note for note in plan.notes if note.code == "plugin-set-aside"]
            if notes:
                reports += notes
                assert encode_plan(replace(plan, notes=(), rules="")) == encode_plan(replace(without, rules=""))
                registry.remove(name)
            assert len(plan.starts) == EACH, "a decision was lost"
            assert took_s < (1 + worker_process.MAX_LATE) * DEADLINE_MS / 1000 + 5
    finally:
        plugin.worker.close()
    assert [note.subject for note in reports] == [name]
    assert re.search(hostile.KINDS[name].words, reports[0].detail), reports[0].detail
    assert len(world.state.pods) == CYCLES * EACH
    assert plugin.worker._process.returncode is not None, "the worker still runs"
    assert not os.path.exists("/tmp/kaiwo-plugin-was-here")


def test_there_are_many_kinds_of_misbehaviour() -> None:
    assert len(hostile.KINDS) >= 80


def test_a_stopped_plugin_answers_no_more_and_says_why(folder: Path) -> None:
    faults: list[tuple[str, str]] = []
    plugin = start("exits", folder, faults)
    registry = with_plugin(plugin)
    for _ in stream(World(nodes=8), registry):
        pass
    assert [name for name, _ in faults] == ["exits"]
    with pytest.raises(PluginFaultError, match="ended its process with status 7"):
        plugin.worker.check()


def test_a_worker_that_waits_for_a_processor_gets_more_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says that it was ready to run all the time; the plugin itself sleeps for two seconds."""
    waited = iter(range(0, 10**15, 10**12))
    monkeypatch.setattr(worker_process, "run_delay_ns", lambda pid: next(waited))
    monkeypatch.setattr(worker_process, "MAX_LATE", 100)
    plugin = start("answers_after_the_deadline", folder, [])
    registry = with_plugin(plugin)
    notes = [note for plan, _, _ in stream(World(nodes=8), registry) for note in plan.notes]
    plugin.worker.close()
    assert notes == []


def test_a_worker_that_never_gets_a_processor_is_stopped_in_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = iter(range(0, 10**15, 10**12))
    monkeypatch.setattr(worker_process, "run_delay_ns", lambda pid: next(waited))
    monkeypatch.setattr(worker_process, "MAX_LATE", 1)
    plugin = start("sleeps", folder, [])
    registry = with_plugin(plugin)
    notes = [note.subject for plan, _, _ in stream(World(nodes=8), registry) for note in plan.notes]
    plugin.worker.close()
    assert set(notes) == {"sleeps"}


def test_the_kernel_says_how_long_a_process_waited() -> None:
    assert worker_process.run_delay_ns(os.getpid()) >= 0
    assert worker_process.run_delay_ns(2**22 + 1) == 0
