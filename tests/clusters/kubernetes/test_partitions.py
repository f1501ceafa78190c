"""Partition modes on a real API server. The hardware is emulated: a task of the test plays AMD's Device Config Manager
and the node's agent, as their labels and annotations look from outside."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import RunningScheduler, scheduling
from kaiwo.clusters.kubernetes.client import ApiError
from kaiwo.clusters.kubernetes.client.connection import STRATEGIC
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import PARTITIONING_PLANS
from kaiwo.clusters.kubernetes.decode.node_decoder import CHANGE_ANNOTATION, DEVICES_ANNOTATION
from kaiwo.devices.amd.device_config_manager import PROFILE_LABEL, STATE_LABEL, TAINT
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.partition_modes import Mode, partition_gpu
from kaiwo.runtime.kubernetes.node_partitioning import ChangeTimeouts
from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, pod_path
from tests.clusters.kubernetes.running_scheduler import until_bound
from tests.conftest import ROOT
from tests.controlplane.plane import Plane
from tests.waiting import run

NODE = "/api/v1/nodes/node-1"
CONFIG = "/api/v1/namespaces/default/configmaps"
WHOLE = Mode("SPX", "NPS1")
LAYOUTS = {"cpx-nps1": [Mode("CPX", "NPS1")] * 8, "as-it-was": [WHOLE] * 8}


class Manager:
    """What AMD's manager and our agent do on the node, as far as the API server sees it."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        self.layouts = dict(LAYOUTS)
        self.fails: set[str] = set()
        self.is_away = False
        self.applied: list[str] = []
        self.tenants: list[set[str]] = []  # pods with GPUs on the node, whenever it changed something

    async def run(self) -> None:
        while True:
            with suppress(ApiError):
                labels = (await self._kubectl.get(NODE))["metadata"]["labels"]
                profile = labels.get(PROFILE_LABEL)
                if profile and STATE_LABEL not in labels and not self.is_away:
                    await self._apply(profile)
            await asyncio.sleep(0.1)

    async def _apply(self, profile: str) -> None:
        pods = (await self._kubectl.get("/api/v1/pods"))["items"]
        self.tenants.append({pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") == "node-1"})
        self.applied.append(profile)
        if profile not in self.fails:
            await show_devices(self._kubectl, self.layouts.get(profile) or await self._look_up(profile))
        state = "failure" if profile in self.fails else "success"
        await self._kubectl.patch(NODE, {"metadata": {"labels": {STATE_LABEL: state}}})

    async def _look_up(self, profile: str) -> list[Mode]:
        config = msgspec.json.decode((await self._kubectl.get(f"{CONFIG}/dcm"))["data"]["config.json"])
        parts = config["gpu-config-profiles"][profile]["profiles"]
        return [
            Mode(each["computePartition"], each["memoryPartition"])
            for each in parts
            for _ in range(each["numGPUsAssigned"])
        ]


async def show_devices(kubectl: Kubectl, modes: list[Mode]) -> None:
    gpus = [part for at, mode in enumerate(modes) for part in partition_gpu(Gpu(f"gpu-{at}", "MI300X", 196_608), mode)]
    note = msgspec.json.encode(gpus).decode()
    await kubectl.patch(NODE, {"metadata": {"annotations": {DEVICES_ANNOTATION: note}}})
    amounts = {"amd.com/gpu": str(len(gpus))}
    await kubectl.patch(f"{NODE}/status", {"status": {"capacity": amounts, "allocatable": amounts}}, STRATEGIC)


@asynccontextmanager
async def prepared(plane: Plane) -> AsyncIterator[tuple[Kubectl, Manager]]:
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "deploy" / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
    async with client_for(plane.kubeconfig) as client:
        kubectl = Kubectl(client)
        await kubectl.clean()
        await kubectl.node("node-1", labels={"kaiwo.ai/partitioning": "dcm"})
        await show_devices(kubectl, [WHOLE] * 8)
        await kubectl.create(CONFIG, {"metadata": {"name": "dcm"}, "data": {"config.json": '{"kept": 1}'}})
        manager = Manager(kubectl)
        task = asyncio.create_task(manager.run())
        try:
            yield kubectl, manager
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await kubectl.delete(f"{PARTITIONING_PLANS}/small-jobs")
            await kubectl.delete(f"{CONFIG}/dcm")
            await kubectl.clean()


@asynccontextmanager
async def scheduler(plane: Plane, home: Path, policy: str = "on") -> AsyncIterator[RunningScheduler]:
    home.mkdir(exist_ok=True)
    options = SchedulerOptions(
        str(home), port=0, kubeconfig=str(plane.kubeconfig), leader_elect=False, partitions=policy,
        dcm_config="default/dcm",
    )  # fmt: skip
    async with scheduling(options) as kaiwo:
        yield kaiwo


async def put_plan(kubectl: Kubectl, **profile: Any) -> None:
    rule = {"selector": {"matchLabels": {"kubernetes.io/hostname": "node-1"}}, "profile": profile}
    head = {"apiVersion": "infrastructure.silogen.ai/v1alpha1", "kind": "PartitioningPlan"}
    await kubectl.create(PARTITIONING_PLANS, {**head, "metadata": {"name": "small-jobs"}, "spec": {"rules": [rule]}})


async def until_plan(kubectl: Kubectl, holds: Callable[[Json], bool]) -> Json:
    status: Json = {}
    for _ in range(600):
        status = (await kubectl.get(f"{PARTITIONING_PLANS}/small-jobs")).get("status", {})
        if status and holds(status):
            return status
        await asyncio.sleep(0.05)
    raise AssertionError(f"the plan has {status}")


def phase_of_node(status: Json) -> str:
    return status["nodes"][0]["phase"] if status["nodes"] else ""


async def is_clear(kubectl: Kubectl) -> bool:
    node = await kubectl.get(NODE)
    taints = [taint["key"] for taint in node["spec"].get("taints", [])]
    return TAINT[0] not in taints and CHANGE_ANNOTATION not in node["metadata"].get("annotations", {})


def play(test: Any) -> None:
    run(test)


def test_a_plan_waits_for_who_runs_there_and_then_the_node_is_cut(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with prepared(plane) as (kubectl, manager), scheduler(plane, tmp_path / "a") as kaiwo:
            await kubectl.pod("runs", gpus=1)
            await until_bound(kubectl, "runs")
            await put_plan(kubectl, computeMode="CPX", memoryMode="NPS1")
            status = await until_plan(kubectl, lambda status: phase_of_node(status) == "Draining")
            assert (status["phase"], status["matchedNodes"]) == ("Progressing", 1)
            await kubectl.pod("late", gpus=1)  # the whole node is closed
            await asyncio.sleep(2)
            assert manager.applied == []
            assert not (await kubectl.read_pod("late"))["spec"].get("nodeName")
            for name in ("runs", "late"):
                await kubectl.delete(pod_path(name))
            status = await until_plan(kubectl, lambda status: status["phase"] == "Completed")
            assert (status["succeededNodes"], status["observedGeneration"]) == (1, 1)
            assert (manager.applied, manager.tenants) == (["cpx-nps1"], [set()])
            assert await is_clear(kubectl)
            await kubectl.pod("part", gpus=1, annotations={"kaiwo.ai/gpu-partition": "CPX"})
            pod = await until_bound(kubectl, "part")
            assert "gpu-0-p0" in pod["metadata"]["annotations"]["kaiwo.ai/granted-devices"]
            assert kaiwo.context.partitions.failures == 0

    play(test())


def test_what_the_manager_cannot_do_is_taken_back_and_said(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with prepared(plane) as (kubectl, manager), scheduler(plane, tmp_path / "a"):
            await kubectl.patch(NODE, {"metadata": {"labels": {PROFILE_LABEL: "as-it-was", STATE_LABEL: "success"}}})
            manager.fails.add("cpx-nps1")
            await put_plan(kubectl, dcmProfileName="cpx-nps1")
            status = await until_plan(kubectl, lambda status: phase_of_node(status) == "RolledBack")
            assert (status["phase"], status["failedNodes"]) == ("Degraded", 1)
            assert "the Device Config Manager could not apply cpx-nps1" in status["message"]
            assert manager.applied == ["cpx-nps1", "as-it-was"]
            assert await is_clear(kubectl)
            await kubectl.pod("whole", gpus=8)
            await until_bound(kubectl, "whole")

    play(test())


def test_devices_that_are_not_those_that_were_wanted_are_a_failure_whatever_the_manager_says(
    plane: Plane, tmp_path: Path
) -> None:
    async def test() -> None:
        async with prepared(plane) as (kubectl, manager), scheduler(plane, tmp_path / "a") as kaiwo:
            side = kaiwo.context.partitions.objects
            assert side is not None
            side._timeouts = msgspec.structs.replace(side._timeouts or ChangeTimeouts(), devices_s=1.0)
            manager.layouts |= {"cpx-nps1": [WHOLE] * 8, "spx-nps1-x8": [WHOLE] * 8}
            await put_plan(kubectl, dcmProfileName="cpx-nps1")
            status = await until_plan(kubectl, lambda status: phase_of_node(status) == "RolledBack")
            assert "gpu-0 shows SPX+NPS1 after CPX+NPS1 was set" in status["message"]
            assert manager.applied == ["cpx-nps1", "spx-nps1-x8"]

    play(test())


def test_the_next_leader_goes_on_with_a_change_that_was_begun(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with prepared(plane) as (kubectl, manager):
            manager.is_away = True
            async with scheduler(plane, tmp_path / "a"):
                await put_plan(kubectl, dcmProfileName="cpx-nps1")
                for _ in range(400):
                    if (await kubectl.get(NODE))["metadata"]["labels"].get(PROFILE_LABEL) == "cpx-nps1":
                        break
                    await asyncio.sleep(0.05)
            assert not await is_clear(kubectl)  # it went in the middle
            async with scheduler(plane, tmp_path / "b"):
                await until_plan(kubectl, lambda status: phase_of_node(status) == "Changing")
                manager.is_away = False
                await until_plan(kubectl, lambda status: status["phase"] == "Completed")
                assert manager.applied == ["cpx-nps1"]
                assert await is_clear(kubectl)

    play(test())


def test_waiting_work_makes_the_planner_change_a_node_and_brings_its_own_profile(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with prepared(plane) as (kubectl, manager), scheduler(plane, tmp_path / "a"):
            await kubectl.pod("part", gpus=2, annotations={"kaiwo.ai/gpu-partition": "CPX"})
            await until_bound(kubectl, "part")
            (profile,) = manager.applied
            config = msgspec.json.decode((await kubectl.get(f"{CONFIG}/dcm"))["data"]["config.json"])
            assert config["kept"] == 1
            assert profile == "cpx-nps1-x1.spx-nps1-x7"
            assert profile in config["gpu-config-profiles"]

    play(test())


def test_nothing_is_touched_in_a_dry_run_or_where_the_owner_does_not_let_it(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with prepared(plane) as (kubectl, manager):
            await put_plan(kubectl, dcmProfileName="cpx-nps1")
            async with scheduler(plane, tmp_path / "a", policy=""):  # what it is without a word
                status = await until_plan(kubectl, lambda status: phase_of_node(status) == "Waiting")
                assert status["nodes"][0]["message"] == "the policy is dry-run: nothing is changed"
            await kubectl.patch(NODE, {"metadata": {"labels": {"kaiwo.ai/partitioning": None}}})
            async with scheduler(plane, tmp_path / "b"):
                status = await until_plan(kubectl, lambda status: phase_of_node(status) == "Skipped")
                assert "label the node kaiwo.ai/partitioning=dcm" in status["nodes"][0]["message"]
            await kubectl.delete(f"{PARTITIONING_PLANS}/small-jobs")
            assert manager.applied == []
            assert PROFILE_LABEL not in (await kubectl.get(NODE))["metadata"]["labels"]

    play(test())
