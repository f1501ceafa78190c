"""Any cycle in the journal can be rebuilt and decided again, to the byte."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaiwo.history import Journal
from kaiwo.model.errors import NotFoundError
from kaiwo.model.event import Event, PodGone, WorkloadGone
from kaiwo.runtime.replay import replay
from kaiwo.runtime.scheduler import Scheduler
from tests.properties.strategies import states


@settings(max_examples=20)
@given(states(most_workloads=20), st.data())
def test_every_cycle_replays_to_the_same_plan(tmp_path_factory, events: list[Event], data: st.DataObject) -> None:
    home = tmp_path_factory.mktemp("home")
    # A tiny segment makes bases in the middle of the story.
    with Journal(home / "journal", segment_bytes=data.draw(st.sampled_from([1, 2_000, 2**23]))) as journal:
        numbers = _tell_a_story(Scheduler(journal), events, data)
    for number in numbers:
        result = replay(str(home), number)
        assert result.now == result.then, number
        assert result.differences == ()


def _tell_a_story(scheduler: Scheduler, events: list[Event], data: st.DataObject) -> list[int]:
    numbers = []
    _take(scheduler, events)
    for second in range(data.draw(st.integers(1, 6))):
        decision = scheduler.cycle(now_s=5 + second)
        if decision is not None:
            numbers.append(decision.summary.number)
        running = sorted(scheduler.picture.pods)
        if running:
            name = data.draw(st.sampled_from(running))
            pods = [PodGone(name, pod) for pod in sorted(scheduler.picture.pods[name])]
            _take(scheduler, [WorkloadGone(name), *pods])
    return numbers


def _take(scheduler: Scheduler, events: list[Event]) -> None:
    scheduler.picture.patch(events)
    scheduler.note(events)


def test_a_cycle_that_is_not_there_is_named(tmp_path: Path) -> None:
    Journal(tmp_path / "journal").close()
    with pytest.raises(NotFoundError, match="7"):
        replay(str(tmp_path), 7)
