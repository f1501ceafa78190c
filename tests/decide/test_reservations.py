"""Stories of reservations: who may use reserved GPUs, what happens at the start and at the end, and what is said."""

from typing import Any

import pytest
from msgspec.structs import replace

from kaiwo.explain import why
from kaiwo.gpus.partitioning.pending_mode_change import close_for_change
from kaiwo.model.events import NodeChanged, PodChanged, PodGone, ReservationChanged, ReservationGone
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.gpus.partition_modes import Mode
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import EvictionCause, Plan
from kaiwo.model.request import Request
from kaiwo.model.reservation import AtEnd, PhysicalDevice, Reservation, ReservationOwner
from kaiwo.model.workload import Phase, Pod
from kaiwo.snapshot.capacity_timeline import reserved_spans
from kaiwo.snapshot.reservation_status import reservation_statuses
from tests.worlds import World


def lab_world(nodes: int = 2) -> World:
    """Two queues, of which none has a limit; `batch` may have work that is not to be preempted."""
    return World(nodes=nodes).queue("lab").queue("batch", quota_milli=64_000)


def reserve(world: World, name: str, **changes: Any) -> World:
    world.tell(ReservationChanged(Reservation(name, **changes)))
    return world


def evicted(plans: list[Plan]) -> list[tuple[str, str]]:
    return [(each.workload, each.cause.value) for plan in plans for each in plan.evictions]


def test_only_the_owners_work_starts_on_reserved_gpus() -> None:
    world = reserve(lab_world(1), "night", gpus=8, owner=ReservationOwner(queue="lab"))
    world.submit("theirs", gpus_each=1, queue="batch").submit("mine", gpus_each=8, queue="lab").settle()
    assert world.is_running("mine")
    assert not world.is_running("theirs")
    assert Reason.RESERVED in world.why("theirs")


def test_the_sentence_names_the_reservation_its_owner_and_its_end() -> None:
    world = reserve(lab_world(1), "night", gpus=8, owner=ReservationOwner(queue="lab"), end_s=1_800_000_000)
    world.now_s = 1_700_000_000
    world.submit("theirs", gpus_each=1, queue="batch").settle()
    answer = why(world.state, "default/theirs", world.policy, world.now_s).answer
    assert answer == (
        "theirs is waiting: reservation 'night' keeps GPUs that it could use "
        "for queue lab until 2027-01-15 08:00 UTC; 8 of them are free"
    )


def test_a_queue_above_owns_for_the_queues_below() -> None:
    world = World(nodes=1).queue("ai").queue("vision", parent="ai").queue("batch")
    reserve(world, "night", nodes=("node-0",), owner=ReservationOwner(queue="ai"))
    world.submit("theirs", gpus_each=1, queue="batch").submit("mine", gpus_each=1, queue="vision").settle()
    assert world.is_running("mine")
    assert not world.is_running("theirs")


def test_gpus_for_a_user_and_for_one_workload() -> None:
    world = lab_world(1)
    reserve(world, "ada", devices=(PhysicalDevice("node-0", "gpu-0"),), owner=ReservationOwner(user="ada"))
    reserve(
        world, "final", devices=(PhysicalDevice("node-0", "gpu-1"),), owner=ReservationOwner(workload="default/final")
    )
    world.submit("hers", gpus_each=1, user="ada").submit("final", gpus_each=1).submit("bobs", pods=8, gpus_each=1)
    world.settle()
    assert world.devices_of("hers") == ["node-0/gpu-0"]
    assert world.devices_of("final") == ["node-0/gpu-1"]
    assert not world.is_running("bobs")  # six are left for eight


def test_work_that_names_a_pool_runs_there_and_nowhere_else() -> None:
    world = reserve(
        lab_world(2), "pool", devices=(PhysicalDevice("node-1", "gpu-3"), PhysicalDevice("node-1", "gpu-4"))
    )
    world.submit("named", gpus_each=1, reservation="pool").submit("large", gpus_each=3, reservation="pool").settle()
    assert world.devices_of("named") == ["node-1/gpu-3"]
    assert world.why("large") == [Reason.NOT_ENOUGH_GPUS]
    assert not world.is_running("large")


def test_a_reservation_that_is_not_there_is_waited_for() -> None:
    world = lab_world(1).submit("named", gpus_each=1, reservation="pool")
    world.settle()
    assert world.why("named") == [Reason.RESERVATION]
    reserve(world, "pool", gpus=1, start_s=100)
    world.settle()
    answer = why(world.state, "default/named", world.policy, world.now_s).answer
    assert answer.endswith(
        "it names reservation 'pool', which is active from second 100 of the cluster's clock without an end"
    )
    world.now_s = 100
    world.settle()
    assert world.is_running("named")


def test_naming_somebody_elses_reservation_does_not_open_it() -> None:
    world = reserve(lab_world(1), "night", gpus=8, owner=ReservationOwner(queue="lab"))
    world.submit("thief", gpus_each=1, queue="batch", reservation="night").settle()
    assert world.why("thief") == [Reason.RESERVATION]


def test_the_owner_takes_what_is_reserved_before_what_is_not() -> None:
    world = reserve(
        lab_world(3), "night", devices=(PhysicalDevice("node-1", "gpu-5"),), owner=ReservationOwner(queue="lab")
    )
    world.running("busy", 3, queue="batch")  # the fullest node would be the best otherwise
    world.submit("mine", gpus_each=1, queue="lab").settle()
    assert world.devices_of("mine") == ["node-1/gpu-5"]


def test_others_take_gpus_that_stay_theirs_before_those_that_are_reserved_soon() -> None:
    soon = tuple(PhysicalDevice("node-0", f"gpu-{number}") for number in range(4))
    world = reserve(lab_world(1), "night", devices=soon, owner=ReservationOwner(queue="lab"), start_s=100)
    world.running("theirs", 4, queue="batch")
    assert world.devices_of("theirs") == [f"node-0/gpu-{number}" for number in range(4, 8)]
    world.now_s = 100
    assert evicted(world.settle()) == []


def test_before_the_start_others_use_the_gpus_and_go_when_it_comes() -> None:
    world = reserve(lab_world(1), "night", gpus=8, owner=ReservationOwner(queue="lab"), start_s=100, end_s=200)
    world.submit("filler", pods=8, gpus_each=1, queue="batch").settle()
    assert world.is_running("filler")
    world.submit("mine", gpus_each=8, queue="lab", submitted_s=50)
    world.now_s = 99
    assert evicted(world.settle()) == []
    world.now_s = 100
    plans = world.settle()
    assert set(evicted(plans)) == {("default/filler", EvictionCause.RESERVATION.value)}
    assert {each.beneficiary for plan in plans for each in plan.evictions} == {"night"}
    assert world.is_running("mine")
    assert world.is_within_capacity()


def test_a_gang_of_others_goes_whole_an_elastic_one_by_what_it_can_spare() -> None:
    world = lab_world(2)
    world.submit("gang", pods=16, gpus_each=1, queue="batch").settle()
    reserve(world, "night", devices=(PhysicalDevice("node-0", "gpu-0"),), owner=ReservationOwner(queue="lab"))
    world.settle()
    assert not world.is_running("gang")
    world = lab_world(2)
    world.submit("elastic", pods=16, minimum=4, gpus_each=1, queue="batch").settle()
    reserve(world, "night", devices=(PhysicalDevice("node-0", "gpu-0"),), owner=ReservationOwner(queue="lab"))
    world.settle()
    assert len(world.devices_of("elastic")) == 15
    assert "node-0/gpu-0" not in world.devices_of("elastic")


def test_work_that_may_not_be_preempted_is_not_started_where_it_would_outlast_the_beginning() -> None:
    world = reserve(lab_world(1), "night", gpus=8, owner=ReservationOwner(queue="lab"), start_s=1000)
    world.settle()
    world.submit("endless", gpus_each=1, queue="batch", preemptible=False)
    world.submit("long", gpus_each=1, queue="batch", preemptible=False, time_limit_s=1001)
    world.submit("short", gpus_each=1, queue="batch", preemptible=False, time_limit_s=1000)
    world.settle()
    assert world.is_running("short")
    assert world.why("endless")[0] is Reason.RESERVED
    assert world.why("long")[0] is Reason.RESERVED
    words = why(world.state, "default/endless", world.policy, world.now_s).answer
    assert "and this workload may not be preempted and has no time limit" in words


def test_as_time_goes_by_less_fits_before_the_start() -> None:
    world = reserve(lab_world(1), "night", gpus=8, owner=ReservationOwner(queue="lab"), start_s=1000)
    world.submit("one", gpus_each=8, queue="batch", preemptible=False, time_limit_s=500).settle()
    world.finish("one")
    world.now_s = 501
    world.submit("two", gpus_each=8, queue="batch", preemptible=False, time_limit_s=500).settle()
    assert not world.is_running("two")
    world.submit("three", gpus_each=8, queue="batch").settle()
    assert world.is_running("three")  # it goes when it is told to


def test_what_was_found_out_earlier_does_not_hide_that_time_went_by() -> None:
    world = reserve(lab_world(1), "night", gpus=8, owner=ReservationOwner(queue="lab"), start_s=1000)
    world.settle()
    limits: dict[str, Any] = {"queue": "batch", "preemptible": False, "time_limit_s": 500}
    world.submit("gang", pods=2, gpus_each=8, **limits).settle()  # looked at, and too large
    world.now_s = 501
    world.submit("single", gpus_each=8, **limits).settle()
    assert not world.is_running("single")
    assert world.why("single") == [Reason.RESERVED]


def test_what_may_not_be_preempted_and_is_there_already_stays() -> None:
    world = lab_world(1).submit("fixed", gpus_each=2, queue="batch", preemptible=False)
    world.settle()
    reserve(world, "night", nodes=("node-0",), owner=ReservationOwner(queue="lab"))
    world.submit("mine", gpus_each=8, queue="lab")
    assert evicted(world.settle()) == []
    (found,) = reservation_statuses(world.state, world.now_s)
    assert found.others == ("default/fixed",)
    world.finish("fixed").settle()
    assert world.is_running("mine")


def test_at_the_end_the_owners_work_stays_as_ordinary_use() -> None:
    world = reserve(lab_world(1), "night", gpus=8, owner=ReservationOwner(queue="lab"), end_s=100)
    world.submit("mine", pods=8, gpus_each=1, queue="lab").settle()
    world.submit("theirs", pods=4, gpus_each=1, queue="batch")
    world.now_s = 100
    plans = world.settle()
    assert {cause for _, cause in evicted(plans)} <= {EvictionCause.RECLAIM.value}  # from now on fair shares count


def test_at_the_end_the_owners_work_goes_when_the_reservation_says_so() -> None:
    world = reserve(lab_world(1), "night", gpus=8, owner=ReservationOwner(queue="lab"), end_s=100, at_end=AtEnd.EVICT)
    world.queue("lab", quota_milli=64_000)
    world.submit("mine", gpus_each=8, queue="lab", preemptible=False).settle()
    world.now_s = 100
    assert evicted([world.decide()]) == [("default/mine", EvictionCause.RESERVATION.value)]
    world.let_go()
    world.settle()
    assert world.is_running("mine")  # it waited again, and what it began after the end is its own
    world.now_s = 500
    assert evicted(world.settle()) == []


def test_a_picked_place_stays_where_it_is() -> None:
    world = reserve(lab_world(3), "night", gpus=8, owner=ReservationOwner(queue="lab"), start_s=100)
    (plan, *_) = world.settle()
    (picked,) = plan.reserved
    assert {device.node for device in picked.devices} == {"node-0"}
    world.running("busy", 12, queue="batch")
    world.now_s = 50
    world.node("another").settle()
    assert world.state.reservations.objects["night"].picked == picked.devices


def test_a_lost_device_is_replaced_and_the_others_stay() -> None:
    world = reserve(lab_world(2), "night", gpus=4, owner=ReservationOwner(queue="lab"))
    world.settle()
    before = set(world.state.reservations.objects["night"].picked)
    node = world.state.node_objects["node-0"]
    broken = replace(node.gpus[0], healthy=False)
    world.tell(NodeChanged(replace(node, gpus=(broken, *node.gpus[1:])))).settle()
    after = set(world.state.reservations.objects["night"].picked)
    assert before - after == {PhysicalDevice("node-0", "gpu-0")}
    assert len(after) == 4


@pytest.mark.parametrize("is_changing", [False, True])
def test_a_gpu_that_gets_another_mode_stays_reserved_and_nobody_is_told_to_go_for_it(is_changing: bool) -> None:
    world = reserve(lab_world(1), "night", gpus=2, owner=ReservationOwner(queue="lab"))
    world.submit("theirs", gpus_each=6, queue="batch").settle()
    before = world.state.reservations.objects["night"].picked
    node = world.state.node_objects["node-0"]
    closed = close_for_change(node.gpus[0], Mode("CPX", "NPS1"), is_changing)
    plans = world.tell(NodeChanged(replace(node, gpus=(closed, *node.gpus[1:])))).settle()
    assert (
        world.state.reservations.objects["night"].picked
        == before
        == (PhysicalDevice("node-0", "gpu-0"), PhysicalDevice("node-0", "gpu-1"))
    )
    assert evicted(plans) == []
    assert world.is_running("theirs")


def test_a_gpu_that_changes_for_somebody_else_is_picked_after_free_ones() -> None:
    world = lab_world(1)
    node = world.state.node_objects["node-0"]
    closed = close_for_change(node.gpus[0], Mode("CPX", "NPS1"), False)
    world.tell(NodeChanged(replace(node, gpus=(closed, *node.gpus[1:]))))
    reserve(world, "night", gpus=1, owner=ReservationOwner(queue="lab")).settle()
    assert world.state.reservations.objects["night"].picked == (PhysicalDevice("node-0", "gpu-1"),)


def test_a_place_is_picked_where_nobody_is_in_the_way() -> None:
    world = lab_world(2).submit("fixed", gpus_each=2, queue="batch", preemptible=False)
    world.settle()
    (node,) = set(world.nodes_of("fixed"))
    reserve(world, "night", gpus=8, owner=ReservationOwner(queue="lab"), start_s=100).settle()
    assert {device.node for device in world.state.reservations.objects["night"].picked} == {"node-0", "node-1"} - {node}


def test_a_reservation_that_is_too_large_has_what_there_is_and_grows() -> None:
    world = reserve(lab_world(1), "night", gpus=12, gpu_models=("MI300X",), owner=ReservationOwner(queue="lab"))
    world.node("old", model="MI210").settle()
    (found,) = reservation_statuses(world.state, world.now_s)
    assert (len(found.devices), found.missing) == (8, 4)
    world.node("new").settle()
    (found,) = reservation_statuses(world.state, world.now_s)
    assert (len(found.devices), found.missing) == (12, 0)


def test_nobody_is_stopped_for_a_reservation_that_is_larger_than_the_cluster() -> None:
    """Lesson 42: 640 of 64 GPUs, a typo, stopped everything."""
    world = lab_world(2).submit("train", gpus_each=8, queue="lab").submit("serve", gpus_each=4, queue="batch")
    world.settle()
    reserve(world, "night", gpus=160, owner=ReservationOwner(user="ada")).settle()
    assert world.is_running("train")
    assert world.is_running("serve")
    reserve(world, "night", gpus=16, owner=ReservationOwner(user="ada")).settle()
    assert not world.is_running("train"), "a reservation of all that there is was meant"


def test_a_reservation_that_lost_a_gpu_is_not_larger_than_the_cluster() -> None:
    world = lab_world(1)
    node = world.state.node_objects["node-0"]
    world.tell(NodeChanged(replace(node, gpus=(replace(node.gpus[0], healthy=False), *node.gpus[1:]))))
    world.submit("train", gpus_each=4, queue="lab").settle()
    reserve(world, "night", gpus=8, owner=ReservationOwner(user="ada")).settle()
    assert not world.is_running("train"), "the broken GPU may come back"


def test_two_reservations_of_numbers_never_share_a_device_at_one_time() -> None:
    world = reserve(lab_world(2), "a", gpus=10, owner=ReservationOwner(queue="lab"), start_s=100, end_s=200)
    reserve(world, "b", gpus=10, owner=ReservationOwner(queue="batch"), start_s=150, end_s=300)
    reserve(world, "c", gpus=10, owner=ReservationOwner(user="ada"), start_s=300)
    world.settle()
    a, b, c = (set(world.state.reservations.objects[name].picked) for name in "abc")
    assert not a & b
    assert (len(a), len(b), len(c)) == (10, 6, 10)  # c begins when the others are over


def test_many_reservations_at_once_take_turns_until_all_have_their_place() -> None:
    world = lab_world(8)
    for number in range(40):
        models = () if number > 9 else ("H100",)  # of which there are none
        reserve(world, f"r{number:02d}", gpus=1, gpu_models=models, owner=ReservationOwner(queue="lab"))
    picked: set[str] = set()
    for second in range(6):
        world.now_s = second
        plan = world.decide()
        assert len(plan.reserved) <= 16
        picked |= {each.reservation for each in plan.reserved}
    assert len(picked) == 30  # ten ask for what there is not, and keep nobody from theirs


def test_a_reservation_of_exact_devices_pushes_a_picked_one_aside() -> None:
    world = reserve(lab_world(2), "picked", gpus=8, owner=ReservationOwner(queue="lab"))
    world.settle()
    reserve(world, "exact", nodes=("node-0",), owner=ReservationOwner(user="ada")).settle()
    assert {device.node for device in world.state.reservations.objects["picked"].picked} == {"node-1"}


def test_a_partitioned_gpu_is_reserved_as_a_whole() -> None:
    world = World(nodes=0).queue("lab").queue("batch")
    parts = tuple(Gpu(f"gpu-{n // 2}-{n % 2}", "MI300X", 98_304, parent=f"gpu-{n // 2}", profile="DPX+NPS1", milli=500)
                  for n in range(4))  # fmt: skip
    world.tell(NodeChanged(Node("cut", cpu_milli=64_000, memory_mib=1 << 20, gpus=parts)))
    reserve(world, "night", gpus=1, owner=ReservationOwner(queue="lab")).settle()
    assert world.state.reservations.objects["night"].picked == (PhysicalDevice("cut", "gpu-0"),)
    want = Request(gpus=1, partition="DPX")
    world.submit("theirs", pods=4, minimum=1, request=want, queue="batch").settle()
    assert world.devices_of("theirs") == ["cut/gpu-1-0", "cut/gpu-1-1"]
    world.submit("mine", pods=2, request=want, queue="lab").settle()
    assert world.devices_of("mine") == ["cut/gpu-0-0", "cut/gpu-0-1"]


def test_a_whole_node_is_closed_to_work_without_gpus_too() -> None:
    world = World(nodes=1).queue("lab").queue("batch")
    world.submit("web", cpu_milli=1000, queue="batch").settle()
    reserve(world, "night", nodes=("node-0",), owner=ReservationOwner(queue="lab"))
    world.settle()
    assert not world.is_running("web")
    assert world.why("web") == [Reason.RESERVED]
    world.submit("mine", cpu_milli=1000, queue="lab").settle()
    assert world.is_running("mine")


def test_a_reservation_that_is_deleted_is_open_to_all_at_once() -> None:
    world = reserve(lab_world(1), "night", gpus=8, owner=ReservationOwner(queue="lab"))
    world.submit("theirs", gpus_each=8, queue="batch").settle()
    world.tell(ReservationGone("night")).settle()
    assert world.is_running("theirs")


def test_space_kept_for_somebody_else_is_given_up_at_the_start() -> None:
    world = lab_world(1).submit("old", pods=8, gpus_each=1, queue="batch", priority=0)
    world.settle()
    reserve(world, "night", nodes=("node-0",), owner=ReservationOwner(queue="lab"), start_s=10)
    world.submit("urgent", gpus_each=8, queue="batch", priority=90)
    plan = world.decide()
    assert plan.nominations
    assert plan.evictions
    world.now_s = 10
    world.decide()
    world.let_go().submit("mine", gpus_each=8, queue="lab").settle()
    assert world.is_running("mine")
    assert not world.is_running("urgent")


def test_reclaim_takes_nothing_from_a_reservation_it_may_not_use() -> None:
    world = World(nodes=1).queue("lab").queue("batch", quota_milli=8_000)
    reserve(world, "night", nodes=("node-0",), owner=ReservationOwner(queue="lab"))
    world.submit("mine", pods=8, gpus_each=1, queue="lab").settle()
    world.submit("theirs", gpus_each=4, queue="batch")
    assert evicted(world.settle()) == []


def test_foreign_pods_are_left_where_they_are() -> None:
    world = lab_world(1)
    foreign = Pod("other/pod", "main-0", "node-0", Phase.RUNNING, (Share("gpu-0", 1000, 196_608),))
    reserve(world, "night", nodes=("node-0",), owner=ReservationOwner(queue="lab")).tell(PodChanged(foreign))
    world.submit("mine", gpus_each=8, queue="lab")
    assert evicted(world.settle()) == []
    world.tell(PodGone("other/pod", "main-0")).settle()
    assert world.is_running("mine")


def test_the_plan_says_when_a_reservation_begins_or_ends_next() -> None:
    world = reserve(lab_world(1), "night", gpus=2, owner=ReservationOwner(queue="lab"), start_s=100, end_s=200)
    assert world.decide().look_again_s == 100
    world.now_s = 100
    assert world.decide().look_again_s == 200
    world.now_s = 200
    assert world.decide().look_again_s == 0


def test_the_space_of_reservations_is_told_from_when_to_when() -> None:
    world = reserve(lab_world(2), "later", gpus=2, owner=ReservationOwner(queue="lab"), start_s=100, end_s=200)
    reserve(world, "now", nodes=("node-1",), owner=ReservationOwner(user="ada"), end_s=50).settle()
    spans = reserved_spans(world.state, 0)
    assert [(span.reservation, len(span.columns), span.from_s, span.until_s) for span in spans] == [
        ("now", 8, 0, 50),
        ("later", 2, 100, 200),
    ]


def test_an_allocation_that_expires_is_released_and_not_started_again() -> None:
    world = lab_world(1).submit("train", pods=2, gpus_each=1, expires_s=100, queue="lab")
    world.settle()
    assert world.state.look_again_s == 100
    assert "granted until second 100" in why(world.state, "default/train", world.policy, 0).answer
    world.now_s = 100
    plan = world.decide()
    assert plan.expired == ("default/train",)
    assert {each.cause for each in plan.evictions} == {EvictionCause.EXPIRED}
    world.let_go().settle()
    assert world.why("train") == [Reason.EXPIRED]
    assert world.decide().expired == ()  # told once


def test_work_that_waits_past_its_expiry_is_told_so() -> None:
    world = lab_world(1).running("busy", 8, queue="lab").submit("late", gpus_each=1, expires_s=100, queue="lab")
    world.settle()
    world.now_s = 100
    assert world.decide().expired == ("default/late",)
    assert world.why("late") == [Reason.EXPIRED]


def test_what_a_reservation_leaves_of_a_gang_goes_whole_in_the_same_cycle() -> None:
    """Of 3 pods 2 must run. The reservation takes one; the other two are no surplus to whoever makes room next."""
    world = World(gpus_per_node=3).submit("gang", pods=3, gpus_each=1, minimum=2)
    world.settle()
    device = world.state.pods["default/gang"]["main-0"].devices[0].gpu
    world.queue("lab", quota_milli=1_000)
    reserve(world, "night", devices=(PhysicalDevice("node-0", device),), owner=ReservationOwner(queue="lab"))
    world.submit("urgent", gpus_each=1, priority=100)
    plan = world.decide()
    stopped = {each.pod for each in plan.evictions if each.workload == "default/gang"}
    assert len(stopped) in (1, 3), stopped


def test_gpus_on_which_the_owner_works_already_are_picked_before_those_of_others() -> None:
    world = World(gpus_per_node=2)
    world.submit("bobs", gpus_each=1, user="bob").settle()
    world.submit("hers", gpus_each=1, user="ada").settle()
    assert world.devices_of("hers") == ["node-0/gpu-1"]
    plans = reserve(world, "ada", gpus=1, owner=ReservationOwner(user="ada")).settle()
    assert world.state.reservations.objects["ada"].picked == (PhysicalDevice("node-0", "gpu-1"),)
    assert not evicted(plans)


@pytest.mark.parametrize(("limit_s", "picked"), [(100, "gpu-0"), (101, "gpu-1")])
def test_work_that_stays_beyond_the_start_is_avoided_and_work_that_is_gone_by_then_is_not(
    limit_s: int, picked: str
) -> None:
    world = World(gpus_per_node=2).queue("batch", quota_milli=64_000)
    world.submit("stays", gpus_each=1, queue="batch", preemptible=False, time_limit_s=limit_s).settle()
    assert world.devices_of("stays") == ["node-0/gpu-0"]
    reserve(world, "soon", gpus=1, owner=ReservationOwner(user="ada"), start_s=100).settle()
    assert world.state.reservations.objects["soon"].picked == (PhysicalDevice("node-0", picked),)
