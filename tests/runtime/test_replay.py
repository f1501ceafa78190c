"""Any cycle in the journal can be rebuilt and decided again, to the byte."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.history import Journal
from kaiwo.model.errors import NotFoundError
from kaiwo.model.events import Event, PodChanged, PodGone, WorkloadGone
from kaiwo.model.plan import Plan
from kaiwo.model.workload import Phase
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.runtime.loop.replay import replay, replay_range
from tests.properties.reclaim_worlds import contended_world
from tests.properties.strategies import states


@settings(max_examples=20)
@given(states(most_workloads=20), st.data())
def test_every_cycle_replays_to_the_same_plan(tmp_path_factory, events: list[Event], data: st.DataObject) -> None:
    home = tmp_path_factory.mktemp("home")
    # A tiny segment makes bases in the middle of the story.
    with Journal(home / "journal", segment_bytes=data.draw(st.sampled_from([1, 2_000, 2**23]))) as journal:
        numbers = _tell_a_story(CycleRunner(journal), events, data)
    for number in numbers:
        result = replay(str(home), number)
        assert result.now == result.then, number
        assert result.differences == ()


def _tell_a_story(scheduler: CycleRunner, events: list[Event], data: st.DataObject) -> list[int]:
    numbers = []
    _take(scheduler, events)
    for second in range(data.draw(st.integers(1, 6))):
        decision = scheduler.cycle(now_s=5 + second)
        if decision is not None:
            numbers.append(decision.summary.number)
        running = sorted(scheduler.state.pods)
        if running:
            name = data.draw(st.sampled_from(running))
            pods = [PodGone(name, pod) for pod in sorted(scheduler.state.pods[name])]
            _take(scheduler, [WorkloadGone(name), *pods])
    return numbers


@pytest.mark.parametrize("segment_bytes", [1, 2_000, 2**23])
def test_cycles_that_stop_and_move_work_replay_to_the_same_plan(tmp_path: Path, segment_bytes: int) -> None:
    evictions = 0
    for seed in range(12):
        home = tmp_path / str(seed)
        numbers = []
        world = contended_world(seed)
        with Journal(home / "journal", segment_bytes=segment_bytes) as journal:
            scheduler = CycleRunner(journal, world.policy)
            _take(scheduler, list(world.state.events()))
            for second in range(8):
                decision = scheduler.cycle(world.now_s + second)
                if decision is None:
                    break
                numbers.append(decision.summary.number)
                evictions += len(decision.plan.evictions)
                begun = [each.pod for each in decision.assumed if isinstance(each, PodChanged)]
                running = [PodChanged(replace(p, phase=Phase.RUNNING)) for p in begun if p.phase is Phase.ASSUMED]
                _take(scheduler, [*running, *(PodGone(each.workload, each.pod) for each in decision.plan.evictions)])
        for number in numbers:
            result = replay(str(home), number)
            assert result.now == result.then, (seed, number)
        again = list(replay_range(str(home), 0, 2**62))
        assert [each.head.number for each in again] == numbers
        assert all(each.is_same for each in again)
        assert [each.head.number for each in replay_range(str(home), numbers[-1], numbers[-1])] == numbers[-1:]
    assert evictions > 5


def test_a_cycle_that_was_decided_otherwise_is_found_among_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = contended_world(0)
    with Journal(tmp_path / "journal") as journal:
        scheduler = CycleRunner(journal, world.policy)
        _take(scheduler, list(world.state.events()))
        number = scheduler.cycle(world.now_s).summary.number  # type: ignore[union-attr]
    monkeypatch.setattr("kaiwo.runtime.loop.replay.decide", lambda *_: Plan(steps=1))
    assert [(each.head.number, each.is_same) for each in replay_range(str(tmp_path), 0, 99)] == [(number, False)]


def _take(scheduler: CycleRunner, events: list[Event]) -> None:
    scheduler.state.patch(events)
    scheduler.journal_events(events)


def test_a_cycle_that_is_not_there_is_named(tmp_path: Path) -> None:
    Journal(tmp_path / "journal").close()
    with pytest.raises(NotFoundError, match="7"):
        replay(str(tmp_path), 7)
