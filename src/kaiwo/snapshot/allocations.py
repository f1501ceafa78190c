"""Apply events about pods and nominations: what is held on each node, what each queue is charged for it, and how much
work of each queue could be preempted.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from kaiwo.model.events import NominationChanged, NominationGone, PodChanged, PodGone
from kaiwo.model.workload import RELEASING_PHASES, Phase, Pod, Workload
from kaiwo.snapshot.gpu_model_usage import milli_by_model
from kaiwo.snapshot.node_table import Allocation
from kaiwo.snapshot.queue_table import ResourceVector
from kaiwo.snapshot.sharing_rules import tenant_of

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState


class PreemptibleKind(NamedTuple):
    queue: str
    may_stop: bool  # False: disruption budgets protect all of it
    priority: int


class PreemptibleWork:
    """How many preemptible workloads have pods, by kind: a cycle that finds no victim there need not list them all.

    Listing 80,000 of them in every cycle took 90 of its 120 ms.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[str, bool, int], int] = {}

    def __iter__(self) -> Iterator[PreemptibleKind]:
        return (PreemptibleKind(*each) for each in self._counts)

    def count(self, workload: Workload | None, sign: int) -> None:
        """A workload has its first pod now (+1), or lost its last one (-1)."""
        if workload is None or not workload.preemptible:
            return
        key = (workload.queue, workload.may_go != 0, workload.priority)
        left = self._counts[key] = self._counts.get(key, 0) + sign
        if not left:
            del self._counts[key]

    def copy(self) -> "PreemptibleWork":
        other = PreemptibleWork()
        other._counts = dict(self._counts)
        return other


def pod_changed(state: "ClusterState", event: PodChanged) -> None:
    pod = event.pod
    pods = state.writable(state.pods, pod.workload)
    is_first = not pods
    before = pods.get(pod.name)
    if before is not None and before.until_s and not pod.until_s and before.node == pod.node:
        pod = replace(pod, until_s=before.until_s)  # a cluster that confirms a start does not report this deadline
    pods[pod.name] = pod
    is_same = before is not None and _held_by(before) == _held_by(pod)
    if is_same and pod.phase is not Phase.DONE:
        state.writable(state.allocations_on, pod.node)[("pod", pod.workload, pod.name)] = pod
    else:
        _release(state, "pod", before)
        if pod.phase is not Phase.DONE:
            _allocate(state, "pod", pod)
    workload = state.workloads.get(pod.workload)
    if before is not None:
        _charge_apart(state, before, -1)
    _charge_apart(state, pod, +1)
    if workload is not None:
        if is_first:
            state.preemptible.count(workload, +1)
        if before is not None:
            charge(state, workload, before, -1)
        charge(state, workload, pod, +1)
        if before is None or before.phase in RELEASING_PHASES or pod.phase in RELEASING_PHASES:
            state.to_requeue[pod.workload] = None
    is_watched = pod.workload in state.failures.recoveries or state.defragmentation.concerns(pod.workload)
    state.is_cycle_due = state.is_cycle_due or is_watched
    is_leaving = pod.phase is Phase.RELEASING
    (state.releasing.add if is_leaving else state.releasing.discard)((pod.workload, pod.name))
    if before is not None and not is_same:
        state.retry_all_classes()


def pod_gone(state: "ClusterState", event: PodGone) -> None:
    if event.name not in state.pods.get(event.workload, {}):
        return
    pods = state.writable(state.pods, event.workload)
    pod = pods.pop(event.name)
    state.releasing.discard((event.workload, event.name))
    workload = state.workloads.get(event.workload)
    if not pods:
        del state.pods[event.workload]
        state.preemptible.count(workload, -1)
    _release(state, "pod", pod)
    _charge_apart(state, pod, -1)
    # What it held may be a place for those that recover or move.
    state.is_cycle_due = state.is_cycle_due or bool(state.failures.recoveries) or state.defragmentation.is_live
    state.retry_all_classes()
    if workload is not None:
        charge(state, workload, pod, -1)
        state.to_requeue[event.workload] = None


def nomination_changed(state: "ClusterState", event: NominationChanged) -> None:
    kept = state.writable(state.nominations, event.nomination.workload)
    workload = state.workloads.get(event.nomination.workload)
    before = kept.get(event.nomination.pod)
    if before is not None:
        state.retry_all_classes()  # the old place is free for others
        if workload is not None:
            charge(state, workload, before, -1)
    _release(state, "nomination", before)
    kept[event.nomination.pod] = event.nomination
    is_lost = bool(event.nomination.lost_s)
    key = (event.nomination.workload, event.nomination.pod)
    (state.lost_places.add if is_lost else state.lost_places.discard)(key)
    # Its time may be over already, and only a cycle says when to look again: nothing else may ask for one.
    state.is_cycle_due = state.is_cycle_due or is_lost
    _allocate(state, "nomination", event.nomination)
    if workload is not None:
        charge(state, workload, event.nomination, +1)
    state.to_requeue[event.nomination.workload] = None


def nomination_gone(state: "ClusterState", event: NominationGone) -> None:
    if event.pod not in state.nominations.get(event.workload, {}):
        return
    kept = state.writable(state.nominations, event.workload)
    nomination = kept.pop(event.pod)
    state.lost_places.discard((event.workload, event.pod))
    if not kept:
        del state.nominations[event.workload]
    _release(state, "nomination", nomination)
    workload = state.workloads.get(event.workload)
    if workload is not None:
        charge(state, workload, nomination, -1)
    state.to_requeue[event.workload] = None
    state.retry_all_classes()


def allocations_of(state: "ClusterState", name: str) -> list[Allocation]:
    return [*state.pods.get(name, {}).values(), *state.nominations.get(name, {}).values()]


def charge(state: "ClusterState", workload: Workload, held: Allocation, sign: int) -> None:
    """Queues are charged for what is assumed, running or nominated; an evicted pod is not charged while it leaves."""
    if isinstance(held, Pod) and (held.charged_to or held.phase not in (Phase.ASSUMED, Phase.RUNNING)):
        return
    _charge_queue(state, workload.queue, workload.preemptible, held, sign)


def _charge_apart(state: "ClusterState", pod: Pod, sign: int) -> None:
    """A foreign pod, or one that takes long to go, is charged like work that cannot be stopped, until it is gone."""
    if pod.charged_to and pod.phase is not Phase.DONE:
        _charge_queue(state, pod.charged_to, False, pod, sign)


def _charge_queue(state: "ClusterState", queue: str, preemptible: bool, held: Allocation, sign: int) -> None:
    amounts = (sum([share.milli + share.round_milli for share in held.devices]), held.cpu_milli, held.memory_mib)
    _add(state.used, queue, amounts, sign)
    if not preemptible:
        _add(state.non_preemptible, queue, amounts, sign)
    if not state.queues_stale:
        models = milli_by_model(state.node_objects, state.queues.models, (held,))
        state.queues.add(queue, (*amounts, *models), sign, is_non_preemptible=not preemptible)


def _allocate(state: "ClusterState", kind: str, held: Allocation) -> None:
    state.writable(state.allocations_on, held.node)[(kind, held.workload, pod_name_of(held))] = held
    if held.neighbours is not None:
        state.affinity_counts.add(held.node, held.neighbours, +1)
        if any(mark in state.backlog.awaited_marks for mark in held.neighbours.marks):
            state.retry_all_classes()  # work that must be near such a pod has more places now
    if not state.nodes_stale:
        state.nodes.add(held, -1, state.version, tenant_of(state, held) if state.sharing.in_use else None)


def _release(state: "ClusterState", kind: str, held: Allocation | None) -> None:
    if held is None:
        return
    key = (kind, held.workload, pod_name_of(held))
    if key not in state.allocations_on.get(held.node, {}):
        return  # a finished pod held nothing
    on_node = state.writable(state.allocations_on, held.node)
    del on_node[key]
    if not on_node:
        del state.allocations_on[held.node]
    if held.neighbours is not None:
        state.affinity_counts.add(held.node, held.neighbours, -1)
    if not state.nodes_stale:
        state.nodes.add(held, +1, state.version, tenant_of(state, held) if state.sharing.in_use else None)


def _add(charges: dict[str, ResourceVector], queue: str, charge: ResourceVector, sign: int) -> None:
    before = charges.get(queue, (0, 0, 0))
    charges[queue] = (before[0] + sign * charge[0], before[1] + sign * charge[1], before[2] + sign * charge[2])


def count_as_tenant(state: "ClusterState", name: str, before: Workload | None, after: Workload | None) -> None:
    """Count the shares that a workload holds as those of another tenant: its queue or user changed, or it is gone."""
    rules, queues = state.sharing, state.queue_objects
    if not rules.in_use or state.nodes_stale:
        return
    for held in allocations_of(state, name):
        old, new = (rules.holder(workload, held, queues) for workload in (before, after))
        kind = "pod" if isinstance(held, Pod) else "nomination"
        if old != new and (kind, name, pod_name_of(held)) in state.allocations_on.get(held.node, {}):
            state.nodes.replace_tenant(held, old, new, state.version)
            state.retry_all_classes()


def pod_name_of(held: Allocation) -> str:
    return held.name if isinstance(held, Pod) else held.pod


def _held_by(pod: Pod) -> tuple[object, ...]:
    """What concerns its node and its queue: a leaving pod is not charged, a finished one holds nothing."""
    is_charged = pod.phase in (Phase.ASSUMED, Phase.RUNNING)
    is_held = pod.phase is not Phase.DONE
    amounts = (pod.cpu_milli, pod.memory_mib, pod.extended)
    return (pod.node, pod.devices, amounts, pod.neighbours, pod.beside, pod.share_with, is_charged, is_held)
