"""What went wrong for the users of other schedulers when work was stopped for others: each failure as a story."""

from kaiwo.model.affinity import NodeRule
from kaiwo.model.events import NodeChanged, PodGone, QueueChanged, WorkloadChanged
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import EvictionCause
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Fairness, Queue, QueueAmounts, ReclaimStrategy
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from tests.worlds import World


def two_teams(nodes: int = 2, quota_milli: int = 8_000) -> World:
    return World(nodes=nodes).queue("red", quota_milli=quota_milli).queue("blue", quota_milli=quota_milli)


def test_no_eviction_whose_beneficiary_does_not_start() -> None:
    """spur#888: two one-GPU jobs cancelled eleven jobs and used none of the space."""
    world = two_teams()
    for number in range(16):
        world.submit(f"red{number:02}", gpus_each=1, queue="red")
    world.settle()
    nowhere = Request(gpus=1, node_rules=(NodeRule("zone", "In", ("moon",)),))
    world.submit("blue-impossible", request=nowhere, queue="blue").submit("blue", gpus_each=1, queue="blue")
    plans = world.settle()
    stopped = [each for plan in plans for each in plan.evictions]
    assert [each.beneficiary for each in stopped] == ["default/blue"]
    assert world.is_running("blue")
    assert not world.is_running("blue-impossible")


def test_eight_gpus_are_reclaimed_on_one_node_and_not_on_four() -> None:
    """kueue#5243: eight freed GPUs on four nodes admitted a pod of eight that could never run."""
    world = two_teams(nodes=4, quota_milli=16_000)
    for number in range(32):
        world.submit(f"red{number:02}", gpus_each=1, queue="red")
    world.settle()
    world.submit("blue", gpus_each=8, queue="blue")
    plan = world.decide()
    assert len(plan.evictions) == 8
    victims = {(each.workload, each.pod) for each in plan.evictions}
    assert len({world.state.pods[w][p].node for w, p in victims}) == 1
    world.let_go().decide()
    assert world.is_running("blue")


def test_reclaim_and_allocation_do_not_take_turns() -> None:
    """volcano#561, #4947; kueue#14543: what was reclaimed was given back, and so on for ever."""
    world = two_teams(nodes=1, quota_milli=4_000)
    for number in range(8):
        world.submit(f"red{number}", gpus_each=1, queue="red")
    world.settle()
    for number in range(8):
        world.submit(f"blue{number}", gpus_each=1, queue="blue")
    world.settle()
    used = {name: sum(world.is_running(f"{name}{number}") for number in range(8)) for name in ("red", "blue")}
    assert used == {"red": 4, "blue": 4}
    for _ in range(10):
        assert world.let_go().decide().is_empty


def test_a_victim_is_chosen_so_that_the_preemptor_obeys_every_rule() -> None:
    """volcano#4926, #4533: evicted by quantity, and the preemptor still did not fit."""
    world = World(nodes=0).node("small", gpus=8, labels={"disk": "hdd"}).node("right", gpus=8, labels={"disk": "ssd"})
    for number in range(16):
        world.submit(f"low{number:02}", gpus_each=1, submitted_s=number)
    world.settle()
    ssd = Request(gpus=2, node_rules=(NodeRule("disk", "In", ("ssd",)),))
    world.submit("high", request=ssd, priority=100, submitted_s=99)
    plan = world.decide()
    assert len(plan.evictions) == 2
    assert {world.state.pods[each.workload][each.pod].node for each in plan.evictions} == {"right"}
    world.let_go().decide()
    assert world.nodes_of("high") == ["right"]


def test_nothing_is_moved_about_unless_somebody_asked_for_it() -> None:
    """KAI#2073: consolidation was on by default and surprised its users."""
    for actions, is_moved in ((Policy().actions, False), ((*Policy().actions, "consolidate"), True)):
        world = World(nodes=2, gpus_per_node=2, policy=Policy(actions=actions))
        for number in range(3):
            world.submit(f"small{number}", gpus_each=1).settle()
        world.finish("small0").settle()  # one GPU is free on each node, and nobody has a whole one
        assert world.nodes_of("small1") != world.nodes_of("small2")
        causes = {each.cause for plan in world.submit("pair", gpus_each=2).settle() for each in plan.evictions}
        assert causes == ({EvictionCause.CONSOLIDATE} if is_moved else set())
        assert world.is_running("pair") is is_moved


def test_a_gang_is_stopped_whole_and_only_when_it_must_be() -> None:
    """A gang that lost one pod only held space: below its minimum it goes whole, above it pod by pod."""
    world = two_teams(nodes=1, quota_milli=4_000)
    world.submit("elastic", pods=8, minimum=2, gpus_each=1, queue="red").settle()
    world.submit("blue", gpus_each=2, queue="blue").settle()
    assert len(world.state.pods["default/elastic"]) == 6
    world.submit("blue-too", gpus_each=2, queue="blue").settle()
    assert len(world.state.pods["default/elastic"]) == 4


def test_work_within_its_quota_is_safe_from_others() -> None:
    world = two_teams(nodes=1, quota_milli=4_000)
    world.running("red", gpus=4, queue="red").running("rest", gpus=4, queue="blue")
    world.submit("blue-urgent", gpus_each=4, queue="blue", priority=1_000)
    causes = {each.cause for plan in world.settle() for each in plan.evictions}
    assert causes == {EvictionCause.PREEMPT}  # its own queue's less important work goes, and nobody else's
    assert world.is_running("red")


def test_the_least_work_is_lost() -> None:
    """Of equals the one goes that loses the least since its last checkpoint."""
    world = two_teams(nodes=1, quota_milli=4_000)
    world.submit("long", gpus_each=4, queue="red").decide()
    world.now_s = 7_000
    world.submit("young", gpus_each=2, queue="red").decide()
    world.submit("saved", gpus_each=2, queue="red", checkpoint_s=7_190, submitted_s=0).decide()
    world.now_s = 7_200
    world.submit("blue", gpus_each=2, queue="blue")
    assert [each.workload for each in world.decide().evictions] == ["default/saved"]


def test_a_minimum_run_time_is_kept_and_then_the_claim_is_met() -> None:
    world = World().queue("red", fairness=Fairness(min_runtime_s=600)).queue("blue", quota_milli=4_000)
    world.running("red", gpus=8, queue="red").submit("blue", gpus_each=1, queue="blue")
    plan = world.decide()
    assert plan.evictions == ()
    assert plan.look_again_s == 600
    world.now_s = 599
    assert world.decide().is_empty
    world.now_s = 600
    assert [each.beneficiary for each in world.decide().evictions][:1] == ["default/blue"]


def test_a_queue_that_never_reclaims_waits() -> None:
    world = (
        World()
        .queue("red")
        .queue("polite", quota_milli=4_000, fairness=Fairness(reclaim_strategy=ReclaimStrategy.NONE))
    )
    world.running("red", gpus=8, queue="red").submit("new", gpus_each=1, queue="polite")
    assert world.decide().evictions == ()


def test_space_that_is_kept_on_a_lost_node_is_given_up() -> None:
    """A nomination must not keep its owner from starting elsewhere for ever."""
    world = two_teams(nodes=2)
    for number in range(16):
        world.submit(f"red{number:02}", gpus_each=1, queue="red")
    world.settle()
    world.submit("blue", gpus_each=8, queue="blue").decide()
    (kept,) = world.state.nominations["default/blue"].values()
    world.let_go().lose_node(kept.node)
    world.tell(NodeChanged(Node("fresh", 192_000, 2**21, gpus=world.state.node_objects[_other(kept.node)].gpus)))
    world.settle()
    assert world.nodes_of("blue") == ["fresh"]
    assert not world.state.nominations


def test_the_reason_says_that_the_fair_share_is_used_up() -> None:
    """kueue#4857, KAI#586: nobody could see why a queue got no more."""
    world = World().queue("red", quota_milli=4_000).queue("blue", quota_milli=2_000).queue("guest")
    world.running("red", gpus=2, queue="red").running("blue", gpus=2, queue="blue").running(
        "guest", gpus=4, queue="guest"
    )
    world.submit("owed", gpus_each=2, queue="red", held=True).submit("more", gpus_each=4, queue="blue").settle()
    assert world.why("more") == [Reason.NOT_ENOUGH_FREE_GPUS, Reason.OVER_FAIR_SHARE]


def test_a_victim_that_comes_back_does_not_push_its_beneficiary_out() -> None:
    world = two_teams(nodes=1, quota_milli=4_000)
    for number in range(8):
        world.submit(f"red{number}", gpus_each=1, queue="red")
    world.settle()
    world.submit("blue", gpus_each=4, queue="blue").decide()
    for name, pods in list(world.state.pods.items()):
        for pod in list(pods.values()):
            if pod.phase == "releasing":
                world.tell(PodGone(name, pod.name))  # and its replacement waits at once
    world.settle()
    assert world.is_running("blue")


def _other(node: str) -> str:
    return "node-1" if node == "node-0" else "node-0"


def test_a_queue_that_is_owed_is_served_although_its_rival_began_in_the_same_cycle() -> None:
    world = World().queue("a", quota_milli=1_000).queue("b", quota_milli=4_000)
    world.submit("pa", pods=8, minimum=1, gpus_each=1, queue="a", priority=100)
    world.submit("pb", gpus_each=2, queue="b").settle()
    world.now_s += 1
    world.settle()
    assert world.is_running("pb")


def test_what_a_gang_can_spare_does_not_run_on_without_what_it_needs() -> None:
    lead = Role(Request(1000, 0, 1), name="lead", count=1)
    spare = Role(Request(1000, 0, 0), name="work", count=4, minimum=1)
    world = World(gpus_per_node=1).tell(WorkloadChanged(Workload("default/gang", (lead, spare))))
    world.settle()
    world.submit("vip", gpus_each=1, priority=100).settle()
    assert world.is_running("vip")
    assert not world.is_running("gang")


def test_a_gang_that_is_moved_is_moved_whole() -> None:
    world = World(nodes=0).node("n0", gpus=2, labels={"fast": "yes"}).node("n1", gpus=2)
    world.queue("red", quota_milli=4_000).queue("blue", quota_milli=2_000)
    world.submit("gang", pods=4, gpus_each=1, queue="red").settle()
    world.node("n2", gpus=2)
    fast = Request(gpus=2, node_rules=(NodeRule("fast", "Exists"),))
    plans = world.submit("two", request=fast, queue="blue").settle()
    assert [len(plan.evictions) for plan in plans if plan.evictions] == [4]
    assert world.nodes_of("two") == ["n0"]
    assert world.nodes_of("gang") == ["n1", "n1", "n2", "n2"]


def test_who_had_to_go_makes_nobody_go_for_a_while_and_starts_where_there_is_room() -> None:
    """Taking turns comes to an end: see docs/decisions/0013."""
    world = World().tell(QueueChanged(Queue("a", gpu=QueueAmounts(quota=4_000))), QueueChanged(Queue("b")))
    world.running("guest", gpus=8, queue="b")
    world.submit("owner", pods=4, gpus_each=1, queue="a").settle()
    assert world.is_running("owner")
    assert not world.is_running("guest")
    world.tell(
        QueueChanged(Queue("b", gpu=QueueAmounts(quota=8_000)))
    )  # now it is owed everything, and may not take it yet
    world.tell(QueueChanged(Queue("a"))).settle()
    assert world.is_running("owner")
    assert world.state.look_again_s == world.now_s + world.policy.hold_off_s
    world.now_s += world.policy.hold_off_s
    world.settle()
    assert world.is_running("guest")
    assert not world.is_running("owner")
