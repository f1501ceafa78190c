"""Advice of each kind, and no advice around a limit."""

from msgspec.structs import replace

from kaiwo.advise.advice import Advice, AdviceKind, NodeMode, QuotaChange, SizeChange
from kaiwo.advise.advice_sentences import advice_words
from kaiwo.advise.find_advice import find_advice
from kaiwo.advise.right_size import SizeRule
from kaiwo.advise.run_uses import PodAmounts, RunUse, RunUses
from kaiwo.advise.verify_advice import AdviceQuestion
from kaiwo.forecast.expected_starts import run_key_of
from kaiwo.forecast.recent_arrivals import RecentArrivals
from kaiwo.forecast.run_time_forecast import RunTimeForecast
from kaiwo.model.events import NodeChanged, QueueChanged
from kaiwo.model.policy import Policy
from kaiwo.model.queue import UNLIMITED, Queue, QueueAmounts
from kaiwo.model.request import Request
from tests.worlds import World

HOUR = 3600


def advice_for(world: World, uses: RunUses | None = None) -> list[Advice]:
    question = AdviceQuestion(
        world.state, world.policy, world.plugins, world.now_s, RunTimeForecast(), RecentArrivals(0),
        uses or RunUses(), SizeRule(),
    )  # fmt: skip
    before = sorted(world.state.pods), sorted(world.state.workloads)
    found = find_advice(question)
    assert (sorted(world.state.pods), sorted(world.state.workloads)) == before, "advice changes nothing"
    return list(found.advice)


def used_by(world: World, name: str, milli: int, mib: int) -> RunUses:
    uses, workload = RunUses(), world.state.workloads[f"default/{name}"]
    given = PodAmounts(1000, 196_608)
    for _ in range(6):
        uses.add(run_key_of(workload), RunUse(PodAmounts(milli, mib), given, given, HOUR, milli))
    return uses


def full_world(policy: Policy | None = None) -> World:
    """Four GPUs, all in use for ten hours; four runs of one GPU each wait."""
    world = World(nodes=1, gpus_per_node=4, policy=policy or Policy())
    for number in range(4):
        world.submit(f"long-{number}", gpus_each=1, estimate_s=(1 + number) * 10 * HOUR)
    world.settle()
    world.now_s = 60
    for number in range(4):
        world.submit(f"eval-{number}", gpus_each=1, estimate_s=HOUR)
    world.settle()
    return world


def test_waiting_work_that_used_a_fifth_is_advised_to_ask_for_that() -> None:
    world = full_world()
    (advice,) = advice_for(world, used_by(world, "eval-0", 200, 10_000))
    assert advice.kind is AdviceKind.RIGHT_SIZE
    assert isinstance(advice.change, SizeChange)
    assert advice.change.waiting == tuple(f"default/eval-{number}" for number in range(4))
    assert advice.gain.saved_wait_s > 0
    words = advice_words(advice)
    assert "GPU share 0.3 GPU instead of 1 GPU (the last 6 runs used at most 0.2 GPU)" in words.what
    assert "workloads start sooner" in words.gain
    assert words.command.startswith("kaiwo set default/eval-0 gpuFraction=0.3")


def test_a_policy_without_adjustment_gives_no_advice_about_sizes() -> None:
    world = full_world(Policy(adjustment="off"))
    assert advice_for(world, used_by(world, "eval-0", 200, 10_000)) == []


def test_work_behind_a_limit_starts_no_sooner_and_the_limit_stays() -> None:
    world = World(nodes=1, gpus_per_node=4).queue("lab", gpu_limit=1000)
    world.submit("long", gpus_each=1, queue="lab", estimate_s=100 * HOUR).settle()
    world.now_s = 60
    world.submit("eval-0", gpus_each=1, queue="lab", estimate_s=HOUR).settle()
    (advice,) = advice_for(world, used_by(world, "eval-0", 200, 10_000))
    assert (advice.kind, advice.gain.sooner, advice.gain.saved_wait_s) == (AdviceKind.RIGHT_SIZE, 0, 0)
    assert advice.gain.saved_gpu_s > 0
    assert advice_for(world) == [], "nothing else helps, and no limit is raised"


def test_what_changes_nothing_is_not_shown() -> None:
    """It waits for a GPU of its own, as it used one."""
    world = full_world()
    assert advice_for(world, used_by(world, "eval-0", 990, 150_000)) == []


def quotas(limit: int = UNLIMITED) -> World:
    """`lab` uses none of its quota of 6 GPUs. Work of `poor`, which has none, must not be stopped, so it waits."""
    world = World(nodes=1, gpus_per_node=8).queue("lab", quota_milli=6000)
    world.tell(QueueChanged(Queue("poor", gpu=QueueAmounts(0, limit))))
    for number in range(6):
        world.submit(f"sure-{number}", gpus_each=1, queue="poor", estimate_s=10 * HOUR, preemptible=False)
    world.settle()
    world.now_s = 60
    return world


def test_a_quota_that_nobody_uses_is_advised_for_a_queue_that_waits() -> None:
    (advice,) = advice_for(quotas())
    assert isinstance(advice.change, QuotaChange)
    assert (advice.change.queue, advice.change.donor) == ("poor", "lab")
    assert (advice.change.quota_milli, advice.change.donor_quota_milli) == ((0, 6000), (6000, 0))
    assert advice.gain.sooner == 6
    assert advice_words(advice).command == "kaiwo what-if --quota poor=6 --quota lab=0"


def test_a_quota_moves_within_the_limit_of_its_queue() -> None:
    (advice,) = advice_for(quotas(limit=4000))
    assert isinstance(advice.change, QuotaChange)
    assert advice.change.quota_milli == (0, 4000)


def test_a_quota_that_is_used_or_waited_for_stays() -> None:
    world = quotas()
    world.submit("theirs", pods=6, gpus_each=1, queue="lab", estimate_s=10 * HOUR).settle()
    assert not any(isinstance(each.change, QuotaChange) for each in advice_for(world))


def test_an_empty_node_is_advised_to_have_the_mode_that_waiting_work_asks_for() -> None:
    world = World(nodes=2, gpus_per_node=2)
    world.submit("part", request=Request(gpus=1, partition="CPX"), estimate_s=HOUR).settle()
    assert not world.is_running("part")
    (advice,) = advice_for(world)
    assert advice.kind is AdviceKind.REPARTITION
    assert isinstance(advice.change, NodeMode)
    assert advice.change.mode.startswith("CPX")
    assert advice.gain.after.started_now == 1
    assert advice_words(advice).command == f"kaiwo what-if --partition {advice.change.node}={advice.change.mode}"


def test_closed_nodes_and_nodes_with_work_keep_their_mode() -> None:
    world = World(nodes=1, gpus_per_node=2).running("old", 1, estimate_s=HOUR)
    world.node("node-1", gpus=2)
    world.tell(NodeChanged(replace(world.state.node_objects["node-1"], cordoned=True)))
    world.submit("part", request=Request(gpus=1, partition="CPX"), estimate_s=HOUR).settle()
    assert advice_for(world) == []
