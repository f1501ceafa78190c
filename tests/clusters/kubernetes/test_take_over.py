"""What a take-over keeps, on the real API server: a scheduler is killed, and another goes on where it was."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import RunningScheduler, scheduling
from kaiwo.clusters.kubernetes.cache.device_grants import FILLS_ANNOTATION
from kaiwo.clusters.kubernetes.cache.planned_start_annotations import PLACE_ANNOTATION, START_ANNOTATION
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import QUEUES
from kaiwo.clusters.kubernetes.decode.quantities import read_time_s
from kaiwo.queues.past_usage import WHOLE_PART
from kaiwo.snapshot.queue_table import GPU
from tests.clusters.kubernetes.installed_webhooks import queue
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, pod_path
from tests.clusters.kubernetes.replicas import Replica, replica
from tests.clusters.kubernetes.running_scheduler import until_bound
from tests.clusters.kubernetes.test_replicas import two
from tests.clusters.kubernetes.test_scheduler import prepared
from tests.conftest import ROOT
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run, until

POLICY = "pastUse: {halfLife: 60s}\nholdOff: 1h\n"


def test_a_planned_start_stays_and_who_fills_the_gap_before_it_still_goes_in_time(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with prepared(plane, nodes=1) as kubectl:
            with first(plane, tmp_path) as killed:
                await kubectl.pod("long", gpus=4, annotations={"kaiwo.ai/estimate": "55s"})
                await until_bound(kubectl, "long")
                await kubectl.pod("big", gpus=8, annotations={"kaiwo.ai/estimate": "10m"})
                big = await until_pod(kubectl, "big", lambda pod: START_ANNOTATION in notes(pod))
                planned_s = read_time_s(notes(big)[START_ANNOTATION])
                assert 20 < planned_s - time.time() < 60
                await kubectl.pod("small", gpus=4, annotations={"kaiwo.ai/estimate": "10s"})
                until_s = int(notes(await until_bound(kubectl, "small"))[FILLS_ANNOTATION])
                assert 0 < until_s - time.time() <= 10
                killed.signal(signal.SIGKILL)
            async with second(plane, tmp_path) as kaiwo:
                # Nothing is decided before all of this is known, and nothing that was written is written anew.
                promise = kaiwo.loop.state.planned_starts["default/big"]
                assert promise.start_s == planned_s
                assert {place.node for place in promise.places} == {"node-1"}
                assert kaiwo.loop.state.pods["default/small"]["main-0"].until_s == until_s
                small = await until_pod(kubectl, "small", lambda pod: "deletionTimestamp" in pod["metadata"])
                told_s = (
                    read_time_s(small["metadata"]["deletionTimestamp"])
                    - small["metadata"]["deletionGracePeriodSeconds"]
                )
                assert until_s <= told_s <= planned_s - 25
                big = await kubectl.read_pod("big")
                assert read_time_s(notes(big)[START_ANNOTATION]) <= planned_s
                for name in ("small", "long"):
                    await kubectl.delete(pod_path(name))
                await until_bound(kubectl, "big")
                assert kaiwo.loop.health.failures == 0

    run(test())


def test_a_standby_that_takes_over_keeps_the_planned_start(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with two(plane, tmp_path) as (kubectl, leader, standby):
            for number in range(8):
                await kubectl.pod(f"long-{number}", gpus=8, annotations={"kaiwo.ai/estimate": "10m"})
            for number in range(8):
                await until_bound(kubectl, f"long-{number}")
            await kubectl.pod("big", gpus=8, annotations={"kaiwo.ai/estimate": "10m"})
            await until_pod(kubectl, "big", lambda pod: START_ANNOTATION in notes(pod))
            leader.signal(signal.SIGKILL)
            planned = notes(await kubectl.read_pod("big"))  # what it wrote last: it may have planned again
            await until(lambda: standby.metric("kaiwo_leader") == 1, "the standby to lead")
            await kubectl.pod("later", gpus=0)  # whoever binds this has decided
            await until_bound(kubectl, "later")
            now = notes(await kubectl.read_pod("big"))
            assert (now[START_ANNOTATION], now[PLACE_ANNOTATION]) == (
                planned[START_ANNOTATION],
                planned[PLACE_ANNOTATION],
            )

    run(test())


def test_a_planned_start_that_is_none_any_more_is_taken_off_the_pod(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with prepared(plane, nodes=1) as kubectl, second(plane, tmp_path):
            await kubectl.pod("long", gpus=8, annotations={"kaiwo.ai/estimate": "10m"})
            await until_bound(kubectl, "long")
            await kubectl.pod("big", gpus=8)
            await until_pod(kubectl, "big", lambda pod: PLACE_ANNOTATION in notes(pod))
            await kubectl.patch("/api/v1/nodes/node-1", {"spec": {"unschedulable": True}})
            await until_pod(
                kubectl, "big", lambda pod: PLACE_ANNOTATION not in notes(pod) and START_ANNOTATION not in notes(pod)
            )

    run(test())


def test_past_use_goes_on_and_who_had_to_go_for_others_is_held_off(plane: Plane, tmp_path: Path) -> None:
    with_queues(plane)

    async def test() -> None:
        async with prepared(plane, nodes=1) as kubectl, two_queues(kubectl):
            with first(plane, tmp_path) as killed:
                for number in range(2):
                    await kubectl.pod(f"greedy-{number}", gpus=4, annotations={"kaiwo.ai/queue": "greedy"})
                    await until_bound(kubectl, f"greedy-{number}")
                used = await until_status(kubectl, "greedy", lambda status: "usage" in status)
                assert 0.05 < float(used["usage"]["gpu"]) < 0.9
                await kubectl.pod("owed", gpus=4, annotations={"kaiwo.ai/queue": "owed"})
                status = await until_status(kubectl, "greedy", lambda status: bool(status.get("stops")))
                (stop,) = status["stops"]
                assert (stop["queues"], abs(stop["atSeconds"] - time.time()) < 10) == (["greedy"], True)
                killed.signal(signal.SIGKILL)
            stopped = stop["workload"].removeprefix("default/")
            await kubectl.delete(pod_path(stopped))  # its kubelet would have
            async with second(plane, tmp_path) as kaiwo:
                state = kaiwo.loop.state
                assert [each.at_s for each in state.recent_stops["greedy"]] == [stop["atSeconds"]]
                await until_bound(kubectl, "owed")
                # It comes back under its name, as a Job's or a StatefulSet's pod does, and may make nobody go.
                await kubectl.pod(stopped, gpus=4, annotations={"kaiwo.ai/queue": "greedy"})
                await until(lambda: f"default/{stopped}" in state.workloads, "it to come back")
                assert state.last_stop[f"default/{stopped}"].at_s == stop["atSeconds"]
                await until(lambda: state.past_usage is not None, "past use")
                assert state.past_usage is not None
                part = state.past_usage.parts["greedy"][GPU] / WHOLE_PART
                status = (await kubectl.get(f"{QUEUES}/greedy"))["status"]
                assert abs(part - float(status["usage"]["gpu"])) < 0.2
                assert part > 0.05

    run(test())


def test_an_idle_cluster_is_not_written_to(plane: Plane, tmp_path: Path) -> None:
    """Planned starts, past use and stops are there, and stand still: so do the objects."""
    with_queues(plane)

    async def test() -> None:
        async with prepared(plane, nodes=1) as kubectl, two_queues(kubectl), second(plane, tmp_path):
            await kubectl.pod("long", gpus=8, annotations={"kaiwo.ai/estimate": "10m", "kaiwo.ai/queue": "greedy"})
            await until_bound(kubectl, "long")
            await kubectl.pod("big", gpus=8, annotations={"kaiwo.ai/queue": "greedy"})
            await until_pod(kubectl, "big", lambda pod: PLACE_ANNOTATION in notes(pod))
            await asyncio.sleep(3)
            before = (await kubectl.read_pod("big"))["metadata"]["resourceVersion"]
            await asyncio.sleep(5)
            assert (await kubectl.read_pod("big"))["metadata"]["resourceVersion"] == before

    run(test())


def first(plane: Plane, folder: Path) -> "contextlib.AbstractContextManager[Replica]":
    (folder / "policy.yaml").write_text(POLICY)
    return replica(plane, folder / "first", "--no-leader-elect", "--policy", str(folder / "policy.yaml"))


@asynccontextmanager
async def second(plane: Plane, folder: Path) -> AsyncIterator[RunningScheduler]:
    """Another home: whatever it knows, it has from the cluster."""
    (folder / "policy.yaml").write_text(POLICY)
    options = SchedulerOptions(
        str(folder / "second"), port=0, kubeconfig=str(plane.kubeconfig), leader_elect=False,
        policy=str(folder / "policy.yaml"),
    )  # fmt: skip
    (folder / "second").mkdir()
    async with scheduling(options) as kaiwo:
        yield kaiwo


def with_queues(plane: Plane) -> None:
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "deploy" / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/kaiwoqueues.kaiwo.ai")


@asynccontextmanager
async def two_queues(kubectl: Kubectl) -> AsyncIterator[None]:
    """One deserves nothing and may lose three workloads an hour; the other deserves half of the cluster."""
    await kubectl.create(QUEUES, queue("greedy", fairness={"evictionsPerHour": 3}))
    await kubectl.create(QUEUES, queue("owed", resources={"gpu": {"quota": 4}}))
    try:
        yield
    finally:
        for name in ("greedy", "owed"):
            await kubectl.delete(f"{QUEUES}/{name}")


def notes(pod: Json) -> dict[str, str]:
    return pod["metadata"].get("annotations", {})


async def until_pod(kubectl: Kubectl, name: str, holds: Callable[[Json], bool]) -> Json:
    pod: Json = {}
    for _ in range(int(2 * PATIENCE_S / 0.05)):
        pod = await kubectl.read_pod(name)
        if holds(pod):
            return pod
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} is {pod}")


async def until_status(kubectl: Kubectl, name: str, holds: Callable[[Json], bool]) -> Json:
    status: Json = {}
    for _ in range(int(2 * PATIENCE_S / 0.05)):
        status = (await kubectl.get(f"{QUEUES}/{name}")).get("status", {})
        if holds(status):
            return status
        await asyncio.sleep(0.05)
    raise AssertionError(f"queue {name} has {status}")
