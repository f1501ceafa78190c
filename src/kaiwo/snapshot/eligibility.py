"""Eligibility for a cycle: what gates workloads (held, waiting, backing off), and which classes could never start.

A class that could never start, even on empty nodes and idle queues, must not count as demand. When in doubt, a class
counts as possible: partitioned, unhealthy, cordoned and reserved devices count as usable.
"""

from typing import TYPE_CHECKING

import numpy as np

from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.obstacle import Obstacle, QueueTakes, Reason, RetryReason
from kaiwo.model.queue import Queue, queue_that_refuses
from kaiwo.model.request import Request
from kaiwo.model.workload import RELEASING_PHASES, Workload
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.node_table import SIZE, NodeTable
from kaiwo.snapshot.queue_table import QueueTable
from kaiwo.snapshot.request_shapes import RequestShapes

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState
UNCOUNTED = 1 << 40
MAX_NAMED = 5


def gate_obstacles(state: "ClusterState", workload: Workload, now_s: int) -> tuple[Obstacle, ...]:
    found: list[Obstacle] = []
    if workload.held:
        found.append(Obstacle(Reason.HELD, subject=workload.name))
    found += [Obstacle(Reason.DEPENDENCY, 1, 0, "workloads", name) for name in workload.after]
    found += [Obstacle(Reason.DEPENDENCY_FAILED, 1, 0, "workloads", name) for name in workload.after_failed]
    if (refusal := queue_that_refuses(state.queue_objects, workload)) is not None:
        found.append(_not_taken(workload, *refusal))
    if workload.not_before_s > now_s:
        why = RetryReason(workload.not_before_why) if workload.not_before_why else None
        found.append(Obstacle(Reason.NOT_BEFORE, workload.not_before_s, 0, "s", facts=why))
    refused = state.refused_starts.get(workload.name)
    if refused is not None and refused.until_s > now_s:
        facts = RetryReason(refused.why)
        found.append(Obstacle(Reason.NOT_PERMITTED, refused.until_s, 0, "s", refused.plugin, facts))
    if workload.array_slots:
        found.append(Obstacle(Reason.ARRAY_SLOTS, workload.array_slots + 1, workload.array_slots, "tasks"))
    if 0 < workload.expires_s <= now_s:
        found.append(Obstacle(Reason.EXPIRED, workload.expires_s, 0, "s", workload.name))
    pods = state.pods.get(workload.name)
    leaving = sum(1 for pod in pods.values() if pod.phase in RELEASING_PHASES) if pods else 0
    if leaving:
        found.append(Obstacle(Reason.RELEASING, leaving, 0, "pods", workload.name))
    return tuple(found)


def _not_taken(workload: Workload, queue: Queue, field: str) -> Obstacle:
    listed = queue.namespaces if field == "namespaces" else queue.users
    whose = workload.name.partition("/")[0] if field == "namespaces" else workload.user
    facts = QueueTakes(field, listed[:MAX_NAMED], max(0, len(listed) - MAX_NAMED), whose)
    return Obstacle(Reason.QUEUE_ACCESS, subject=queue.name, facts=facts)


def is_impossible(nodes: NodeTable, queues: QueueTable, shapes: RequestShapes, waiting_class: WaitingClass) -> bool:
    """Too large for every node or for all of them together, or beyond a bound of its queue."""
    must = [(shapes[shape], needed) for shape, _, needed in waiting_class.needs if needed]
    if not nodes.names or not must or waiting_class.signature.nominated_for or waiting_class.choices is not None:
        return False
    return _is_beyond_bounds(queues, waiting_class, must) or any(
        most_pods_when_empty(nodes, want) < needed for want, needed in must
    )


def most_pods_when_empty(nodes: NodeTable, want: Request) -> int:
    """An upper bound of the pods that empty nodes would take."""
    known: dict[Request, int] = nodes.once("most pods", dict)
    found = known.get(want)
    if found is None:
        found = known[want] = _most_pods(nodes, want)
    return found


def _most_pods(nodes: NodeTable, want: Request) -> int:
    pods = pods_by_node_when_empty(nodes, want)
    return int(np.minimum(pods, UNCOUNTED // max(1, len(pods))).sum())


def pods_by_node_when_empty(nodes: NodeTable, want: Request) -> IntArray:
    """The same for each node."""
    if any(name not in nodes.extended_names for name, _ in want.extended):
        return np.zeros(len(nodes.names), np.int64)
    pods = np.full(len(nodes.names), UNCOUNTED, np.int64)
    if want.cpu_milli:
        pods = np.minimum(pods, nodes.cpu_size // want.cpu_milli)
    if want.memory_mib:
        pods = np.minimum(pods, nodes.memory_size // want.memory_mib)
    if want.gpus:
        size = nodes.gpus[:, SIZE]
        able = size > 0
        if want.gpu_models:
            able &= np.isin(nodes.gpu_model, [at for at, model in enumerate(nodes.models) if model in want.gpu_models])
        could_change = (able & (nodes.gpu_profile > 0)).any(axis=1) | want.is_partition  # by another partition mode
        if want.is_memory:
            able &= size >= want.gpu_mib
        times = np.full(len(size), WHOLE_MILLI // want.gpu_milli)
        if want.is_memory:
            by_mib = (size * able).max(axis=1, initial=0) // want.gpu_mib
            times = np.minimum(by_mib, times) if want.fraction_milli else by_mib
        devices = able.sum(axis=1)
        by_devices = np.where(devices >= want.gpus, devices * times // want.gpus, 0)
        pods = np.where(could_change, np.where(devices > 0, pods, 0), np.minimum(pods, by_devices))
    return pods


def _is_beyond_bounds(queues: QueueTable, waiting_class: WaitingClass, must: list[tuple[Request, int]]) -> bool:
    row = queues.row.get(waiting_class.queue)
    if row is None:
        return False
    quotas = () if waiting_class.signature.is_preemptible else queues.quotas[row]
    bounds = (*queues.limits[row], *quotas)
    if not bounds:
        return False
    charge = (
        sum(want.charge_milli * needed for want, needed in must),
        sum(want.cpu_milli * needed for want, needed in must),
        sum(want.memory_mib * needed for want, needed in must),
    )
    return any(column < len(charge) and charge[column] > most for _, column, most in bounds)
