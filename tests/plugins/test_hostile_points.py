"""Every point inside a cycle has plugins that misbehave there: each is set aside by name, and costs no decision."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from kaiwo.decide import decide
from kaiwo.model.plan import encode_plan
from kaiwo.model.policy import Policy
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.registry import POINTS, Registry
from kaiwo.runtime.plugin_worker.confined_plugin import ConfinedPlugin
from kaiwo.runtime.plugin_worker.messages import Load
from kaiwo.runtime.plugin_worker.worker_process import WorkerProcess
from tests.plugins.strangers import hostile_points
from tests.worlds import World

DEADLINE_MS = 500  # a busy machine must not look like a plugin that hangs
RACK = "example.com/rack"
FOLDER = str(Path(hostile_points.__file__).parent)


def plain(world: World, name: str) -> None:
    """Work of two queues, in several shapes."""
    for at in range(6):
        queue = ("lab", "team")[at % 2]
        world.submit(f"w{at}", gpus_each=1 + at % 3, cpu_milli=1_000 + at, queue=queue, submitted_s=at + 1)


def full(world: World, name: str) -> None:
    """Nothing starts unless running work is stopped."""
    world.submit("old", pods=32, gpus_each=1, priority=-10)
    world.plugins = registry_with(name)
    world.settle()
    world.submit("urgent", gpus_each=8, priority=100)


def gang(world: World, name: str) -> None:
    """Work that needs a domain of the network."""
    world.submit("gang", pods=2, gpus_each=8, required_level=RACK, placement_strategy=f"plugin:{name}")
    world.submit("single", gpus_each=1)


STORIES: dict[str, Callable[[World, str], None]] = {
    "victim_filter": full, "domain_rule": gang, "placement_strategy": gang,
}  # fmt: skip


def registry_with(name: str, *plugins: ConfinedPlugin) -> Registry:
    """An administrator allowed it, so a policy may name it also while it takes no part."""
    registry = builtin_registry()
    registry.expect([name])
    for plugin in plugins:
        registry.add(plugin)
    return registry


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", hostile_points.KINDS)
def test_a_hostile_plugin_inside_a_cycle_is_set_aside_by_name(kind: str) -> None:
    hostile = hostile_points.KINDS[kind]
    name, point = hostile.name, hostile.point
    policy = Policy(gpu_strategy=name) if point == "allocation" else Policy()
    world = World(nodes=0, policy=policy).queue("lab").queue("team")
    for at in range(4):
        world.node(f"node-{at}", labels={RACK: f"r{at // 2}"})
    STORIES.get(point, plain)(world, name)
    without = decide(world.snapshot(), policy, registry_with(name))
    worker = WorkerProcess(Load(name, FOLDER, f"hostile_points:{kind}"), DEADLINE_MS)
    try:
        plan = decide(world.snapshot(), policy, registry_with(name, ConfinedPlugin(name, "1", worker)))
    finally:
        worker.close()
    notes = [note for note in plan.notes if note.code == "plugin-set-aside"]
    assert [note.subject for note in notes] == [name]
    assert re.search(hostile.words, notes[0].detail), notes[0].detail
    assert encode_plan(replace(plan, notes=(), rules="")) == encode_plan(replace(without, notes=(), rules=""))
    assert plan.starts or plan.evictions


def test_every_point_inside_a_cycle_has_a_hostile_plugin() -> None:
    # `workload_order` is asked before cycles, and `replica_strategy` when work arrives: see the tests of those.
    elsewhere = {"workload_order", "replica_strategy"}
    assert {each.point for each in hostile_points.KINDS.values()} == set(POINTS) - elsewhere
