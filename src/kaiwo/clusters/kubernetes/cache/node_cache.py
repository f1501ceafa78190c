"""The nodes of a cluster: as Kubernetes tells them, and with what agents know of their devices laid over them.

In:    Node objects, and what is laid over one.   Out: the events that say what changed.
Never: looks at pods.
"""

from collections.abc import Callable

from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.node_decoder import CHANGE_ANNOTATION, DEVICES_ANNOTATION, read_node
from kaiwo.model.errors import NotFoundError
from kaiwo.model.events import NodeChanged, NodeGone
from kaiwo.model.node import Node


class NodeCache:
    """Every node by name."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}  # with what is laid over them
        self.without_overlay: dict[str, Node] = {}  # as Kubernetes tells them
        self.with_agent: set[str] = set()  # those whose devices an agent tells
        self.change_annotations: dict[str, str] = {}  # what is under way with a node's GPUs
        self.changes = 0  # of what Kubernetes tells, for those who look again and again
        self._overlays: dict[str, Callable[[Node], Node]] = {}

    def upsert(self, wire: wire_objects.Node) -> NodeChanged | None:
        """A node is there, or different; nothing that counts may have changed."""
        node = read_node(wire)
        self.changes += self.without_overlay.get(node.name) != node
        self.without_overlay[node.name] = node
        notes = wire.metadata.annotations or {}
        (self.with_agent.add if notes.get(DEVICES_ANNOTATION) else self.with_agent.discard)(node.name)
        if note := notes.get(CHANGE_ANNOTATION, ""):
            self.change_annotations[node.name] = note
        else:
            self.change_annotations.pop(node.name, None)
        return self._publish(self._overlays[node.name](node) if node.name in self._overlays else node)

    def overlay(self, name: str, how: Callable[[Node], Node] | None) -> NodeChanged | None:
        """What somebody else knows of a node's devices, until it is None."""
        if name not in self.without_overlay:
            raise NotFoundError(f"node {name} does not exist")
        if how is None:
            self._overlays.pop(name, None)
        else:
            self._overlays[name] = how
        return self._publish(how(self.without_overlay[name]) if how else self.without_overlay[name])

    def delete(self, name: str) -> NodeGone | None:
        """A node is gone. Its pods stay on the books until Kubernetes takes them away."""
        self.changes += self.without_overlay.pop(name, None) is not None
        self.with_agent.discard(name)
        self.change_annotations.pop(name, None)
        return NodeGone(name) if self.nodes.pop(name, None) is not None else None

    def _publish(self, node: Node) -> NodeChanged | None:
        if self.nodes.get(node.name) == node:
            return None
        self.nodes[node.name] = node
        return NodeChanged(node)
