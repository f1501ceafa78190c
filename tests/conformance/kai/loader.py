"""Turn a case into events in our words: nodes, queues, workloads, and the pods that hold places.

In:    a case.   Out: events for a Picture, task names by pod, and what our words cannot say yet.
The cases count memory in bytes; here its unit is the largest that divides all amounts of a case, so that every one of
them stays exact. Weights are compared with each other only: where one is not whole, all are counted in thousandths.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kaiwo.model.events import Event, NodeChanged, PodChanged, QueueChanged, TopologyChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.network.topology import Topology, TopologyLevel
from kaiwo.model.queue import UNLIMITED, Fairness, Queue, QueueAmounts
from tests.conformance.kai.fields import unread_in
from tests.conformance.kai.jobs import ASIDE, PHASES, load_job
from tests.conformance.kai.machines import Devices, claims_as_gpus, load_node
from tests.conformance.kai.requests import Requests

Case = dict[str, Any]
Where = tuple[str, str]  # status, node
MEGABYTE = 1_000_000
MOST = 1 << 40  # a quota beyond any cluster is cut, so that sums stay small
RESOURCES = ("gpu", "cpu_millicores", "memory_mb")


@dataclass
class Loaded:
    """A case in our words."""

    memory_unit: int = 1  # bytes
    events: list[Event] = field(default_factory=list)
    task_of: dict[tuple[str, str], str] = field(default_factory=dict)  # (workload, pod) -> task id
    job_of: dict[str, str] = field(default_factory=dict)  # workload -> job name
    told: dict[str, Where] = field(default_factory=dict)  # task id -> where the case says that it is
    aside: list[str] = field(default_factory=list)  # tasks that want no place: they stay as they were told
    missing: list[str] = field(default_factory=list)  # what cannot be said
    unread: list[str] = field(default_factory=list)  # fields that nobody here reads


def load(case: Case) -> Loaded:
    """Everything the case says, as far as we have words for it."""
    unread = unread_in(case)
    case, missing = claims_as_gpus(case)
    loaded = Loaded(_memory_unit(case), unread=unread, missing=list(dict.fromkeys((*missing, *_strange(case)))))
    weight_unit = _weight_unit(case)
    loaded.events += [NodeChanged(load_node(*each, loaded.memory_unit)) for each in sorted(case["nodes"].items())]
    loaded.events += [TopologyChanged(load_topology(topology)) for topology in case.get("topologies") or ()]
    loaded.events += [QueueChanged(load_queue(queue, loaded.memory_unit, weight_unit)) for queue in case["queues"]]
    devices, requests = Devices(case["nodes"]), Requests(case["jobs"], loaded.memory_unit)
    for job in case["jobs"]:
        found = load_job(job, requests, devices)
        name = found.workload.name
        loaded.job_of[name] = job["name"]
        loaded.task_of |= {(name, pod): task for pod, task in found.task_of.items()}
        loaded.told |= {task["id"]: (task["state"], task["node"] or "") for task in job["tasks"]}
        loaded.aside += [task["id"] for task in job["tasks"] if task["state"] in ASIDE]
        loaded.events += [WorkloadChanged(found.workload), *map(PodChanged, found.pods)]
    return loaded


def load_topology(topology: Case) -> Topology:
    """A level is named by its node label."""
    labels = [level["NodeLabel"] for level in topology["Spec"]["Levels"]]
    return Topology(topology["ObjectMeta"]["Name"], tuple(TopologyLevel(label, label) for label in labels))


def load_queue(queue: Case, memory_unit: int, weight_unit: int = 1) -> Queue:
    """The order of creation stands for the age."""
    least_s = queue.get("reclaim_min_runtime_s")
    scales = (WHOLE_MILLI, 1, MEGABYTE // memory_unit)
    gpu, cpu, memory = (
        _amounts(queue[name], scale, weight_unit) for name, scale in zip(RESOURCES, scales, strict=True)
    )
    return Queue(
        queue["name"],
        queue.get("parent") or "",
        priority=queue["priority"],
        gpu=gpu,
        cpu=cpu,
        memory=memory,
        fairness=Fairness(min_runtime_s=None if least_s is None else math.ceil(least_s)),
        created_s=queue["created_order"],
    )


def _amounts(amounts: Case, scale: int, weight_unit: int) -> QueueAmounts:
    quota, limit = (
        UNLIMITED if amounts[name] == UNLIMITED else min(round(amounts[name] * scale), MOST)
        for name in ("quota", "limit")
    )
    return QueueAmounts(quota, limit, max(0, round(amounts["weight"] * weight_unit)))


def _memory_unit(case: Case) -> int:
    amounts = [node["memory_bytes"] for node in case["nodes"].values()]
    amounts += [task["memory_bytes"] for job in case["jobs"] for task in job["tasks"]]
    return math.gcd(MEGABYTE, *(int(amount) for amount in amounts))


def _weight_unit(case: Case) -> int:
    weights = [queue[name]["weight"] for queue in case["queues"] for name in RESOURCES]
    return 1 if all(float(weight).is_integer() for weight in weights) else 1000


def _strange(case: Case) -> Iterator[str]:
    """What the model has no words for."""
    if any(node.get("numa") for node in case["nodes"].values()):
        yield "NUMA zones"
    for job in case["jobs"]:
        for task in job["tasks"]:
            if task.get("annotations"):
                yield "NUMA placement"
            if task["state"] not in (*PHASES, *ASIDE, "Pending"):
                yield f"tasks that are {task['state']}"
