"""Apply events about workloads and their planned starts."""

from typing import TYPE_CHECKING

from kaiwo.model.events import NominationGone, PlannedStartChanged, PlannedStartGone, WorkloadChanged, WorkloadGone
from kaiwo.model.planned_start import expected_run_s
from kaiwo.model.workload import differs_only_in_checkpoint
from kaiwo.snapshot.allocations import allocations_of, charge, count_as_tenant, nomination_gone
from kaiwo.snapshot.sharing_rules import rules_of_workload_changed

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState


def workload_changed(state: "ClusterState", event: WorkloadChanged) -> None:
    workload = state.priorities.capped(event.workload, state.queue_objects)
    before = state.workloads.get(workload.name)
    if before is not None and differs_only_in_checkpoint(before, workload):
        state.workloads[workload.name] = workload  # frequent, and nothing else can start because of it
        return
    if before is None or (before.queue, before.preemptible) != (workload.queue, workload.preemptible):
        for held in allocations_of(state, workload.name):
            if before is not None:
                charge(state, before, held, -1)
                state.retry_all_classes()
            charge(state, workload, held, +1)
    if before is not None and workload.name in state.pods and expected_run_s(before) != expected_run_s(workload):
        _touch_nodes_of(state, workload.name)
    if before is not None and 0 <= before.may_go != workload.may_go and not 0 <= workload.may_go < before.may_go:
        state.retry_all_classes()  # a disruption budget allows more evictions
    if before is not None and workload.name in state.pods and workload.priority < before.priority:
        state.retry_all_classes()  # others may outrank it now
    has_other_demand = before is not None and (before.roles, before.queue) != (workload.roles, workload.queue)
    if has_other_demand and state.limits_other_queues(workload.name):
        state.retry_all_classes()
    if before is None:
        state.seen_requests.add(workload)
    rules_of_workload_changed(state, workload)
    if state.sharing.in_use:
        count_as_tenant(state, workload.name, before, workload)
    if workload.name in state.pods:
        state.preemptible.count(before, -1)
        state.preemptible.count(workload, +1)
    state.workloads[workload.name] = workload
    if workload.expires_s or workload.name in state.expiring:
        _set_expiry(state, workload.name, workload.expires_s)
    if workload.held and workload.name in state.planned_starts:
        state.is_cycle_due = True  # a cycle must withdraw the planned start
    (state.below_minimum.add if workload.broken_since_s else state.below_minimum.discard)(workload.name)
    state.to_requeue[workload.name] = None


def workload_gone(state: "ClusterState", event: WorkloadGone) -> None:
    workload = state.workloads.pop(event.name, None)
    if workload is None:
        return
    state.domain_choices.pop(event.name, None)
    state.is_cycle_due = state.is_cycle_due or state.defragmentation.concerns(event.name)
    if event.name in state.pods:
        state.preemptible.count(workload, -1)
    state.failures.recoveries.pop(event.name, None)
    state.speeds.forget_workload(event.name)
    if state.limits_other_queues(event.name):
        state.retry_all_classes()
    state.backlog.remove(event.name)
    state.priorities.forget(event.name)
    state.below_minimum.discard(event.name)
    state.last_stop.pop(event.name, None)
    state.started_overdue.discard(event.name)
    state.refused_starts.pop(event.name, None)
    _set_expiry(state, event.name, 0)
    planned_start_gone(state, PlannedStartGone(event.name))
    for held in allocations_of(state, event.name):
        charge(state, workload, held, -1)
        state.retry_all_classes()
    count_as_tenant(state, event.name, workload, None)
    for kept in list(state.nominations.get(event.name, {})):
        nomination_gone(state, NominationGone(event.name, kept))


def planned_start_changed(state: "ClusterState", event: PlannedStartChanged) -> None:
    planned = event.promise
    before = state.planned_starts.get(planned.workload)
    state.planned_starts[planned.workload] = planned
    if before is not None and before.places != planned.places:
        state.retry_all_classes()  # the old place is free for others


def planned_start_gone(state: "ClusterState", event: PlannedStartGone) -> None:
    gone = state.planned_starts.pop(event.workload, None)
    if gone is not None and event.workload not in state.pods:  # else it started there
        state.retry_all_classes()


def _set_expiry(state: "ClusterState", name: str, at_s: int) -> None:
    if at_s and state.expiring.get(name) != at_s:
        state.expiring[name] = at_s
        state.ended_expired.discard(name)
        state.is_cycle_due = True
    elif not at_s and state.expiring.pop(name, None) is not None:
        state.ended_expired.discard(name)


def _touch_nodes_of(state: "ClusterState", name: str) -> None:
    """Their resources come free at another time now."""
    for pod in state.pods[name].values():
        row = state.nodes.row.get(pod.node)
        if row is not None and not state.nodes_stale:
            state.nodes.changed[row] = state.version
