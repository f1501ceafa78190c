"""What a new leader knows before it decides: all that the old one did, also what a watch has not brought."""

import asyncio

from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION, write_grant
from kaiwo.clusters.kubernetes.client import Resource
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.watch.cluster_watch import PODS, PodHandler
from tests.clusters.kubernetes.api_objects import DECODER, cache_with_nodes, wire_pod
from tests.clusters.kubernetes.kubectl_cluster import full, opened, pod_path, whole
from tests.controlplane.plane import Plane
from tests.waiting import run


def test_what_the_old_leader_bound_is_known_although_the_watch_was_silent(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            for name in ("bound", "deleted"):
                await scene.kubectl.pod(name)
            await scene.until_waiting("bound", "deleted")
            watch = scene.cluster.watch._tasks[PODS]
            watch.cancel()  # as good as a line that is dead and does not know it
            await asyncio.gather(watch, return_exceptions=True)
            target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
            metadata = {"name": "bound", "annotations": {GRANT_ANNOTATION: write_grant(whole(3))}}
            await scene.kubectl.create(pod_path("bound") + "/binding", {"metadata": metadata, "target": target})
            await scene.kubectl.delete(pod_path("deleted"))
            await scene.cluster.catch_up()
            # At once: the reader has it when `catch_up` is over.
            held = scene.state.pods[full("bound"), "main-0"]
            assert (held.node, held.devices) == ("node-1", whole(3))
            assert full("deleted") not in scene.state.workloads

    run(test())


def test_what_a_list_brought_that_broke_off_does_not_outlive_it() -> None:
    cache = cache_with_nodes()
    reader = PodHandler(Resource(PODS, wire_objects.Pod), cache, DECODER)
    reader.on_list_start()
    reader.on_page([wire_pod("old", resourceVersion="5")])
    reader.on_list_start()  # the server forgot the list's version between two pages; meanwhile the pod went
    reader.on_page([wire_pod("new", resourceVersion="9")])
    reader.on_list_end("10")
    assert [name for _, name in cache.pods] == ["new"]
