"""Find the pods that failures took away: of nodes, GPUs, links and whole domains, and those on nodes that are too slow.

In:    the state and its node table.   Out: by workload, its pods whose places do not work, each with the cause.
A pod on a node that cannot be reached may still run. It counts as certainly lost once the node is fenced or gone.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from kaiwo.model.recovery import FailureKind
from kaiwo.model.workload import ACTIVE_PHASES, RELEASING_PHASES, Phase, Pod, find_role
from kaiwo.snapshot.array_types import BoolArray
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import NodeTable

FEWEST_NODES = 2  # a domain of one node is that node


class LostPod(NamedTuple):
    pod: Pod
    kind: FailureKind
    cause: str  # as in Recovery.causes
    since_s: int
    is_certain: bool  # it does not run any more, or can be stopped
    is_fault_of_node: bool  # and not of its whole domain

    @property
    def may_go_on(self) -> bool:
        """Its node works, so it may still do its work, if badly: it stops only for another place."""
        return self.kind in (FailureKind.GPU, FailureKind.LINK, FailureKind.SLOW)

    @property
    def is_leaving(self) -> bool:
        """It was told to go already: by us, or by a controller that saw the failure first."""
        return self.pod.phase in RELEASING_PHASES


def find_lost_pods(state: ClusterState, nodes: NodeTable) -> dict[str, list[LostPod]]:
    """By workload, sorted by pod. Pods that are leaving are among them if the workload goes on without them."""
    found: dict[str, dict[str, LostPod]] = {}
    domains = failed_domains(state, nodes) if len(state.failures.nodes) >= FEWEST_NODES else {}
    slow = _on_slow_nodes(state, nodes) if state.speeds.out else ()
    for each in (*_on_failed_nodes(state, domains), *_on_gone_nodes(state), *_cut_off(state), *slow):
        workload = state.workloads.get(each.pod.workload)
        if workload is None or find_role(workload, each.pod.name) is None:
            continue  # nothing asks for this pod any more
        if not each.is_leaving or _goes_on(state, workload.name):
            found.setdefault(workload.name, {}).setdefault(each.pod.name, each)
    return {name: [lost[pod] for pod in sorted(lost)] for name, lost in sorted(found.items())}


def failed_domains(state: ClusterState, nodes: NodeTable) -> dict[str, str]:
    """By failed node: the widest domain around it of which no node works, such as `leaf leaf-3`."""
    return _domains_of(nodes, np.array([bool(node.failure.since_s) for node in nodes.nodes], np.bool_))


def slow_domains(state: ClusterState, nodes: NodeTable) -> dict[str, str]:
    """By slow node: the widest domain around it of which every node is slow."""
    slow = state.speeds.out
    return _domains_of(nodes, np.array([name in slow for name in nodes.names], np.bool_)) if len(slow) > 1 else {}


def _domains_of(nodes: NodeTable, failed: BoolArray) -> dict[str, str]:
    found: dict[str, str] = {}
    for topology in sorted(nodes.topologies.by_name):
        for level in nodes.topologies.by_name[topology].levels:
            domains = level.domain_of_node
            inside = domains >= 0
            size = np.bincount(domains[inside], minlength=len(level.names))
            down = np.bincount(domains[inside & failed], minlength=len(level.names))
            for number in np.flatnonzero((size >= FEWEST_NODES) & (down == size)).tolist():
                for row in np.flatnonzero(domains == number).tolist():
                    found.setdefault(nodes.names[row], f"{level.name} {level.names[number]}")
    return found


def _on_failed_nodes(state: ClusterState, domains: dict[str, str]) -> Iterator[LostPod]:
    for name in sorted(state.failures.nodes):
        node = state.node_objects[name]
        failure, broken = node.failure, {gpu.id: gpu.failed_s for gpu in node.gpus if gpu.failed_s}
        for pod in _pods_on(state, name):
            if failure.since_s:
                kind = FailureKind.DOMAIN if name in domains else FailureKind.NODE
                cause = domains.get(name, f"node {name}")
                yield LostPod(pod, kind, cause, failure.since_s, failure.is_fenced, name not in domains)
                continue
            device = next((share.gpu for share in pod.devices if share.gpu in broken), None)
            if device is not None:  # the other GPUs of the node are as good as before
                yield LostPod(pod, FailureKind.GPU, f"{device} of {name}", broken[device], True, False)


def _on_gone_nodes(state: ClusterState) -> Iterator[LostPod]:
    for name, since_s in sorted(state.failures.gone.items()):
        for pod in _pods_on(state, name):
            yield LostPod(pod, FailureKind.NODE, f"node {name}", since_s, True, True)


def _on_slow_nodes(state: ClusterState, nodes: NodeTable) -> Iterator[LostPod]:
    """Pods of work that says how fast it is: of other work, nothing tells that it would be faster elsewhere."""
    names = state.speeds.left
    domains = slow_domains(state, nodes) if names else {}
    for name in names:
        since_s = state.speeds.nodes[name].slow_since_s
        for pod in _pods_on(state, name):
            if pod.workload in state.speeds.progress:
                cause = f"slow {domains[name]}" if name in domains else f"slow node {name}"
                yield LostPod(pod, FailureKind.SLOW, cause, since_s, True, name not in domains)


def _cut_off(state: ClusterState) -> Iterator[LostPod]:
    """Pods that cannot reach the other pods of their workload: no port of their node works, or no link of their domain.

    Both sides of a cut may be alive: the side with fewer pods counts as lost.
    """
    for _, islands in sorted(state.failures.islands.items()):
        for cause, names in islands:
            for workload in sorted({pod.workload for name in names for pod in _pods_on(state, name)}):
                pods = [pod for pod in state.pods[workload].values() if pod.phase in ACTIVE_PHASES]
                inside = [pod for pod in pods if pod.node in names]
                outside = [pod for pod in pods if pod.node not in names]
                if outside:
                    fewer = inside if len(inside) <= len(outside) else outside
                    for pod in sorted(fewer, key=lambda each: each.name):
                        yield LostPod(pod, FailureKind.LINK, cause, 0, True, len(names) == 1 and fewer is inside)


def _pods_on(state: ClusterState, node: str) -> Iterable[Pod]:
    held = state.allocations_on.get(node, {})
    return [pod for _, pod in sorted(held.items()) if isinstance(pod, Pod) and pod.phase is not Phase.DONE]


def _goes_on(state: ClusterState, workload: str) -> bool:
    """It has not been stopped as a whole, for whatever reason."""
    is_up = any(pod.phase in ACTIVE_PHASES for pod in state.pods[workload].values())
    return is_up or workload in state.failures.recoveries
