"""Cache the nodes, as Kubernetes shows them and with an overlay of what their agents report about the devices."""

from collections.abc import Callable

from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.node_decoder import CHANGE_ANNOTATION, DEVICES_ANNOTATION, read_node
from kaiwo.model.errors import NotFoundError
from kaiwo.model.events import NodeChanged, NodeGone
from kaiwo.model.node import Node


class NodeCache:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}  # with their overlays
        self.without_overlay: dict[str, Node] = {}  # as Kubernetes shows them
        self.with_agent: set[str] = set()  # nodes whose devices an agent reports
        self.change_annotations: dict[str, str] = {}  # the partition change under way, by node
        self.changes = 0  # counts the changes that Kubernetes showed
        self._overlays: dict[str, Callable[[Node], Node]] = {}

    def upsert(self, wire: wire_objects.Node) -> NodeChanged | None:
        """A node is new or changed. Returns None if nothing changed that the scheduler reads."""
        node = read_node(wire)
        self.changes += self.without_overlay.get(node.name) != node
        self.without_overlay[node.name] = node
        annotations = wire.metadata.annotations or {}
        (self.with_agent.add if annotations.get(DEVICES_ANNOTATION) else self.with_agent.discard)(node.name)
        if change := annotations.get(CHANGE_ANNOTATION, ""):
            self.change_annotations[node.name] = change
        else:
            self.change_annotations.pop(node.name, None)
        return self._publish(self._overlays[node.name](node) if node.name in self._overlays else node)

    def overlay(self, name: str, overlay: Callable[[Node], Node] | None) -> NodeChanged | None:
        if name not in self.without_overlay:
            raise NotFoundError(f"node {name} does not exist")
        if overlay is None:
            self._overlays.pop(name, None)
        else:
            self._overlays[name] = overlay
        return self._publish(overlay(self.without_overlay[name]) if overlay else self.without_overlay[name])

    def delete(self, name: str) -> NodeGone | None:
        """A node is gone. Its pods stay in the cache until Kubernetes deletes them."""
        self.changes += self.without_overlay.pop(name, None) is not None
        self.with_agent.discard(name)
        self.change_annotations.pop(name, None)
        return NodeGone(name) if self.nodes.pop(name, None) is not None else None

    def _publish(self, node: Node) -> NodeChanged | None:
        if self.nodes.get(node.name) == node:
            return None
        self.nodes[node.name] = node
        return NodeChanged(node)
