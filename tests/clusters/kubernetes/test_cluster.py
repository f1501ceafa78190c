"""What only Kubernetes has: other schedulers, gates, volumes, budgets, Jobs, Events and conditions."""

import asyncio
from typing import Any

import pytest

from kaiwo.clusters.kubernetes.client import ApiError
from kaiwo.clusters.kubernetes.writers.event_writer import WaitReason
from kaiwo.model.affinity import NodeRule
from kaiwo.model.workload import Phase
from tests.clusters.kubernetes.kubectl_cluster import Kubectl, Scene, opened, pod_path, start_of, whole
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run


async def _until_condition(kubectl: Kubectl, name: str, words: str) -> dict[str, str]:
    async with asyncio.timeout(PATIENCE_S):
        while words not in (found := await kubectl.condition(name)).get("message", ""):
            await asyncio.sleep(0.02)
    return found


async def _until_event(kubectl: Kubectl, name: str, reason: str) -> str:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            events = (await kubectl.get("/api/v1/namespaces/default/events"))["items"]
            for event in events:
                if event["involvedObject"]["name"] == name and event["reason"] == reason:
                    return str(event["message"])
            await asyncio.sleep(0.05)


async def _bind_elsewhere(kubectl: Kubectl, name: str, node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    await kubectl.create(pod_path(name) + "/binding", {"metadata": {"name": name}, "target": target})


def test_pods_of_other_schedulers_hold_what_they_hold(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane, nodes=1) as scene:
            await scene.kubectl.pod("theirs", gpus=3, schedulerName="default-scheduler")
            await _bind_elsewhere(scene.kubectl, "theirs", "node-1")
            await scene.until(lambda: ("default/theirs", "main-0") in scene.state.pods)
            pod = scene.state.pods["default/theirs", "main-0"]
            assert [share.gpu for share in pod.devices] == ["gpu-0", "gpu-1", "gpu-2"]
            assert (pod.cpu_milli, pod.memory_mib) == (1000, 1024)
            assert scene.state.workloads == {}  # it is nobody's we schedule
            await scene.kubectl.pod("ours")
            await scene.until_waiting("ours")
            assert await scene.start(start_of("ours", devices=whole(2))) == ()
            assert await scene.start(start_of("ours", devices=whole(3))) == ("default/ours/main-0",)
            await scene.kubectl.delete(pod_path("theirs"))
            await scene.until(lambda: ("default/theirs", "main-0") not in scene.state.pods)

    run(test())


def test_a_gated_pod_waits_until_its_gate_is_open(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("gated", schedulingGates=[{"name": "example.com/later"}])
            await scene.kubectl.pod("free")
            await scene.until_waiting("free")
            assert "default/gated" not in scene.state.workloads
            await scene.kubectl.patch(pod_path("gated"), {"spec": {"schedulingGates": []}})
            await scene.until_waiting("gated")

    run(test())


def test_queue_priority_and_times_are_read_from_the_pod(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            notes = {"kaiwo.ai/queue": "lab", "kaiwo.ai/estimate": "2h", "kaiwo.ai/preemptible": "false"}
            await scene.kubectl.pod("a", annotations=notes, labels={"kaiwo.silogen.ai/user": "ada"})
            await scene.kubectl.pod("b", priorityClassName="system-cluster-critical", namespace="kube-system")
            await scene.until_waiting("a", "kube-system/b")
            work = scene.workload("a")
            assert (work.queue, work.user, work.estimate_s, work.preemptible) == ("lab", "ada", 7200, False)
            assert scene.workload("kube-system/b").priority == 2_000_000_000

    run(test())


def test_what_a_pod_asks_for_is_counted_as_kubernetes_does(plane: Plane) -> None:
    async def test() -> None:
        def container(cpu: str, **more: object) -> dict[str, object]:
            return {"name": f"c{cpu}", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "10Mi"}}, **more}

        async with opened(plane) as scene:
            await scene.kubectl.pod(
                "a",
                containers=[container("1"), container("500m")],
                initContainers=[container("2", restartPolicy="Always"), container("3")],
                nodeSelector={"zone": "a"},
                tolerations=[{"key": "gpu", "operator": "Exists"}],
            )
            await scene.until_waiting("a")
            request = scene.workload("a").roles[0].request
            assert (request.cpu_milli, request.memory_mib) == (5000, 30)  # 2 + 3 while it starts, 30 MiB afterwards
            assert request.node_rules == (NodeRule("zone", "In", ("a",)),)
            assert any(each.key == "gpu" and each.operator == "Exists" for each in request.tolerations)

    run(test())


def test_a_share_of_a_gpu_goes_only_where_an_agent_serves_shares(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("half", gpus=0, annotations={"kaiwo.ai/gpu-fraction": "0.5"})
            await scene.until_waiting("half")
            request = scene.workload("half").roles[0].request
            assert (request.gpus, request.gpu_milli) == (1, 500)
            assert NodeRule("kaiwo.ai/gpu-sharing", "In", ("true",)) in request.node_rules

    run(test())


def test_a_rule_that_cannot_be_kept_makes_the_pod_wait_with_a_sentence(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("claims", resourceClaims=[{"name": "x", "resourceClaimName": "x"}])
            await scene.kubectl.pod("wrong", annotations={"kaiwo.ai/gpu-fraction": "1.5"})
            await scene.kubectl.pod("fine")
            await scene.until_waiting("fine")
            assert set(scene.state.workloads) == {"default/fine"}
            found = await _until_condition(scene.kubectl, "claims", "device claims")
            assert (found["status"], found["reason"]) == ("False", "KaiwoWaiting")
            await _until_condition(scene.kubectl, "wrong", "kaiwo.ai/gpu-fraction is")
            assert "device claims" in await _until_event(scene.kubectl, "claims", "FailedScheduling")

    run(test())


async def _claim(scene: Scene, name: str, zone: str = "") -> None:
    """A claim and its volume, bound as the volume controller would; with a zone, the volume can be used there only."""
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    spec = {"accessModes": modes, "resources": {"requests": size}, "storageClassName": "", "volumeName": name}
    await scene.kubectl.create(
        "/api/v1/namespaces/default/persistentvolumeclaims", {"metadata": {"name": name}, "spec": spec}
    )
    await scene.kubectl.create(
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": name},
            "spec": {
                "capacity": size,
                "accessModes": modes,
                "local": {"path": "/data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        },
    )


def test_a_pod_goes_where_its_volume_can_be_used(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
            await scene.kubectl.pod("a", volumes=volumes)
            await _until_condition(scene.kubectl, "a", "volume claim data does not exist")
            await _claim(scene, "data", zone="b")
            await _until_condition(scene.kubectl, "a", "not bound to a volume yet")
            claim = "/api/v1/namespaces/default/persistentvolumeclaims/data"
            await scene.kubectl.patch(claim + "/status", {"status": {"phase": "Bound"}})
            await scene.until_waiting("a")
            assert NodeRule("zone", "In", ("b",)) in scene.workload("a").roles[0].request.node_rules
            await scene.kubectl.delete(pod_path("a"))
            for path in (claim, "/api/v1/persistentvolumes/data"):
                await scene.kubectl.patch(path, {"metadata": {"finalizers": None}})
                await scene.kubectl.delete(path)

    run(test())


def test_a_disruption_budget_keeps_a_pod_and_the_scheduler_hears_of_it(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("a", labels={"app": "kept"})
            await scene.until_waiting("a")
            await scene.start(start_of("a"))
            await scene.until(lambda: scene.state.pods["default/a", "main-0"].phase is Phase.RUNNING)
            await scene.kubectl.phase("a", "Running")
            path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
            spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
            await scene.kubectl.create(path, {"metadata": {"name": "keep"}, "spec": spec})
            assert await scene.evict("a") == ("default/a/main-0",)
            assert scene.state.pods["default/a", "main-0"].phase is Phase.RELEASING
            await asyncio.sleep(0.3)
            assert "deletionTimestamp" not in (await scene.kubectl.read_pod("a"))["metadata"]
            await scene.kubectl.delete(f"{path}/keep")
            await scene.until(lambda: not scene.cluster.cache.in_flight.evictions, "the eviction to be let through")
            assert "deletionTimestamp" in (await scene.kubectl.read_pod("a"))["metadata"]
            assert "preempt for default/other" in await _until_event(scene.kubectl, "a", "Evicted")

    run(test())


def test_an_eviction_that_is_refused_for_good_is_taken_back(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("a")
            await scene.until_waiting("a")
            await scene.start(start_of("a"))
            await scene.until(lambda: scene.state.pods["default/a", "main-0"].phase is Phase.RUNNING)

            async def refuse(method: str, path: str, *_: object, **__: object) -> bytes:
                raise ApiError(403, "Forbidden", "you may not", call=f"{method} {path}")

            scene.cluster.client.write = refuse  # type: ignore[method-assign]
            await scene.evict("a")
            await scene.until(lambda: scene.state.pods["default/a", "main-0"].phase is Phase.RUNNING)

    run(test())


def test_who_may_neither_bind_nor_read_waits_before_it_tries_again(plane: Plane) -> None:
    """Rights that were taken away: 380 Bindings in 8 s, while reading the pod again was refused as well."""

    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("a")
            await scene.until_waiting("a")

            async def refuse(*_: object, **__: object) -> bytes:
                raise ApiError(403, "Forbidden", "you may not", call="POST binding")

            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(scene.cluster.client, "write", refuse)
                patched.setattr(scene.cluster.client, "read", refuse)
                await scene.start(start_of("a"))
                await scene.until(lambda: scene.workload("a").not_before_why == "you may not")
            assert scene.cluster.cache.start_backoff.refusals["default/a"].times == 1
            assert ("default/a", "main-0") not in scene.state.pods

    run(test())


def test_a_binding_of_which_a_sick_server_cannot_say_what_became_of_it_keeps_its_devices(plane: Plane) -> None:
    """The write is stored and answered with 500, and then nothing can be read for a while: a database that hangs."""

    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("a")
            await scene.until_waiting("a")
            client, reads, is_sick = scene.cluster.client, 0, True
            write, read = client.write, client.read

            async def write_and_fail(*words: Any, **more: Any) -> bytes:
                await write(*words, **more)
                raise ApiError(500, "InternalError", "request timed out", call="POST binding")

            async def read_late(path: str, *words: Any, **more: Any) -> bytes:
                nonlocal reads
                if path == pod_path("a"):
                    reads += 1
                    await asyncio.sleep(0.05)
                    if is_sick:
                        raise ApiError(500, "InternalError", "request timed out", call="GET pod")
                return await read(path, *words, **more)

            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(client, "write", write_and_fail)
                patched.setattr(client, "read", read_late)
                with pytest.MonkeyPatch.context() as hanging:
                    hanging.setattr(scene.cluster.cache, "upsert_pod", lambda _: None)  # no word of a watch either
                    await scene.start(start_of("a"))
                    while reads < 4:
                        assert scene.state.pods["default/a", "main-0"].phase is Phase.ASSUMED
                        await asyncio.sleep(0.01)
                is_sick = False
                await scene.until(lambda: scene.state.pods["default/a", "main-0"].phase is Phase.RUNNING)
            assert "default/a" not in scene.cluster.cache.start_backoff.refusals

    run(test())


def test_people_read_where_their_pod_went_and_why_it_waits(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("goes", gpus=2)
            await scene.kubectl.pod("waits", gpus=8)
            await scene.until_waiting("goes", "waits")
            await scene.start(start_of("goes", devices=whole(4, 5)))
            assert await _until_event(scene.kubectl, "goes", "Scheduled") == "bound to node-1 with gpu-4, gpu-5"
            writer = scene.cluster.event_writer
            writer.publish_reasons([WaitReason("default/waits", "it needs 8 GPUs free on one node", True)])
            found = await _until_condition(scene.kubectl, "waits", "it needs 8 GPUs free on one node")
            assert found["reason"] == "Unschedulable"  # more nodes would help: autoscalers act on this word
            assert "8 GPUs" in await _until_event(scene.kubectl, "waits", "FailedScheduling")
            await scene.until(lambda: writer.written == 3)  # two Events and a condition
            writer.publish_reasons([WaitReason("default/waits", "it needs 8 GPUs free on one node", True)])
            await asyncio.sleep(0.1)
            assert writer.written == 3  # the same thing is said once
            writer.publish_reasons([WaitReason("default/waits", "queue 'lab' has 0 GPUs left of its limit", False)])
            assert (await _until_condition(scene.kubectl, "waits", "limit"))["reason"] == "KaiwoWaiting"

    run(test())


def test_nodes_come_change_and_go(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane, nodes=1) as scene:
            await scene.kubectl.node("h100", gpus=4, resource="nvidia.com/gpu", labels={
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"})  # fmt: skip
            await scene.until(lambda: "h100" in scene.state.nodes and scene.state.nodes["h100"].gpus)
            gpu = scene.state.nodes["h100"].gpus[3]
            assert (gpu.id, gpu.model, gpu.memory_mib) == ("gpu-3", "H100", 81559)
            await scene.kubectl.patch("/api/v1/nodes/h100", {"spec": {"unschedulable": True}})
            await scene.until(lambda: scene.state.nodes["h100"].cordoned)
            await scene.kubectl.delete("/api/v1/nodes/h100")
            await scene.until(lambda: set(scene.state.nodes) == {"node-1"})

    run(test())


def test_queues_come_from_the_cluster(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane, nodes=1) as scene:
            path = "/apis/kaiwo.ai/v1alpha2/kaiwoqueues"
            spec = {"resources": {"gpu": {"quota": "1.5", "limit": 8}}}
            body = {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoQueue", "metadata": {"name": "team"}, "spec": spec}
            await scene.kubectl.create(path, body)
            await scene.until(lambda: "team" in scene.state.queues)
            assert (scene.state.queues["team"].gpu.quota, scene.state.queues["team"].gpu.limit) == (1500, 8000)
            await scene.kubectl.delete(f"{path}/team")
            await scene.until(lambda: set(scene.state.queues) == {"default"})

    from tests.conftest import ROOT

    plane.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/kaiwoqueues.kaiwo.ai")
    run(test())


def test_the_pods_of_a_job_are_one_gang_that_waits_until_it_is_whole(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            template = {"spec": {"containers": [{"name": "c", "image": "x"}], "restartPolicy": "Never"}}
            job = await scene.kubectl.create(
                "/apis/batch/v1/namespaces/default/jobs",
                {
                    "metadata": {"name": "train", "annotations": {"kaiwo.ai/queue": "lab", "kaiwo.ai/gang": "true"}},
                    "spec": {
                        "parallelism": 3,
                        "completions": 3,
                        "completionMode": "Indexed",
                        "template": template,
                    },
                },
            )
            owner = {
                "apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job["metadata"]["uid"],
                "controller": True,
            }  # fmt: skip
            for index in range(2):
                await _job_pod(scene, owner, index)
            found = await _until_condition(scene.kubectl, "train-0", "2 of the 3 that start together")
            assert found["reason"] == "KaiwoWaiting"
            assert "default/train" not in scene.state.workloads
            await _job_pod(scene, owner, 2)
            await scene.until_waiting("train")
            work = scene.workload("train")
            assert (work.pods, work.roles[0].needed, work.queue) == (3, 3, "lab")
            slots = sorted(scene.cluster.cache.slots.pods("default/train"))
            starts = [start_of("train", slot, devices=whole(number)) for number, slot in enumerate(slots)]
            assert await scene.start(*starts[:2]) == ()
            await scene.until(lambda: "only a part" in scene.workload("train").not_before_why)
            assert len(await scene.start(*starts)) == 3
            await scene.until(lambda: len(scene.state.pods) == 3)
            await scene.until(lambda: all(pod.phase is Phase.RUNNING for pod in scene.state.pods.values()))

    run(test())


def test_a_gang_of_a_deployment_waits_for_all_its_replicas(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            labels, notes = {"app": "serve"}, {"kaiwo.ai/gang": "serve"}
            template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
            made = await scene.kubectl.create(
                "/apis/apps/v1/namespaces/default/replicasets",
                {
                    "metadata": {"name": "serve-1", "annotations": {"kaiwo.ai/queue": "lab"}},
                    "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": template},
                },
            )
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "serve-1", "controller": True}
            owner["uid"] = made["metadata"]["uid"]
            for number in range(3):
                assert "default/serve" not in scene.state.workloads
                more = {"annotations": notes, "labels": labels, "ownerReferences": [owner]}
                await scene.kubectl.pod(f"serve-{number}", **more)
                if number == 1:
                    await _until_condition(scene.kubectl, "serve-0", "2 of the 3 that start together")
            await scene.until_waiting("serve")
            work = scene.workload("serve")
            assert (work.pods, work.roles[0].needed, work.queue) == (3, 3, "lab")

    run(test())


async def _job_pod(scene: Scene, owner: dict[str, object], index: int) -> None:
    mark = {"batch.kubernetes.io/job-completion-index": str(index)}
    await scene.kubectl.pod(f"train-{index}", annotations=mark, labels=mark, ownerReferences=[owner])
