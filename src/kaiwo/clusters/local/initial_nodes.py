"""The nodes and the queue that a local cluster starts with.

What people did to a node stays, and a real machine stays even when its driver does not answer.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from kaiwo.clusters.embedded.node_actions import evict_all_pods
from kaiwo.clusters.embedded.state import Transaction
from kaiwo.clusters.ledger import overcommit
from kaiwo.clusters.local.cluster_file import VIRTUAL_LABEL
from kaiwo.model.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.queue import DEFAULT_QUEUE, UNBOUNDED_DEFAULT_QUEUE

FindNodes = Callable[[], Sequence[Node]]


def seed(transaction: Transaction, nodes: Sequence[Node] | None, find_nodes: FindNodes | None) -> None:
    """`nodes`: exactly these; None: the existing ones, or those that `find_nodes` finds when there are none."""
    if DEFAULT_QUEUE not in transaction.state.queues:
        transaction.put_queue(UNBOUNDED_DEFAULT_QUEUE)
    if nodes is None and find_nodes is not None:
        nodes = _found(transaction, find_nodes)
    if nodes is not None:
        _replace_nodes(transaction, nodes)


def are_virtual(nodes: Iterable[Node]) -> bool:
    return all(VIRTUAL_LABEL in node.labels for node in nodes)


def _found(transaction: Transaction, find_nodes: FindNodes) -> Sequence[Node] | None:
    there = transaction.state.nodes.values()
    if there and are_virtual(there):
        return None
    found = find_nodes()
    return None if there and are_virtual(found) else found  # a real machine may have changed


def _replace_nodes(transaction: Transaction, nodes: Sequence[Node]) -> None:
    """Pods whose node or devices are gone are evicted, and wait again."""
    state = transaction.state
    for name in sorted(set(state.nodes) - {node.name for node in nodes}):
        transaction.drop_node(name)
        evict_all_pods(transaction, name, f"its node {name} is gone")
    for node in nodes:
        before = state.nodes.get(node.name)
        if before is not None:
            node = replace(node, cordoned=before.cordoned, reason=before.reason, gpus=_keep_unhealthy(before, node))
            if why := overcommit(node, state.ledger.usage_of(node.name)):
                evict_all_pods(transaction, node.name, why)
        if node != before:
            transaction.put_node(node)


def _keep_unhealthy(before: Node, node: Node) -> tuple[Gpu, ...]:
    """A device that was unhealthy before the restart stays so until its agent says otherwise."""
    ill = {gpu.id: gpu.reason for gpu in before.gpus if not gpu.healthy}
    return tuple(replace(gpu, healthy=False, reason=ill[gpu.id]) if gpu.id in ill else gpu for gpu in node.gpus)
