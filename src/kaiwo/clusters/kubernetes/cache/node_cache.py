"""The nodes of a cluster: as Kubernetes tells them, and with what agents know of their devices laid over them.

In:    Node objects, and what is laid over one.   Out: the events that say what changed.
Never: looks at pods.
"""

from collections.abc import Callable

from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.node_decoder import CHANGE_NOTE, DEVICES_NOTE, read_node
from kaiwo.model.errors import NotFoundError
from kaiwo.model.events import NodeChanged, NodeGone
from kaiwo.model.node import Node


class NodeBook:
    """Every node by name."""

    def __init__(self) -> None:
        self.shown: dict[str, Node] = {}  # with what is laid over them
        self.plain: dict[str, Node] = {}  # as Kubernetes tells them
        self.listed: set[str] = set()  # those whose devices an agent tells
        self.change_notes: dict[str, str] = {}  # what is under way with a node's GPUs
        self.changes = 0  # of what Kubernetes tells, for those who look again and again
        self._over: dict[str, Callable[[Node], Node]] = {}

    def put(self, wire: wire_objects.Node) -> NodeChanged | None:
        """A node is there, or different; nothing that counts may have changed."""
        node = read_node(wire)
        self.changes += self.plain.get(node.name) != node
        self.plain[node.name] = node
        notes = wire.metadata.annotations or {}
        (self.listed.add if notes.get(DEVICES_NOTE) else self.listed.discard)(node.name)
        if note := notes.get(CHANGE_NOTE, ""):
            self.change_notes[node.name] = note
        else:
            self.change_notes.pop(node.name, None)
        return self._show(self._over[node.name](node) if node.name in self._over else node)

    def lay_over(self, name: str, how: Callable[[Node], Node] | None) -> NodeChanged | None:
        """What somebody else knows of a node's devices, until it is None."""
        if name not in self.plain:
            raise NotFoundError(f"node {name} does not exist")
        if how is None:
            self._over.pop(name, None)
        else:
            self._over[name] = how
        return self._show(how(self.plain[name]) if how else self.plain[name])

    def drop(self, name: str) -> NodeGone | None:
        """A node is gone. Its pods stay on the books until Kubernetes takes them away."""
        self.changes += self.plain.pop(name, None) is not None
        self.listed.discard(name)
        self.change_notes.pop(name, None)
        return NodeGone(name) if self.shown.pop(name, None) is not None else None

    def _show(self, node: Node) -> NodeChanged | None:
        if self.shown.get(node.name) == node:
            return None
        self.shown[node.name] = node
        return NodeChanged(node)
