"""Built-in filters: exclude nodes by readiness, cordons, selectors, taints, past failures and GPU isolation."""

from collections.abc import Callable, Iterable

import numpy as np

from kaiwo.gpus.isolation_grades import grade_of, whole_gpus
from kaiwo.model.affinity import matches_node_rules
from kaiwo.model.gpus.gpu import is_grade_enough
from kaiwo.model.node import Node, Taint
from kaiwo.model.obstacle import Reason
from kaiwo.model.request import Request, Toleration
from kaiwo.snapshot.array_types import BoolArray, Rows
from kaiwo.snapshot.network.domain_access import nodes_in_domains
from kaiwo.snapshot.view import View

# The taints of a node that is cordoned, or whose kubelet is not healthy. Kubernetes adds them a moment after the change
# itself; until then a pod must tolerate every taint that may come.
CORDONED = (Taint("node.kubernetes.io/unschedulable"),)
NOT_READY = (Taint("node.kubernetes.io/not-ready"), Taint("node.kubernetes.io/unreachable"))


class NodeReady:
    """Exclude nodes that are not ready, unless the pod tolerates it."""

    name, version, reason, is_static = "node-ready", "2", Reason.NODE_NOT_READY, True
    depends_on = ("tolerations",)

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        if view.nodes.schedulable.all():
            return np.ones(len(nodes), np.bool_)
        return _test_nodes(view, nodes, lambda node: _is_ready(node) or _may_be_down(want, node))


class NodeNotCordoned:
    """Exclude cordoned nodes, unless the pod tolerates it."""

    name, version, reason, is_static = "node-not-cordoned", "2", Reason.NODE_CORDONED, True
    depends_on = ("tolerations",)

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        if view.nodes.schedulable.all():
            return np.ones(len(nodes), np.bool_)
        return _test_nodes(view, nodes, lambda node: not node.cordoned or _tolerates_state(want, node, CORDONED))


class NodeRules:
    """Obey node selectors and required node affinity."""

    name, version, reason, is_static = "node-rules", "2", Reason.NODE_RULES, True
    depends_on = ("node_rules", "node_choices")

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        if not want.node_rules and not want.node_choices:
            return np.ones(len(nodes), np.bool_)
        return _test_nodes(
            view, nodes, lambda node: matches_node_rules(node.labels, want.node_rules, want.node_choices)
        )


class NodeTaints:
    """Exclude nodes with taints that are not tolerated."""

    name, version, reason, is_static = "node-taints", "1", Reason.NODE_TAINTED, True
    depends_on = ("tolerations",)

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        """PreferNoSchedule never excludes a node."""
        return _test_nodes(view, nodes, lambda node: not node.taints or tolerates_all(want.tolerations, node))


class NodesToAvoid:
    """Exclude nodes on which this work failed to start."""

    name, version, reason, is_static = "nodes-to-avoid", "1", Reason.NODE_AVOIDED, True
    depends_on = ("avoid_nodes",)

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        if not want.avoid_nodes:
            return np.ones(len(nodes), np.bool_)
        return _test_nodes(view, nodes, lambda node: node.name not in want.avoid_nodes)


class OpenDomains:
    """Exclude nodes in domains of the network that are closed to the workload's queue and namespace."""

    name, version, reason, is_static = "domain-access", "1", Reason.DOMAIN_CLOSED, True
    depends_on = ("closed_domains",)

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        if not want.closed_domains:
            return np.ones(len(nodes), np.bool_)
        open_nodes: BoolArray = ~nodes_in_domains(view.nodes, want.closed_domains)[nodes]
        return open_nodes


def _test_nodes(view: View, nodes: Rows, test: Callable[[Node], bool]) -> BoolArray:
    """A Python loop, since definitions are objects; it runs once per shape and then per redefined node."""
    all_nodes = view.nodes.nodes
    return np.fromiter((test(all_nodes[row]) for row in nodes), np.bool_, len(nodes))


def _is_ready(node: Node) -> bool:
    """A node that came and went too often is kept out for a while: see `model.recovery`."""
    return node.ready and not node.failure.out_until_s


def _may_be_down(want: Request, node: Node) -> bool:
    """Work with GPUs is not put on a node that failed, whatever it tolerates: it would be lost again.

    Other pods go where they tolerate it, as Kubernetes has it: they may be what repairs the node.
    """
    return not (want.gpus and node.failure.since_s) and _tolerates_state(want, node, NOT_READY)


def _tolerates_state(want: Request, node: Node, taints: tuple[Taint, ...]) -> bool:
    there = tuple(taint for taint in taints if any(taint.key == each.key for each in node.taints))
    return _tolerates_all_of(want.tolerations, there or taints)


def tolerates_all(tolerations: tuple[Toleration, ...], node: Node) -> bool:
    return _tolerates_all_of(tolerations, (taint for taint in node.taints if taint.effect != "PreferNoSchedule"))


def _tolerates_all_of(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> bool:
    return all(any(_tolerates(each, taint) for each in tolerations) for taint in taints)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


class GpuIsolation:
    """Exclude nodes without the requested isolation method, or with a weaker grade than requested."""

    name, version, reason, is_static = "gpu-isolation", "1", Reason.GPU_ISOLATION, True
    depends_on = ("gpus", "gpu_milli", "gpu_mib", "partition", "isolation", "least_grade")

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        """One suitable device is enough; whole GPUs and partitions always have the best grade."""
        if not (want.isolation or want.least_grade) or not want.gpus or want.is_exclusive:
            return np.ones(len(nodes), np.bool_)
        return _test_nodes(view, nodes, lambda node: _offers_isolation(node, want))


def _offers_isolation(node: Node, want: Request) -> bool:
    """Only whole GPUs count: that partitioned ones could be made whole again is another obstacle."""
    grades = {(gpu.model, gpu.memory_mib): gpu for gpu in whole_gpus(node)}.values()
    found = (grade_of(want, gpu, node.labels) for gpu in grades)
    return any(grade and is_grade_enough(grade, want.least_grade) for grade in found)


PLUGINS = (NodeReady, NodeNotCordoned, NodeRules, NodeTaints, NodesToAvoid, OpenDomains, GpuIsolation)
