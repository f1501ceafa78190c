"""Objects as an API server writes them, for tests that need none."""

from itertools import count
from typing import Any

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import SCHEDULER, ClusterCache
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, PodDecoder

DECODER = PodDecoder()
METADATA = (
    "annotations", "labels", "ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds", "uid", "namespace",
    "resourceVersion",
)  # fmt: skip
VERSIONS = count(1)


def wire_pod(name: str, gpus: int = 1, node: str = "", phase: str = "Pending", **more: Any) -> wire_objects.Pod:
    """What belongs to its metadata goes there, `status` to its status, the rest to its spec."""
    meta = {key: more.pop(key) for key in METADATA if key in more}
    status = {"phase": phase} | more.pop("status", {})
    amounts = {"cpu": "1", "memory": "1Gi"} | ({"amd.com/gpu": str(gpus)} if gpus else {})
    container = {"name": "c", "resources": {"requests": amounts}}
    spec: dict[str, Any] = {"schedulerName": SCHEDULER, "containers": [container]}
    spec |= ({"nodeName": node} if node else {}) | more
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"} | meta
    metadata.setdefault("resourceVersion", str(next(VERSIONS)))
    document = {"metadata": metadata, "spec": spec, "status": status}
    return msgspec.json.decode(msgspec.json.encode(document), type=wire_objects.Pod)


def cached_pod(name: str, gpus: int = 1, node: str = "", phase: str = "Pending", **more: Any) -> CachedPod:
    return DECODER.decode(wire_pod(name, gpus, node, phase, **more))


def wire_node(name: str, gpus: int = 8, resource: str = "amd.com/gpu", **more: Any) -> wire_objects.Node:
    """`labels`, `annotations` go to its metadata, the rest to its spec."""
    meta = {key: more.pop(key) for key in METADATA if key in more}
    meta["labels"] = {"amd.com/gpu.product-name": "MI300X"} | meta.get("labels", {})
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", resource: str(gpus)}
    ready = more.pop("ready", "True")
    conditions = [{"type": "Ready", "status": ready, "message": "kubelet stopped posting" if ready != "True" else ""}]
    document = {
        "metadata": {"name": name, **meta},
        "spec": more,
        "status": {"allocatable": amounts, "conditions": conditions},
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=wire_objects.Node)


def cache_with_nodes(nodes: int = 2) -> ClusterCache:
    cache = ClusterCache()
    for number in range(1, nodes + 1):
        cache.upsert_node(wire_node(f"node-{number}"))
    cache.flush()
    return cache
