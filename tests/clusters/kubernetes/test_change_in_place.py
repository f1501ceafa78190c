"""On Kubernetes `kaiwo set`, `hold` and `release` write annotations; other verbs name the kubectl line that does it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from kaiwo.model.errors import ForbiddenError, RefusedError
from kaiwo.model.workload import Workload
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.kubectl_cluster import Kubectl, opened, pod_path, start_of
from tests.clusters.kubernetes.running_scheduler import scheduled, until_bound, until_said
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run

KAIWO = str(Path(sys.executable).parent / "kaiwo")


class Said(NamedTuple):
    code: int
    text: str


async def kaiwo(home: Path, *words: str) -> Said:
    """A command of the CLI against the scheduler of this home."""
    command = await asyncio.create_subprocess_exec(
        KAIWO,
        *words,
        env=os.environ | {"KAIWO_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE_S):
        out, _ = await command.communicate()
    return Said(command.returncode or 0, out.decode())


@asynccontextmanager
async def full_cluster(plane: Plane, home: Path) -> AsyncIterator[Kubectl]:
    """One node of eight GPUs, which `old` holds."""
    async with scheduled(plane, home) as kubectl:
        await kubectl.node("node-1")
        await kubectl.pod("old", gpus=8)
        await until_bound(kubectl, "old")
        yield kubectl


def test_a_held_pod_waits_until_it_is_released() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("train", annotations={"kaiwo.ai/hold": "true"}))
    cache.flush()
    assert cache.published.workloads == {}
    assert cache.published.blocked["default/train"].reason == "it is held; release it with: kaiwo release train"
    assert cache.blocked_pods["default", "train"] == "it is held; release it with: kaiwo release train"
    cache.upsert_pod(cached_pod("train", annotations={"kaiwo.ai/hold": "false"}))
    cache.flush()
    assert list(cache.published.workloads) == ["default/train"]


def test_who_waits_for_something_else_is_not_held() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("train", annotations={"kaiwo.ai/priority": "high"}))
    cache.flush()
    assert not cache.published.blocked["default/train"].is_held


def test_a_new_priority_overtakes_and_keeps_the_age(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with full_cluster(plane, tmp_path) as kubectl:
            await kubectl.pod("first", gpus=8)
            await until_said(kubectl, "first", "GPU")
            await kubectl.pod("second", gpus=8)
            await until_said(kubectl, "second", "GPU")
            made = (await kubectl.read_pod("second"))["metadata"]["creationTimestamp"]
            said = await kaiwo(tmp_path, "set", "second", "priority=7", "time=2h")
            assert said == (0, "workload default/second: priority 0 -> 7, time none -> 2 h\n")
            pod = (await kubectl.read_pod("second"))["metadata"]
            assert pod["annotations"]["kaiwo.ai/priority"] == "7"
            assert pod["annotations"]["kaiwo.ai/time"] == "7200s"
            assert pod["creationTimestamp"] == made
            await kubectl.delete(pod_path("old"))
            await until_bound(kubectl, "second")
            assert not (await kubectl.read_pod("first"))["spec"].get("nodeName")
            said = await kaiwo(tmp_path, "set", "second", "queue=default", "priority=6")
            assert said == (0, "workload default/second: priority 7 -> 6\n")

    run(test())


def test_hold_and_release_by_the_same_verbs(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with full_cluster(plane, tmp_path) as kubectl:
            await kubectl.pod("train", gpus=8)
            await until_said(kubectl, "train", "GPU")
            assert await kaiwo(tmp_path, "hold", "train") == (0, "workload default/train held\n")
            await until_said(kubectl, "train", "it is held; release it with: kaiwo release train")
            await kubectl.delete(pod_path("old"))
            why = await kaiwo(tmp_path, "why", "train")
            assert "it is held; release it with: kaiwo release train" in why.text
            assert await kaiwo(tmp_path, "release", "train") == (0, "workload default/train released\n")
            await until_bound(kubectl, "train")
            again = await kaiwo(tmp_path, "release", "train")
            assert again.code == 3
            assert "is not held; there is nothing to release" in again.text
            held = await kaiwo(tmp_path, "hold", "train")
            assert held.code == 3
            assert "is running and only waiting work can be held" in held.text

    run(test())


def test_what_kubernetes_keeps_is_refused_with_the_line_that_does_it(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with full_cluster(plane, tmp_path) as kubectl:
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "sweep", "uid": "no-such-uid", "controller": True}
            await kubectl.pod("alone", gpus=1)
            await kubectl.pod("sweep-x", gpus=1, ownerReferences=[owner])
            await until_said(kubectl, "alone", "GPU")
            lines = {
                ("cancel", "alone"): "kubectl -n default delete pod alone",
                ("cancel", "sweep-x"): "kubectl -n default delete job.batch sweep",
                ("requeue", "sweep-x"): "kubectl -n default delete pod sweep-x",
                ("requeue", "alone"): "kubectl -n default get pod alone -o yaml > pods.yaml",
                ("set", "alone", "gpus=2"): "kubectl -n default replace --force -f work.yaml",
                ("set", "sweep-x", "gpus=2"): "kubectl -n default get job.batch sweep -o yaml > work.yaml",
                ("submit", "more", "--gpus", "1", "--", "true"): "kubectl apply -f FILE",
                ("nodes", "drain", "node-1"): "kubectl drain node-1",
                ("nodes", "fail", "node-1"): "kubectl taint nodes node-1",
                ("reservations", "create", "night", "--gpus", "1"): "kubectl apply -f FILE",
            }
            for words, line in lines.items():
                said = await kaiwo(tmp_path, *words)
                assert said.code == 3, (words, said)
                assert line in said.text, (words, said)
            said = await kaiwo(tmp_path, "cancel", "alone")
            plane.kubectl(*said.text.rpartition("kubectl ")[2].split())
            async with asyncio.timeout(PATIENCE_S):
                while "no workload" not in (await kaiwo(tmp_path, "describe", "workload", "alone")).text:
                    await asyncio.sleep(0.05)

    run(test())


def test_a_running_program_reports_by_the_same_verbs(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with full_cluster(plane, tmp_path) as kubectl:
            said = await kaiwo(tmp_path, "checkpoint", "old", "--at", "2026-01-31T18:00:00Z")
            assert said == (0, "workload default/old last saved its work at 2026-01-31 18:00 UTC\n")
            assert (await kaiwo(tmp_path, "progress", "old", "--step", "2.1s", "--expected", "2s")).code == 0
            notes = (await kubectl.read_pod("old"))["metadata"]["annotations"]
            assert notes["kaiwo.ai/last-checkpoint"] == "2026-01-31T18:00:00Z"
            assert notes["kaiwo.ai/progress"] == "step=2100000us expected=2000000us"

    run(test())


def test_a_change_keeps_to_the_rules_of_the_queue_and_of_a_bound_pod(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            work = scene.cluster.abilities.work
            await scene.kubectl.pod("train", annotations={"kaiwo.ai/user": "ada"})
            await scene.until_waiting("train")

            async def refusal(only_of: str | None = None, **fields: object) -> str:
                def change(workload: Workload) -> Workload:
                    return replace(workload, **fields)

                (result,) = await work.set_many(["default/train"], change, "bob", only_of)
                assert isinstance(result, RefusedError), result
                return str(result)

            assert "belongs to user 'ada'" in await refusal("bob", priority=-1)
            assert "at most 1000" in await refusal(priority=2000)
            assert "queue defalt does not exist; did you mean default?" in await refusal(queue="defalt")
            assert "reservation night, which does not exist" in await refusal(reservation="night")
            await scene.start(start_of("train"))
            await scene.until(lambda: bool(scene.cluster.cache.pods["default", "train"].node))
            assert "only its priority, time and estimate can be changed now" in await refusal(preemptible=False)

    run(test())


def test_nothing_that_was_settled_changes_in_the_moment_in_which_a_pod_starts(plane: Plane) -> None:
    """The scheduler's account may change a bound pod, and the cache has not seen yet that it is bound."""

    async def test() -> None:
        async with opened(plane) as scene:
            work, cache = scene.cluster.abilities.work, scene.cluster.cache
            await scene.kubectl.pod("train", annotations={"kaiwo.ai/user": "ada", "kaiwo.ai/preemptible": "true"})
            await scene.until_waiting("train")
            before = cache.pods["default", "train"]
            await scene.start(start_of("train"))
            await scene.until(lambda: bool(cache.pods["default", "train"].node))
            cache.pods["default", "train"] = before
            (result,) = await work.set_many(["default/train"], lambda each: replace(each, preemptible=False), "ada")
            assert "has just been started" in str(result)
            notes = (await scene.kubectl.read_pod("train"))["metadata"]["annotations"]
            assert notes["kaiwo.ai/preemptible"] == "true"

    run(test())


@pytest.mark.parametrize("action", ["hold", "release"])
def test_nobody_changes_the_work_of_others(plane: Plane, action: str) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("train", annotations={"kaiwo.ai/user": "ada"})
            await scene.until_waiting("train")
            (refused,) = await scene.cluster.abilities.work.change_many(action, ["default/train"], "bob", "bob")  # type: ignore[arg-type]
            assert isinstance(refused, ForbiddenError)

    run(test())
