"""The public contract is small and pinned, and every pure point of it is used by a built-in plugin."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import kaiwo.plugins
import kaiwo.plugins.testing
from kaiwo.decide import decide
from kaiwo.model.errors import PluginError
from kaiwo.model.network.topology_source import SourceKind, TopologySource
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.workload import Pod
from kaiwo.plugins import BoolArray, Gpu, IntArray, Node, Request, VictimTable, View
from kaiwo.plugins import registry as registry_module
from kaiwo.plugins.builtin import SWITCHED, builtin_registry
from kaiwo.plugins.registry import EDGE_POINTS, POINTS, Registry, check_plugin
from kaiwo.plugins.testing import Share, all_nodes, all_queues, view_of
from kaiwo.runtime.plugin_worker import messages
from kaiwo.runtime.topology.read_source import own_source
from tests.worlds import World

PUBLIC = [
    "ALLOWED",
    "CPU",
    "EXTENDED",
    "FREE_GPU",
    "MEMORY",
    "MIB",
    "MILLI",
    "PODS",
    "SIZE",
    "TOP_SCORE",
    "USABLE",
    "BoolArray",
    "Domain",
    "DomainTable",
    "Gpu",
    "IntArray",
    "Metric",
    "MonitoringSample",
    "Node",
    "Notice",
    "StartPlacement",
    "PodPlace",
    "Policy",
    "Queue",
    "QueueSample",
    "Reason",
    "ReplicaNeed",
    "Request",
    "ResourceAmounts",
    "Rows",
    "Topology",
    "TopologyLevel",
    "Verdict",
    "VictimTable",
    "View",
    "Workload",
]


def test_the_public_names_are_these() -> None:
    assert sorted(kaiwo.plugins.__all__) == sorted(PUBLIC)
    assert all(hasattr(kaiwo.plugins, name) for name in PUBLIC)
    assert sorted(kaiwo.plugins.testing.__all__) == [
        "Pod", "QueueAmounts", "Role", "Share", "all_nodes", "all_queues", "view_of",
    ]  # fmt: skip


def test_the_optional_methods_are_these() -> None:
    """A confined plugin's `is_silent` is not asked: see `test_answers_end_with_cycles`."""
    assert sorted(registry_module._OPTIONAL) == ["applies", "gpu_applies", "is_silent", "queue_order_of", "unreserve"]
    assert sorted(messages.OPTIONAL) == ["applies", "gpu_applies", "unreserve"]


def test_every_pure_point_is_used_by_a_built_in_plugin() -> None:
    registry = builtin_registry()
    used = {point for plugin in registry.plugins for point in check_plugin(plugin)}
    assert used == set(POINTS)


def test_every_point_at_the_edge_is_used_by_a_built_in_plugin() -> None:
    switched = {point for plugin in SWITCHED for point in check_plugin(plugin())}
    source = own_source(TopologySource(SourceKind.PRESET, "net", keys=("kaiwo",)))
    assert source is not None
    assert switched | check_plugin(source) == set(EDGE_POINTS)


def test_a_view_for_tests_holds_what_pods_hold_and_cannot_be_written() -> None:
    view = view_of([Node("b", cpu_milli=4_000), Node("a", cpu_milli=8_000)], pods=[Pod("x/y", "p-0", "a", cpu_milli=1)])
    assert list(view.nodes.names) == ["a", "b"]
    assert view.free[:, kaiwo.plugins.CPU].tolist() == [7_999, 4_000]
    assert all_nodes(view).tolist() == [0, 1]
    assert all_queues(view).tolist() == [0]
    with pytest.raises(ValueError, match="read-only"):
        view.free[0, 0] = 1


class LastDevice:
    """Prefer the device with the highest position."""

    name, version, weight = "last-device", "1", 1

    def gpu_score(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        return 100 * columns


class TooMuch(LastDevice):
    name = "too-much"

    def gpu_score(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        return columns + 1000


class Nowhere(LastDevice):
    name = "nowhere"

    def gpu_applies(self, view: View, want: Request) -> bool:
        return want.gpus > 1


def devices(*plugins: object, gpus: int = 1, policy: Policy = DEFAULT_POLICY) -> list[str]:
    world = World(nodes=1, policy=policy, plugins=registry(*plugins)).submit("a", gpus_each=gpus)
    plan = decide(world.snapshot(), policy, world.plugins)
    return [share.gpu for start in plan.starts for share in start.devices]


def registry(*plugins: object) -> Registry:
    found = builtin_registry()
    for plugin in plugins:
        found.add(plugin)  # type: ignore[arg-type]
    return found


def test_a_device_score_comes_before_the_allocation_strategy() -> None:
    first_fit = Policy(gpu_strategy="first-fit")
    assert devices(policy=first_fit) == ["gpu-0"]
    assert devices(LastDevice(), policy=first_fit) == ["gpu-7"]
    assert devices(LastDevice(), policy=replace(first_fit, score_weights={"last-device": 0})) == ["gpu-0"]


def test_a_device_score_is_asked_only_where_it_applies() -> None:
    assert devices(Nowhere()) == devices()
    assert devices(Nowhere(), gpus=2) == ["gpu-7", "gpu-6"]


class LastNode:
    """Prefer the node with the last name, unless it has nothing to say."""

    name, version, weight = "last-node", "1", 1_000

    def __init__(self, is_silent: bool) -> None:
        self._is_silent, self.asked, self.scored = is_silent, 0, 0

    def is_silent(self, view: View, want: Request) -> bool:
        self.asked += 1
        return self._is_silent

    def score(self, view: View, want: Request, nodes: IntArray) -> IntArray:
        self.scored += 1
        return np.asarray(nodes, np.int64)


@pytest.mark.parametrize("answer", ["yes", None])
def test_who_says_nonsense_about_its_silence_is_set_aside(answer: Any) -> None:
    plugin = LastNode(answer)
    world = World(nodes=3, plugins=registry(plugin)).submit("one", gpus_each=1)
    plan = decide(world.snapshot(), plugins=world.plugins)
    assert [note.subject for note in plan.notes] == ["last-node"]
    assert [start.node for start in plan.starts] == ["node-0"]


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_score_is_asked_once_in_a_cycle_whether_it_is_silent(is_silent: bool) -> None:
    plugin = LastNode(is_silent)
    world = World(nodes=3, plugins=registry(plugin))
    for number in range(24):
        world.submit(f"w{number}", gpus_each=1, priority=number % 2)
    plan = decide(world.snapshot(), plugins=world.plugins)
    assert {start.node for start in plan.starts[:1]} == {"node-0" if is_silent else "node-2"}
    assert (plugin.asked, bool(plugin.scored)) == (1, not is_silent)


def test_a_device_score_outside_its_range_is_set_aside() -> None:
    world = World(nodes=1).submit("a", gpus_each=1)
    plan = decide(world.snapshot(), plugins=registry(TooMuch()))
    assert [(note.code, note.subject) for note in plan.notes] == [("plugin-set-aside", "too-much")]
    assert plan.starts == decide(world.snapshot()).starts


def test_a_device_score_needs_a_weight() -> None:
    plugin = LastDevice()
    plugin.weight = "heavy"  # type: ignore[assignment]
    with pytest.raises(PluginError, match="`weight` of plugin 'last-device' is 'heavy'"):
        check_plugin(plugin)


def full(policy: Policy = DEFAULT_POLICY, plugins: Registry | None = None, **victim: int) -> World:
    """One node, filled by work of low priority, and more important work that waits."""
    world = World(nodes=1, gpus_per_node=2, policy=policy, plugins=plugins or builtin_registry())
    world.submit("old", gpus_each=2, **victim)
    world.settle()
    world.now_s = 100
    return world.submit("urgent", gpus_each=2, priority=10)


def evicted(world: World) -> list[str]:
    return [each.workload for each in decide(world.snapshot(), world.policy, world.plugins).evictions]


@pytest.mark.parametrize(("left_s", "is_spared"), [(60, True), (61, False), (1, True), (0, False), (-5, False)])
def test_work_that_ends_within_the_time_of_the_policy_is_spared(left_s: int, is_spared: bool) -> None:
    policy = Policy(spare_ending_s=60)
    assert evicted(full(policy, estimate_s=100 + left_s)) == ([] if is_spared else ["default/old"])


def test_without_the_policy_or_an_estimate_nothing_is_spared() -> None:
    assert evicted(full(estimate_s=101)) == ["default/old"]
    assert evicted(full(Policy(spare_ending_s=60))) == ["default/old"]


class KeepsAll:
    name, version = "keeps-all", "1"

    def victim_filter(self, view: View, victims: VictimTable, policy: Policy) -> BoolArray:
        assert len(victims) == len(victims.priority)
        return np.zeros(len(victims), np.bool_)


class WritesToVictims(KeepsAll):
    name = "writes-to-victims"

    def victim_filter(self, view: View, victims: VictimTable, policy: Policy) -> BoolArray:
        victims.priority[:] = 99
        return np.zeros(len(victims), np.bool_)


def test_a_victim_filter_can_protect_all_running_work() -> None:
    assert evicted(full(plugins=registry(KeepsAll()))) == []


def test_a_victim_filter_that_writes_is_set_aside_and_protects_nothing() -> None:
    world = full(plugins=registry(WritesToVictims()))
    plan = decide(world.snapshot(), world.policy, world.plugins)
    assert [(note.code, note.subject) for note in plan.notes] == [("plugin-set-aside", "writes-to-victims")]
    assert [each.workload for each in plan.evictions] == ["default/old"]


class KeepsSurplus(KeepsAll):
    name = "keeps-surplus"

    def victim_filter(self, view: View, victims: VictimTable, policy: Policy) -> BoolArray:
        return ~victims.is_surplus


def test_needed_pods_never_stop_before_a_spared_surplus() -> None:
    world = World(nodes=1, gpus_per_node=4, plugins=registry(KeepsSurplus()))
    world.submit("elastic", pods=4, gpus_each=1, minimum=2)
    world.settle()
    world.submit("urgent", gpus_each=4, priority=10)
    assert evicted(world) == []
    world.plugins.remove("keeps-surplus")
    assert set(evicted(world)) == {"default/elastic"}


GPUS = (Gpu("gpu-0", "MI300X", 196_608), Gpu("gpu-1", "MI300X", 196_608))


@pytest.mark.parametrize(
    ("where", "held", "words"),
    [
        ("a", (0, 1), r"pod 'main-0' of 'lab/train' holds 0; write each device as a Share"),
        ("a", (Share("gpu-2", 1_000, 196_608),), r"holds 'gpu-2'; 'a' has no GPU with this id"),
        ("b", (), r"runs on 'b'; there is no such node"),
    ],
)
def test_view_of_refuses_pods_that_hold_what_no_node_has(where: str, held: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        view_of([Node("a", gpus=GPUS)], pods=[Pod("lab/train", "main-0", where, devices=held)])
