"""What `kubectl get kaiwoqueues` shows, on the real API server; and that it is seldom written."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kaiwo.clusters.kubernetes.decode.kaiwo_objects import QUEUES
from kaiwo.clusters.kubernetes.writers.queue_status_writer import QueueStatus, status_fields
from tests.clusters.kubernetes.installed_webhooks import queue
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl
from tests.clusters.kubernetes.running_scheduler import scheduled, until_bound, until_said
from tests.conftest import ROOT
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run


def test_a_queue_shows_how_it_stands(plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "deploy" / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/kaiwoqueues.kaiwo.ai")
    monkeypatch.setattr("kaiwo.runtime.kubernetes.publish_queue_status.EVERY_S", 0.1)

    async def test() -> None:
        async with scheduled(plane, tmp_path) as kubectl, queues(kubectl):
            await kubectl.node("node-1")
            for number in range(3):
                await kubectl.pod(f"p-{number}", gpus=2, annotations={"kaiwo.ai/queue": "low"})
            await until_bound(kubectl, "p-1")
            low = await until(kubectl, "low", lambda status: status.get("running") == 2)
            assert (low["status"]["waiting"], low["status"]["observedGeneration"]) == (1, 1)
            assert low["status"]["used"] == {"gpu": "4", "cpu": "2", "memory": "2Gi"}
            top = await until(kubectl, "top", lambda status: status.get("used", {}).get("gpu") == "4")
            assert top["status"]["conditions"][0]["reason"] == "Sound"
            assert top["status"]["deserved"]["gpu"] == "3"
            lost = await until(kubectl, "lost", lambda status: bool(status.get("conditions")))
            (condition,) = lost["status"]["conditions"]
            assert (condition["type"], condition["status"]) == ("Ready", "False")
            assert condition["message"].startswith("queue lost names the parent nobody, which does not exist")
            version = top["metadata"]["resourceVersion"]
            await asyncio.sleep(1)  # ten chances to write
            assert (await kubectl.get(f"{QUEUES}/top"))["metadata"]["resourceVersion"] == version
            await kubectl.patch(f"{QUEUES}/low", {"spec": {"resources": {"gpu": {"limit": 6}}}})
            await until_bound(kubectl, "p-2")
            low = await until(kubectl, "low", lambda status: status.get("running") == 3)
            assert low["status"]["observedGeneration"] == 2

    run(test())


def test_a_queue_that_cannot_be_read_says_so_and_stays_in_force(
    plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rule of the definition refuses one mistake; a unit stands twice in this one, which none of them sees."""
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "deploy" / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/kaiwoqueues.kaiwo.ai")
    monkeypatch.setattr("kaiwo.runtime.kubernetes.publish_queue_status.EVERY_S", 0.1)
    words = "each unit may appear once"

    async def test() -> None:
        async with scheduled(plane, tmp_path / "first") as kubectl:
            await kubectl.create(QUEUES, queue("team", resources={"gpu": {"limit": 1}}))
            await until(kubectl, "team", lambda status: ready(status) == "True")
            await kubectl.patch(f"{QUEUES}/team", {"spec": {"fairness": {"minRuntime": "1h1h"}}})
            status = (await until(kubectl, "team", lambda status: ready(status) == "False"))["status"]
            assert status["observedGeneration"] == 2
            assert words in status["conditions"][0]["message"]
            assert "stays in force" in status["conditions"][0]["message"]
            await kubectl.node("node-1")
            await kubectl.pod("one", gpus=1, annotations={"kaiwo.ai/queue": "team"})
            await until_bound(kubectl, "one")
            await kubectl.pod("two", gpus=1, annotations={"kaiwo.ai/queue": "team"})
            await until_said(kubectl, "two", "queue 'team' has 0 GPUs left of its limit")
        async with scheduled(plane, tmp_path / "second") as kubectl:
            await kubectl.node("node-1")
            await kubectl.pod("three", gpus=1, annotations={"kaiwo.ai/queue": "team"})
            await until_said(kubectl, "three", "its queue 'team' cannot be read")
            await until_said(kubectl, "three", words)
            status = (await until(kubectl, "team", lambda status: status.get("waiting") == 0))["status"]
            assert (ready(status), status["observedGeneration"]) == ("False", 2)
            await kubectl.patch(f"{QUEUES}/team", {"spec": {"fairness": {"minRuntime": "1h"}}})
            await until_bound(kubectl, "three")
            await until(kubectl, "team", lambda status: ready(status) == "True")
            await kubectl.delete(f"{QUEUES}/team")

    run(test())


def ready(status: Json) -> str:
    return next((each["status"] for each in status.get("conditions", []) if each["type"] == "Ready"), "")


def test_amounts_are_written_as_people_write_them() -> None:
    status = status_fields(QueueStatus("q", 1, 0, (1500, 250, 1536), (0, 1000, 2048), (8000, 0, 0)), 3)
    assert status["used"] == {"gpu": "1.5", "cpu": "0.25", "memory": "1536Mi"}
    assert status["fairShare"] == {"gpu": "0", "cpu": "1", "memory": "2Gi"}
    assert status["deserved"]["gpu"] == "8"


def test_the_time_of_a_condition_is_that_of_its_last_change() -> None:
    nothing = (0, 0, 0)
    first = status_fields(QueueStatus("q", 0, 0, nothing, nothing, nothing), 1)
    first["conditions"][0]["lastTransitionTime"] = "2020-01-01T00:00:00Z"
    again = status_fields(QueueStatus("q", 5, 0, nothing, nothing, nothing), 1, first)
    assert again["conditions"] == first["conditions"]
    broken = status_fields(QueueStatus("q", 5, 0, nothing, nothing, nothing, "it is in a circle"), 1, again)
    assert broken["conditions"][0]["lastTransitionTime"] > "2020-01-01T00:00:00Z"


@asynccontextmanager
async def queues(kubectl: Kubectl) -> AsyncIterator[None]:
    names = ("top", "low", "lost")
    await kubectl.create(QUEUES, queue("top", resources={"gpu": {"quota": 3}}))
    await kubectl.create(QUEUES, queue("low", parentQueue="top", resources={"gpu": {"quota": 3, "limit": 4}}))
    await kubectl.create(QUEUES, queue("lost", parentQueue="nobody"))
    try:
        yield
    finally:
        for name in names:
            await kubectl.delete(f"{QUEUES}/{name}")


async def until(kubectl: Kubectl, name: str, holds: Any) -> Json:
    for _ in range(int(PATIENCE_S / 0.05)):
        found = await kubectl.get(f"{QUEUES}/{name}")
        if holds(found.get("status", {})):
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"queue {name} shows {found.get('status')}")
