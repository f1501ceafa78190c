"""Continue from the stored state: this machine's nodes, the runs that were found in their folders, and the clock.

What a crash or an older Kaiwo left is brought up to date in one transaction, before anything is scheduled.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.clusters.embedded.node_actions import evict_all_pods
from kaiwo.clusters.embedded.state import EmbeddedState, Transaction
from kaiwo.clusters.ledger import overcommit
from kaiwo.clusters.local.adopt_runs import Adopted, adopt, find_unknown_runs
from kaiwo.clusters.local.clock import SystemTime
from kaiwo.clusters.local.cluster_file import VIRTUAL_LABEL
from kaiwo.clusters.local.home_folder import Home
from kaiwo.clusters.local.sqlite_store import Store
from kaiwo.clusters.queue_access import first_names
from kaiwo.model.gpus.gpu import Gpu, with_health_of
from kaiwo.model.node import Node
from kaiwo.model.queue import DEFAULT_QUEUE, UNBOUNDED, Queue, implicit_default_queue
from kaiwo.model.request import with_rounded_charges
from kaiwo.model.workload import request_of

_STORED_DEFAULT_QUEUE = Queue(DEFAULT_QUEUE, gpu=UNBOUNDED)  # as 0.1.0 stored it when nobody had defined it
NodeFinder = Callable[[], Sequence[Node]]


class Continued(NamedTuple):
    clock_ms: str  # the time at which the clock goes on; empty in a new state
    notices: list[str]  # what people should know about this start


def continue_state(
    store: Store,
    state: EmbeddedState,
    home: Home,
    nodes: Sequence[Node] | None,
    find_nodes: NodeFinder | None,
    now: SystemTime,
) -> Continued:
    """`nodes`: exactly these; None: those that the cluster had before, or the found ones."""
    clock_ms = _stored_ms(store, state)
    with_ended = store.is_new or bool(store.set_aside or store.meta("restored"))
    found = find_unknown_runs(home.runs, state, with_ended)
    with state.transaction(int(clock_ms or now.wall_ms) // 1000) as transaction:
        _set_up_nodes(transaction, nodes, find_nodes)
        adopted = adopt(transaction, found)
        _round_up_charges(transaction)
        store.save(transaction)
    if with_ended:
        store.set_meta("restored", "")
    return Continued(clock_ms, _notices(store, home, adopted))


def are_virtual(nodes: Iterable[Node]) -> bool:
    return all(VIRTUAL_LABEL in node.labels for node in nodes)


def _set_up_nodes(transaction: Transaction, nodes: Sequence[Node] | None, find_nodes: NodeFinder | None) -> None:
    """Create the default queue and the nodes. A real machine stays a node even when its driver does not answer."""
    queues = transaction.state.queues
    if DEFAULT_QUEUE not in queues or queues[DEFAULT_QUEUE] == _STORED_DEFAULT_QUEUE:
        transaction.put_queue(implicit_default_queue(queues))
    existing = transaction.state.nodes.values()
    if nodes is None and find_nodes is not None and not (existing and are_virtual(existing)):
        found = find_nodes()
        nodes = None if existing and are_virtual(found) else found  # a real machine may have changed
    if nodes is not None:
        _replace_nodes(transaction, nodes)


def _replace_nodes(transaction: Transaction, nodes: Sequence[Node]) -> None:
    """Pods whose node or devices are gone are evicted, and wait again. A node that was cordoned or had failed stays
    so, and what is remembered of its failures does, too."""
    state = transaction.state
    for name in sorted(set(state.nodes) - {node.name for node in nodes}):
        transaction.drop_node(name)
        evict_all_pods(transaction, name, f"its node {name} is gone")
    for node in nodes:
        before = state.nodes.get(node.name)
        if before is not None:
            node = replace(
                node,
                ready=node.ready and not before.failure.since_s,
                cordoned=before.cordoned,
                reason=before.reason,
                failure=before.failure,
                gpus=_keep_unhealthy(before, node),
            )
            if why := overcommit(node, state.ledger.usage_of(node.name)):
                evict_all_pods(transaction, node.name, why)
        if node != before:
            transaction.put_node(node)


def _round_up_charges(transaction: Transaction) -> None:
    """Pods that 0.1.0 started do not say yet what their queue pays for memory."""
    state = transaction.state
    for placement in list(state.pods.values()):
        pod = placement.pod
        tracked, node = state.workloads.get(pod.workload), state.nodes.get(pod.node)
        if tracked is None or node is None:
            continue
        devices = with_rounded_charges(request_of(tracked.workload, pod.name), pod.devices, node.gpus)
        if devices != pod.devices:
            transaction.put_pod(replace(placement, pod=replace(pod, devices=devices)))


def _keep_unhealthy(before: Node, node: Node) -> tuple[Gpu, ...]:
    """A device that was unhealthy before the restart stays unhealthy until its agent reports otherwise."""
    unhealthy = {gpu.id: gpu for gpu in before.gpus if not gpu.healthy}
    return tuple(with_health_of(unhealthy[gpu.id], gpu) if gpu.id in unhealthy else gpu for gpu in node.gpus)


def _stored_ms(store: Store, state: EmbeddedState) -> str:
    """If the stored time is damaged, the last time of any record."""
    stored = store.meta("clock_ms")
    if not stored or stored.isdecimal():
        return stored
    times = [max(each.workload.submitted_s, each.started_s, each.ended_s) for each in state.records.values()]
    return str(1000 * max(times)) if times else ""


def _notices(store: Store, home: Home, adopted: Adopted) -> list[str]:
    notices = []
    if rows := store.set_aside:
        names = first_names(rows)
        notices.append(f"{len(rows)} damaged rows of {home.state} were set aside in its table set_aside: {names}")
    if adopted.running:
        names = first_names(adopted.running)
        notices.append(f"{len(adopted.running)} running workloads were adopted from their folders: {names}")
    if adopted.ended:
        names = first_names(adopted.ended)
        notices.append(f"{len(adopted.ended)} ended workloads were read back from their folders: {names}")
    return notices
