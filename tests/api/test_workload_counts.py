"""Counts of workloads by state follow the same filters as their list, and a list can be narrowed to one node."""

from pathlib import Path

import httpx
from msgspec.structs import replace

from kaiwo.model.events import PodChanged
from kaiwo.model.workload import Pod
from kaiwo.model.workload_record import WorkloadState
from tests.api.fake_loop import FakeLoop, record
from tests.api.test_stream import serving
from tests.waiting import run


async def _counts(client: httpx.AsyncClient, query: str) -> dict[str, int]:
    states = (await client.get(f"/api/v1/workloads/counts?{query}")).json()["states"]
    return {state: number for state, number in states.items() if number}


def test_counts_follow_the_filters_of_the_list(tmp_path: Path) -> None:
    async def work() -> None:
        loop = FakeLoop(nodes=2)
        for name, state, user in (("a", "running", "ada"), ("b", "waiting", "ada"), ("ab", "waiting", "bob")):
            made = record(name, WorkloadState(state))
            loop.put(replace(made, workload=replace(made.workload, user=user, labels={"team": user})))
        loop.patch([PodChanged(Pod("default/a", "main-0", "n-00001"))])
        async with serving(tmp_path, loop) as (client, _):
            assert await _counts(client, "") == {"running": 1, "waiting": 2}
            assert await _counts(client, "user=ada") == {"running": 1, "waiting": 1}
            assert await _counts(client, "label=team%3Dbob") == {"waiting": 1}
            assert await _counts(client, "q=b&state=waiting") == {"waiting": 2}
            assert await _counts(client, "node=n-00001") == {"running": 1}
            assert await _counts(client, "node=n-00000") == {}
            assert await _counts(client, "queue=no-such-queue") == {}
            listed = (await client.get("/api/v1/workloads?node=n-00001")).json()
            assert [item["name"] for item in listed["items"]] == ["default/a"]

    run(work())
