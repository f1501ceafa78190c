"""Arrays are one thing: one row in lists, one line for what is done to them, tasks in the order of their numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.manifests.values.names import ARRAY_LABEL, INDEX_LABEL
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState
from kaiwo.runtime.overview.workload_pages import SORTS, WorkloadQuery, index_ranges, select
from kaiwo.runtime.overview.workload_table import WorkloadRows
from tests.api.fake_loop import record
from tests.api.test_own_work import people
from tests.api.world import World, world
from tests.audit_records import audit_of
from tests.waiting import run


def task(array: str, index: int, state: str, submitted_s: int) -> WorkloadRecord:
    made = record(f"{array}-{index}", WorkloadState(state), submitted_s=submitted_s, gpus=index % 3)
    labels = {ARRAY_LABEL: array, INDEX_LABEL: str(index)}
    return replace(made, workload=replace(made.workload, labels=labels))


states = st.sampled_from([state.value for state in WorkloadState])
tasks = st.builds(task, st.sampled_from(["a", "b"]), st.integers(0, 30), states, st.integers(0, 3))
plain = st.builds(
    lambda number, state, submitted_s: record(f"w-{number}", WorkloadState(state), submitted_s=submitted_s),
    st.integers(0, 30),
    states,
    st.integers(0, 3),
)
worlds = st.lists(tasks | plain, max_size=40, unique_by=lambda each: each.workload.name)


def rows_of(records: list[WorkloadRecord]) -> WorkloadRows:
    rows = WorkloadRows()
    rows.apply(records)
    return rows


@given(worlds)
def test_names_are_in_the_order_of_their_numbers(records: list[WorkloadRecord]) -> None:
    def key(name: str) -> tuple[str, int]:
        head, _, number = name.rpartition("-")
        return head, int(number)

    rows = rows_of(records)
    assert rows.names == sorted((each.workload.name for each in records), key=key)
    assert all(rows.records[at].workload.name == name for at, name in enumerate(rows.names))
    assert all(rows.find(name) == at for at, name in enumerate(rows.names))
    assert rows.find("default/none-5") is None


@given(worlds, st.sampled_from([sign + name for name in SORTS for sign in ("", "-")]), st.integers(1, 5))
def test_folded_pages_have_each_array_once_and_lose_nothing(
    records: list[WorkloadRecord], sort: str, limit: int
) -> None:
    rows, query, after = rows_of(records), WorkloadQuery(sort=sort, limit=limit, folds=True), None
    shown: list[str] = []
    counted: dict[str, int] = {}
    while True:
        page = select(rows, replace(query, after=after))
        for at in page.positions:
            array = page.folded.get(at)
            shown.append(rows.names[at] if array is None else array.array)
            if array is not None:
                counted[array.array] = sum(array.states.values())
        assert page.total == len({*(name_in_list(each) for each in records)})
        if page.next is None:
            break
        after = page.next
    assert sorted(shown) == sorted({name_in_list(each) for each in records})
    members = [each for each in records if ARRAY_LABEL in each.workload.labels]
    assert sum(counted.values()) == len(members)
    order = [name_in_list(rows.records[at]) for at in select(rows, WorkloadQuery(sort=sort, limit=99)).positions]
    assert shown == list(dict.fromkeys(order)), "an array stands where its first task does"


def name_in_list(each: WorkloadRecord) -> str:
    array = each.workload.labels.get(ARRAY_LABEL)
    return f"default/{array}" if array else each.workload.name


@given(worlds, st.sampled_from(list(WorkloadState)))
def test_only_tasks_that_match_are_counted(records: list[WorkloadRecord], state: WorkloadState) -> None:
    rows = rows_of(records)
    for array in select(rows, WorkloadQuery(states=(state,), limit=99, folds=True)).folded.values():
        own = [each for each in records if name_in_list(each) == array.array and each.state is state]
        assert array.states == {state: len(own)}
        assert array.submitted_s == min(each.workload.submitted_s for each in own)
        assert array.gpu_milli == sum(1000 * each.workload.roles[0].request.gpus for each in own)


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ([5], "5"),
        ([0, 1, 2, 3], "0-3"),
        ([0, 2, 4, 6], "0-6:2"),
        ([1, 2], "1-2"),
        ([1, 3], "1,3"),
        ([0, 1, 5, 6, 7, 9], "0-1,5-7,9"),
        ([0, 2, 4, 7, 9, 20, 21], "0,2,4,7 and 3 more"),
    ],
)
def test_indices_are_written_as_people_write_them(indices: list[int], text: str) -> None:
    assert index_ranges(np.array(indices)) == text


async def act(kaiwo: World, verb: str, *names: str) -> list[str]:
    answer = await kaiwo.post(f"/workloads/{verb}", {"names": list(names)})
    assert answer.status_code == 200, answer.text
    return [each["done"] or each["problem"]["message"] for each in answer.json()["results"]]


async def folded(kaiwo: World, **query: Any) -> list[tuple[str, str, str]]:
    page = (await kaiwo.get("/workloads", fold="true", **query)).json()
    return [(item["name"], item["state"], item["reason"]) for item in page["items"]]


def test_an_array_is_submitted_listed_and_changed_as_one(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            form = {"name": "sweep", "array": "0-11%2", "gpus": 1, "simulate": "1h", "priority": 0}
            made = (await kaiwo.post("/workloads", form)).json()
            assert made["done"] == ["array default/sweep submitted with 12 tasks"]
            assert len(made["names"]) == 12
            await kaiwo.until_state("sweep-1", "running")
            await kaiwo.until_state("sweep-0", "running")
            assert await folded(kaiwo) == [("default/sweep-*", "running", "2 running, 10 waiting")]
            (item,) = (await kaiwo.get("/workloads", fold="true")).json()["items"]
            assert item["array"] == {"tasks": 12, "indices": "0-11", "states": {"running": 2, "waiting": 10}}
            assert item["pods"] == {"total": 12, "used": 2}
            assert item["wants"] == "12 x 1 GPU"
            assert await act(kaiwo, "hold", "default/sweep[4-6]") == ["array default/sweep[4-6]: 3 tasks held"]
            assert await act(kaiwo, "release", "default/sweep-*") == ["array default/sweep: 3 tasks released"]
            body = {"names": ["default/sweep-*"], "fields": {"priority": -2}}
            answer = (await kaiwo.post("/workloads/set", body)).json()
            assert answer["results"][0]["done"] == "array default/sweep: priority 0 -> -2 (12 tasks)"
            assert await act(kaiwo, "cancel", "default/sweep[0]", "default/sweep[8-99]") == [
                "array default/sweep[0]: 1 task cancelled",
                "array default/sweep[8-99]: 4 tasks cancelled",
            ]
            await kaiwo.until_state("sweep-2", "running")
            assert await act(kaiwo, "cancel", "default/sweep-*") == ["array default/sweep: 7 tasks cancelled"]
            (nothing,) = await act(kaiwo, "cancel", "default/sweep-*")
            assert nothing.startswith("no task of the array default/sweep is waiting or held")
            assert "no task of the array default/none" in (await act(kaiwo, "cancel", "default/none-*"))[0]

    run(work())
    cancelled = [each for each in audit_of(tmp_path) if each.action == "cancel" and each.outcome == "done"]
    assert [each.object for each in cancelled][-1] == "workload/default/sweep-*"
    assert cancelled[-1].new == {"tasks": 7, "refused": 0}


def test_only_ones_own_tasks_of_an_array_are_changed(tmp_path: Path) -> None:
    async def work() -> None:
        async with people(tmp_path) as (kaiwo, who):
            await who["ada"].submit("sweep", array="0-4", queue="vision", hold=True)
            answer = await who["bob"].ask("POST", "/workloads/cancel", {"names": ["default/sweep-*"]})
            assert "belongs to user 'ada'" in answer.json()["results"][0]["problem"]["message"]
            assert all(not each.state.is_over for each in kaiwo.cluster.records())

    run(work())


def test_bad_indices_are_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("sweep", array="0-4", hold=True)
            answer = await kaiwo.post("/workloads/cancel", {"names": ["default/sweep[4-1]"]})
            assert answer.status_code == 400
            assert "runs backwards" in answer.json()["message"]
            assert await kaiwo.state_of("sweep-4") == "held"

    run(work())
