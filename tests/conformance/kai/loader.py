"""Turn a case into events in our words: nodes, queues, workloads, and the pods that hold places.

In:    a case.   Out: events for a Picture, task names by pod, and what our words cannot say yet.
A job becomes one workload; the equal tasks of one pod set become one role of it. The cases count memory in bytes; here
its unit is the largest that divides all amounts of a case, so that every one of them stays exact.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.quantities import MOST_GPUS
from kaiwo.model.event import Event, NodeChanged, PodChanged, QueueChanged, WorkloadChanged
from kaiwo.model.gpu import WHOLE_MILLI, Gpu, Share
from kaiwo.model.node import Node
from kaiwo.model.queue import UNLIMITED, Amounts, Fairness, Queue
from kaiwo.model.request import NodeRule, Request
from kaiwo.model.subgroup import SubGroup, is_whole
from kaiwo.model.workload import Phase, Pod, Role, Workload

Case = dict[str, Any]
MEGABYTE = 1_000_000
MOST = 1 << 40  # a quota beyond any cluster is cut, so that sums stay small
NOW_S = 100_000  # the moment at which a case is played
MODEL = "GPU"
NODE_NAME = "kubernetes.io/hostname"
PHASES = {"Running": Phase.RUNNING, "Releasing": Phase.RELEASING, "StuckInReleasing": Phase.STUCK}
# What a task or a job may carry that the model has no words for, and what to say of it.
STRANGE_TASK = {
    "pod_affinity_key": "pod affinity",
    "pod_anti_affinity_key": "pod affinity",
    "annotations": "NUMA placement",
}
STRANGE_NODE = {"numa": "NUMA zones"}
STRANGE_CASE = {
    "topologies": "topology levels",
}


@dataclass
class Loaded:
    """A case in our words."""

    memory_unit: int = 1  # bytes
    events: list[Event] = field(default_factory=list)
    task_of: dict[tuple[str, str], str] = field(default_factory=dict)  # (workload, pod) -> task id
    job_of: dict[str, str] = field(default_factory=dict)  # workload -> job name
    order_of: dict[str, int] = field(default_factory=dict)  # task id -> its place in the job: ties fall to ids
    missing: list[str] = field(default_factory=list)  # what cannot be said

    def lacks(self, what: str) -> None:
        if what not in self.missing:
            self.missing.append(what)


def load(case: Case) -> Loaded:
    """Everything the case says, as far as we have words for it."""
    loaded = Loaded(memory_unit=_memory_unit(case))
    case = _claims_as_gpus(case, loaded)
    _note_strange(case, STRANGE_CASE, loaded)
    for name, node in sorted(case["nodes"].items()):
        _note_strange(node, STRANGE_NODE, loaded)
        loaded.events.append(NodeChanged(load_node(name, node, loaded.memory_unit)))
    loaded.events += [QueueChanged(load_queue(queue, loaded.memory_unit)) for queue in case["queues"]]
    devices = Devices(case["nodes"])
    for job in case["jobs"]:
        _load_job(job, devices, loaded)
    return loaded


def load_node(name: str, node: Case, memory_unit: int) -> Node:
    """Devices are numbered; labels stay, and the node's own name is one of them."""
    whole = node["gpus"] if not node.get("mig_strategy") else 0  # what is cut into instances is offered as these
    gpus = tuple(Gpu(f"gpu-{number}", MODEL, node["gpu_memory_mib"]) for number in range(whole))
    return Node(
        name,
        node["cpu_millicores"],
        int(node["memory_bytes"]) // memory_unit,
        node["max_pods"],
        gpus,
        extended={name: int(count) for name, count in (node.get("mig_instances") or {}).items()},
        labels={NODE_NAME: name, **node["labels"]},
    )


def load_queue(queue: Case, memory_unit: int) -> Queue:
    """The order of creation stands for the age."""
    return Queue(
        queue["name"],
        queue["parent"] or "",
        priority=queue["priority"],
        gpu=_amounts(queue["gpu"], WHOLE_MILLI),
        cpu=_amounts(queue["cpu_millicores"], 1),
        memory=_amounts(queue["memory_mb"], MEGABYTE // memory_unit),
        fairness=Fairness(min_runtime_s=queue.get("reclaim_min_runtime_s")),
        created_s=queue["created_order"],
    )


class Devices:
    """Which device a running task holds: whole ones from the front, shared ones by the name of their group."""

    def __init__(self, nodes: dict[str, Case]) -> None:
        self._sizes = {name: node["gpu_memory_mib"] for name, node in nodes.items()}
        self._free = {name: list(range(node["gpus"])) for name, node in nodes.items()}
        self._groups: dict[tuple[str, str], int] = {}

    def hold(self, task: Case, request: Request) -> tuple[Share, ...]:
        node, size = task["node"], self._sizes[task["node"]]
        if request.is_whole:
            return tuple(Share(f"gpu-{self._free[node].pop(0)}", WHOLE_MILLI, size) for _ in range(request.gpus))
        milli = request.gpu_mib * WHOLE_MILLI // size if request.is_memory else request.gpu_milli
        mib = request.gpu_mib if request.is_memory else size * request.gpu_milli // WHOLE_MILLI
        groups = task.get("gpu_groups") or [""]
        return tuple(Share(f"gpu-{self._group(node, group)}", milli, mib) for group in groups[: request.gpus])

    def _group(self, node: str, group: str) -> int:
        if (node, group) not in self._groups:
            self._groups[node, group] = self._free[node].pop(0)
        return self._groups[node, group]


def load_request(task: Case, memory_unit: int) -> Request:
    """What one task asks for."""
    fraction, memory_mib = task.get("gpu_fraction", 0), task.get("gpu_memory_mib", 0)
    names = task.get("node_affinity_in") or []
    instances = dict(task.get("mig") or {}) | ({"a kind that no node has": 1} if task.get("legacy_mig") else {})
    return Request(
        cpu_milli=task["cpu_millicores"],
        memory_mib=int(task["memory_bytes"]) // memory_unit,
        gpus=int(task.get("gpus", 0)) if not (fraction or memory_mib) else task.get("gpu_devices", 1),
        gpu_milli=round(fraction * WHOLE_MILLI) if fraction else WHOLE_MILLI,
        gpu_mib=memory_mib,
        extended=tuple(sorted((name, int(count)) for name, count in instances.items())),
        node_rules=(NodeRule(NODE_NAME, "In", tuple(sorted(names))),) if names else (),
    )


def _load_job(job: Case, devices: Devices, loaded: Loaded) -> None:
    name = f"{job['namespace'] or 'default'}/{job['name']}"
    loaded.job_of[name] = job["name"]
    for place, task in enumerate(sorted(job["tasks"], key=lambda task: str(task["id"]))):
        loaded.order_of[task["id"]] = place
    minimums, groups = _minimums(job["subgroups"], loaded), _sub_groups(job["subgroups"])
    is_stale = bool(job.get("stale_for_s"))
    for task in job["tasks"]:  # tasks of no pod set run all together
        minimums.setdefault(task.get("subgroup", "default"), len(job["tasks"]))
    roles: list[Role] = []
    pods: list[Pod] = []
    for subgroup, minimum in minimums.items():
        tasks = [task for task in job["tasks"] if task.get("subgroup", "default") == subgroup]
        kinds = list(
            dict.fromkeys(
                load_request(task, loaded.memory_unit)
                for task in tasks
                if task["state"] not in ("Succeeded", "Failed") or is_stale
            )
        )
        if len(kinds) > 1 and minimum < len(tasks):
            loaded.lacks("unequal pods of which only some must run together")
        for number, request in enumerate(kinds):
            label = subgroup if len(kinds) == 1 else f"{subgroup}.{number}"
            alike = [task for task in tasks if load_request(task, loaded.memory_unit) == request]
            alike.sort(key=lambda task: -task.get("task_priority", 0))  # the last of a role goes first
            role = _load_role(name, label, minimum, alike, request, devices, pods, loaded, is_stale)
            roles.append(replace(role, group=subgroup) if groups else role)
    groups = _with_roles(groups, roles)
    loaded.events.append(
        WorkloadChanged(
            Workload(
                name,
                tuple(roles),
                job["queue"],
                priority=job["priority"],
                preemptible=job["preemptible"],
                submitted_s=NOW_S - round(60 * job["age_minutes"]),
                preemption_delay_s=round(job.get("preemption_delay_s") or 0),
                stale_grace_s=None if job.get("staleness_grace_s") is None else round(job["staleness_grace_s"]),
                broken_since_s=_broken_since_s(job, roles, groups, pods),
                groups=groups,
            )
        )
    )
    loaded.events += [PodChanged(pod) for pod in pods]


def _broken_since_s(job: Case, roles: list[Role], groups: tuple[SubGroup, ...], pods: list[Pod]) -> int:
    """Since when a gang runs below its minimum: as long as the case says, else for a second."""
    running = [pod.name.rpartition("-")[0] for pod in pods if pod.phase is Phase.RUNNING]
    is_short = not is_whole(groups, roles, [running.count(role.name) for role in roles])
    return NOW_S - round(job.get("stale_for_s") or 1) if running and is_short else 0


def _load_role(
    workload: str,
    label: str,
    minimum: int,
    tasks: list[Case],
    request: Request,
    devices: Devices,
    pods: list[Pod],
    loaded: Loaded,
    is_stale: bool,
) -> Role:
    living = 0
    for task in tasks:
        _note_strange(task, STRANGE_TASK, loaded)
        if task["state"] in ("Succeeded", "Failed"):
            living += is_stale and task["state"] == "Failed"  # it is missed
            continue
        pod = f"{label}-{living}"
        living += 1
        loaded.task_of[workload, pod] = task["id"]
        if task["state"] in PHASES:
            shares = devices.hold(task, request)
            pods.append(
                Pod(
                    workload,
                    pod,
                    task["node"],
                    PHASES[task["state"]],
                    shares,
                    request.cpu_milli,
                    request.memory_mib,
                    request.extended,
                )
            )
        elif task["state"] != "Pending":
            loaded.lacks(f"tasks that are {task['state']}")
    return Role(request, label, living, min(minimum, living))


def _minimums(tree: Case, loaded: Loaded) -> dict[str, int]:
    """The pod sets and how many pods of each must run."""
    found: dict[str, int] = {}
    for child in tree.get("children", ()):
        if child["kind"] == "podset":
            found[child["name"]] = child["minAvailable"]
        else:
            found |= _minimums(child, loaded)
        if child.get("topology"):
            loaded.lacks("topology levels")
    if tree.get("topology"):
        loaded.lacks("topology levels")
    return found


def _sub_groups(tree: Case) -> tuple[SubGroup, ...]:
    """The tree above the pod sets, where it says that only some of them must run."""
    every = list(_sets(tree, ""))
    return tuple(every) if any(group.minimum >= 0 for group in every) else ()


def _with_roles(groups: tuple[SubGroup, ...], roles: list[Role]) -> tuple[SubGroup, ...]:
    """A pod set whose pods are all over is no part of the tree any more."""
    inner = {"", *(group.parent for group in groups), *(role.group for role in roles)}
    return tuple(group for group in groups if group.name in inner)


def _sets(tree: Case, parent: str) -> Iterator[SubGroup]:
    minimum = tree.get("minSubGroup")
    yield SubGroup(tree["name"], parent, -1 if minimum is None else minimum)
    for child in tree.get("children", ()):
        if child["kind"] == "podset":
            yield SubGroup(child["name"], tree["name"])  # its roles are the kinds of pods in it
        else:
            yield from _sets(child, tree["name"])


def _claims_as_gpus(case: Case, loaded: Loaded) -> Case:
    """Device claims, each of one task, are whole GPUs; slices are the GPUs of their node."""
    dra = case.get("dra")
    if not dra:
        return case
    counts = {claim["Name"]: min(claim["Count"], MOST_GPUS) for claim in dra["ResourceClaims"]}  # as at our door
    nodes = {name: dict(node) for name, node in case["nodes"].items()}
    for each in dra["ResourceSlices"]:
        nodes[each["NodeName"]]["gpus"] += each["Count"]
    used = [claim for job in case["jobs"] for task in job["tasks"] for claim in task.get("claims") or ()]
    if len(used) > len(set(used)):
        loaded.lacks("a device claim that several pods share")
        return case
    jobs = [{**job, "tasks": [_with_claims(task, counts, loaded) for task in job["tasks"]]} for job in case["jobs"]]
    return {**case, "nodes": nodes, "jobs": jobs}


def _with_claims(task: Case, counts: dict[str, int], loaded: Loaded) -> Case:
    claims = task.get("claims") or ()
    if any(claim not in counts for claim in claims):
        loaded.lacks("device claims that do not exist")
    return {**task, "gpus": task.get("gpus", 0) + sum(counts.get(claim, 0) for claim in claims)}


def _memory_unit(case: Case) -> int:
    amounts = [node["memory_bytes"] for node in case["nodes"].values()]
    amounts += [task["memory_bytes"] for job in case["jobs"] for task in job["tasks"]]
    return math.gcd(MEGABYTE, *(int(amount) for amount in amounts))


def _note_strange(item: Case, strange: dict[str, str], loaded: Loaded) -> None:
    for key, what in strange.items():
        if item.get(key):
            loaded.lacks(what)


def _amounts(amounts: Case, scale: int) -> Amounts:
    quota, limit = (
        UNLIMITED if amounts[name] == UNLIMITED else min(round(amounts[name] * scale), MOST)
        for name in ("quota", "limit")
    )
    return Amounts(quota, limit, max(0, int(amounts["weight"])))
