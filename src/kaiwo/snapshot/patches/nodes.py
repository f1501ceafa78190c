"""Apply events about nodes: their row in the tables, and what else depends on them."""

from functools import partial
from typing import TYPE_CHECKING

from kaiwo.model.events import NodeChanged, NodeFailuresSeen, NodeGone
from kaiwo.snapshot.learned.measured_speeds import with_slow_time
from kaiwo.snapshot.sharing_rules import rules_of_node_changed, tenant_of

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState


def node_changed(state: "ClusterState", event: NodeChanged) -> None:
    node = with_slow_time(state, event.node)
    if state.node_failures.note(state.node_objects.get(node.name), node, len(state.node_objects)):
        state.caches.clear()  # scores of all nodes: what is normal has changed
    state.is_cycle_due = state.is_cycle_due or state.failures.has_news(node, state.node_objects.get(node.name))
    for name in state.failures.node_changed(node):
        state.to_requeue[name] = None  # it may not use the same nodes as before
    state.node_objects[node.name] = node
    state.queues_stale = state.queues_stale or bool(state.queues.models)  # its GPU models may have changed
    state.reservations.forget_positions()
    state.retry_all_classes()
    rules_of_node_changed(state, node)
    if state.nodes_stale or not state.nodes.has_room_for(node):
        state.nodes_stale = True
        return
    domains = state.nodes.topologies.version
    state.nodes.write_node(
        node, state.allocations_on.get(node.name, {}).values(), state.version, partial(tenant_of, state)
    )
    if state.nodes.topologies.version != domains:
        state.caches.clear()  # places that were computed for the domains of before
    state.backlog.recheck_impossible()


def node_gone(state: "ClusterState", event: NodeGone) -> None:
    for name in state.failures.node_gone(event):
        state.to_requeue[name] = None
    state.is_cycle_due = state.is_cycle_due or bool(event.since_s)
    if state.node_objects.pop(event.name, None) is not None:
        state.nodes_stale = True
        state.queues_stale = state.queues_stale or bool(state.queues.models)
        state.retry_all_classes()  # nothing is freed, but obstacles name nodes


def node_failures_seen(state: "ClusterState", event: NodeFailuresSeen) -> None:
    state.node_failures.weights = dict(event.weights)
    state.caches.clear()
