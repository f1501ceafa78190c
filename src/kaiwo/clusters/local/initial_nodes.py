"""What a local cluster begins with: the nodes that are wanted, and the queue that always exists.

In:    the nodes that somebody asked for, or a way to find some.   Out: a change of the world.
Never: undoes what people did to a node, or drops a real machine because its driver is silent today.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from kaiwo.clusters.embedded.cluster import clear_node
from kaiwo.clusters.embedded.state import Transaction
from kaiwo.clusters.ledger import overcommit
from kaiwo.clusters.local.cluster_file import VIRTUAL_LABEL
from kaiwo.model.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.queue import DEFAULT_QUEUE, UNBOUNDED_DEFAULT_QUEUE

FindNodes = Callable[[], Sequence[Node]]


def seed(change: Transaction, nodes: Sequence[Node] | None, find_nodes: FindNodes | None) -> None:
    """`nodes`: these and no others; None: those that are there, or the ones found when there are none."""
    if DEFAULT_QUEUE not in change.world.queues:
        change.put_queue(UNBOUNDED_DEFAULT_QUEUE)
    if nodes is None and find_nodes is not None:
        nodes = _found(change, find_nodes)
    if nodes is not None:
        _replace_nodes(change, nodes)


def are_virtual(nodes: Iterable[Node]) -> bool:
    """They are all made up."""
    return all(VIRTUAL_LABEL in node.labels for node in nodes)


def _found(change: Transaction, find_nodes: FindNodes) -> Sequence[Node] | None:
    there = change.world.nodes.values()
    if there and are_virtual(there):
        return None
    found = find_nodes()
    return None if there and are_virtual(found) else found  # a real machine may have changed


def _replace_nodes(change: Transaction, nodes: Sequence[Node]) -> None:
    """Pods whose node or devices are gone must go, and wait again."""
    world = change.world
    for name in sorted(set(world.nodes) - {node.name for node in nodes}):
        change.drop_node(name)
        clear_node(change, name, f"its node {name} is gone")
    for node in nodes:
        before = world.nodes.get(node.name)
        if before is not None:
            node = replace(node, cordoned=before.cordoned, reason=before.reason, gpus=_as_ill_as(before, node))
            if why := overcommit(node, world.ledger.use_of(node.name)):
                clear_node(change, node.name, why)
        if node != before:
            change.put_node(node)


def _as_ill_as(before: Node, node: Node) -> tuple[Gpu, ...]:
    """A device that was ill when we stopped is ill until somebody who looked says otherwise."""
    ill = {gpu.id: gpu.reason for gpu in before.gpus if not gpu.healthy}
    return tuple(replace(gpu, healthy=False, reason=ill[gpu.id]) if gpu.id in ill else gpu for gpu in node.gpus)
