"""Apply events about queues: the work that a changed rule lets in, keeps out or gives another priority."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kaiwo.model.events import PastUsageChanged, QueueChanged, QueueGone, WorkloadChanged
from kaiwo.model.queue import Queue, queue_that_refuses
from kaiwo.snapshot.capped_priorities import may_change_caps
from kaiwo.snapshot.network.domain_access import queues_of_access_changed
from kaiwo.snapshot.patches.workloads import workload_changed
from kaiwo.snapshot.sharing_rules import rules_of_queue_changed

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState


def queue_changed(state: "ClusterState", event: QueueChanged) -> None:
    before = state.queue_objects.get(event.queue.name)
    state.queue_objects[event.queue.name] = event.queue
    _rules_changed(state, before, event.queue)
    rules_of_queue_changed(state, before, event.queue)
    _strategies_changed(state, before, event.queue)
    queues_of_access_changed(state, before, event.queue)
    state.queues_stale = True
    state.reservations.forget_queue_paths()
    state.retry_all_classes()


def queue_gone(state: "ClusterState", event: QueueGone) -> None:
    if (gone := state.queue_objects.pop(event.name, None)) is not None:
        _rules_changed(state, gone, None)
        rules_of_queue_changed(state, gone, None)
        _strategies_changed(state, gone, None)
        queues_of_access_changed(state, gone, None)
        state.queues_stale = True
        state.reservations.forget_queue_paths()
        state.retry_all_classes()


def past_usage_changed(state: "ClusterState", event: PastUsageChanged) -> None:
    state.past_usage = event
    state.retry_all_classes()  # shares have changed


def _rules_changed(state: "ClusterState", before: Queue | None, after: Queue | None) -> None:
    """Apply changed rules of a queue, which hold for those below it, too: whose work it takes, the top priority."""
    old, new = ((each.namespaces, each.users, each.parent) if each else ((), (), "") for each in (before, after))
    has_other_caps = may_change_caps(before, after, state.queue_objects)
    queue = after or before
    state.priorities.forget_queues()
    if queue is None or (old == new and not has_other_caps):
        return
    above = {name: found.parent for name, found in state.queue_objects.items()}
    affected = {name for name in {*above, queue.name} if queue.name in _path(name, above)}
    if has_other_caps:
        for workload in [each for each in state.workloads.values() if each.queue in affected]:
            asked = state.priorities.as_asked(workload)
            if state.priorities.capped(asked, state.queue_objects) != workload:
                workload_changed(state, WorkloadChanged(asked))
    if old == new:
        return
    for name in (*state.backlog.queued_names(), *state.backlog.gated):
        workload = state.workloads[name]
        if workload.queue not in affected:
            continue
        if name in state.backlog.gated or queue_that_refuses(state.queue_objects, workload) is not None:
            state.to_requeue[name] = None
            state.is_cycle_due = state.is_cycle_due or name in state.planned_starts


def _strategies_changed(state: "ClusterState", before: Queue | None, after: Queue | None) -> None:
    """Requests of waiting work name the strategy of their queue: a changed one makes other shapes of them."""
    state.has_queue_strategies = any(queue.strategy for queue in state.queue_objects.values())
    old, new = ((each.strategy, each.parent) if each else ("", "") for each in (before, after))
    if old != new and (state.has_queue_strategies or old[0]):
        state.to_requeue.update(dict.fromkeys((*state.backlog.queued_names(), *state.backlog.gated)))


def _path(queue: str, above: Mapping[str, str]) -> list[str]:
    """A queue and all above it; a loop ends where it closes."""
    path = [queue]
    while (parent := above.get(path[-1])) and parent not in path:
        path.append(parent)
    return path
