"""What every kind of cluster does, on a real API server. The sentences are those of tests/clusters/test_contract.py."""

import asyncio

import msgspec
import pytest

from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION
from kaiwo.model.events import PodChanged, PodGone, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.workload import Phase
from tests.clusters.kubernetes.kubectl_cluster import opened, opened_here, pod_path, start_of, whole
from tests.controlplane.plane import Plane
from tests.waiting import run


def test_the_first_batch_is_the_whole_state(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            assert set(scene.state.nodes) == {"node-1", "node-2"}
            assert "default" in scene.state.queues
            node = scene.state.nodes["node-1"]
            assert (node.cpu_milli, node.memory_mib, node.pods, len(node.gpus)) == (192_000, 2 << 20, 110, 8)
            assert (node.gpus[0].id, node.gpus[0].model, node.gpus[0].memory_mib) == ("gpu-0", "MI300X", 192 * 1024)

    run(test())


def test_a_second_reader_gets_the_whole_state_and_the_first_one_ends(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("a")
            await scene.until_waiting("a")
            async for batch in scene.cluster.events():
                assert WorkloadChanged(scene.workload("a")) in batch
                break

    run(test())


def test_a_started_pod_runs_to_its_end(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("a")
            await scene.until_waiting("a")
            assert await scene.start(start_of("a", devices=whole(3))) == ("default/a/main-0",)
            await scene.until(lambda: scene.state.pods["default/a", "main-0"].phase is Phase.RUNNING)
            pod = await scene.kubectl.read_pod("a")
            # One write: the node and the devices are there together.
            assert pod["spec"]["nodeName"] == "node-1"
            assert msgspec.json.decode(
                pod["metadata"]["annotations"][GRANT_ANNOTATION], type=tuple[Share, ...]
            ) == whole(3)
            await scene.kubectl.phase("a", "Succeeded")
            await scene.until(lambda: WorkloadGone("default/a") in scene.seen)
            assert PodGone("default/a", "main-0") in scene.seen

    run(test())


def test_a_start_applied_twice_starts_once(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("a")
            await scene.until_waiting("a")
            await scene.start(start_of("a"))
            assert await scene.start(start_of("a")) == ()
            assert await scene.start(start_of("a", node="node-2")) == ()
            await scene.until(lambda: scene.state.pods["default/a", "main-0"].phase is Phase.RUNNING)
            assert scene.state.pods["default/a", "main-0"].node == "node-1"

    run(test())


def test_a_refused_start_waits_longer_each_time(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("a")
            await scene.until_waiting("a")
            pauses = []
            for times in range(1, 9):
                await scene.start(start_of("a", node="nowhere"))
                await scene.until(
                    lambda times=times: scene.cluster.cache.start_backoff.refusals["default/a"].times == times
                )
                until_s = scene.cluster.cache.start_backoff.refusals["default/a"].until_s
                await scene.until(lambda: ("default/a", "main-0") not in scene.state.pods)
                assert scene.workload("a").not_before_s == until_s
                pauses.append(until_s - scene.cluster.now_s())
            assert all(
                want - 2 <= pause <= want for want, pause in zip((1, 2, 4, 8, 16, 32, 60, 60), pauses, strict=True)
            )
            assert scene.workload("a").not_before_why == "node nowhere is gone"
            await scene.start(start_of("a"))
            await scene.until(lambda: scene.state.pods["default/a", "main-0"].phase is Phase.RUNNING)
            await scene.until(lambda: scene.workload("a").not_before_s == 0)

    run(test())


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        ((), "asks for 1 devices"),
        (whole(0, 1), "asks for 1 devices"),
        ((Share("gpu-0", 500, 0),), "asks for a share of 1 of each device"),
        (whole(9), "no device gpu-9"),
        (whole(7), "device gpu-7"),
    ],
)
def test_nothing_is_given_twice_even_when_the_plan_is_wrong(plane: Plane, devices: tuple[Share, ...], why: str) -> None:
    async def test() -> None:
        async with opened(plane, nodes=1) as scene:
            await scene.kubectl.pod("there")
            await scene.kubectl.pod("a")
            await scene.until_waiting("there", "a")
            await scene.start(start_of("there", devices=whole(7)))
            assert await scene.start(start_of("a", devices=devices)) == ()
            await scene.until(lambda: why in scene.workload("a").not_before_why)
            assert ("default/a", "main-0") not in scene.state.pods
            assert "nodeName" not in (await scene.kubectl.read_pod("a"))["spec"]

    run(test())


def test_an_evicted_pod_holds_its_place_until_it_is_gone(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("a")
            await scene.until_waiting("a")
            await scene.start(start_of("a"))
            await scene.until(lambda: scene.state.pods["default/a", "main-0"].phase is Phase.RUNNING)
            assert await scene.evict("a") == ("default/a/main-0",)
            assert await scene.evict("a") == ()  # it is asked once
            await scene.until(lambda: not scene.cluster.cache.in_flight.evictions, "the server's word")
            assert scene.state.pods["default/a", "main-0"].phase is Phase.RELEASING
            assert "deletionTimestamp" in (await scene.kubectl.read_pod("a"))["metadata"]
            await scene.kubectl.delete(pod_path("a"))  # as the kubelet does when the containers have ended
            await scene.until(lambda: ("default/a", "main-0") not in scene.state.pods)
            assert "default/a" not in scene.state.workloads

    run(test())


def test_a_pod_deleted_while_it_is_bound_is_forgotten(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            for number in range(10):
                await scene.kubectl.pod(f"a-{number}")
            await scene.until_waiting(*(f"a-{number}" for number in range(10)))
            deletions = [scene.kubectl.delete(pod_path(f"a-{number}")) for number in range(10)]
            starts = [
                start_of(f"a-{number}", node=f"node-{number % 2 + 1}", devices=whole(number // 2))
                for number in range(10)
            ]
            await asyncio.gather(scene.start(*starts), *deletions)
            await scene.until(lambda: not scene.state.workloads and not scene.state.pods, "all to be gone")
            assert scene.cluster.cache.in_flight.starts == {}

    run(test())


def test_pods_that_somebody_else_bound_are_seen_where_they_are(plane: Plane) -> None:
    """Two schedulers contend: who comes second is refused, and believes the server."""

    async def test() -> None:
        async with opened(plane) as scene:
            names = [f"a-{number}" for number in range(8)]
            for name in names:
                await scene.kubectl.pod(name)
            await scene.until_waiting(*names)
            target = {"apiVersion": "v1", "kind": "Node", "name": "node-2"}
            others = [
                asyncio.create_task(
                    scene.kubectl.create(pod_path(name) + "/binding", {"metadata": {"name": name}, "target": target})
                )
                for name in names
            ]
            await asyncio.sleep(0)
            await scene.start(*(start_of(name, devices=whole(number)) for number, name in enumerate(names)))
            outcomes = await asyncio.gather(*others, return_exceptions=True)
            assert not all(isinstance(each, Exception) for each in outcomes), "the other one never was first"
            await scene.until(lambda: len(scene.state.pods) == 8 and not scene.cluster.cache.in_flight.starts)
            await scene.until(lambda: all(pod.phase is Phase.RUNNING for pod in scene.state.pods.values()))
            for name in names:
                pod = scene.state.pods[f"default/{name}", "main-0"]
                assert pod.node == (await scene.kubectl.read_pod(name))["spec"]["nodeName"]
                assert len(pod.devices) == 1  # it holds a GPU, whoever placed it

    run(test())


def test_a_restart_finds_everything_as_it_was(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            for name in ("a", "b", "waits"):
                await scene.kubectl.pod(name, gpus=2)
            await scene.until_waiting("a", "b", "waits")
            await scene.start(start_of("a", devices=whole(6, 7)), start_of("b", node="node-2", devices=whole(1, 3)))
            await scene.until(lambda: len(scene.state.pods) == 2)
            await scene.until(lambda: all(pod.phase is Phase.RUNNING for pod in scene.state.pods.values()))
            async with opened_here(plane, scene.kubectl) as other:
                assert vars(other.state) == vars(scene.state)
                assert other.state.pods["default/a", "main-0"].devices == whole(6, 7)

    run(test())


def test_a_change_is_told_once(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("a")
            await scene.until_waiting("a")
            for number in range(5):  # nothing that matters to a scheduler
                await scene.kubectl.patch(pod_path("a"), {"metadata": {"annotations": {"example.com/n": str(number)}}})
                await scene.kubectl.patch("/api/v1/nodes/node-1", {"metadata": {"annotations": {"n": str(number)}}})
            await scene.kubectl.pod("b")
            await scene.until_waiting("b")
            told = [event for event in scene.seen if isinstance(event, WorkloadChanged | PodChanged)]
            assert [event.workload.name for event in told if isinstance(event, WorkloadChanged)] == [
                "default/a",
                "default/b",
            ]

    run(test())
