"""How the queues stand, as people are told it: once a revision, and as the scheduler itself would have it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.decide.turn_order import Turns, lanes_of
from kaiwo.model.events import QueueChanged, WorkloadChanged
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.queue import Fairness, Queue, QueueAmounts, ReclaimStrategy, SharePolicy
from kaiwo.queues.current_shares import fair_shares_of
from kaiwo.runtime.overview import queue_shares as module
from kaiwo.runtime.overview.queue_shares import QueueShareRow, QueueShareTable
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.api.fake_loop import FakeLoop, record
from tests.waiting import run
from tests.worlds import World


class Live:
    """A picture and a number."""

    def __init__(self, state: ClusterState, revision: int = 1) -> None:
        self.state, self.revision = state, revision


def stand(state: ClusterState) -> dict[str, QueueShareRow]:
    async def work() -> dict[str, QueueShareRow]:
        standings = QueueShareTable(Live(state))
        await standings.fresh()
        return {each.queue.name: each for each in standings.queues}

    return run(work())


def test_they_are_worked_out_once_a_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[int] = []
    work_out = module._share_rows
    monkeypatch.setattr(module, "_share_rows", lambda *given: worked.append(1) or work_out(*given))  # type: ignore[func-returns-value]

    async def work() -> None:
        live = FakeLoop(nodes=1)
        standings = QueueShareTable(live)
        for _ in range(3):
            await standings.fresh()
        assert len(worked) == 1
        live.put(record("a"))
        await standings.fresh()
        await standings.fresh()
        assert len(worked) == 2
        assert standings.queues[0].terms[0].wants == 1000

    run(work())


def test_a_queue_that_no_cycle_has_seen_yet_is_there() -> None:
    world = World().queue("lab").queue("team", "lab", quota_milli=4000)
    world.state.refresh_tables()
    world.tell(QueueChanged(Queue("new", "lab", gpu=QueueAmounts(2000))))
    found = stand(world.state)
    assert list(found) == ["default", "lab", "new", "team"]
    assert (found["new"].depth, found["new"].is_leaf, found["lab"].is_leaf) == (1, True, False)


def test_what_a_queue_does_not_say_comes_from_above() -> None:
    rules = Fairness(SharePolicy.FIFO, ReclaimStrategy.CONSERVATIVE, 60)
    found = stand(World().queue("lab", fairness=rules).queue("team", "lab").state)
    team = found["team"]
    assert Fairness(team.policy, team.reclaim_strategy, team.min_runtime_s) == rules


def test_work_that_may_not_be_preempted_is_told_apart() -> None:
    world = World().queue("lab", quota_milli=8000)
    world.submit("fixed", gpus_each=3, queue="lab", preemptible=False).submit("free", gpus_each=2, queue="lab")
    world.settle()
    lab = stand(world.state)["lab"]
    assert (lab.used[0], lab.fixed[0]) == (5000, 3000)
    assert lab.position is None


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Two levels of queues with work that waits: nothing of it has been placed."""
    world = World(nodes=draw(st.integers(1, 3)))
    leaves = ["default"]
    for top in "abc"[: draw(st.integers(1, 3))]:
        policy = draw(st.sampled_from([None, *SharePolicy]))
        priority = draw(st.sampled_from([50, 100, 200]))
        quota = draw(st.integers(0, 12)) * 1000
        world.queue(top, quota_milli=quota, priority=priority, fairness=Fairness(policy))
        below = [f"{top}{number}" for number in range(draw(st.integers(0, 3)))]
        for leaf in below:
            world.queue(leaf, top, quota_milli=draw(st.integers(0, 6)) * 1000, created_s=draw(st.integers(0, 2)))
        leaves += below or [top]
    for number in range(draw(st.integers(0, 8))):
        queue, gpus = draw(st.sampled_from(leaves)), draw(st.integers(1, 4))
        priority, at_s = draw(st.integers(0, 2)), draw(st.integers(0, 9))
        world.submit(f"w{number}", gpus_each=gpus, queue=queue, priority=priority, submitted_s=at_s)
        if draw(st.booleans()):
            world.settle()
    return world


@given(worlds())
def test_the_queue_that_is_next_is_the_one_that_the_scheduler_tries_next(world: World) -> None:
    snapshot = world.snapshot()
    found = stand(world.state)
    plugins = BUILTIN.active(DEFAULT_POLICY)
    cycle_state = CycleState(snapshot, CycleInput(world.state, DEFAULT_POLICY, plugins, snapshot.now_s))
    classes = world.state.backlog.classes_to_try(all_classes=True)
    lanes = lanes_of(found for found in classes if cycle_state.charges.takes_work(found.queue))
    turns = Turns(lanes, cycle_state.working.view, plugins, cycle_state.charges.next_of)
    if not turns:
        assert all(each.position is None for each in found.values())
        return
    row = turns.row
    on_the_way = [world.state.queues.names[above] for above in world.state.queues.path[row]]
    assert all(found[name].position is not None and found[name].position.place == 1 for name in on_the_way)
    (_, workload), _, _ = turns.lane.first
    assert {found[name].position.first.workload for name in on_the_way} == {workload}
    shares = fair_shares_of(WorkingCopy(snapshot).view)
    for name, each in found.items():
        assert [terms.share for terms in each.terms] == shares.share[world.state.queues.row[name]].tolist()


def test_work_that_can_never_start_is_not_next() -> None:
    world = World(nodes=1).submit("huge", gpus_each=64, submitted_s=0).submit("small", gpus_each=1, submitted_s=1)
    world.state.refresh_tables()
    turn = stand(world.state)["default"].position
    assert turn is not None
    assert turn.first.workload == "default/small"


def test_held_work_asks_for_nothing() -> None:
    world = World()
    world.submit("held", gpus_each=2, held=True)
    assert stand(world.state)["default"].terms[0].wants == 0
    world.tell(WorkloadChanged(replace(world.state.workloads["default/held"], held=False)))
    assert stand(world.state)["default"].terms[0].wants == 2000
