"""Whatever makes room, or lets work start, makes the classes that wait for it worth a try."""

import pytest
from msgspec.structs import replace

from kaiwo.model.affinity import NodeRule
from kaiwo.model.events import (
    NodeChanged,
    NominationChanged,
    NominationGone,
    PodChanged,
    QueueChanged,
    QueueGone,
    WorkloadChanged,
)
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import Nomination
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.model.request import Request
from tests.worlds import World


def full_world() -> World:
    """One GPU, taken; `new` waits for it."""
    world = World(gpus_per_node=1).running("old", gpus=1).submit("new", gpus_each=1)
    world.settle()
    assert not world.is_running("new")
    return world


def test_a_pod_that_shrinks_wakes_those_who_wait() -> None:
    world = full_world()
    pod = world.state.pods["default/old"]["main-0"]
    world.tell(PodChanged(replace(pod, devices=()))).settle()
    assert world.is_running("new")


def test_a_pod_that_uses_less_cpu_wakes_those_who_wait() -> None:
    world = World(gpus_per_node=0).submit("old", cpu_milli=192_000)
    world.settle()
    world.submit("new", cpu_milli=1_000).settle()
    pod = world.state.pods["default/old"]["main-0"]
    world.tell(PodChanged(replace(pod, cpu_milli=1_000))).settle()
    assert world.is_running("new")
    assert world.state.used["default"][1] == 2_000


def test_a_pod_that_moves_to_another_node_wakes_those_who_wait() -> None:
    world = full_world().node("away", gpus=1, cordoned=True)
    pod = world.state.pods["default/old"]["main-0"]
    world.tell(PodChanged(replace(pod, node="away"))).settle()
    assert world.nodes_of("new") == ["node-0"]


def test_a_running_workload_that_leaves_a_full_queue_wakes_those_in_it() -> None:
    world = World().queue("small", gpu_limit=1_000).running("old", gpus=1, queue="small")
    world.submit("new", gpus_each=1, queue="small").settle()
    assert world.why("new") == [Reason.QUEUE_LIMIT]
    world.tell(WorkloadChanged(replace(world.state.workloads["default/old"], queue="default"))).settle()
    assert world.is_running("new")


def test_a_nomination_that_goes_or_moves_wakes_those_who_wait() -> None:
    for after in ("gone", "moved"):
        world = World(gpus_per_node=1).node("other", gpus=1, cordoned=True)
        kept = Nomination("default/owner", "main-0", "node-0", (Share("gpu-0", 1000, 196_608),))
        world.tell(NominationChanged(kept)).submit("new", gpus_each=1).settle()
        assert not world.is_running("new")
        moved = NominationChanged(replace(kept, node="other"))
        world.tell(NominationGone("default/owner", "main-0") if after == "gone" else moved).settle()
        assert world.is_running("new"), after


def test_a_nomination_keeps_cpu_memory_and_pods_too() -> None:
    world = World(nodes=0).node("n", gpus=0, cpu_milli=4_000, memory_mib=4_000, pods=2, extended={"nic": 1})
    kept = Nomination("default/owner", "main-0", "n", cpu_milli=3_000, memory_mib=3_000, extended=(("nic", 1),))
    world.tell(NominationChanged(kept))
    world.submit("cpu", cpu_milli=2_000).submit("nic", request=Request(extended=(("nic", 1),))).settle()
    assert not world.is_running("cpu")
    assert not world.is_running("nic")
    world.submit("owner", request=Request(3_000, 3_000, extended=(("nic", 1),))).settle()
    assert world.is_running("owner")


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_limits_of_cpu_and_memory_hold_and_a_raise_wakes(resource: str) -> None:
    world = World()
    small = Queue("small", **{resource: QueueAmounts(limit=1_000)})
    world.tell(QueueChanged(small))
    ask = Request(600, 600)
    world.submit("first", request=ask, queue="small").submit("second", request=ask, queue="small").settle()
    assert [world.is_running(name) for name in ("first", "second")] == [True, False]
    assert world.why("second") == [Reason.QUEUE_LIMIT]
    world.tell(QueueChanged(replace(small, **{resource: QueueAmounts(limit=1_200)}))).settle()
    assert world.is_running("second")


def test_a_limit_above_that_goes_away_wakes() -> None:
    world = World().queue("org", gpu_limit=0).queue("team", "org").submit("new", gpus_each=1, queue="team")
    world.settle()
    assert not world.is_running("new")
    world.tell(QueueGone("org")).settle()
    assert world.is_running("new")


def test_a_relabelled_node_is_judged_anew() -> None:
    wants_ssd = Request(gpus=1, node_rules=(NodeRule("disk", "In", ("ssd",)),))
    world = World(nodes=0).node("a", labels={"disk": "ssd"}).node("b", labels={"disk": "hdd"})
    world.submit("first", request=wants_ssd).settle()
    assert world.nodes_of("first") == ["a"]
    a, b = world.state.node_objects["a"], world.state.node_objects["b"]
    world.tell(NodeChanged(replace(a, labels=b.labels)), NodeChanged(replace(b, labels=a.labels)))
    world.submit("second", request=wants_ssd).settle()
    assert world.nodes_of("second") == ["b"]


def test_a_healed_device_wakes_those_who_wait() -> None:
    world = World(gpus_per_node=1)
    node = world.state.node_objects["node-0"]
    world.tell(NodeChanged(replace(node, gpus=(replace(node.gpus[0], healthy=False),))))
    world.submit("new", gpus_each=1).settle()
    assert world.why("new") == [Reason.GPU_UNHEALTHY]
    world.tell(NodeChanged(node)).settle()
    assert world.is_running("new")


def test_a_new_priority_changes_the_place_in_line() -> None:
    world = full_world().submit("later", gpus_each=1)
    world.settle()
    world.tell(WorkloadChanged(replace(world.state.workloads["default/later"], priority=100)))
    world.finish("old").settle()
    assert world.is_running("later")


@pytest.mark.parametrize(
    ("operator", "values", "nodes"),
    [("Gt", ("8",), ["big"]), ("Lt", ("9",), ["small"]), ("NotIn", ("8",), ["big", "none"]),
     ("Exists", (), ["big", "small"]), ("DoesNotExist", (), ["none"]), ("Gt", ("many",), [])],
)  # fmt: skip
def test_every_operator_of_a_node_rule(operator: str, values: tuple[str, ...], nodes: list[str]) -> None:
    world = World(nodes=0).node("big", labels={"cores": "16"}).node("small", labels={"cores": "8"}).node("none")
    for number in range(3):
        request = Request(gpus=8, node_rules=(NodeRule("cores", operator, values),))
        world.submit(f"w{number}", request=request)
    world.settle()
    assert sorted(n for number in range(3) for n in world.nodes_of(f"w{number}")) == nodes


def test_between_equally_poor_queues_the_more_important_goes_first() -> None:
    world = World(gpus_per_node=1)
    world.tell(QueueChanged(Queue("a-low", priority=1)), QueueChanged(Queue("b-high", priority=200)))
    world.submit("low", gpus_each=1, queue="a-low").submit("high", gpus_each=1, queue="b-high").settle()
    assert world.is_running("high")


def test_a_queue_with_a_quota_deserves_more() -> None:
    world = World(gpus_per_node=8)
    world.tell(QueueChanged(Queue("plain")), QueueChanged(Queue("owner", gpu=QueueAmounts(quota=6_000))))
    for number in range(8):
        world.submit(f"p{number}", gpus_each=1, queue="plain").submit(f"o{number}", gpus_each=1, queue="owner")
    world.settle()
    assert sum(world.is_running(f"o{number}") for number in range(8)) > 4


def test_time_that_somebody_waits_for_is_not_forgotten_when_others_come_and_go() -> None:
    world = World().running("low", gpus=8).submit("patient", gpus_each=1, priority=9, preemption_delay_s=100)
    assert world.decide().look_again_s == 100
    world.submit("other", gpus_each=1, cpu_milli=1).decide()
    world.finish("other").decide()
    world.now_s = 100
    assert {each.beneficiary for each in world.decide().evictions} == {"default/patient"}
