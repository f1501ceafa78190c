"""The headline of `why` is a reason whose removal is needed, and the lasting one comes before the passing one."""

import re
from collections import Counter
from itertools import combinations

import pytest

from kaiwo.explain import why
from kaiwo.explain.obstacle_order import Lasting, lasting
from kaiwo.explain.possible_changes import ChangeKind
from kaiwo.model.affinity import VENDOR_LABEL, NodeRule
from kaiwo.model.events import NodeChanged, ReservationChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason, WhyVerdict
from kaiwo.model.request import Request
from kaiwo.model.reservation import Reservation, ReservationOwner
from tests.conftest import IS_QUICK
from tests.explain.obstructed_worlds import NEW, REMOVALS, kind_of, obstructed_world, starts_without
from tests.worlds import World

STATES = 120 if IS_QUICK else 1_000
_NOISE = re.compile(r"milli-|\b1 workload\b.*\b0 workloads\b|\d{7,}|\b0 queues\b")


def test_the_headline_of_a_thousand_waiting_states_is_a_reason_whose_removal_is_needed() -> None:
    """While it stays nothing else helps; or its removal alone is enough; or, seldom, it is one of several ways."""
    one_of_several = 0
    told: Counter[Reason] = Counter()
    seed = 0
    while told.total() < STATES:
        seed += 1
        world = obstructed_world(seed)
        if world.is_running(NEW):
            continue
        answer = why(world.state, NEW, world.policy, world.now_s)
        obstacles = [each.obstacle for each in answer.obstacles]
        headline = obstacles[0]
        told[headline.reason] += 1
        about = (seed, answer.answer, [each.sentence for each in answer.obstacles])
        kind = kind_of(headline.reason)
        others = [each for each in REMOVALS if each not in (kind, "other work")]
        if starts_without(world, *others) and not starts_without(world, kind):
            one_of_several += 1
            assert any(
                starts_without(world, *some, kind) and not starts_without(world, *some)
                for count in range(1, len(others))
                for some in combinations([*others, "other work"], count)
            ), about
        # The permanent before the temporary.
        ranks = [lasting(each) for each in obstacles]
        assert ranks == sorted(ranks), about
        if headline.reason is Reason.HELD:
            assert answer.no_change == "Release it: kaiwo release new", about
        elif any(each.reason is Reason.HELD for each in obstacles):
            raise AssertionError(about)
        if answer.change is not None:
            assert lasting(headline) is not Lasting.HELD, about
            assert answer.change.kind != ChangeKind.OTHER_QUEUE, about  # no queue here lists her: a way around a limit
        if answer.verdict is WhyVerdict.BLOCKED:
            assert answer.change is None, about
        assert not any(_NOISE.search(text) for each in answer.obstacles for text in (each.sentence, each.remedy)), about
    assert one_of_several <= STATES // 50
    assert IS_QUICK or set(told) >= {
        Reason.HELD, Reason.DEPENDENCY, Reason.NOT_BEFORE, Reason.NO_QUEUE, Reason.QUEUE_ACCESS, Reason.QUEUE_LIMIT,
        Reason.QUEUE_QUOTA, Reason.NODE_RULES, Reason.GPU_MODEL, Reason.NOT_ENOUGH_EXTENDED, Reason.NODE_CORDONED,
        Reason.NODE_NOT_READY, Reason.NODE_TAINTED, Reason.RESERVED, Reason.NOT_ENOUGH_GPUS,
        Reason.NOT_ENOUGH_FREE_GPUS, Reason.NOT_ENOUGH_CPU, Reason.NOT_ENOUGH_MEMORY, Reason.GANG,
    }, told  # fmt: skip


def test_headlines_of_fresh_states_that_were_wrong_once() -> None:
    """A reservation on nodes that are too small for a pod; a closed node where all nodes together are too few; GPUs
    that no node has which passes, instead of the filters that exclude those that have some."""
    told = {}
    for seed in (700_884, 810_107, 810_455, 850_753):
        world = obstructed_world(seed)
        told[seed] = why(world.state, NEW, world.policy, world.now_s).obstacles[0].obstacle.reason
    assert told == {
        700_884: Reason.NODE_RULES,
        810_107: Reason.NOT_ENOUGH_GPUS,
        810_455: Reason.NOT_ENOUGH_GPUS,
        850_753: Reason.NODE_CORDONED,
    }


def test_a_reservation_whose_nodes_are_too_small_for_a_pod_is_not_blamed() -> None:
    world = World(nodes=0).node("small", cpu_milli=2_000, gpus=8).node("large", gpus=8).queue("lab")
    world.tell(ReservationChanged(Reservation("night", nodes=("small",), owner=ReservationOwner("lab"))))
    world.submit("old", gpus_each=8).settle()
    world.submit("new", request=Request(cpu_milli=4_000, gpus=4)).settle()
    answer = why(world.state, NEW, world.policy, world.now_s)
    assert [each.obstacle.reason for each in answer.obstacles] == [Reason.NOT_ENOUGH_FREE_GPUS]


def test_a_reserved_node_that_is_too_small_is_not_blamed_by_work_without_gpus() -> None:
    world = World(nodes=0).node("small", cpu_milli=2_000).node("large", cpu_milli=8_000).queue("lab")
    world.tell(ReservationChanged(Reservation("night", nodes=("small",), owner=ReservationOwner("lab"))))
    world.submit("old", request=Request(cpu_milli=8_000)).settle()
    world.submit("new", request=Request(cpu_milli=4_000)).settle()
    answer = why(world.state, NEW, world.policy, world.now_s)
    assert [each.obstacle.reason for each in answer.obstacles] == [Reason.NOT_ENOUGH_CPU]


@pytest.mark.parametrize("gpu_milli", [1_000, 250])
@pytest.mark.parametrize("is_reserved", [False, True])
def test_nodes_with_gpus_that_are_too_small_are_told_whatever_other_nodes_have(
    gpu_milli: int, is_reserved: bool
) -> None:
    """An empty cluster said "no node has everything free at once; wait for running work to end"."""
    world = World(nodes=0).node("cpu", cpu_milli=64_000, gpus=0).node("small", cpu_milli=8_000, gpus=2).queue("lab")
    if is_reserved:
        world.tell(ReservationChanged(Reservation("night", 2, owner=ReservationOwner("lab"))))
    world.settle()
    world.submit("new", request=Request(cpu_milli=16_000, gpus=1, gpu_milli=gpu_milli)).settle()
    (found,) = why(world.state, NEW, world.policy, world.now_s).obstacles
    assert (found.obstacle.reason, lasting(found.obstacle)) == (Reason.NOT_ENOUGH_CPU, Lasting.PERMANENT)
    assert found.sentence == "it asks for 16 CPUs on one node, but the largest node that it may use has 8 CPUs"
    assert found.remedy == "ask for 8 CPUs or less; waiting does not help"


def test_a_gang_whose_gpus_are_all_unhealthy_is_told_so_first() -> None:
    sick = tuple(Gpu(f"gpu-{at}", "MI300X", 196_608, healthy=False) for at in range(8))
    world = World(nodes=0)
    world.tell(NodeChanged(Node("node-0", 64_000, 65_536, gpus=sick)))
    world.submit("new", pods=3, gpus_each=2).settle()
    found = why(world.state, NEW, world.policy, world.now_s).obstacles
    assert [each.obstacle.reason for each in found] == [Reason.GPU_UNHEALTHY, Reason.GANG]


def test_a_node_with_gpus_that_is_large_enough_but_busy_is_waited_for() -> None:
    world = World(nodes=0).node("cpu", cpu_milli=64_000, gpus=0).node("small", cpu_milli=16_000, gpus=2)
    world.submit("old", request=Request(cpu_milli=12_000, gpus=1)).settle()
    world.submit("new", request=Request(cpu_milli=16_000, gpus=1)).settle()
    found = why(world.state, NEW, world.policy, world.now_s).obstacles
    assert Lasting.PERMANENT not in [lasting(each.obstacle) for each in found]


def test_a_closed_node_is_not_blamed_where_all_nodes_together_are_too_few() -> None:
    world = World(nodes=0).node("open", gpus=2).node("closed", gpus=4, cpu_milli=64_000, cordoned=True)
    world.node("slow", gpus=8, cpu_milli=1_000)
    world.submit("new", pods=2, request=Request(cpu_milli=16_000, gpus=4)).settle()
    answer = why(world.state, NEW, world.policy, world.now_s)
    assert Reason.NODE_CORDONED not in [each.obstacle.reason for each in answer.obstacles]
    assert answer.obstacles[0].obstacle.reason is not Reason.NODE_CORDONED


def test_an_amd_pod_on_a_mixed_cluster_is_not_told_to_loosen_its_selector_because_of_nvidia_nodes() -> None:
    world = World(nodes=0)
    amd, nvidia = {VENDOR_LABEL + "amd": ""}, {VENDOR_LABEL + "nvidia": ""}
    world.node("amd-0", gpus=4, labels=amd).node("green-0", gpus=8, model="L40S", labels=nvidia)
    rule = NodeRule(VENDOR_LABEL + "amd", "Exists")
    world.submit("old", request=Request(gpus=4, node_rules=(rule,))).settle()
    world.submit("new", request=Request(gpus=4, node_rules=(rule,))).settle()
    answer = why(world.state, NEW, world.policy, world.now_s)
    assert answer.obstacles[0].sentence == "it needs 4 GPUs free on one node, but no node has any free"
    assert not any("selector" in each.sentence + each.remedy for each in answer.obstacles)
    world.submit("wide", pods=2, request=Request(gpus=4, node_rules=(rule,))).settle()
    answer = why(world.state, "default/wide", world.policy, world.now_s)
    assert answer.obstacles[0].sentence == (
        "its 2 pods must start together, but even an empty cluster has GPUs for only 1"
    )
    assert "allow it to use more nodes" not in answer.obstacles[0].remedy


def test_a_selector_that_matches_nothing_is_the_headline_and_no_reservation_is_blamed() -> None:
    world = World(nodes=2, gpus_per_node=4).queue("lab")
    world.tell(ReservationChanged(Reservation("night", nodes=("node-0", "node-1"), owner=ReservationOwner("lab"))))
    nowhere = NodeRule("zone", "In", ("nowhere",))
    world.submit("new", request=Request(gpus=1, node_rules=(nowhere,))).settle()
    answer = why(world.state, NEW, world.policy, world.now_s)
    assert answer.answer == "new is waiting: 2 of 2 nodes do not match its node selector or affinity"
    assert [each.obstacle.reason for each in answer.obstacles] == [Reason.NODE_RULES]


def test_held_work_is_told_to_be_released_whatever_else_it_waits_for() -> None:
    world = World().submit("new", gpus_each=1, held=True, after=("default/first",), not_before_s=99)
    answer = why(world.state, NEW, world.policy, world.now_s)
    assert answer.answer == "new is waiting: it is held"
    assert answer.no_change == "Release it: kaiwo release new"


def test_work_that_only_has_to_wait_is_not_told_to_fix_anything() -> None:
    world = World().submit("new", gpus_each=1, after=("default/first",))
    assert why(world.state, NEW, world.policy, world.now_s).no_change == "It will be tried as soon as that is over."


def test_storage_is_told_in_gibibytes_and_not_in_bytes() -> None:
    world = World(nodes=0).node("n", extended={"ephemeral-storage": 4 << 30})
    world.submit("new", request=Request(extended=(("ephemeral-storage", 5 << 30),))).settle()
    (storage,) = why(world.state, NEW, world.policy, world.now_s).obstacles
    assert storage.sentence == ("it asks for 5 GiB of ephemeral-storage on one node, but the largest node has 4 GiB")
    assert storage.remedy == "ask for 4 GiB or less; waiting does not help"


def test_work_without_gpus_is_told_what_the_nodes_of_its_reservation_lack() -> None:
    world = World(nodes=0).node("a", gpus=8, cpu_milli=64_000, memory_mib=16_384)
    world.node("b", gpus=2, cpu_milli=64_000, memory_mib=65_536)
    world.tell(ReservationChanged(Reservation("night", gpus=8))).settle()
    world.submit("new", request=Request(cpu_milli=1_000, memory_mib=32_768), reservation="night").settle()
    (only,) = why(world.state, NEW, world.policy, world.now_s).obstacles
    bound = "the largest node of reservation 'night' has 16 GiB"
    assert only.sentence == f"it asks for 32 GiB of memory on one node, but {bound}"
    assert only.remedy == "ask for 16 GiB or less; waiting does not help"


def test_work_without_gpus_has_no_nodes_in_a_reservation_without_gpus() -> None:
    world = World(nodes=1).tell(ReservationChanged(Reservation("night", gpus=8, gpu_models=("H100",))))
    world.submit("new", request=Request(cpu_milli=1_000), reservation="night").settle()
    headline = why(world.state, NEW, world.policy, world.now_s).obstacles[0]
    assert headline.sentence == "it names reservation 'night', which has no GPUs, so no nodes either"
