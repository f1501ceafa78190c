"""Recover: give the pods that a failure took away other places, before anything else gets the room.

In:    the pods that were lost.   Out: their evictions, with the cause `recovery`, and nominations for their new places.
A lost pod goes back into the domain of the pods that stay. Spare nodes come first, then free room. Where neither has
room, the lost pods wait like other work: reclaim and preemption try next, then `swap_for_recovery`. A workload of which
a lost pod may still run waits until that is certain: two copies of a pod must never run at the same time.
"""

from collections.abc import Sequence, Set
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.cycle_state import CycleInput, CycleState, earliest_s, nomination_of
from kaiwo.decide.make_room.lost_pods import LostPod, find_lost_pods
from kaiwo.decide.placement.place_again import DisplacedPods, place_again
from kaiwo.decide.placement.place_pods import NodeCosts, Placed
from kaiwo.model.node import SPARE_TAINT
from kaiwo.model.plan import DomainChoice, Eviction, EvictionCause, Nomination
from kaiwo.model.recovery import BadNode, Recovery, RecoveryWay
from kaiwo.model.request import Request
from kaiwo.model.workload import (
    ACTIVE_PHASES,
    RELEASING_PHASES,
    Phase,
    Role,
    Workload,
    breaks_gang,
    has_required_pods,
    lost_gpu_s,
)
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.failed_places import with_spare_nodes
from kaiwo.snapshot.node_table import NodeTable


class RecoveryResult(NamedTuple):
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    recoveries: tuple[Recovery, ...] = ()  # new or changed
    recovered: tuple[str, ...] = ()
    bad_nodes: tuple[BadNode, ...] = ()
    domains: tuple[DomainChoice, ...] = ()
    look_again_s: int = 0


def recover(cycle: CycleInput, cycle_state: CycleState) -> RecoveryResult:
    """What failed since the last cycle, the most important work first."""
    state = cycle.state
    if not state.failures.any and not state.speeds.out:
        return RecoveryResult()
    lost = find_lost_pods(state, cycle_state.working.nodes)
    if not lost and not state.failures.recoveries:
        return RecoveryResult()
    action = _Recover(cycle, cycle_state)
    for workload in sorted((state.workloads[name] for name in lost), key=_most_important_first):
        action.recover(workload, lost[workload.name])
    action.find_recovered(lost)
    return action.result()


def recoveries_without_room(state: ClusterState, served: Set[str]) -> tuple[Recovery, ...]:
    """Those that had new places and lost them before they ran there, to a second failure for instance: now they wait.

    `served`: workloads that start in this cycle, or for which space is kept.
    """
    found = []
    for name, recovery in sorted(state.failures.recoveries.items()):
        pods = state.pods.get(name, {}).values()
        if (
            recovery.way in (RecoveryWay.REPLACE, RecoveryWay.SWAP, RecoveryWay.MOVE)
            and name not in served
            and name not in state.nominations
            and state.backlog.is_queued(name)
            and sum(pod.phase in ACTIVE_PHASES for pod in pods) < recovery.size
            and not any(pod.phase in RELEASING_PHASES for pod in pods)
        ):
            found.append(replace(recovery, way=RecoveryWay.WAIT))
    return tuple(found)


class _Recover:
    def __init__(self, cycle: CycleInput, cycle_state: CycleState) -> None:
        self._cycle, self._cycle_state, self._state = cycle, cycle_state, cycle.state
        self._working = cycle_state.working
        spares = spare_nodes(self._working.nodes)
        self._placer = cycle_state.placer.with_costs(SpareNodesFirst(spares)) if spares.any() else cycle_state.placer
        self._evictions: list[Eviction] = []
        self._nominations: list[Nomination] = []
        self._recoveries: list[Recovery] = []
        self._recovered: list[str] = []
        self._bad_nodes: list[BadNode] = []
        self._domains: list[DomainChoice] = []
        self._look_again_s = 0

    def recover(self, workload: Workload, lost: list[LostPod]) -> None:
        self._remember(workload, lost)
        staying = [each for each in lost if not each.is_leaving]
        if not staying:  # on their way out; what comes next was decided before, or is up to the next cycles
            before = self._state.failures.recoveries.get(workload.name)
            self._tell(workload, lost, before.way if before is not None else RecoveryWay.WAIT)
            return
        certain = [each for each in staying if each.is_certain]
        if not certain or (len(certain) < len(staying) and self._needs_all(workload, staying)):
            self._tell(workload, lost, RecoveryWay.FENCE)
            return
        placed = self._place(workload, certain)
        self._evict(workload, [each for each in certain if placed is not None or not each.may_go_on])
        pods = {each.pod.name: each.pod for each in certain}
        for name, place in sorted((placed or {}).items()):
            nomination = nomination_of(workload.name, name, place, pods[name])
            self._nominations.append(nomination)
            self._working.hold(nomination)  # its old place is not free before the pod is gone
        self._tell(workload, lost, RecoveryWay.REPLACE if placed is not None else RecoveryWay.WAIT)

    def find_recovered(self, lost: dict[str, list[LostPod]]) -> None:
        """Work that has its pods again."""
        for name, recovery in sorted(self._state.failures.recoveries.items()):
            workload = self._state.workloads.get(name)
            if name in lost or workload is None:
                continue
            pods = self._state.pods.get(name, {})
            running = {pod for pod in pods if pods[pod].phase in (Phase.RUNNING, Phase.DONE)}
            # Where the controller of a gang has not replaced its pods yet, the gang looks complete without them.
            late_s = recovery.since_s + self._cycle.policy.keep_lost_place_s
            is_leaving = any(pods[pod].phase is Phase.RELEASING for pod in pods)
            if len(running) >= recovery.size and not is_leaving:
                self._recovered.append(name)
            elif running and not is_leaving and has_required_pods(workload, running):
                if late_s <= self._cycle.now_s:
                    self._recovered.append(name)
                else:
                    self._look_again_s = earliest_s(self._look_again_s, late_s)

    def result(self) -> RecoveryResult:
        return RecoveryResult(
            tuple(self._evictions),
            tuple(self._nominations),
            tuple(self._recoveries),
            tuple(self._recovered),
            tuple(self._bad_nodes),
            tuple(self._domains),
            self._look_again_s,
        )

    def _needs_all(self, workload: Workload, lost: list[LostPod]) -> bool:
        """It cannot run without the pods that may still run: replacing only the others would not help it."""
        uncertain = {each.pod.name for each in lost if not each.is_certain}
        pods = self._state.pods.get(workload.name, {})
        return breaks_gang(workload, [name for name in pods if name not in uncertain])

    def _place(self, workload: Workload, lost: list[LostPod]) -> dict[str, Placed] | None:
        """New places for all of them, where there is room now; nothing is taken yet."""
        working, names = self._working, [each.pod.name for each in lost]
        queue = working.queues.row.get(workload.queue)
        if queue is None:
            return None
        bad = frozenset(each.pod.node for each in lost if each.is_fault_of_node)
        request_of = partial(_request_of, self._state, bad, workload)
        with working.trial():
            for each in lost:
                working.release(each.pod, queue, not workload.preemptible)
            found = place_again(self._placer, self._state, DisplacedPods(workload, names, request_of))
        self._cycle_state.budget.used += len(lost) + self._placer.take_retries()
        if found is None:
            return None
        self._domains += found.domains
        return found.places

    def _evict(self, workload: Workload, lost: list[LostPod]) -> None:
        for each in lost:
            pod = each.pod
            gpu_s = lost_gpu_s(workload, [pod], self._cycle.now_s, self._cycle.policy.max_restart_cost_s)
            self._evictions.append(Eviction(workload.name, pod.name, EvictionCause.RECOVERY, lost_gpu_s=gpu_s))

    def _remember(self, workload: Workload, lost: list[LostPod]) -> None:
        known = self._state.node_objects
        for name in sorted({each.pod.node for each in lost if each.is_fault_of_node and each.is_certain}):
            if name in known and workload.name not in known[name].failure.bad_for:
                self._bad_nodes.append(BadNode(name, workload.name))

    def _tell(self, workload: Workload, lost: Sequence[LostPod], way: RecoveryWay) -> None:
        before = self._state.failures.recoveries.get(workload.name)
        now_s = self._cycle.now_s
        since_s = min(each.since_s or now_s for each in lost)
        pods = self._state.pods.get(workload.name, {}).values()
        active = sum(pod.phase in ACTIVE_PHASES for pod in pods) + sum(each.is_leaving for each in lost)
        causes, names, size = dict.fromkeys(each.cause for each in lost), {each.pod.name for each in lost}, active
        if before is not None:
            since_s, size = min(since_s, before.since_s), max(active, before.size)
            causes, names = dict.fromkeys((*before.causes, *causes)), names | set(before.lost)
        kind = lost[0].kind if before is None else before.kind
        told = Recovery(workload.name, since_s, kind, tuple(sorted(causes)), way, tuple(sorted(names)), size)
        if before is not None and way in (RecoveryWay.SWAP, RecoveryWay.MOVE):  # it goes on as before
            told = replace(told, moved=before.moved, others=before.others)
        if told != before:
            self._recoveries.append(told)


class SpareNodesFirst(NodeCosts):
    """Spare nodes are kept for recovery: every other place costs more."""

    def __init__(self, spares: IntArray) -> None:
        self._costs: IntArray = 1 - spares

    def of_nodes(self, want: Request) -> IntArray:
        return self._costs


def spare_nodes(nodes: NodeTable) -> IntArray:
    """1 for each spare node, 0 for the others."""
    return nodes.once(
        "spare nodes",
        lambda: np.fromiter(
            (any(taint.key == SPARE_TAINT for taint in node.taints) for node in nodes.nodes), np.int64, len(nodes.nodes)
        ),
    )


def _request_of(state: ClusterState, bad_nodes: Set[str], workload: Workload, role: Role) -> Request:
    """As for work that recovers already: not where it was lost, and spare nodes are open to it."""
    request = with_spare_nodes(state.request_of(workload, role))
    return replace(request, avoid_nodes=tuple(sorted({*request.avoid_nodes, *bad_nodes})))


def _most_important_first(workload: Workload) -> tuple[int, int, str]:
    return -workload.priority, workload.submitted_s, workload.name
