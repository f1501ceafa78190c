"""Laws of planned starts: with exact run times none is ever broken, and backfill never breaks one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kaiwo.model.plan import EvictionCause, Plan, encode_plan
from kaiwo.model.planned_start import DelayCause, PlannedStart
from kaiwo.model.workload import Pod
from tests.properties.backfill_worlds import Job, Story
from tests.worlds import World

SIZES = [(1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (3, 4), (4, 4), (3, 2)]


@st.composite
def jobs(draw: st.DrawFn, is_exact: bool, has_ranks: bool = False) -> list[Job]:
    found = []
    for number in range(draw(st.integers(4, 16))):
        pods, gpus = draw(st.sampled_from(SIZES))
        runs_s = draw(st.integers(1, 40)) * 50
        says_s = runs_s if is_exact else draw(st.sampled_from([0, runs_s // 2, runs_s, 2 * runs_s, 3 * runs_s]))
        found.append(
            Job(
                f"job-{number:02d}",
                draw(st.integers(0, 20)) * 40,
                pods,
                gpus,
                says_s,
                runs_s,
                draw(st.integers(0, 2)) if has_ranks else 0,
                draw(st.booleans()),
            )
        )
    return found


@settings(max_examples=25, deadline=None)
@given(jobs(is_exact=True))
def test_with_exact_run_times_nobody_starts_later_than_ever_promised(work: list[Job]) -> None:
    story = Story(work)
    story.play()
    assert len(story.started_s) == len(work)
    for name, told in story.promised.items():
        assert story.started_s[name] <= min(promise.start_s for _, promise in told), name
    assert not any(plan.evictions for plan in story.plans)


@settings(max_examples=25, deadline=None)
@given(jobs(is_exact=True))
def test_with_exact_run_times_a_promise_only_moves_earlier(work: list[Job]) -> None:
    story = Story(work)
    story.play()
    for name, told in story.promised.items():
        starts = [promise.start_s for _, promise in told]
        assert starts == sorted(starts, reverse=True), name
        assert all(promise.delay is None for _, promise in told)


@settings(max_examples=25, deadline=None)
@given(jobs(is_exact=False, has_ranks=True))
def test_a_promise_that_moves_later_says_why_and_backfill_is_never_why(work: list[Job]) -> None:
    story = Story(work)
    current: dict[str, tuple[int, PlannedStart]] = {}

    def look(world: World, plan: Plan) -> None:
        assert world.is_within_capacity()
        for promise in plan.promises:
            since_s, before = current.get(promise.workload, (world.now_s, promise))
            if promise.start_s > before.start_s:
                assert promise.delay is not None, promise
                guilty = fillers_in_the_way(world, before, since_s) - story.planned
                assert not guilty or promise.delay is DelayCause.NODE, (promise, guilty)
            is_same = before.places == promise.places
            current[promise.workload] = (since_s if is_same else world.now_s, promise)
        for name in plan.unpromised:
            current.pop(name, None)

    story.play(look)
    for plan in story.plans:
        assert all(eviction.cause is not EvictionCause.DEADLINE or eviction.beneficiary for eviction in plan.evictions)


def fillers_in_the_way(world: World, promise: PlannedStart, since_s: int) -> set[str]:
    """Who came to the place after it was promised, is not more important, and should stay beyond the start."""
    owner = world.state.workloads.get(promise.workload)
    found = set()
    for place in promise.places:
        gpus = {share.gpu for share in place.devices}
        for pod in world.state.allocations_on.get(place.node, {}).values():
            workload = world.state.workloads.get(pod.workload)
            if not isinstance(pod, Pod) or workload is None or owner is None or pod.workload == promise.workload:
                continue
            is_there = not gpus.isdisjoint(share.gpu for share in pod.devices)
            is_there &= since_s < pod.since_s < world.now_s  # who starts now minds the promise as it is now
            run_s = min(filter(None, (workload.estimate_s, workload.time_limit_s)), default=0)
            is_late = not run_s or pod.since_s + run_s > promise.start_s
            if is_there and is_late and workload.priority <= owner.priority:
                found.add(pod.workload)
    return found


@settings(max_examples=25, deadline=None)
@given(jobs(is_exact=False, has_ranks=True))
def test_the_same_story_gives_the_same_plans(work: list[Job]) -> None:
    plans = []
    for order in (work, list(reversed(work))):
        story = Story(order)
        story.play()
        plans.append([encode_plan(plan) for plan in story.plans])
    assert plans[0] == plans[1]


@settings(max_examples=25, deadline=None)
@given(jobs(is_exact=False))
def test_a_plan_does_not_hang_on_what_was_remembered(work: list[Job]) -> None:
    """A fresh picture of the same events, as a replay has it, keeps and moves the same promises."""
    story = Story(work)

    def look(world: World, plan: Plan) -> None:
        if world.state.planned_starts:
            twin = World(nodes=0, policy=world.policy)
            twin.tell(*world.state.events())
            twin.now_s = world.now_s
            ours = world.state.fork()
            ours.backlog.try_all = True
            ours.caches.clear()
            theirs, mine = twin.decide(), World.decide(_around(ours, world))
            assert (theirs.starts, theirs.promises, theirs.unpromised, theirs.evictions) == (
                mine.starts, mine.promises, mine.unpromised, mine.evictions
            )  # fmt: skip

    story.play(look)


def _around(state: object, world: World) -> World:
    other = World(nodes=0, policy=world.policy)
    other.state, other.now_s = state, world.now_s  # type: ignore[assignment]
    return other
