"""The workloads as rows: the same answer as a plain sort, however they came and went."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.model.workload_record import WorkloadRecord, WorkloadState
from kaiwo.runtime.overview.workload_pages import SORTS, PageStart, WorkloadQuery, select
from kaiwo.runtime.overview.workload_table import STATES, WAITS, WorkloadRows
from tests.api.fake_loop import record

records = st.builds(
    lambda name, queue, priority, submitted, state, gpus: record(
        f"w{name}", WorkloadState(state), queue=queue, priority=priority, submitted_s=submitted, gpus=gpus
    ),
    st.integers(0, 40),
    st.sampled_from(["lab", "ai", "default"]),
    st.integers(-3, 3) | st.sampled_from([2**70, -(2**70)]),
    st.integers(0, 3),
    st.sampled_from([state.value for state in WorkloadState]),
    st.integers(0, 3),
)
worlds = st.lists(records, max_size=40, unique_by=lambda each: each.workload.name)


def rows_of(*steps: list[WorkloadRecord]) -> WorkloadRows:
    rows = WorkloadRows()
    for step in steps:
        names = {each.workload.name for each in step}
        rows.apply(step, [name for name in rows.names if name not in names])
    return rows


def all_pages(rows: WorkloadRows, pick: WorkloadQuery) -> list[str]:
    names, after = [], None
    while True:
        found = select(rows, replace(pick, after=after))
        names += [rows.names[at] for at in found.positions]
        if found.next is None:
            return names
        after = found.next


def plain_value(each: WorkloadRecord, sort: str) -> object:
    largest = 2**53
    match sort.removeprefix("-"):
        case "queue":
            return each.workload.queue
        case "state":
            return list(WorkloadState).index(each.state)
        case "priority":
            return max(-largest, min(largest, each.workload.priority))
        case "submitted":
            return each.workload.submitted_s
        case "gpus":
            return each.workload.roles[0].request.gpus
        case _:
            return 0


@given(worlds, worlds, st.sampled_from([sign + name for name in SORTS for sign in ("", "-")]), st.integers(1, 7))
def test_pages_together_are_the_whole_list_in_order(
    before: list[WorkloadRecord], now: list[WorkloadRecord], sort: str, limit: int
) -> None:
    rows = rows_of(before, now)
    expected = sorted(now, key=lambda each: each.workload.name, reverse=sort == "-name")
    if sort.removeprefix("-") != "name":
        expected = sorted(expected, key=lambda each: plain_value(each, sort), reverse=sort.startswith("-"))  # type: ignore[arg-type,return-value]
        expected = _ties_by_name(expected, sort)
    assert all_pages(rows, WorkloadQuery(sort=sort, limit=limit)) == [each.workload.name for each in expected]


def _ties_by_name(ordered: list[WorkloadRecord], sort: str) -> list[WorkloadRecord]:
    """`reverse` keeps equal ones in their order, so names are ascending already; this says so aloud."""
    for first, second in pairwise(ordered):
        if plain_value(first, sort) == plain_value(second, sort):
            assert first.workload.name < second.workload.name
    return ordered


@given(worlds, worlds)
def test_taking_over_changes_gives_what_a_fresh_start_gives(
    before: list[WorkloadRecord], now: list[WorkloadRecord]
) -> None:
    changed, fresh = rows_of(before, now), rows_of(now)
    assert changed.names == fresh.names
    assert changed.records == fresh.records
    for sort in SORTS:
        assert all_pages(changed, WorkloadQuery(sort=sort, limit=5)) == all_pages(
            fresh, WorkloadQuery(sort=sort, limit=5)
        )
    counts = changed.counts.by_queue(WAITS)
    for name in {each.workload.queue for each in before + now}:
        waiting = [
            each
            for each in now
            if each.workload.queue == name and each.state in (WorkloadState.WAITING, WorkloadState.HELD)
        ]
        assert counts.get(changed.queues.code(name), 0) == len(waiting)
    for code, state in enumerate(STATES):
        assert changed.counts.in_state(code) == sum(each.state is state for each in now)


def test_a_page_goes_on_where_it_ended_when_rows_come_and_go() -> None:
    first = [record(f"w{number:03d}", submitted_s=number) for number in range(100)]
    rows = rows_of(first)
    page = select(rows, WorkloadQuery(sort="submitted", limit=10))
    assert page.next is not None
    gone = {f"default/w{number:03d}" for number in (3, 9)}  # 9 was the last one shown
    rows.apply([record("z-new-one", submitted_s=50), record("a-new-one", submitted_s=1)], gone)
    second = select(rows, WorkloadQuery(sort="submitted", limit=10, after=page.next))
    assert [rows.names[at] for at in second.positions] == [f"default/w{number:03d}" for number in range(10, 20)]


def test_a_cursor_of_a_queue_that_is_gone_still_holds() -> None:
    rows = rows_of([record(f"w{at}", queue=queue) for at, queue in enumerate(("a", "c", "c", "e"))])
    for sort, gone, left in (("queue", "b", ["c", "c", "e"]), ("-queue", "d", ["c", "c", "a"])):
        after = PageStart(sort, gone, "default/zzz")
        found = select(rows, WorkloadQuery(sort=sort, after=after)).positions
        assert [rows.records[at].workload.queue for at in found] == left


def test_filters_narrow_and_total_counts_what_matched() -> None:
    rows = rows_of(
        [
            record("train-1", WorkloadState.RUNNING, user="ann", queue="lab", labels={"team": "x"}),
            record("train-2", WorkloadState.WAITING, user="bob", queue="lab", labels={"team": "x"}),
            record("serve", WorkloadState.FAILED, user="ann"),
        ]
    )
    cases = [
        (WorkloadQuery(states=(WorkloadState.RUNNING, WorkloadState.FAILED)), 2),
        (WorkloadQuery(queue="lab"), 2),
        (WorkloadQuery(queue="nowhere"), 0),
        (WorkloadQuery(user="ann", queue="lab"), 1),
        (WorkloadQuery(text="TRAIN"), 2),
        (WorkloadQuery(labels=(("team", "x"),)), 2),
        (WorkloadQuery(labels=(("team", "x"), ("team", "y"))), 0),
        (WorkloadQuery(limit=1), 3),
    ]
    for pick, total in cases:
        assert select(rows, pick).total == total, pick
