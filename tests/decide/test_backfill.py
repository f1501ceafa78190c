"""Large work has a planned start; smaller work fills the gaps and never delays it."""

from collections import Counter

import msgspec
import pytest
from msgspec.structs import replace

from kaiwo.decide.planned_starts.backfill import LEAD_S
from kaiwo.explain import why
from kaiwo.model.events import (
    Event,
    NodeChanged,
    PodChanged,
    PodGone,
    ReservationChanged,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import EvictionCause, Plan, encode_plan
from kaiwo.model.planned_start import DelayCause, PlannedStart
from kaiwo.model.policy import Policy
from kaiwo.model.reservation import Reservation, ReservationOwner
from kaiwo.model.workload import Phase
from kaiwo.snapshot.cluster_state import ClusterState
from tests.worlds import World

GANG = "default/gang"


def two_nodes(ends_s: int = 600) -> World:
    """One node is in use until a known time, the other is free; a gang waits for both."""
    world = World(nodes=2).running("old", gpus=8, estimate_s=ends_s)
    world.submit("gang", pods=2, gpus_each=8, estimate_s=3600)
    world.decide()
    return world


def promise(world: World, name: str = GANG) -> PlannedStart:
    return world.state.planned_starts[name]


def later(world: World, now_s: int) -> Plan:
    world.now_s = now_s
    return world.decide()


def test_a_gang_is_promised_the_first_moment_at_which_it_fits() -> None:
    world = two_nodes()
    found = promise(world)
    assert found.start_s == 600
    assert found.nodes == ("node-0", "node-1")
    assert found.after == ("default/old",)
    assert world.state.look_again_s in (600 - LEAD_S, 600)


def test_it_starts_then_and_there() -> None:
    world = two_nodes()
    places = {place.pod: place.node for place in promise(world).places}
    later(world.finish("old"), 600)
    assert {name: pod.node for name, pod in world.state.pods[GANG].items()} == places
    assert not world.state.planned_starts


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("pods", [1, 3])
def test_it_starts_once_however_much_room_there_is(pods: int, others: int) -> None:
    """Beside another planned start, and where it was the only one."""
    world = World(nodes=2).running("old", gpus=16, estimate_s=600)
    world.submit("gang", pods=pods, gpus_each=2, estimate_s=3600)
    for _ in range(others):
        world.submit("other", pods=2, gpus_each=8, estimate_s=3600, submitted_s=1)
    world.decide()
    assert len(world.state.planned_starts) == 1 + others
    plan = later(world.finish("old"), 600)
    assert [start.workload for start in plan.starts] == [GANG] * pods


def test_short_work_fills_the_gap_and_long_work_does_not() -> None:
    world = two_nodes()
    world.submit("short", gpus_each=1, estimate_s=500).submit("long", gpus_each=1, estimate_s=601)
    world.decide()
    assert world.is_running("short")
    assert not world.is_running("long")
    assert world.why("long") == [Reason.PROMISED]
    later(world.finish("old").finish("short"), 600)
    assert world.is_running("gang")


@pytest.mark.parametrize("queue", ["a", "b"])
def test_queues_fill_a_gap_alike_whosever_start_is_planned(queue: str) -> None:
    world = World(nodes=2).queue("a").queue("b").running("old", gpus=8, estimate_s=600)
    world.submit("gang", pods=2, gpus_each=8, estimate_s=3600, queue=queue, priority=5).decide()
    assert promise(world).start_s == 600
    for number in range(8):
        for each in "ab":
            world.submit(f"{each}{number}", gpus_each=1, estimate_s=100, queue=each)
    world.state.retry_all_classes()  # all are tried
    starts = world.decide().starts
    assert Counter(start.workload.removeprefix("default/")[0] for start in starts) == {"a": 4, "b": 4}


def test_the_gap_ends_a_little_before_the_planned_start() -> None:
    world = two_nodes()
    world.submit("just", gpus_each=1, estimate_s=600 - LEAD_S).submit("over", gpus_each=1, estimate_s=601 - LEAD_S)
    world.decide()
    assert world.is_running("just")
    assert not world.is_running("over")


def test_work_of_unknown_length_does_not_fill_a_gap_and_is_told_so() -> None:
    world = two_nodes().submit("unknown", gpus_each=1)
    world.decide()
    assert not world.is_running("unknown")
    answer = why(world.state, "default/unknown", world.policy, world.now_s)
    assert "gang is planned to start in its place" in answer.answer
    assert "its run time is unknown" in answer.answer
    assert "give an --estimate or a --time below 9 min" in answer.obstacles[0].remedy


def test_a_shorter_one_behind_a_longer_one_of_its_class_fills_the_gap() -> None:
    world = two_nodes()
    for number, estimate_s in enumerate((5000, 5000, 100)):
        world.submit(f"w{number}", gpus_each=1, estimate_s=estimate_s)
    world.decide()
    assert [world.is_running(f"w{number}") for number in range(3)] == [False, False, True]


def test_a_short_newcomer_is_tried_at_once_though_its_class_is_stuck() -> None:
    world = two_nodes().submit("long", gpus_each=1, estimate_s=5000)
    world.settle()
    world.submit("short", gpus_each=1, estimate_s=100).decide()
    assert world.is_running("short")


def test_work_that_may_not_be_stopped_needs_a_time_limit() -> None:
    world = two_nodes()
    world.queue("default", quota_milli=32_000)
    fixed = {"gpus_each": 1, "estimate_s": 100, "preemptible": False}
    world.submit("guessed", **fixed).submit("limited", **{**fixed, "time_limit_s": 300})
    world.decide()
    assert not world.is_running("guessed")
    assert world.is_running("limited")
    assert world.state.pods["default/limited"]["main-0"].until_s == 0  # its limit ends it


def test_who_fills_a_gap_and_stays_is_stopped_for_the_promise() -> None:
    world = two_nodes().submit("filler", gpus_each=1, estimate_s=300)
    world.decide()
    assert world.state.pods["default/filler"]["main-0"].until_s == 300
    assert not later(world, 400).evictions  # its time is over, and nobody needs the place yet
    plan = later(world, 600 - LEAD_S)
    assert [(each.workload, each.cause, each.beneficiary) for each in plan.evictions] == [
        ("default/filler", EvictionCause.DEADLINE, GANG)
    ]
    assert plan.evictions[0].lost_gpu_s == 570
    assert promise(world).start_s == 600
    later(world.let_go().finish("old"), 600)
    assert world.is_running("gang")


def test_the_place_that_a_filler_leaves_is_kept_for_nobody_else() -> None:
    world = two_nodes().submit("filler", gpus_each=1, estimate_s=300).submit("long", gpus_each=1, estimate_s=5000)
    world.decide()
    later(world, 600 - LEAD_S)
    plan = later(world, 601 - LEAD_S)  # the filler is told to go, and has not gone
    assert not plan.nominations
    assert not world.state.nominations
    later(world.let_go().finish("old"), 600)
    assert world.is_running("gang")


def test_a_gang_that_fills_a_gap_goes_whole() -> None:
    world = World(nodes=4).running("old", gpus=16, estimate_s=600)
    world.submit("gang", pods=4, gpus_each=8, estimate_s=3600).decide()
    world.submit("filler", pods=2, gpus_each=8, estimate_s=300).decide()
    plan = later(world, 600 - LEAD_S)
    assert [each.pod for each in plan.evictions] == ["main-0", "main-1"]
    assert [each.lost_gpu_s for each in plan.evictions] == [16 * 570, 0]


def test_work_that_was_there_before_is_never_stopped_and_is_blamed_for_the_delay() -> None:
    world = two_nodes()
    plans = [later(world, now_s) for now_s in (600, 630, 661)]
    assert not any(plan.evictions for plan in plans)
    assert promise(world).delay is DelayCause.OVERRAN
    assert promise(world).delayed_by == "default/old"
    assert promise(world).start_s > 661
    assert "old is running longer than expected" in why(world.state, GANG, world.policy, 661).planned


def test_nobody_ends_on_the_very_second() -> None:
    world = two_nodes()
    later(world, 600)
    later(world, 630)
    assert promise(world).start_s == 600
    assert promise(world).delay is None
    later(world.finish("old"), 640)
    assert world.is_running("gang")


def test_a_promise_moves_earlier_when_work_ends_early() -> None:
    world = World(nodes=3).running("a", gpus=8, estimate_s=600).running("b", gpus=8, estimate_s=900)
    world.running("c", gpus=8, estimate_s=1000).submit("gang", pods=2, gpus_each=8, estimate_s=60).decide()
    assert promise(world).start_s == 900
    later(world.finish("c"), 100)
    assert promise(world).start_s == 600
    assert promise(world).delay is None


def test_a_lost_node_is_told() -> None:
    world = World(nodes=3).running("a", gpus=8, estimate_s=600).running("b", gpus=8, estimate_s=900)
    world.running("c", gpus=8, estimate_s=1000).submit("gang", pods=2, gpus_each=8, estimate_s=60).decide()
    lost = promise(world).nodes[0]
    later(world.lose_node(lost), 10)
    assert (promise(world).delay, promise(world).delayed_by) == (DelayCause.NODE, lost)
    assert promise(world).start_s == 1000


def test_more_important_work_of_the_queue_is_not_bound() -> None:
    world = two_nodes().submit("urgent", gpus_each=1, priority=5).submit("mine", gpus_each=1)
    world.decide()
    assert world.is_running("urgent")
    assert not world.is_running("mine")
    plan = later(world.finish("old"), 600)
    assert not world.is_running("gang")
    assert GANG in plan.unpromised  # nobody said when the urgent one ends


def test_who_outranks_a_promise_is_named_in_the_delay() -> None:
    world = two_nodes().submit("urgent", gpus_each=1, priority=5, estimate_s=900)
    world.decide()
    later(world, 1)
    assert promise(world).start_s == 900
    assert (promise(world).delay, promise(world).delayed_by) == (DelayCause.OUTRANKED, "default/urgent")


def test_a_promise_of_a_queue_binds_the_other_queues_whatever_their_priority() -> None:
    world = two_nodes().queue("default", quota_milli=16_000).queue("other")
    world.submit("theirs", gpus_each=1, priority=5, queue="other")
    world.settle()
    assert not world.is_running("theirs")
    assert world.why("theirs") == [Reason.PROMISED]


def test_a_promise_over_its_queues_share_does_not_bind_those_who_are_owed() -> None:
    world = two_nodes().queue("other").submit("theirs", gpus_each=1, queue="other")
    world.decide()
    assert world.is_running("theirs")
    later(world, 1)
    assert GANG not in world.state.planned_starts  # nobody said when it ends
    assert not world.decide().evictions


def test_who_is_owed_and_says_when_it_ends_is_named_in_the_delay() -> None:
    world = two_nodes().queue("other").submit("theirs", gpus_each=1, queue="other", estimate_s=900)
    (start,) = world.decide().starts
    assert not start.until_s  # it does not fill a gap: it is there by right
    later(world, 1)
    assert promise(world).start_s == 900
    assert (promise(world).delay, promise(world).delayed_by) == (DelayCause.TAKEN, "default/theirs")


def test_without_known_run_times_nothing_is_promised_and_nobody_waits_for_it() -> None:
    world = two_nodes(ends_s=0).submit("small", gpus_each=1)
    world.decide()
    assert not world.state.planned_starts
    assert world.is_running("small")


def test_small_work_is_promised_nothing() -> None:
    world = World(nodes=2, gpus_per_node=1).running("old", gpus=2, estimate_s=600)
    world.submit("small", gpus_each=1, estimate_s=60).decide()
    assert not world.state.planned_starts


def test_as_many_promises_as_the_policy_wants_in_the_order_of_turns() -> None:
    world = World(nodes=2, policy=Policy(promises=2)).running("old", gpus=16, estimate_s=600)
    for number in range(4):
        world.submit(f"gang{number}", pods=2, gpus_each=8, estimate_s=100, submitted_s=number)
    world.decide()
    assert {name: each.start_s for name, each in world.state.planned_starts.items()} == {
        "default/gang0": 600,
        "default/gang1": 700,
    }


def test_work_that_can_never_start_uses_up_no_promise() -> None:
    """Two nodes have sixteen GPUs; gangs that want more stand before everybody else."""
    world = World(nodes=2, policy=Policy(promises=2)).running("old", gpus=16, estimate_s=600)
    for number in range(3):
        world.submit(f"doomed-{number}", pods=3 + number, gpus_each=8, estimate_s=60, priority=90)
    world.submit("gang", pods=2, gpus_each=8, estimate_s=3600).decide()
    assert list(world.state.planned_starts) == [GANG]


def test_the_switch_takes_promises_back() -> None:
    world = two_nodes()
    world.policy = Policy(promises=0)
    plan = later(world.submit("small", gpus_each=1), 1)
    assert plan.unpromised == (GANG,)
    assert not world.state.planned_starts
    assert world.is_running("small")


def test_beside_the_promised_devices_of_a_node_long_work_is_welcome() -> None:
    world = World(nodes=2).running("old", gpus=12, estimate_s=600)
    world.submit("gang", pods=3, gpus_each=4, estimate_s=3600).decide()
    promised = {(place.node, share.gpu) for place in promise(world).places for share in place.devices}
    assert len(promised) == 12
    for number in range(4):
        world.submit(f"long{number}", gpus_each=1).decide()
    held = {(pod.node, share.gpu) for name in ("long0", "long1", "long2", "long3")
            for pod in world.state.pods.get(f"default/{name}", {}).values() for share in pod.devices}  # fmt: skip
    assert held
    assert not held & promised
    later(world.finish("old"), 600)
    assert world.is_running("gang")


def test_a_planned_start_keeps_clear_of_reservations() -> None:
    world = World(nodes=2).running("old", gpus=8, estimate_s=600)
    kept = Reservation("night", nodes=("node-0",), owner=ReservationOwner(user="ada"), start_s=1000, end_s=5000)
    world.tell(ReservationChanged(kept))
    world.submit("gang", pods=2, gpus_each=8, estimate_s=3600).decide()
    assert promise(world).start_s == 5000


def test_a_changed_wish_ends_the_promise_and_a_new_one_is_made() -> None:
    world = two_nodes()
    gang = world.state.workloads[GANG]
    role = replace(gang.roles[0], request=replace(gang.roles[0].request, gpus=4))
    world.tell(WorkloadChanged(replace(gang, roles=(role,)))).decide()
    assert world.is_running("gang")
    assert not world.state.planned_starts


def test_a_cancelled_gang_leaves_the_place_to_others() -> None:
    world = two_nodes().submit("long", gpus_each=1, estimate_s=5000)
    world.settle()
    world.finish("gang").decide()
    assert world.is_running("long")


def test_a_cordoned_node_is_no_place() -> None:
    world = two_nodes()
    node = world.state.node_objects["node-1"]
    plan = later(world.tell(NodeChanged(replace(node, cordoned=True))), 5)
    assert plan.unpromised == (GANG,)


def test_promises_travel_in_events_and_give_the_same_plan() -> None:
    world = two_nodes().submit("short", gpus_each=1, estimate_s=100)
    encoded = msgspec.msgpack.encode(world.state.events())
    copy = World(nodes=0)
    copy.state = ClusterState(world.plugins.ordering(world.policy))
    copy.tell(*msgspec.msgpack.decode(encoded, type=tuple[Event, ...]))
    assert copy.state.planned_starts == world.state.planned_starts
    ours, theirs = world.decide(), copy.decide()
    assert ours.starts == theirs.starts
    assert ours.promises == theirs.promises
    assert msgspec.msgpack.decode(encode_plan(ours), type=Plan) == ours


def test_why_names_the_planned_start() -> None:
    world = two_nodes()
    planned = why(world.state, GANG, world.policy, 0).planned
    assert planned.startswith("planned start second 600 of the cluster's clock (in 10 min) on nodes node-0, node-1")
    assert "because old is expected to end by then" in planned
    assert "it is expected to run for 1 h" in planned


def test_a_fork_has_promises_of_its_own() -> None:
    world = two_nodes()
    fork = world.state.fork()
    fork.planned_starts.clear()
    assert world.state.planned_starts


def test_who_is_owed_starts_before_a_planned_start_that_is_over_its_share() -> None:
    world = World(gpus_per_node=4).queue("a", quota_milli=1_000).queue("b")
    world.running("old", gpus=4, queue="b", estimate_s=100)
    world.submit("wide", pods=4, gpus_each=1, queue="b", estimate_s=1_000, submitted_s=1).settle()
    assert promise(world, "default/wide").start_s == 100
    world.now_s = 100  # both come to their turn at once
    world.finish("old").submit("owed", gpus_each=1, queue="a", estimate_s=100, submitted_s=99)
    for now_s in (100, 101, 102):
        world.now_s = now_s
        assert not [eviction for plan in world.settle() for eviction in plan.evictions]
    assert world.is_running("owed")
    assert promise(world, "default/wide").start_s == 200


def test_space_that_comes_free_is_not_given_to_one_who_takes_what_a_queue_must_pay_for_a_plan() -> None:
    """The queue may have 2 GPUs, and the plan takes both; who comes later has to leave them."""
    world = World(nodes=0, policy=Policy(actions=("allocate",))).node("n0", gpus=2).node("n1", gpus=1)
    world.queue("lab", gpu_limit=2_000).submit("theirs", pods=3, gpus_each=1, minimum=0, estimate_s=300)
    world.settle()
    world.now_s = 5
    world.submit("large", gpus_each=2, queue="lab")
    world.settle()
    world.now_s = 6
    world.submit("small", gpus_each=1, queue="lab", estimate_s=120)
    world.settle()
    leaving = list(world.state.pods["default/theirs"].values())
    world.tell(WorkloadGone("default/theirs"), *(PodChanged(replace(pod, phase=Phase.RELEASING)) for pod in leaving))
    world.now_s = 7
    plan = world.decide()
    assert "default/small" not in {each.workload for each in plan.nominations}
    world.tell(*(PodGone("default/theirs", pod.name) for pod in leaving))
    world.now_s = 8
    world.settle()
    assert world.is_running("large")
    assert not world.is_running("small")


def test_who_is_held_has_no_planned_start_any_more() -> None:
    world = two_nodes()
    assert GANG in world.state.planned_starts
    world.tell(WorkloadChanged(replace(world.state.workloads[GANG], held=True)))
    world.decide()
    assert GANG not in world.state.planned_starts


def test_more_important_work_of_its_queue_has_its_turn_before_a_start_that_is_due() -> None:
    """The place of the plan comes free early: no plan binds who is more important, and that one goes first."""
    world = World(policy=Policy(actions=("allocate",))).running("old", gpus=8, estimate_s=600)
    world.submit("planned", gpus_each=8, estimate_s=600)
    world.decide()
    world.submit("urgent", gpus_each=8, minimum=0, priority=10)  # which has no plan: it needs nothing to start
    world.settle()
    assert "default/planned" in world.state.planned_starts
    world.finish("old").settle()
    assert world.is_running("urgent")
    assert not world.is_running("planned")


@pytest.mark.parametrize("pods", [3, 4])
def test_more_important_work_that_does_not_fit_leaves_the_place_to_who_was_promised_it(pods: int) -> None:
    """Of three nodes one is never free. Older work of unknown length would take the place, were it nobody's."""
    world = World(nodes=3).queue("default", quota_milli=24_000).running("stays", gpus=8, preemptible=False)
    world.running("old", gpus=16, preemptible=False, estimate_s=600).submit("small", gpus_each=1)
    world.submit("gang", pods=2, gpus_each=8, estimate_s=3600, submitted_s=1).decide()
    assert promise(world).start_s == 600
    world.submit("urgent", pods=pods, gpus_each=8, priority=90).decide()
    plan = later(world.finish("old"), 600)
    assert {start.workload for start in plan.starts} == {GANG}


def test_what_more_important_work_left_of_a_due_place_is_free_for_others_in_the_next_cycle() -> None:
    world = World(nodes=2).running("old", gpus=16, estimate_s=600, priority=99).submit("small", gpus_each=1)
    world.submit("gang", pods=2, gpus_each=8, estimate_s=3600, submitted_s=1).decide()
    world.submit("urgent", gpus_each=8, minimum=0, priority=90).decide()  # it needs nothing to start: no plan is made
    plan = later(world.finish("old"), 600)
    assert [start.workload for start in plan.starts] == ["default/urgent"]
    assert world.state.look_again_s == 601
    assert [start.workload for start in later(world, 601).starts] == ["default/small"]
