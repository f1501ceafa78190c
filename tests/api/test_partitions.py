"""Partition modes over HTTP: the plan, the policy, and PartitioningPlans that people apply."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kaiwo.api.presenters.partitioning_view import _need
from kaiwo.api.views.partitions import PartitionsView
from kaiwo.app.options import UpOptions
from kaiwo.app.up import Running, running
from kaiwo.gpus.partitioning.demand import demand_of
from kaiwo.model.request import Request
from tests.api.world import decode
from tests.waiting import run, until, until_answer

UPSTREAM = Path("../shared/cases/kaiwo/branch-gpu-partitioning")
PLAN = """
apiVersion: infrastructure.silogen.ai/v1alpha1
kind: PartitioningPlan
metadata: {name: cut}
spec:
  rules:
    - selector: {matchLabels: {kubernetes.io/hostname: node-1}}
      profile: {dcmProfileName: cpx-nps1}
"""


class Client:
    def __init__(self, kaiwo: Running) -> None:
        self.kaiwo = kaiwo
        bearer = {"Authorization": f"Bearer {kaiwo.context.access.token}"}
        self.http = httpx.AsyncClient(base_url=f"{kaiwo.url}/api/v1", headers=bearer, timeout=60)

    async def apply(self, text: str, verb: str = "", **query: str) -> list[str]:
        answer = await self.http.post(
            f"/manifests{verb}", content=text, headers={"Content-Type": "application/yaml"}, params=query
        )
        assert answer.status_code == 200, answer.text
        done: list[str] = answer.json()["done"]
        return done

    async def look(self) -> PartitionsView:
        return decode(await self.http.get("/partitions"), PartitionsView)

    def modes(self, node: str) -> set[str]:
        return {gpu.profile or "SPX" for gpu in self.kaiwo.cluster.state.nodes[node].gpus}


@contextlib.asynccontextmanager
async def up(home: Path, policy: str = "") -> AsyncIterator[Client]:
    async with running(UpOptions(str(home), port=0, nodes=2, speed=600, partitions=policy)) as kaiwo:
        client = Client(kaiwo)
        try:
            yield client
        finally:
            await client.http.aclose()


def test_waiting_work_says_what_would_serve_it_and_the_policy_lets_it(tmp_path: Path) -> None:
    async def look() -> None:
        async with up(tmp_path) as client:
            await client.http.post("/workloads", json={"name": "small", "gpuPartition": "CPX", "simulate": "10h"})
            await until(lambda: client.kaiwo.context.partitions.planned.steps, "a plan")
            view = await client.look()
            assert (view.policy, view.total, view.steps[0].state) == ("dry-run", 1, "planned")
            assert view.carried_out_by.startswith("emulation")
            why = (await client.http.get("/workloads/default/small/why")).json()
            assert why["obstacles"][0]["reason"] == "needs-another-partition-mode"
            assert why["partitions"].startswith("the partition planner would change 1 GPU of node-1")
            answer = await client.http.post("/partitions/policy", json={"policy": "on"})
            assert answer.json()["done"] == ["the partition policy is on"]
            await until(lambda: client.kaiwo.cluster.record("default/small").state == "running", "small to run")
            assert [step.state for step in (await client.look()).history] == ["done"]
        async with up(tmp_path) as client:
            assert (await client.look()).policy == "on"
            assert client.modes("node-1") == {"SPX", "CPX+NPS1"}

    run(look())


def test_a_change_under_way_is_shown_with_its_tenants_and_why_tells_those_who_wait_for_it(tmp_path: Path) -> None:
    async def look() -> None:
        async with up(tmp_path, "on") as client:
            cluster = client.kaiwo.cluster
            here = {"nodeSelector": {"kubernetes.io/hostname": "node-1"}}
            small = {"name": "small", "gpuPartition": "CPX", "simulate": "200h", **here}
            await client.http.post("/workloads", json=small)
            await until(lambda: cluster.record("default/small").state == "running", "small to run")
            await client.http.post("/workloads", json={"name": "big", "gpus": 8, "simulate": "10m", **here})

            async def gpus_shown() -> list[dict[str, Any]]:
                found: list[dict[str, Any]] = (await client.http.get("/gpus", params={"node": "node-1"})).json()[
                    "items"
                ]
                return found

            async def why_big_waits() -> dict[str, Any]:
                found: dict[str, Any] = (await client.http.get("/workloads/default/big/why")).json()
                return found

            shown = await until_answer(gpus_shown, lambda gpus: any(gpu["change"] for gpu in gpus), "gpu-0 to drain")
            why = await until_answer(why_big_waits, lambda answer: answer["partitions"], "a plan for big")
            expected = "it needs 8 GPUs in SPX mode on one node, but node-1 has 7 GPUs in that mode now"
            assert expected in str(why["obstacles"])
            assert "waiting does not help" not in str(why)
            assert why["partitions"].startswith("for work like this, 1 GPU takes no new work and will change from CPX")
            parts = [gpu for gpu in shown if gpu["parent"] == "gpu-0"]
            assert {gpu["change"] for gpu in parts} == {"draining"}
            assert [tenant["workload"] for gpu in parts for tenant in gpu["tenants"]] == ["default/small"]
            assert {gpu["change"] for gpu in shown if not gpu["parent"]} == {""}
            await client.http.delete("/workloads/default/small")
            await until(lambda: cluster.record("default/big").state == "running", "big to run")

    run(look())


def test_mps_on_a_cluster_of_amd_gpus_is_refused_at_the_door(tmp_path: Path) -> None:
    async def look() -> None:
        async with up(tmp_path) as client:
            form = {"name": "x", "gpuFraction": 0.5, "gpuIsolation": "mps"}
            answer = await client.http.post("/workloads", json=form)
            assert answer.status_code >= 400
            assert "does not exist on AMD GPUs" in answer.text
            assert "write time-slicing, cu-mask or partition" in answer.text
            answer = await client.http.post("/workloads", json=form | {"gpuIsolation": "cu-mask"})
            assert answer.status_code < 300

    run(look())


@pytest.mark.parametrize("profile", ["banana", "spx-nps4"])
def test_a_plan_with_a_profile_that_no_gpu_can_have_is_refused(tmp_path: Path, profile: str) -> None:
    async def look() -> None:
        async with up(tmp_path) as client:
            body, kind = PLAN.replace("cpx-nps1", profile), {"Content-Type": "application/yaml"}
            answer = await client.http.post("/manifests", content=body, headers=kind)
            assert answer.status_code == 400
            assert "write one of spx-nps1, " in answer.text
            assert (await client.look()).plans == []

    run(look())


@pytest.mark.parametrize("body", [{}, {"policy": "maybe"}, {"policy": 1}, {"police": "on"}, []])
def test_a_wrong_policy_is_refused(tmp_path: Path, body: object) -> None:
    async def look() -> None:
        async with up(tmp_path) as client:
            assert (await client.http.post("/partitions/policy", json=body)).status_code == 400

    run(look())


def test_a_plan_is_applied_shown_and_deleted(tmp_path: Path) -> None:
    async def look() -> None:
        async with up(tmp_path, "on") as client:
            said = await client.apply(PLAN, dry_run="true")
            assert said == [
                "PartitioningPlan cut would be saved (dry run)",
                "node node-1: cpx-nps1: would change 8 GPUs (dry run)",
            ]
            assert (await client.look()).plans == []
            assert await client.apply(PLAN) == ["PartitioningPlan cut created"]
            await until(lambda: client.modes("node-1") == {"CPX+NPS1"}, "node-1 to be cut")
            assert client.modes("node-2") == {"SPX"}
            await until(lambda: {stand.state for stand in client.kaiwo.context.partitions.planned.statuses} == {"done"})
            (plan,) = (await client.look()).plans
            assert (plan.name, plan.state, plan.nodes[0].state) == ("cut", "on", "done")
            assert await client.apply(PLAN) == ["PartitioningPlan cut unchanged"]
        async with up(tmp_path) as client:
            assert [plan.name for plan in (await client.look()).plans] == ["cut"]
            assert await client.apply(PLAN, "/delete") == ["PartitioningPlan cut deleted; the nodes stay as they are"]
            assert await client.apply(PLAN, "/delete") == ["PartitioningPlan cut not found"]
            assert client.modes("node-1") == {"CPX+NPS1"}

    run(look())


@pytest.mark.skipif(not UPSTREAM.exists(), reason="upstream's samples are not beside this checkout")
def test_upstreams_samples_are_taken(tmp_path: Path) -> None:
    async def look() -> None:
        async with up(tmp_path, "on") as client:
            names = set()
            for path in sorted(UPSTREAM.rglob("partitioning-plan*.yaml")):
                names |= {line.split()[1] for line in await client.apply(path.read_text())}
            await until(lambda: client.kaiwo.context.partitions.planned.at_s > 0)
            view = await client.look()
            assert {plan.name for plan in view.plans} == names
            assert all(client.modes(node) == {"SPX"} for node in ("node-1", "node-2"))

    run(look())


@pytest.mark.parametrize(
    ("want", "pods", "words"),
    [
        (Request(gpus=1, gpu_milli=500), 1, "shares of GPUs, which need 1 GPU that is not partitioned"),
        (Request(gpus=1, gpu_milli=500), 5, "shares of GPUs, which need 3 GPUs that are not partitioned"),
        (Request(gpus=2, gpu_milli=1000), 3, "3 pods with 2 whole GPUs each"),
        (Request(gpus=1, partition="CPX+NPS4"), 1, "1 pod with 1 CPX+NPS4 partition each"),
    ],
)
def test_what_nothing_serves_is_told_by_what_it_needs(want: Request, pods: int, words: str) -> None:
    need = demand_of(want, pods)
    assert need is not None
    assert _need(need) == words
