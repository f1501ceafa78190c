"""Filters that come with Kaiwo: which nodes a pod may go to by their definition."""

import numpy as np

from kaiwo.model.node import Node, Taint
from kaiwo.model.reason import Reason
from kaiwo.model.request import Request, Toleration
from kaiwo.plugins.contract import View
from kaiwo.snapshot.arrays import BoolArray, Rows


class NodeReady:
    """Keep off nodes that are not ready."""

    name, version, reason, is_static = "node-ready", "1", Reason.NODE_NOT_READY, True
    depends_on = ()

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        """A cordoned node that is ready is the next filter's business."""
        return (
            _each(view, nodes, lambda node: node.ready) if not view.nodes.open.all() else np.ones(len(nodes), np.bool_)
        )


class NodeNotCordoned:
    """Keep off nodes that somebody cordoned."""

    name, version, reason, is_static = "node-not-cordoned", "1", Reason.NODE_CORDONED, True
    depends_on = ()

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        """Everything else about the node does not matter here."""
        return (
            _each(view, nodes, lambda node: not node.cordoned)
            if not view.nodes.open.all()
            else np.ones(len(nodes), np.bool_)
        )


class NodeRules:
    """Obey node selectors and required node affinity."""

    name, version, reason, is_static = "node-rules", "1", Reason.NODE_RULES, True
    depends_on = ("node_rules",)

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        """Every rule must hold."""
        if not want.node_rules:
            return np.ones(len(nodes), np.bool_)
        return _each(view, nodes, lambda node: all(rule.holds(node.labels) for rule in want.node_rules))


class NodeTaints:
    """Obey taints that are not tolerated."""

    name, version, reason, is_static = "node-taints", "1", Reason.NODE_TAINTED, True
    depends_on = ("tolerations",)

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        """PreferNoSchedule only ever lowers a score."""
        return _each(view, nodes, lambda node: not node.taints or _tolerates_all(want, node))


class NodesToAvoid:
    """Keep off nodes on which this work failed to start."""

    name, version, reason, is_static = "nodes-to-avoid", "1", Reason.NODE_AVOIDED, True
    depends_on = ("avoid_nodes",)

    def filter(self, view: View, want: Request, nodes: Rows) -> BoolArray:
        """Memory of bad nodes travels in the request."""
        if not want.avoid_nodes:
            return np.ones(len(nodes), np.bool_)
        return _each(view, nodes, lambda node: node.name not in want.avoid_nodes)


def _each(view: View, nodes: Rows, test) -> BoolArray:  # type: ignore[no-untyped-def]
    """Definitions are objects, so this is a Python loop; it runs once per shape and then per redefined node."""
    all_nodes = view.nodes.nodes
    return np.fromiter((test(all_nodes[row]) for row in nodes), np.bool_, len(nodes))


def _tolerates_all(want: Request, node: Node) -> bool:
    hard = (taint for taint in node.taints if taint.effect != "PreferNoSchedule")
    return all(any(_tolerates(each, taint) for each in want.tolerations) for taint in hard)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value
