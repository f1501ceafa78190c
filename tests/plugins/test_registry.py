"""Plugins are registered in one place, and one that misbehaves is set aside."""

import numpy as np
import pytest

from kaiwo.decide import decide
from kaiwo.model.errors import PluginError
from kaiwo.model.obstacle import Reason
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.cluster_state import ClusterState
from tests.worlds import World


class PreferTheLastNode:
    """A stranger's score."""

    name, version, weight = "prefer-the-last-node", "1.0", 10_000

    def score(self, view, want, nodes):  # type: ignore[no-untyped-def]
        return 1000 * nodes // max(1, len(view.nodes.names) - 1)


class OnlyOddNodes:
    """A stranger's filter."""

    name, version, reason, is_static = "only-odd-nodes", "1.0", Reason.PLUGIN, True

    def filter(self, view, want, nodes):  # type: ignore[no-untyped-def]
        return nodes % 2 == 1


class Raises(PreferTheLastNode):
    name = "raises"

    def score(self, view, want, nodes):  # type: ignore[no-untyped-def]
        raise RuntimeError("boom")


class TooShort(PreferTheLastNode):
    name = "too-short"

    def score(self, view, want, nodes):  # type: ignore[no-untyped-def]
        return np.zeros(len(nodes) + 1, np.int64)


class Floats(PreferTheLastNode):
    name = "floats"

    def score(self, view, want, nodes):  # type: ignore[no-untyped-def]
        return np.ones(len(nodes))


def with_plugins(*plugins: object) -> Registry:
    registry = builtin_registry()
    for plugin in plugins:
        registry.add(plugin)  # type: ignore[arg-type]
    return registry


def test_a_strangers_score_counts() -> None:
    world = World(nodes=3).submit("one", gpus_each=1)
    (start,) = decide(world.snapshot(), plugins=with_plugins(PreferTheLastNode())).starts
    assert start.node == "node-2"


def test_a_strangers_filter_counts_and_is_named_as_the_obstacle() -> None:
    world = World(nodes=3, gpus_per_node=1).submit("a", gpus_each=1).submit("b", gpus_each=1)
    plan = decide(world.snapshot(), plugins=with_plugins(OnlyOddNodes()))
    assert [start.node for start in plan.starts] == ["node-1"]
    assert plan.waits[0].obstacles[0].subject == "only-odd-nodes"


@pytest.mark.parametrize("plugin", [Raises(), TooShort(), Floats()])
def test_a_plugin_that_misbehaves_is_set_aside_and_the_plan_says_so(plugin: PreferTheLastNode) -> None:
    world = World(nodes=3).submit("one", gpus_each=1)
    plan = decide(world.snapshot(), plugins=with_plugins(plugin))
    assert [start.node for start in plan.starts] == ["node-0"]
    assert [(note.code, note.subject) for note in plan.notes] == [("plugin-set-aside", plugin.name)]


def test_a_plugin_can_be_switched_off_and_weighed_by_the_policy() -> None:
    registry = with_plugins(PreferTheLastNode())
    for policy in (
        Policy(disabled_plugins=("prefer-the-last-node",)),
        Policy(score_weights={"prefer-the-last-node": 0}),
    ):
        world = World(nodes=3).submit("one", gpus_each=1)
        assert decide(world.snapshot(), policy, registry).starts[0].node == "node-0"


class RaisesOnBob:
    """A stranger's order."""

    name, version = "raises-on-bob", "1.0"

    def workload_order(self, workload, policy):  # type: ignore[no-untyped-def]
        if workload.name.endswith("bob"):
            raise KeyError("bob")
        return (-len(workload.name),)


def test_an_order_that_raises_puts_the_workload_last_and_the_plan_says_so() -> None:
    registry = with_plugins(RaisesOnBob())
    world = World(gpus_per_node=1)
    world.state, events = ClusterState(registry.ordering(DEFAULT_POLICY)), world.state.events()
    world.tell(*events).submit("bob", gpus_each=1).submit("ann", gpus_each=1).submit("longest", gpus_each=1)
    plan = decide(world.snapshot(), plugins=registry)
    assert [note.subject for note in plan.notes] == ["raises-on-bob"]
    assert [world.state.backlog.position(f"default/{name}") for name in ("longest", "ann", "bob")] == [1, 2, 3]


def test_what_is_no_plugin_is_refused_with_a_sentence() -> None:
    class Nothing:
        name, version = "nothing", "1"

    registry = builtin_registry()
    with pytest.raises(PluginError, match="implements no extension point"):
        registry.add(Nothing())
    with pytest.raises(PluginError, match="give it a `name`"):
        registry.add(object())  # type: ignore[arg-type]
    with pytest.raises(PluginError, match="registered already"):
        with_plugins(PreferTheLastNode(), PreferTheLastNode())
    with pytest.raises(PluginError, match="choose one of: best-fit"):
        registry.active(Policy(gpu_strategy="no-fit"))
    with pytest.raises(PluginError, match="unknown plugins: nobody"):
        registry.active(Policy(disabled_plugins=("nobody",)))
    with pytest.raises(PluginError, match="no plugin 'nobody'"):
        registry.remove("nobody")
