"""A changed policy or plugin takes effect at once."""

import numpy as np
import pytest

from kaiwo.decide import decide
from kaiwo.model.events import NodeChanged, QueueChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node, Taint
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import encode_plan
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request, Toleration
from kaiwo.model.workload import Role, Workload
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.snapshot import StaleSnapshotError
from tests.worlds import World


class No:
    """A filter that keeps everybody out."""

    name, version, reason, is_static = "no", "1", Reason.PLUGIN, True

    def filter(self, view, want, nodes):  # type: ignore[no-untyped-def]
        return np.zeros(len(nodes), np.bool_)


class Breaks:
    """A plugin of many points that raises at each."""

    name, version, weight = "breaks", "1", 1

    def applies(self, want):  # type: ignore[no-untyped-def]
        raise RuntimeError("boom")

    def score(self, view, want, nodes):  # type: ignore[no-untyped-def]
        raise RuntimeError("boom")


class BreaksQuickly:
    """An order of queues whose quick answer raises."""

    name, version = "breaks-quickly", "1"

    def queue_order(self, view, queues):  # type: ignore[no-untyped-def]
        return np.zeros(len(queues), np.int64)

    def queue_order_of(self, view, queue):  # type: ignore[no-untyped-def]
        raise RuntimeError("boom")


class BreaksDevices:
    """An allocation that raises."""

    name, version = "breaks-devices", "1"

    def allocation(self, *arguments):  # type: ignore[no-untyped-def]
        raise RuntimeError("boom")


class Shouts:
    """A score far beyond its range."""

    name, version, weight = "shouts", "1", 1

    def score(self, view, want, nodes):  # type: ignore[no-untyped-def]
        return np.full(len(nodes), 10**12, np.int64)


class RaisesOrder:
    """An order that raises."""

    name, version = "raises-order", "1"

    def workload_order(self, workload, policy):  # type: ignore[no-untyped-def]
        raise RuntimeError("boom")


def registry_with(*plugins):  # type: ignore[no-untyped-def]
    registry = builtin_registry()
    for plugin in plugins:
        registry.add(plugin)
    return registry


def test_work_that_a_plugin_kept_out_is_tried_again_when_the_plugin_is_gone() -> None:
    registry = registry_with(No())
    world = World(plugins=registry).submit("new", gpus_each=1)
    world.settle()
    assert decide(world.snapshot(), Policy(disabled_plugins=("no",)), registry).starts
    registry.remove("no")
    world.settle()
    assert world.is_running("new")


def test_another_budget_is_no_other_rule() -> None:
    world = World(gpus_per_node=1).submit("large", gpus_each=2)
    world.settle()
    assert decide(world.snapshot(), Policy(steps=77)).steps == 0


def test_a_disabled_order_does_not_order() -> None:
    world = World(gpus_per_node=1, policy=Policy(disabled_plugins=("priority-then-age",)))
    world.submit("a", gpus_each=1).submit("z", gpus_each=1, priority=9).decide()
    assert world.is_running("a")


def test_plugins_that_raise_are_set_aside_wherever_they_raise() -> None:
    for plugin, policy in (
        (Breaks(), DEFAULT_POLICY),
        (BreaksQuickly(), DEFAULT_POLICY),
        (BreaksDevices(), Policy(gpu_strategy="breaks-devices")),
        (Shouts(), DEFAULT_POLICY),
    ):
        world = World(policy=policy, plugins=registry_with(plugin)).queue("a").queue("b")
        for queue in "ab":
            world.submit(f"{queue}0", gpus_each=1, queue=queue).submit(f"{queue}1", gpus_each=1, queue=queue)
        plan = world.decide()
        assert len(plan.starts) == 4, plugin.name
        assert [(note.code, note.subject) for note in plan.notes] == [("plugin-set-aside", plugin.name)]


def test_what_an_order_did_wrong_is_told_the_same_in_any_order_of_arrival() -> None:
    plans = []
    for names in ("ab", "ba"):
        registry = registry_with(RaisesOrder())
        state = ClusterState(registry.ordering(DEFAULT_POLICY))
        state.patch([QueueChanged(Queue("default")), NodeChanged(Node("n", 9, 9))])
        state.patch([WorkloadChanged(Workload(f"default/{n}", (Role(Request(cpu_milli=1)),))) for n in names])
        plans.append(encode_plan(decide(state.snapshot(0), plugins=registry)))
    assert plans[0] == plans[1]


def test_a_fault_is_forgotten_with_the_work_it_was_about() -> None:
    world = World(gpus_per_node=1, plugins=registry_with(RaisesOrder())).submit("a", gpus_each=2)
    assert [note.subject for note in world.decide().notes] == ["raises-order"]
    world.finish("a").submit("b", gpus_each=1)
    world.decide()
    world.finish("b")
    assert world.decide().notes == ()


def test_roles_with_different_rules_find_their_nodes_together() -> None:
    world = World(nodes=0).node("a", gpus=1).node("b", gpus=1, taints=(Taint("t"),))
    tolerant = Role(Request(gpus=1, tolerations=(Toleration("t", "Exists"),)), "worker")
    world.tell(WorkloadChanged(Workload("default/both", (tolerant, Role(Request(gpus=1), "leader")))))
    world.settle()
    assert world.nodes_of("both") == ["a", "b"]


def test_a_memory_request_at_its_limit_takes_a_larger_device_of_which_it_is_a_smaller_part() -> None:
    world = World(nodes=0).queue("tight", gpu_limit=500)
    for name, size in (("a", 46_068), ("b", 196_608)):
        world.tell(NodeChanged(Node(name, gpus=(Gpu("g", name, size),))))
    world.submit("new", memory_mib=30_000, queue="tight").settle()
    assert world.nodes_of("new") == ["b"]


def test_a_snapshot_is_stale_once_later_work_became_due() -> None:
    world = World().submit("later", gpus_each=1, not_before_s=50)
    before = world.state.snapshot(0)
    world.state.snapshot(100)
    with pytest.raises(StaleSnapshotError, match="take a new snapshot"):
        decide(before)
