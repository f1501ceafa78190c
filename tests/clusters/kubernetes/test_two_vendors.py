"""A node with GPUs of two vendors: each is asked for by its own resource, and nobody gets the other's."""

from typing import Any

import msgspec
import pytest

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.node_decoder import read_node
from kaiwo.decide import decide
from kaiwo.gpus.partitioning.demand import demand_of
from kaiwo.gpus.partitioning.planner_types import ModeDemand
from kaiwo.model.events import PodChanged, QueueChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.partition_modes import Mode, partition_gpu
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import Plan
from kaiwo.model.queue import UNBOUNDED_DEFAULT_QUEUE
from kaiwo.snapshot.cluster_state import ClusterState
from tests.clusters.kubernetes.api_objects import cached_pod, wire_node

AMD, NVIDIA = "amd.com/gpu", "nvidia.com/gpu"
DEVICES = (
    Gpu("0000:81:00.0", "Tesla-T4", 16_384, vendor="nvidia"),
    Gpu("0000:05:00.0", "MI210", 65_536),
    Gpu("0000:82:00.0", "H100", 81_559),
    Gpu("0000:06:00.0", "Radeon-Pro-W7900", 46_064, vendor="amd"),
)
OF_AMD, OF_NVIDIA = {"0000:05:00.0", "0000:06:00.0"}, {"0000:81:00.0", "0000:82:00.0"}


def mixed(**more: Any) -> wire_objects.Node:
    """With two of each."""
    node = wire_node("node-1", 2, labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, **more)
    return msgspec.structs.replace(
        node, status=msgspec.structs.replace(node.status, allocatable=(node.status.allocatable or {}) | {NVIDIA: "2"})
    )


def listed() -> wire_objects.Node:
    return mixed(annotations={"kaiwo.ai/devices": msgspec.json.encode(DEVICES).decode()})


def asks(name: str, resource: str, count: int = 1, **more: Any) -> Any:
    container = {"name": "c", "resources": {"requests": {"cpu": "1", resource: str(count)}}}
    return cached_pod(name, containers=[container], **more)


def plan(node: wire_objects.Node, *pods: Any) -> Plan:
    cache = ClusterCache()
    cache.upsert_node(node)
    for pod in pods:
        cache.upsert_pod(pod)
    state = ClusterState()
    state.patch([QueueChanged(UNBOUNDED_DEFAULT_QUEUE), *cache.flush()])
    return decide(state.snapshot(0))


def devices(plan: Plan, name: str) -> set[str]:
    return {share.gpu for start in plan.starts if start.workload == f"default/{name}" for share in start.devices}


def test_the_devices_of_both_are_there_each_of_its_vendor() -> None:
    assert {gpu.id for gpu in read_node(listed()).gpus} == OF_AMD | OF_NVIDIA
    counted = read_node(mixed()).gpus
    assert [(gpu.id, gpu.model) for gpu in counted] == [
        ("gpu-0", "MI300X"), ("gpu-1", "MI300X"), ("nvidia-gpu-0", "H100"), ("nvidia-gpu-1", "H100"),
    ]  # fmt: skip


def test_of_an_agents_list_only_those_count_that_the_kubelet_offers() -> None:
    """NVIDIA's driver may come later; and an older agent does not tell who made a model that nobody knows."""
    node = wire_node("a", 2, annotations={"kaiwo.ai/devices": msgspec.json.encode(DEVICES).decode()})
    assert {gpu.id for gpu in read_node(node).gpus} == OF_AMD
    old = [msgspec.structs.replace(gpu, vendor="") for gpu in DEVICES]
    read = read_node(mixed(annotations={"kaiwo.ai/devices": msgspec.json.encode(old).decode()}))
    assert [gpu.id for gpu in read.gpus] == ["0000:05:00.0", "0000:82:00.0"]


@pytest.mark.parametrize("node", [listed(), mixed()], ids=["agent", "counts"])
def test_nobody_gets_the_other_vendors_gpus(node: wire_objects.Node) -> None:
    done = plan(node, asks("a", AMD), asks("n", NVIDIA), asks("b", AMD), asks("m", NVIDIA), asks("x", NVIDIA))
    known: Node = read_node(node)
    of_amd = {gpu.id for gpu in known.gpus if gpu.id in OF_AMD or gpu.id.startswith("gpu-")}
    assert devices(done, "a") | devices(done, "b") == of_amd
    assert devices(done, "n") | devices(done, "m") | devices(done, "x") == {gpu.id for gpu in known.gpus} - of_amd
    assert len(done.starts) == 4  # the fifth waits, whatever is free of the other vendor
    assert not plan(node, asks("three", AMD, 3)).starts
    assert not plan(node, asks("three", NVIDIA, 3)).starts


def test_no_amd_gpu_changes_its_mode_for_who_wants_nvidias() -> None:
    """Whole GPUs are what both ask for; only one of them is served by putting partitions together."""
    amd, nvidia = (asks("p", resource).spec.request for resource in (AMD, NVIDIA))
    assert (demand_of(amd), demand_of(nvidia)) == (ModeDemand("SPX", "", 1, 1), None)
    cut_up = [*partition_gpu(Gpu("0000:05:00.0", "MI300X", 196_608), Mode("CPX", "NPS1")), DEVICES[2]]
    node = mixed(annotations={"kaiwo.ai/devices": msgspec.json.encode(cut_up).decode()})
    reasons = [
        [each.reason for wait in plan(node, asks("p", resource, 2)).waits for each in wait.obstacles]
        for resource in (AMD, NVIDIA)
    ]
    assert reasons == [[Reason.PARTITION_MODE], [Reason.NOT_ENOUGH_GPUS]]


@pytest.mark.parametrize("resource", [AMD, NVIDIA])
def test_a_pod_of_another_scheduler_holds_its_own_vendors(resource: str) -> None:
    strange = asks("strange", resource, 2, node="node-1", phase="Running", schedulerName="default-scheduler")
    cache = ClusterCache()
    cache.upsert_node(listed())
    cache.upsert_pod(strange)
    (told,) = (event.pod for event in cache.flush() if isinstance(event, PodChanged))
    assert {share.gpu for share in told.devices} == (OF_AMD if resource == AMD else OF_NVIDIA)
    free = plan(listed(), strange, asks("a", AMD), asks("n", NVIDIA))
    assert {start.workload for start in free.starts} == {"default/n" if resource == AMD else "default/a"}
