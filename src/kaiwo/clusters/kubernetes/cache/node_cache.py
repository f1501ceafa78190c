"""Cache the nodes: as Kubernetes shows them, with an overlay of what agents report, and with what is known of failures.

A node has failed when its Ready condition says so, or when it no longer renews its Lease. It is fenced when it has the
taint `out-of-service`. What must outlive this process (how often it failed, and whom) is an annotation of the node.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.node_decoder import CHANGE_ANNOTATION, DEVICES_ANNOTATION, read_node
from kaiwo.clusters.kubernetes.decode.quantities import is_countable
from kaiwo.manifests.kinds.annotations import OUR_PREFIX
from kaiwo.model.errors import NotFoundError
from kaiwo.model.events import NodeChanged, NodeGone
from kaiwo.model.node import Node, NodeFailure
from kaiwo.model.recovery import after_failure, after_return, failure_moved, remember_bad

FAILURE_ANNOTATION = OUR_PREFIX + "failures"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"  # whoever sets this taint vouches that nothing runs there
NO_LEASE = "it has not renewed its Lease"
_read_failure = msgspec.json.Decoder(NodeFailure).decode


@dataclass(slots=True)
class _FailureMemory:
    now: NodeFailure
    written: str  # on the node
    is_down: bool  # as its conditions say


class NodeCache:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}  # with their overlays
        self.without_overlay: dict[str, Node] = {}  # as Kubernetes shows them
        self.with_agent: set[str] = set()  # nodes whose devices an agent reports
        self.change_annotations: dict[str, str] = {}  # the partition change under way, by node
        self.changes = 0  # counts the changes that Kubernetes showed
        self.now_s: Callable[[], int] = lambda: 0
        self.silent: frozenset[str] = frozenset()  # nodes that do not renew their Lease
        self.failed: set[str] = set()  # nodes that do not work
        self._overlays: dict[str, Callable[[Node], Node]] = {}
        self._memory: dict[str, _FailureMemory] = {}

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
        has_reported = any(item.type == "Ready" for item in wire.status.conditions or ())
        written = annotations.get(FAILURE_ANNOTATION, "")
        memory = self._memory.setdefault(node.name, _FailureMemory(_failure_of(written), written, False))
        memory.written, memory.is_down = written, has_reported and not node.ready
        return self._publish(node.name)

    def overlay(self, name: str, overlay: Callable[[Node], Node] | None) -> NodeChanged | None:
        if name not in self.without_overlay:
            raise NotFoundError(f"node {name} does not exist")
        if overlay is None:
            self._overlays.pop(name, None)
        else:
            self._overlays[name] = overlay
        return self._publish(name)

    def delete(self, name: str) -> NodeGone | None:
        """A node is gone. Its pods stay in the cache until Kubernetes deletes them."""
        self.changes += self.without_overlay.pop(name, None) is not None
        self.with_agent.discard(name)
        self.change_annotations.pop(name, None)
        self._memory.pop(name, None)
        self.failed.discard(name)
        return NodeGone(name, max(1, self.now_s())) if self.nodes.pop(name, None) is not None else None

    def set_silent(self, names: Collection[str]) -> list[NodeChanged]:
        """These nodes do not renew their Lease; all others do."""
        changed = sorted(self.silent ^ frozenset(names))
        self.silent = frozenset(names)
        return [event for name in changed if name in self.without_overlay and (event := self._publish(name))]

    def move_times(self, by_s: int) -> list[NodeChanged]:
        """The clock was set: nodes have failed, and stay out, for as long as before."""
        for memory in self._memory.values():
            memory.now = failure_moved(memory.now, by_s)
        return [event for name in sorted(self.without_overlay) if (event := self._publish(name))]

    def remember_bad(self, name: str, workload: str) -> list[NodeChanged]:
        """A workload lost pods on a node, and does not come back to it."""
        if name not in self.without_overlay:
            return []
        memory = self._memory[name]
        memory.now = remember_bad(memory.now, [workload])
        event = self._publish(name)
        return [event] if event is not None else []

    def is_fenced(self, name: str) -> bool:
        """Nothing can run there: it is gone, or has failed and is fenced."""
        return name not in self.nodes or self.nodes[name].failure.is_fenced

    def to_write(self) -> dict[str, str]:
        """By node: the annotation that it should have and has not."""
        texts = {name: _text_of(memory.now) for name, memory in self._memory.items()}
        return {name: text for name, text in texts.items() if text != self._memory[name].written}

    def _publish(self, name: str) -> NodeChanged | None:
        node = self.without_overlay[name]
        node = self._with_failure(self._overlays[name](node) if name in self._overlays else node)
        if self.nodes.get(name) == node:
            return None
        self.nodes[name] = node
        return NodeChanged(node)

    def _with_failure(self, node: Node) -> Node:
        memory = self._memory[node.name]
        is_silent = node.name in self.silent
        if not memory.is_down and not is_silent:
            self.failed.discard(node.name)
            memory.now = after_return(memory.now, self.now_s()) if memory.now.since_s else memory.now
            return replace(node, failure=memory.now) if memory.now != node.failure else node
        self.failed.add(node.name)
        is_fenced = any(taint.key == OUT_OF_SERVICE for taint in node.taints)
        memory.now = after_failure(memory.now, max(1, self.now_s()), is_fenced)
        return replace(node, ready=False, reason=node.reason or NO_LEASE, failure=memory.now)


def _failure_of(text: str) -> NodeFailure:
    """What the annotation says; nothing where it is damaged."""
    try:
        found = _read_failure(text) if text else NodeFailure()
    except (msgspec.DecodeError, msgspec.ValidationError):
        return NodeFailure()
    return found if is_countable(found) else NodeFailure()


def _text_of(failure: NodeFailure) -> str:
    """Whether it is fenced, its taints say."""
    kept = replace(failure, is_fenced=False)
    return "" if kept == NodeFailure() else msgspec.json.encode(kept).decode()
