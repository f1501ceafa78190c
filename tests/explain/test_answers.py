"""What `why` tells people, one small world at a time."""

import numpy as np
import pytest
from msgspec.structs import replace

from kaiwo.decide.cycle import BUILTIN
from kaiwo.explain import Why, why
from kaiwo.model.events import PodChanged, QueueChanged, ReservationChanged, WorkloadChanged
from kaiwo.model.obstacle import Obstacle, Reason, WhyVerdict
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Fairness, GpuModelAmounts, Queue, QueueAmounts, ReclaimStrategy
from kaiwo.model.request import Request
from kaiwo.model.reservation import Reservation, ReservationOwner
from kaiwo.model.workload import Phase, Role, SubGroup, Workload
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.view import View
from tests.worlds import World

ALLOCATES = Policy(actions=("allocate",))  # and takes nothing from anybody


def ask(world: World, name: str, plugins: Registry = BUILTIN) -> Why:
    return why(world.state, f"default/{name}", world.policy, world.now_s, plugins)


def said(world: World, name: str) -> list[str]:
    return [each.sentence for each in ask(world, name).obstacles]


def proposed(world: World, name: str) -> str:
    change = ask(world, name).change
    return "" if change is None else change.sentence


def release(world: World, name: str, *pods: str) -> None:
    """Told to go; they still hold what they have."""
    held = world.state.pods[f"default/{name}"]
    world.tell(*(PodChanged(replace(held[pod], phase=Phase.RELEASING)) for pod in pods))


# The search


def test_the_thirtieth_queue_is_found_when_only_it_has_something_left() -> None:
    world = World(nodes=2).queue("default", gpu_limit=0)
    for number in range(40):
        world.queue(f"q{number:02d}", gpu_limit=8_000 if number == 29 else 500, namespaces=("default",))
    world.submit("new", gpus_each=1).settle()
    assert proposed(world, "new") == "submit it to queue 'q29'"


def test_a_queue_that_names_nobody_is_no_way_around_a_limit() -> None:
    """An administrator gave the lab four GPUs. That `default` has room does not mean that the lab may have it."""
    world = World(nodes=2).queue("lab", gpu_limit=4_000, users=("ann",)).queue("above", users=("ann", "bob"))
    world.queue("inside", parent="above").queue("others", users=("bob",))
    world.submit("own", gpus_each=4, queue="lab", user="ann").settle()
    world.submit("new", gpus_each=4, queue="lab", user="ann").settle()
    assert proposed(world, "new") == "submit it to queue 'inside'", "a queue above it lists her"
    world.queue("above", users=("bob",)).settle()
    assert "stop own" in proposed(world, "new"), "her own work is hers to stop"
    world.queue("lab", gpu_limit=2_000, users=("ann",)).settle()
    assert "queue 'default'" not in proposed(world, "new")


def test_the_one_of_forty_running_workloads_whose_place_nobody_else_wants_is_found() -> None:
    world = World(nodes=0)
    for number in range(40):
        world.node(f"node-{number:02d}", gpus=2).running(f"old-{number:02d}", gpus=2, user="ann")
    world.submit("before", request=Request(gpus=2, avoid_nodes=("node-33",)), submitted_s=1)
    world.submit("new", gpus_each=2, user="ann", submitted_s=2).settle()
    assert proposed(world, "new") == "stop old-33, which is running now"


def full_nodes_that_differ(count: int) -> World:
    """No two nodes are alike, and of whoever stops, `before` takes the place: it asks for more, and came first."""
    world = World(nodes=0)
    for number in range(count):
        world.node(f"node-{number:02d}", gpus=2, cpu_milli=10_000 + number)
        world.running(f"old-{number:02d}", gpus=2, user="ann")
    world.node("node-99", gpus=4).running("bobs", gpus=4, user="bob")
    return world.submit("before", gpus_each=2, cpu_milli=9_000, submitted_s=1)


def test_a_change_that_was_found_after_giving_up_on_cheaper_ones_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    world = full_nodes_that_differ(9).submit("new", gpus_each=2, user="ann", submitted_s=2)
    world.settle()
    assert proposed(world, "new") == "stop bobs, which is running now"
    monkeypatch.setattr("kaiwo.explain.cheapest_change.MAX_COST", 60)
    assert proposed(world, "new") == (
        "stop bobs, which is running now (not every change was tried, only 3, so a cheaper one may exist)"
    )


def test_a_search_that_was_given_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    world = full_nodes_that_differ(9).submit("new", gpus_each=2, user="ann", submitted_s=2)
    world.submit("too", gpus_each=2, cpu_milli=9_001, submitted_s=1).settle()
    everything = ask(world, "new")
    assert (everything.verdict, everything.searched_all) == (WhyVerdict.NOTHING_HELPS, True)
    assert everything.no_change == (
        "No single change of its size, GPU model, queue, limit or quota, and no single workload that you stop, would "
        "start it now without evicting other work. No work would be evicted for it with another size, model or queue "
        "either."
    )
    monkeypatch.setattr("kaiwo.explain.cheapest_change.MAX_COST", 60)
    some = ask(world, "new")
    assert (some.change, some.verdict, some.searched_all) == (None, WhyVerdict.UNDECIDED, False)
    assert some.no_change == (
        "Undecided: not every possible change was tried. None of the 3 that were tried would start it now without "
        "evicting other work. No work would be evicted for it with another size, model or queue either."
    )


@pytest.mark.parametrize(("pods", "answer"), [(2, "stop old, which is running now"), (3, "")])
def test_who_cannot_start_now_still_decides_whose_turn_it_is(pods: int, answer: str) -> None:
    """Not so who never could: two nodes have no room for three such pods, whatever ends."""
    world = World(nodes=2, gpus_per_node=2, policy=ALLOCATES).queue("a").queue("b")
    world.running("old", gpus=2).running("older", gpus=2, priority=9)
    world.submit("huge", pods, gpus_each=2, queue="a", submitted_s=1)
    world.submit("small", gpus_each=1, queue="a", submitted_s=2)
    world.submit("new", gpus_each=2, queue="b", submitted_s=3).settle()
    # with `huge` in front queue a would use more than queue b: b is served first, and `small` comes too late
    assert proposed(world, "new") == answer
    world.finish("huge").settle()
    assert "stop" not in proposed(world, "new")


# What others hold


def test_stopping_work_gives_back_its_extended_resources() -> None:
    world = World(nodes=0).node("n", extended={"nic": 1})
    world.submit("hog", request=Request(extended=(("nic", 1),))).settle()
    world.submit("new", request=Request(extended=(("nic", 1),))).settle()
    assert proposed(world, "new") == "stop hog, which is running now"


def test_a_role_that_needs_nobody_keeps_nothing_from_helping() -> None:
    world = World(gpus_per_node=1).running("old", gpus=1)
    trainer, helper = Role(Request(gpus=1), "trainer"), Role(Request(gpus=8), "helper", count=2, minimum=0)
    world.tell(WorkloadChanged(Workload("default/new", (trainer, helper)))).settle()
    assert proposed(world, "new") == "stop old, which is running now"


def test_pods_that_need_not_start_are_not_counted_among_those_that_must_start_together() -> None:
    world = World(gpus_per_node=1)
    trainer, helper = Role(Request(gpus=1), "trainer", count=2), Role(Request(gpus=1), "helper", count=5, minimum=0)
    world.tell(WorkloadChanged(Workload("default/new", (trainer, helper)))).settle()
    assert said(world, "new") == ["its 2 pods must start together, but even an empty cluster has GPUs for only 1"]


def test_stopping_what_is_being_stopped_already_is_no_change() -> None:
    world = World(gpus_per_node=2).running("hog", gpus=2)
    release(world, "hog", "main-0")
    world.submit("new", gpus_each=2).settle()
    assert proposed(world, "new") == ""  # one of its two pods would not be gone any sooner
    release(world, "hog", "main-1")
    world.settle()
    assert proposed(world, "new") == ""


# Limits


def test_a_request_for_memory_at_a_limit_names_the_limit() -> None:
    world = World().queue("default", gpu_limit=500).submit("new", memory_mib=150_000)
    world.settle()
    assert said(world, "new") == ["it needs 0.763 GPU, but queue 'default' has 0.5 GPU left of its limit"]


def test_a_limit_is_told_by_the_devices_that_may_be_used() -> None:
    world = World(nodes=0).queue("default", gpu_limit=1_000).node("small", gpus=2, model="L40S")
    world.node("large", gpus=2, cordoned=True).submit("new", gpus_each=2, memory_mib=30_000).settle()
    assert said(world, "new") == ["it needs 1.222 GPUs, but queue 'default' has 1 GPU left of its limit"]


def test_a_raised_limit_is_proposed_to_requests_for_memory() -> None:
    world = World().queue("default", gpu_limit=0)
    roles = tuple(Role(Request(gpus=1, gpu_mib=150_000), name) for name in ("left", "right"))
    world.tell(WorkloadChanged(Workload("default/new", roles))).settle()
    assert proposed(world, "new") == "raise the gpu limit of queue 'default' by 1.526 GPUs, to 1.526 GPUs"


def test_a_raised_limit_is_proposed_to_work_that_starts_with_any_pod() -> None:
    world = World().queue("default", gpu_limit=0).submit("new", pods=3, gpus_each=2, minimum=0)
    world.settle()
    assert said(world, "new") == ["it needs 2 GPUs, but queue 'default' has 0 GPUs left of its limit"]
    world.queue("default", gpu_limit=1_000).submit("one", gpus_each=1).settle()
    world.submit("late", pods=3, gpus_each=1, minimum=0).settle()
    # `new` stands before it, and needs more than that
    assert proposed(world, "late") == "raise the gpu limit of queue 'default' by 1 GPU, to 2 GPUs"


def test_work_that_grows_is_told_of_the_limit_and_of_the_raise() -> None:
    world = World().queue("default", gpu_limit=2_000).submit("new", pods=4, gpus_each=1, minimum=1)
    world.settle()
    answer = ask(world, "new")
    assert answer.answer == (
        "new is running with 2 of 4 pods: it needs 1 GPU, but queue 'default' has 0 GPUs left of its limit"
    )
    assert proposed(world, "new") == "raise the gpu limit of queue 'default' by 1 GPU, to 3 GPUs"


def test_the_least_raise_leaves_out_larger_work_that_stays_behind() -> None:
    world = World(nodes=2).queue("default", gpu_limit=1_000).running("old", gpus=1)
    world.submit("large", gpus_each=8, submitted_s=1).submit("equal", gpus_each=2, submitted_s=2)
    world.submit("new", gpus_each=2, cpu_milli=1, submitted_s=3).settle()
    # `equal` starts before it, `large` does not fit into a limit of five
    assert proposed(world, "new") == "raise the gpu limit of queue 'default' by 4 GPUs, to 5 GPUs"


def test_the_least_raise_is_found_although_a_higher_one_lets_larger_work_take_the_room() -> None:
    world = World().queue("default", gpu_limit=1_000).running("old", gpus=1)
    world.submit("large", gpus_each=7, submitted_s=1).submit("new", gpus_each=2, submitted_s=2).settle()
    assert proposed(world, "new") == "raise the gpu limit of queue 'default' by 2 GPUs, to 3 GPUs"


# Work that may not be preempted


def test_work_that_may_not_be_preempted_is_told_of_every_quota_that_it_would_leave() -> None:
    world = World(policy=ALLOCATES).tell(QueueChanged(Queue("org", gpu=QueueAmounts(quota=1_000))))
    world.tell(QueueChanged(Queue("lab", "org", gpu=QueueAmounts(quota=3_000))))
    world.submit("old", gpus_each=1, queue="lab", preemptible=False).settle()
    world.submit("new", pods=3, gpus_each=1, queue="lab", preemptible=False).settle()
    needs = "it may not be preempted and needs 3 GPUs"
    assert said(world, "new") == [
        f"{needs}, but queue 'org' has 0 GPUs left of its quota",  # it is of 1 GPU: that never changes by itself
        f"{needs}, but queue 'lab' has 2 GPUs left of its quota",
    ]
    (_, lab) = ask(world, "new").obstacles
    assert lab.remedy == "let it be preempted (submit it without --no-preempt), or raise the quota by 1 GPU"


def test_a_size_that_stays_inside_the_quota_is_proposed() -> None:
    world = World().tell(QueueChanged(Queue("default", gpu=QueueAmounts(quota=3_000))))
    world.submit("new", gpus_each=8, preemptible=False).settle()
    assert proposed(world, "new") == "ask for 3 GPUs per pod instead"


def test_only_work_that_may_not_be_preempted_gives_back_the_quota() -> None:
    world = World().tell(QueueChanged(Queue("default", gpu=QueueAmounts(quota=1_000))))
    world.running("loose", gpus=1).submit("fixed", gpus_each=1, preemptible=False).settle()
    world.submit("new", gpus_each=1, preemptible=False).settle()
    assert proposed(world, "new") == "raise the gpu quota of queue 'default' by 1 GPU, to 2 GPUs"
    world.tell(QueueChanged(Queue("default", gpu=QueueAmounts(quota=1_000, limit=2_000)))).settle()
    assert proposed(world, "new") == "stop fixed, which is running now"  # the quota may not go above what is limited


# Space that is kept


def test_who_has_space_kept_waits_for_those_who_leave_it() -> None:
    world = World(gpus_per_node=2).running("hog", gpus=2)
    release(world, "hog", "main-0")
    world.submit("new", gpus_each=1).settle()
    world.settle()
    (only,) = ask(world, "new").obstacles
    assert only.obstacle == Obstacle(Reason.RELEASING, 1, 0, "pods")
    assert only.sentence == "the space kept for 1 pod of it is still held by work that is being evicted"


# Several nodes


def test_what_lies_on_different_nodes_is_not_on_one() -> None:
    world = World(nodes=0).node("a", gpus=6, cpu_milli=2_000).node("b", gpus=2, cpu_milli=64_000)
    world.submit("new", gpus_each=4, cpu_milli=8_000).settle()
    apart = "no single node has everything it needs, even when empty: it needs"
    told = [(each.sentence, each.remedy) for each in ask(world, "new").obstacles]
    assert told == [
        (f"{apart} 4 GPUs, and the closest is b, which has 2 GPUs", "ask for 2 GPUs or fewer; waiting does not help"),
        (f"{apart} 8 CPUs, and the closest is a, which has 2 CPUs", "ask for 2 CPUs or less; waiting does not help"),
    ]


def test_what_is_free_on_different_nodes_only_now_is_worth_waiting_for() -> None:
    world = World(nodes=0).node("a", gpus=6, cpu_milli=64_000).node("b", gpus=2, cpu_milli=64_000)
    world.submit("old", gpus_each=3, cpu_milli=60_000).settle()
    world.submit("new", gpus_each=4, cpu_milli=8_000).settle()
    assert [each.obstacle.reason for each in ask(world, "new").obstacles] == [Reason.NOT_ENOUGH_FREE_GPUS]
    assert ask(world, "new").obstacles[0].remedy == "ask for 3 GPUs or fewer, or wait for running work to end"


def test_a_large_node_that_is_cordoned_is_worth_waiting_for() -> None:
    world = World(nodes=0).node("big", gpus=8).node("small", gpus=2).running("old", gpus=8)
    world.node("big", gpus=8, cordoned=True)
    world.submit("new", gpus_each=8).settle()
    answer = ask(world, "new")
    assert [each.obstacle.reason for each in answer.obstacles] == [Reason.NODE_CORDONED, Reason.NOT_ENOUGH_GPUS]
    assert answer.obstacles[0].remedy == "uncordon one: kaiwo nodes uncordon NODE"
    assert said(world, "new")[1] == "it asks for 8 GPUs on one node, but the largest node that it may use has 2 GPUs"
    assert answer.obstacles[1].remedy == "ask for 2 GPUs or fewer, or wait until it may use a larger one"


def test_nodes_that_are_kept_out_are_not_counted_against_one_that_is_there() -> None:
    """With one node of four open, `need 1 node, have 1 node` would say that nothing is missing."""
    world = World(nodes=0)
    for number in range(4):
        world.node(f"node-{number}", cordoned=number > 0)
    world.submit("gang", pods=2, gpus_each=8).settle()
    for need, kept_out in ((0, 3), (1, 4)):
        (cordoned,) = [each for each in ask(world, "gang").obstacles if each.obstacle.reason is Reason.NODE_CORDONED]
        assert cordoned.sentence == f"{kept_out} of 4 nodes are cordoned"
        assert (cordoned.obstacle.need, cordoned.obstacle.have) == (need, 0)
        world.node("node-0", cordoned=True).settle()


def test_a_cordoned_node_that_is_too_small_as_well_is_not_worth_waiting_for() -> None:
    world = World(nodes=0).node("small", gpus=2).node("other", gpus=4, cordoned=True)
    world.submit("new", gpus_each=8).settle()
    (only,) = ask(world, "new").obstacles
    assert only.sentence == "it asks for 8 GPUs on one node, but the largest node that it may use has 2 GPUs"
    assert only.remedy == "ask for 2 GPUs or fewer; waiting does not help"


def test_a_large_device_on_a_cordoned_node_is_worth_waiting_for() -> None:
    world = World(nodes=0).node("big", gpus=1).node("small", gpus=1, model="MI210")
    world.node("big", gpus=1, cordoned=True).submit("new", memory_mib=100_000).settle()
    answer = ask(world, "new")
    assert [each.obstacle.reason for each in answer.obstacles] == [Reason.NODE_CORDONED, Reason.NOT_ENOUGH_GPU_MEMORY]
    assert "waiting does not help" not in answer.obstacles[1].remedy


# Sizes


def test_no_share_below_a_hundredth_is_proposed() -> None:
    world = World(gpus_per_node=1).submit("old", fraction_milli=995)
    world.settle()
    world.submit("new", fraction_milli=125).settle()
    answer = ask(world, "new")
    assert answer.change is not None
    assert answer.change.kind == "stop-workload"
    assert answer.obstacles[0].remedy == "wait for running work to end"


def test_what_is_to_be_typed_has_the_units_of_the_sentence() -> None:
    world = World().submit("new", cpu_milli=193_000).submit("more", cpu_milli=192_500)
    world.settle()
    change = ask(world, "new").change
    assert change is not None
    assert (change.sentence, change.command) == ("ask for 192 CPUs instead", "kaiwo set new cpu=192")
    world.node("node-0", cpu_milli=150_500, memory_mib=2_000).settle()
    change = ask(world, "more").change
    assert change is not None
    assert change.command == "kaiwo set more cpu=150500m"
    world.submit("large", request=Request(memory_mib=65_536)).node("node-0", memory_mib=40_960).settle()
    change = ask(world, "large").change
    assert change is not None
    assert (change.sentence, change.command) == ("ask for 40 GiB of memory instead", "kaiwo set large memory=40Gi")


# Plugins


class Raises:
    """A stranger's plugin on a bad day."""

    version, reason, weight, is_static = "1", Reason.PLUGIN, 1, False

    def __init__(self, name: str) -> None:
        self.name = name


class RaisingFilter(Raises):
    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        raise RuntimeError("no answer today")


class RaisingScore(Raises):
    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        return np.zeros(0, np.int64)


@pytest.mark.parametrize("broken", [RaisingFilter("broken"), RaisingScore("broken")])
def test_why_answers_without_a_plugin_that_raises(broken: Raises) -> None:
    plugins = builtin_registry()
    plugins.add(broken)
    world = World(gpus_per_node=1).running("old", gpus=1).submit("new", gpus_each=1)
    world.settle()
    assert ask(world, "new", plugins) == ask(world, "new")
    assert ask(world, "new", plugins).change is not None


# Bounds of GPU models


def modelled(**bounds: GpuModelAmounts) -> World:
    """A queue that bounds H100 as well, in a cluster that has none."""
    queue = Queue("modelled", gpu=QueueAmounts(4_000, 4_000), cpu=QueueAmounts(0), gpu_models=bounds)
    return World().tell(QueueChanged(queue))


def test_a_bound_of_a_model_that_does_not_matter_hides_no_raise() -> None:
    world = modelled(H100=GpuModelAmounts(limit=1_000)).queue("default", gpu_limit=0)
    world.submit("y", gpus_each=2, cpu_milli=1_000, queue="modelled", preemptible=False).settle()
    assert proposed(world, "y") == "raise the cpu quota of queue 'modelled' by 1 CPU, to 1 CPU"


@pytest.mark.parametrize("models", [("MI300X",), (), ("MI300X", "H100")])
def test_the_bound_of_the_model_that_it_needs_is_raised(models: tuple[str, ...]) -> None:
    world = modelled(MI300X=GpuModelAmounts(limit=1_000)).queue("default", gpu_limit=0)
    world.submit("old", gpus_each=1, models=models, queue="modelled").settle()
    world.submit("y", gpus_each=2, pods=1, minimum=-1, models=models, queue="modelled").settle()
    assert said(world, "y")[0] == "it needs 2 GPUs, but queue 'modelled' has 0 GPUs left of its MI300X limit"
    assert proposed(world, "y") == "raise the MI300X limit of queue 'modelled' by 2 GPUs, to 3 GPUs"


def test_of_two_models_the_one_that_has_room_is_raised() -> None:
    bounds = {"MI300X": GpuModelAmounts(limit=1_000), "MI210": GpuModelAmounts(limit=0)}
    world = World(nodes=0).node("a", gpus=1).node("b", gpus=8, model="MI210").queue("default", gpu_limit=0)
    world.queue("lab", gpu_models=bounds).submit("y", gpus_each=1, pods=3, queue="lab").settle()
    assert proposed(world, "y") == "ask for 1 pod instead"
    world.submit("z", gpus_each=4, queue="lab").settle()
    assert said(world, "z") == ["it needs 4 GPUs, but queue 'lab' has 0 GPUs left of its MI210 limit"]


def test_the_quota_of_a_model_is_raised_no_higher_than_the_door_lets_it() -> None:
    world = modelled(MI300X=GpuModelAmounts(quota=0, limit=1_000)).queue("default", gpu_limit=0)
    world.tell(QueueChanged(replace(world.state.queue_objects["modelled"], cpu=QueueAmounts(-1))))
    world.submit("one", gpus_each=1, queue="modelled", preemptible=False).settle()
    assert proposed(world, "one") == "raise the MI300X quota of queue 'modelled' by 1 GPU, to 1 GPU"
    world.submit("two", pods=2, gpus_each=1, minimum=2, queue="modelled", preemptible=False).settle()
    assert "quota" not in proposed(world, "two")


def test_of_several_ways_to_be_whole_the_cheapest_stop_is_named() -> None:
    """One of two sub-groups is enough: the other's CPUs and one's own GPU are in use, and the own work goes first."""
    world = World(nodes=0, policy=Policy(actions=("allocate",))).node("n0", gpus=1, cpu_milli=4_000)
    world.submit("theirs", pods=2, request=Request(cpu_milli=2_000), user="bob")
    world.submit("mine", gpus_each=1, user="ann").settle()
    roles = (Role(Request(gpus=1), "gpu"), Role(Request(cpu_milli=4_000), "cpu"))
    world.tell(WorkloadChanged(Workload("default/new", roles, user="ann", groups=(SubGroup("", minimum=1),)))).settle()
    assert proposed(world, "new") == "stop mine, which is running now"
    sentences = [each.sentence for each in why(world.state, "default/new", world.policy, world.now_s).obstacles]
    assert "its sub-group cpu needs 1 pod, but there is no room for it" in sentences


def test_a_queue_that_never_reclaims_says_so() -> None:
    world = World(gpus_per_node=2).queue("rich").submit("old", pods=2, gpus_each=1, queue="rich")
    world.settle()
    world.queue("shy", quota_milli=2_000, fairness=Fairness(reclaim_strategy=ReclaimStrategy.NONE))
    world.submit("new", gpus_each=1, queue="shy").settle()
    sentences = [each.sentence for each in why(world.state, "default/new", world.policy, world.now_s).obstacles]
    assert "queue 'shy' may not reclaim from other queues: its reclaimStrategy is none" in sentences


def test_what_keeps_two_roles_waiting_alike_is_told_once() -> None:
    world = World().tell(
        ReservationChanged(Reservation("night", nodes=("node-0",), owner=ReservationOwner(user="ann")))
    )
    roles = (Role(Request(gpus=1)), Role(Request(gpus=2), "side"))
    world.tell(WorkloadChanged(Workload("default/mine", roles, user="bob"))).settle()
    told = said(world, "mine")
    assert len([each for each in told if "reservation 'night'" in each]) == 1
    assert len(told) == len(set(told))


def test_where_one_model_is_bounded_waiting_may_help_who_takes_others() -> None:
    world = World(nodes=0, policy=ALLOCATES).node("a", gpus=1, model="MI300X").node("b", gpus=1, model="MI210")
    world.queue("lab", gpu_models={"MI300X": GpuModelAmounts(limit=500)}).queue("prod")
    world.submit("first", gpus_each=1, models=("MI210",), queue="prod").settle()
    world.submit("mine", gpus_each=1, queue="lab").settle()
    (told,) = ask(world, "mine").obstacles
    assert told.sentence == "it needs 1 GPU, but queue 'lab' has 0.5 GPU left of its MI300X limit"
    assert told.remedy == "raise the limit by 0.5 GPU; waiting helps only if it can use other models"
    world.finish("first").settle()
    assert world.is_running("mine")


def test_a_share_may_be_too_small_to_be_kept_apart_and_a_larger_one_is_proposed() -> None:
    world = World(gpus_per_node=1, policy=ALLOCATES).submit("first", fraction_milli=200)
    world.settle()
    world.submit("mine", request=Request(gpus=1, gpu_milli=900, least_grade="cu-mask")).settle()
    assert proposed(world, "mine") == "ask for 0.8 of a GPU instead"


def test_memory_may_be_too_little_to_be_kept_apart_and_more_is_proposed() -> None:
    world = World(gpus_per_node=1, policy=ALLOCATES).submit("first", fraction_milli=200)
    world.settle()
    world.submit("mine", request=Request(gpus=1, gpu_mib=190_000, least_grade="cu-mask")).settle()
    assert proposed(world, "mine") == "ask for 157287 MiB of a GPU instead"


def test_who_demands_to_be_kept_apart_makes_room_by_going_for_one_who_takes_turns() -> None:
    world = World(gpus_per_node=1, policy=ALLOCATES)
    world.submit("first", request=Request(gpus=1, gpu_milli=500, least_grade="cu-mask")).settle()
    world.submit("mine", request=Request(gpus=1, gpu_milli=500, isolation="time-slicing")).settle()
    assert proposed(world, "mine") == "stop first, which is running now"


def test_a_limit_is_raised_by_what_the_sub_group_costs_that_has_room() -> None:
    world = World(nodes=1, gpus_per_node=4, policy=ALLOCATES).node("small", gpus=1, model="MI210")
    world.queue("default", gpu_limit=0)
    roles = (Role(Request(gpus=2, gpu_models=("MI210",))), Role(Request(gpus=3), "side"))
    groups = (SubGroup(minimum=1),)
    world.tell(WorkloadChanged(Workload("default/mine", roles, groups=groups))).settle()
    assert proposed(world, "mine") == "raise the gpu limit of queue 'default' by 3 GPUs, to 3 GPUs"


def test_where_each_node_is_closed_in_another_way_every_way_is_told() -> None:
    world = World(nodes=0).node("a", gpus=2, cordoned=True).node("b", gpus=2, ready=False)
    world.submit("mine", gpus_each=4).settle()
    assert said(world, "mine") == [
        "it asks for 4 GPUs on one node, but the largest node has 2 GPUs",
        "1 of 2 nodes is not ready",
        "1 of 2 nodes is cordoned",
    ]


def test_a_gang_for_which_there_are_too_few_of_an_extended_resource_is_not_told_to_wait() -> None:
    world = World(nodes=0).node("a", extended={"x/nic": 1}).running("first", gpus=8)
    world.submit("mine", pods=2, request=Request(gpus=1, extended=(("x/nic", 1),))).settle()
    gang = ask(world, "mine").obstacles[0]
    assert (
        gang.sentence
        == "its 2 pods must start together, but even when empty, the nodes that it may use would fit only 1"
    )
    assert gang.remedy.endswith("waiting for work to end does not help")
