"""Stories of what starts first."""

from collections import Counter
from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from kaiwo.decide import decide
from kaiwo.decide.turn_order import Lane
from kaiwo.model.events import NominationChanged, PodChanged, PodGone, QueueChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import Nomination, Plan
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Fairness, Queue, QueueAmounts, SharePolicy
from kaiwo.model.workload import Phase, Pod
from kaiwo.queues import current_shares
from kaiwo.queues.fair_share import fair_shares
from kaiwo.snapshot.assumed_events import assume
from tests.worlds import World


def test_priority_before_age_before_name() -> None:
    world = World(gpus_per_node=1)
    world.submit("young", gpus_each=1, submitted_s=2).submit("old", gpus_each=1, submitted_s=1)
    world.submit("urgent", gpus_each=1, submitted_s=3, priority=100).submit("a-old", gpus_each=1, submitted_s=1)
    order = []
    for _ in range(4):
        (start,) = world.decide().starts
        order.append(start.workload.removeprefix("default/"))
        world.finish(order[-1])
    assert order == ["urgent", "a-old", "old", "young"]


def test_the_poorest_queue_goes_first() -> None:
    world = World(gpus_per_node=4).queue("rich").queue("poor")
    world.running("big", gpus=2, queue="rich")
    world.submit("r", gpus_each=1, queue="rich", submitted_s=0)
    world.submit("p0", gpus_each=1, queue="poor", submitted_s=9).submit("p1", gpus_each=1, queue="poor", submitted_s=9)
    world.settle()
    assert [name for name in ("p0", "p1", "r") if world.is_running(name)] == ["p0", "p1"]


def test_weights_share_the_cluster() -> None:
    world = World(gpus_per_node=8)
    world.tell(
        QueueChanged(Queue("heavy", gpu=QueueAmounts(weight=3))),
        QueueChanged(Queue("light", gpu=QueueAmounts(weight=1))),
    )
    for number in range(8):
        world.submit(f"h{number}", gpus_each=1, queue="heavy").submit(f"l{number}", gpus_each=1, queue="light")
    world.settle()
    assert sum(world.is_running(f"h{number}") for number in range(8)) == 6


def test_a_limit_holds_at_every_level() -> None:
    world = World(gpus_per_node=8).queue("org", gpu_limit=3_000).queue("a", "org").queue("b", "org", gpu_limit=1_000)
    for number in range(4):
        world.submit(f"a{number}", gpus_each=1, queue="a").submit(f"b{number}", gpus_each=1, queue="b")
    world.settle()
    assert sum(world.is_running(f"b{number}") for number in range(4)) == 1
    assert sum(world.is_running(f"a{number}") for number in range(4)) == 2
    assert world.why("a3") == [Reason.QUEUE_LIMIT]
    assert world.why("b3") == [Reason.QUEUE_LIMIT, Reason.QUEUE_LIMIT]


def test_a_large_job_that_cannot_start_does_not_block_small_ones() -> None:
    world = World(gpus_per_node=4).submit("large", gpus_each=8, priority=100).submit("small", gpus_each=1)
    world.settle()
    assert world.is_running("small")
    assert world.why("large") == [Reason.NOT_ENOUGH_GPUS]


def _first_of_two(*doomed: int) -> list[str]:
    """`b` uses nothing of its quota, `a` most of its own: who starts on the last two GPUs, beside such doomed gangs."""
    world = World(gpus_per_node=4).queue("a", quota_milli=3_000).queue("b", quota_milli=2_000)
    world.running("old", 2, queue="a")
    world.submit("of-a", gpus_each=1, queue="a").submit("of-b", gpus_each=2, queue="b")
    for queue, pods in zip("ab", doomed, strict=False):
        world.submit(f"doomed-{queue}", pods, gpus_each=1, queue=queue, priority=90)
    return [start.workload.removeprefix("default/") for start in world.decide().starts]


def test_whose_turn_it_is_does_not_hang_on_work_that_can_never_start() -> None:
    """By the size of its gang, which all nodes together could not hold, `b` would be served after `a`."""
    assert _first_of_two() == _first_of_two(5, 9) == ["of-b"]


def _room_made(nodes: int, **first: int | bool) -> Counter[str]:
    """Both are owed more than is to be had: for how many of each queue room is made. A large one is first in `a`."""
    world = World(nodes=nodes, gpus_per_node=8 // nodes).queue("rich").running("many", 8, minimum=0, queue="rich")
    world.queue("a", quota_milli=8_000).queue("b", quota_milli=8_000)
    for number in range(8):
        world.submit(f"a{number}", gpus_each=1, queue="a").submit(f"b{number}", gpus_each=1, queue="b")
    if first:
        world.submit("large", gpus_each=8, queue="a", **first)
    return Counter(each.beneficiary.removeprefix("default/")[0] for each in world.decide().evictions)


def test_for_whom_room_is_made_does_not_hang_on_work_that_can_never_start() -> None:
    """No node has eight GPUs: a pod that wants them does not make its queue the one that is served last."""
    assert _room_made(2) == _room_made(2, priority=90) == {"a": 4, "b": 4}


def test_for_whom_room_is_made_does_not_hang_on_work_for_which_nobody_is_stopped_yet() -> None:
    assert _room_made(1, priority=90, preemption_delay_s=600) == {"a": 4, "b": 4}
    assert _room_made(1, priority=90, stops_others=False) == {"a": 4, "b": 4}


def test_held_dependent_and_early_work_waits_at_the_gate() -> None:
    world = World()
    world.submit("held", gpus_each=1, held=True).submit("late", gpus_each=1, not_before_s=50)
    world.submit("second", gpus_each=1, after=("default/first",)).settle()
    assert world.why("held") == [Reason.HELD]
    assert world.why("late") == [Reason.NOT_BEFORE]
    assert world.why("second") == [Reason.DEPENDENCY]
    world.now_s = 50
    world.settle()
    assert world.is_running("late")
    workload = world.state.workloads["default/second"]
    world.tell(WorkloadChanged(replace(workload, after=()))).settle()
    assert world.is_running("second")


def test_work_of_an_unknown_queue_waits_until_the_queue_is_there() -> None:
    world = World().submit("early", gpus_each=1, queue="later")
    world.settle()
    assert world.why("early") == [Reason.NO_QUEUE]
    world.queue("later").settle()
    assert world.is_running("early")


def test_a_spent_budget_goes_on_where_it_stopped() -> None:
    world = World(nodes=4, policy=Policy(steps=3))
    for number in range(10):
        world.submit(f"w{number}", gpus_each=1, cpu_milli=number + 1)
    plans = world.settle()
    assert all(world.is_running(f"w{number}") for number in range(10))
    assert max(plan.steps for plan in plans) <= 6  # a first look at the nodes for a shape counts, too
    assert plans[0].notes[0].code == "budget-spent"


def test_assumed_pods_are_not_decided_again() -> None:
    world = World(gpus_per_node=1).submit("one", gpus_each=1)
    plan = decide(world.snapshot())
    world.tell(*assume(world.state, plan, 0))
    world.state.record_cycle(plan)
    assert decide(world.snapshot()).starts == ()


def test_a_releasing_pod_keeps_its_devices_until_it_is_gone() -> None:
    world = World(gpus_per_node=1).running("old", gpus=1)
    old = world.state.pods["default/old"]["main-0"]
    world.tell(PodChanged(replace(old, phase=Phase.RELEASING))).submit("new", gpus_each=1, priority=100).settle()
    assert not world.is_running("new")
    assert world.why("old") == []  # it has its pod still
    world.tell(PodGone("default/old", "main-0")).settle()
    assert world.is_running("new")
    assert world.why("old") == [Reason.NOT_ENOUGH_FREE_GPUS]


def test_nominated_space_is_kept_for_its_owner() -> None:
    """A smaller job of higher priority does not take the space while the last victim leaves."""
    world = World(gpus_per_node=2, policy=Policy(actions=("allocate",))).running("victim", gpus=1)
    world.submit("owner", gpus_each=2).settle()
    both = tuple(Share(f"gpu-{at}", 1000, 196_608) for at in range(2))
    victim = world.state.pods["default/victim"]["main-0"]
    world.tell(PodChanged(replace(victim, phase=Phase.RELEASING)))
    world.tell(NominationChanged(Nomination("default/owner", "main-0", "node-0", both)))
    world.submit("thief", gpus_each=1, priority=100).settle()
    assert not world.is_running("thief")
    world.finish("victim").settle()
    assert [name for name in ("owner", "thief") if world.is_running(name)] == ["owner"]
    assert world.state.nominations == {}


def test_a_lost_pod_waits_again_and_comes_back_alone() -> None:
    world = World(nodes=2, gpus_per_node=2).submit("gang", pods=4, gpus_each=1)
    world.settle()
    world.tell(PodGone("default/gang", "main-2"))
    plan: Plan = world.decide()
    assert [start.pod for start in plan.starts] == ["main-2"]


def test_a_pod_that_is_done_is_not_started_again() -> None:
    world = World().submit("job", pods=2, gpus_each=1)
    world.settle()
    pod = world.state.pods["default/job"]["main-0"]
    world.tell(PodChanged(replace(pod, phase=Phase.DONE)))
    assert world.decide().starts == ()
    assert world.is_within_capacity()


def test_a_gang_at_the_limit_of_its_queue_is_not_told_that_it_does_not_fit() -> None:
    world = World(nodes=2).queue("small", gpu_limit=2_000).submit("gang", pods=2, gpus_each=2, queue="small")
    world.settle()
    assert world.why("gang") == [Reason.QUEUE_LIMIT]


def test_a_run_of_equal_work_ends_where_anybody_else_stands_before() -> None:
    world = World(nodes=0)
    for name, cpu_milli, at in (("a1", 1, 1), ("z", 2, 9), ("b", 3, 3), ("a2", 1, 5)):
        world.submit(name, cpu_milli=cpu_milli, submitted_s=at)
    world.snapshot()
    classes = sorted(world.state.backlog.by_key.values(), key=lambda found: found.waiters.at(0))
    for order in permutations(classes):
        assert Lane(list(order)).run_length() == 1  # a2 stands behind b


def test_a_limit_far_above_holds() -> None:
    world = World().queue("top", gpu_limit=2000).queue("middle", parent="top").queue("low", parent="middle")
    world.queue("leaf", parent="low").submit("small", gpus_each=2, queue="leaf").settle()
    world.submit("more", gpus_each=1, queue="leaf").submit("gang", pods=2, gpus_each=1, queue="leaf").settle()
    assert world.is_running("small")
    assert not world.is_running("more")
    assert not world.is_running("gang")


def test_what_was_told_once_is_not_told_again() -> None:
    world = World(gpus_per_node=1).running("old", gpus=1).submit("new", gpus_each=1)
    assert world.decide().waits
    world.tell(PodChanged(Pod("f/x", "p", "node-0")), PodGone("f/x", "p"))
    plan = world.decide()
    assert plan.steps
    assert plan.waits == ()


def test_a_fork_works_things_out_for_itself() -> None:
    world = World(gpus_per_node=2).running("old", gpus=1).submit("new", gpus_each=2)
    world.decide()
    fork = world.state.fork()
    fork.patch([PodGone("default/old", "main-0"), WorkloadGone("default/old")])
    assert [start.workload for start in decide(fork.snapshot(0)).starts] == ["default/new"]
    world.tell(PodChanged(Pod("f/x", "p", "node-0")), PodGone("f/x", "p"))
    assert world.decide().starts == ()


def test_an_hour_of_waiting_may_be_worth_points_of_priority_and_never_the_right_to_preempt() -> None:
    world = World(gpus_per_node=1, policy=Policy(age_boost_milli=5_000))
    world.submit("old", gpus_each=1, submitted_s=0)
    world.now_s = 7_200
    world.submit("important", gpus_each=1, priority=9).submit("most", gpus_each=1, priority=11)
    order = []
    for _ in range(3):
        (start,) = world.decide().starts
        order.append(start.workload.removeprefix("default/"))
        world.finish(order[-1])
    assert order == ["most", "old", "important"]  # two hours are ten points: more than nine, less than eleven
    world = World(gpus_per_node=1, policy=Policy(age_boost_milli=5_000)).running("young", gpus=1, submitted_s=7_000)
    world.now_s = 7_200
    assert world.submit("old", gpus_each=1, submitted_s=0).decide().evictions == ()


def test_large_or_small_work_may_go_first() -> None:
    for boost, first in ((0, "a-small"), (100, "b-large"), (-100, "a-small")):
        world = World(gpus_per_node=4, policy=Policy(size_boost_milli=boost))
        world.submit("a-small", gpus_each=1).submit("b-large", gpus_each=4).decide()
        assert world.is_running(first), boost


def test_under_fifo_the_share_goes_to_the_queue_whose_work_waits_longest() -> None:
    world = World(gpus_per_node=4).queue("top", fairness=Fairness(policy=SharePolicy.FIFO))
    world.queue("new", parent="top", created_s=1).queue("old", parent="top", created_s=2)
    world.submit("late", pods=4, gpus_each=1, queue="new", submitted_s=50)
    world.submit("early", pods=4, gpus_each=1, queue="old", submitted_s=10).decide()
    assert world.is_running("early")
    assert not world.is_running("late")


@pytest.mark.parametrize(("queues", "is_worked_out"), [(("lab",), False), (("lab", "prod"), True)])
def test_shares_are_worked_out_only_where_queues_compete(
    queues: tuple[str, ...], is_worked_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def counted(*given: Any) -> Any:
        asked.append(given)
        return fair_shares(*given)

    monkeypatch.setattr(current_shares, "fair_shares", counted)
    world = World(policy=Policy(actions=("allocate",))).queue("lab").queue("prod")
    for number, queue in enumerate(queues):
        world.submit(f"w{number}", gpus_each=1, queue=queue)
    world.decide()
    assert bool(asked) == is_worked_out
