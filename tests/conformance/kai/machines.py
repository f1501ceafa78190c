"""Nodes of a case and the devices that its tasks hold.

In:    nodes, device claims and tasks of a case.   Out: nodes in our words, and the shares of those who run.
Device claims, each of one task, are whole GPUs; slices are the GPUs of their node.
"""

from typing import Any

from kaiwo.clusters.kubernetes.decode.quantities import MAX_GPUS
from kaiwo.model.gpus.gpu import WHOLE_MILLI, Gpu, Share
from kaiwo.model.node import Node
from kaiwo.model.request import Request

Case = dict[str, Any]
MODEL = "GPU"
MAX_PODS = 110  # of a node that does not say
NODE_TYPE = "kai.scheduler/type"  # the label by which tasks choose nodes; where it is left out, the node's name


def load_node(name: str, node: Case, memory_unit: int) -> Node:
    """Devices are numbered; labels stay."""
    whole = 0 if node.get("mig_strategy") else node["gpus"]  # what is cut into instances is offered as these
    model = node.get("gpu_name") or MODEL
    return Node(
        name,
        node["cpu_millicores"],
        int(node["memory_bytes"]) // memory_unit,
        node.get("max_pods", MAX_PODS),
        tuple(Gpu(f"gpu-{number}", model, node["gpu_memory_mib"]) for number in range(whole)),
        extended={name: int(count) for name, count in (node.get("mig_instances") or {}).items()},
        labels={NODE_TYPE: name, **(node.get("labels") or {})},
    )


class Devices:
    """Which device a running task holds: whole ones from the front, shared ones by the name of their group."""

    def __init__(self, nodes: dict[str, Case]) -> None:
        self._sizes = {name: node["gpu_memory_mib"] for name, node in nodes.items()}
        self._free = {name: list(range(node["gpus"])) for name, node in nodes.items()}
        self._groups: dict[tuple[str, str], int] = {}
        self._room: dict[str, dict[int, int]] = {}  # node -> device -> milli that shares of no group left

    def hold(self, task: Case, request: Request) -> tuple[Share, ...]:
        node, size = task["node"], self._sizes[task["node"]]
        if request.is_whole:
            return tuple(Share(f"gpu-{self._free[node].pop(0)}", WHOLE_MILLI, size) for _ in range(request.gpus))
        milli = request.gpu_mib * WHOLE_MILLI // size if request.is_memory else request.gpu_milli
        mib = request.gpu_mib if request.is_memory else size * request.gpu_milli // WHOLE_MILLI
        named = list(task.get("gpu_groups") or ())[: request.gpus]
        devices = [self._group(node, group) for group in named]
        while len(devices) < request.gpus:
            devices.append(self._with_room(node, milli, devices))
        return tuple(Share(f"gpu-{device}", milli, mib) for device in devices)

    def _with_room(self, node: str, milli: int, taken: list[int]) -> int:
        """A share of no group is beside others of no group where it fits, else on a device of its own."""
        room = self._room.setdefault(node, {})
        device = next((each for each, left in room.items() if left >= milli and each not in taken), None)
        if device is None:
            device = self._free[node].pop(0)
        room[device] = room.get(device, WHOLE_MILLI) - milli
        return device

    def _group(self, node: str, group: str) -> int:
        if (node, group) not in self._groups:
            self._groups[node, group] = self._free[node].pop(0)
        return self._groups[node, group]


def claims_as_gpus(case: Case) -> tuple[Case, list[str]]:
    """The case without claims, and what of them our words cannot say."""
    dra = case.get("dra")
    if not dra:
        return case, []
    counts = {claim["Name"]: min(claim["Count"], MAX_GPUS) for claim in dra["ResourceClaims"]}  # as at our door
    used = [claim for job in case["jobs"] for task in job["tasks"] for claim in task.get("claims") or ()]
    if len(used) > len(set(used)):
        return case, ["a device claim that several pods share"]
    nodes = {name: dict(node) for name, node in case["nodes"].items()}
    for each in dra["ResourceSlices"]:
        nodes[each["NodeName"]]["gpus"] += each["Count"]
    jobs = [{**job, "tasks": [_with_claims(task, counts) for task in job["tasks"]]} for job in case["jobs"]]
    missing = ["device claims that do not exist"] if set(used) - counts.keys() else []
    return {**case, "nodes": nodes, "jobs": jobs}, missing


def _with_claims(task: Case, counts: dict[str, int]) -> Case:
    claimed = sum(counts.get(claim, 0) for claim in task.get("claims") or ())
    return {**task, "gpus": task.get("gpus", 0) + claimed}
