"""Apply events about topologies; their domains are written before the next cycle."""

from typing import TYPE_CHECKING

from kaiwo.model.events import TopologyChanged, TopologyGone
from kaiwo.snapshot.network.domain_access import domain_access_changed

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState


def topology_changed(state: "ClusterState", event: TopologyChanged) -> None:
    if state.topology_objects.get(event.topology.name) != event.topology:
        state.topology_objects[event.topology.name] = event.topology
        is_cut = state.failures.topology_changed(event.topology.name, event.topology)
        state.is_cycle_due = state.is_cycle_due or is_cut
        state.topologies_stale.add(event.topology.name)
        state.retry_all_classes()
        domain_access_changed(state)


def topology_gone(state: "ClusterState", event: TopologyGone) -> None:
    if state.topology_objects.pop(event.name, None) is not None:
        state.failures.topology_changed(event.name, None)
        state.topologies_stale.add(event.name)
        state.retry_all_classes()
        domain_access_changed(state)
