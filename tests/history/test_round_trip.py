"""What is read from a journal is what was written, whatever it was."""

import random
import typing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kaiwo import history
from kaiwo.history import Base, Batch, Cycle, Journal, JournalReader, Setting
from kaiwo.history.journal_encoding import PART_EVENTS
from kaiwo.history.journal_entries import digest_plan
from kaiwo.model.events import Event
from kaiwo.model.plan import Plan, encode_plan
from tests.history.sample_journals import SETTING, cycle, pod_events
from tests.history.strategies import EVENTS, batches, plans, policies


def test_the_public_names() -> None:
    assert sorted(history.__all__) == [
        "Base", "Batch", "Cycle", "CycleHead", "Entry", "Journal", "JournalReader", "Setting",
    ]  # fmt: skip


def test_there_is_a_strategy_for_every_kind_of_event() -> None:
    assert set(EVENTS) == set(typing.get_args(Event))


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_every_kind_of_event_comes_back(kind: type) -> None:
    with TemporaryDirectory() as folder, Journal(folder) as journal:

        @given(EVENTS[kind])
        def comes_back(event: Event) -> None:
            last = cycle(journal.next_number)
            journal.base(Base((event,)))
            journal.batch((event, event))
            journal.cycle(last)
            assert list(journal.entries_until(last.head.number)) == [Base((event,)), Batch((event, event)), last]

        comes_back()


settings: SearchStrategy[Setting] = st.builds(
    Setting, st.text(max_size=8), policies, st.lists(st.tuples(st.text(), st.text()), max_size=3).map(tuple)
)


@given(st.lists(st.tuples(batches, plans, settings), min_size=1, max_size=4))
def test_any_story_comes_back_in_its_order(story: list[tuple[tuple[Event, ...], Plan, Setting]]) -> None:
    with TemporaryDirectory() as folder, Journal(folder) as journal:
        expected: list[history.Entry] = [Base((), b"kept")]
        journal.base(Base((), b"kept"))
        for events, plan, setting in story:
            one = Cycle.of(plan, setting, number=journal.next_number, now_s=-5, wall_ms=2**41, took_us=9)
            journal.batch(events)
            journal.cycle(one)
            expected += [Batch(events), one]
            assert journal.cycle_at(one.head.number) == one
            assert one.decode_plan() == plan
        assert list(JournalReader(folder).entries_until(len(story))) == expected
        assert journal.cycles() == [one.head for one in reversed(expected) if isinstance(one, Cycle)]


def test_a_cycle_says_what_its_plan_holds() -> None:
    plan = Plan(steps=12)
    one = Cycle.of(plan, SETTING, number=1, now_s=2, wall_ms=3, took_us=4)
    assert one.plan == encode_plan(plan)
    assert one.head.digest == digest_plan(encode_plan(plan))
    assert (one.head.steps, one.head.starts, len(one.head.digest)) == (12, 0, 16)


def test_a_base_larger_than_one_part_is_one_base(tmp_path: Path) -> None:
    events = pod_events(2 * PART_EVENTS + 1)
    with Journal(tmp_path) as journal:
        journal.base(Base(events, b"state"))
        journal.cycle(cycle(1))
        assert list(journal.entries_until(1)) == [Base(events, b"state"), cycle(1)]


def test_a_large_plan_and_many_batches_between_two_cycles(tmp_path: Path) -> None:
    draw = random.Random(1)
    story = [Batch(pod_events(draw.randrange(1, 2000), draw.randrange(10**6))) for _ in range(40)]
    with Journal(tmp_path) as journal:
        journal.base(Base(()))
        for batch in story:
            journal.batch(batch.events)
        journal.cycle(cycle(1, starts=20_000))
        assert list(journal.entries_until(1)) == [Base(()), *story, cycle(1, starts=20_000)]
        assert journal.cycle_at(1).head.starts == 20_000


def test_the_setting_is_kept_once_until_it_changes(tmp_path: Path) -> None:
    other = Setting("0.2.0")
    with Journal(tmp_path) as journal:
        journal.base(Base(()))
        sizes = []
        for number, setting in enumerate([SETTING, SETTING, other, other, SETTING], start=1):
            journal.cycle(cycle(number, setting))
            sizes.append(sum(path.stat().st_size for path in tmp_path.glob("*.journal")))
            assert journal.cycle_at(number).setting == setting
        first, second, third, fourth, fifth = (
            after - before for before, after in zip([36, *sizes], sizes, strict=False)
        )
        assert second == fourth < third < fifth < first
