"""What people and node agents do to nodes and devices of an embedded cluster: cordon, drain, add, remove, change."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from kaiwo.clusters.embedded import transitions
from kaiwo.clusters.embedded.admission import check_node, find_node
from kaiwo.clusters.embedded.state import Transaction, TransactionRunner
from kaiwo.clusters.ledger import devices_in_use, keep_devices_in_use
from kaiwo.clusters.protocol import NodeFault, PodRun
from kaiwo.model.errors import NotFoundError, RefusedError
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.node import CountedAmounts, Node
from kaiwo.model.recovery import BadNode, after_failure, after_return, remember_bad


class EmbeddedNodes:
    """Implements NodeControl; virtual nodes can also be added and removed."""

    def __init__(self, runner: TransactionRunner) -> None:
        self._runner = runner

    async def cordon(self, name: str, cordoned: bool, reason: str = "", who: str = "") -> None:
        await self._runner.transact(lambda transaction: _cordon(transaction, name, cordoned, reason))

    async def drain(self, name: str, reason: str = "", who: str = "") -> tuple[str, ...]:
        def act(transaction: Transaction) -> tuple[str, ...]:
            _cordon(transaction, name, True, reason or "drained")
            by = f" by {who}" if who else ""
            return evict_all_pods(transaction, name, f"its node {name} is drained{by}")

        evicted = await self._runner.transact(act)
        return evicted

    async def fail(self, name: str, fault: NodeFault, who: str = "") -> None:
        def act(transaction: Transaction) -> None:
            node = find_node(transaction.state, name)
            after = _failed(node, fault, max(1, transaction.now_s))
            if after != node:
                transaction.put_node(after)

        await self._runner.transact(act)

    async def restore(self, name: str, who: str = "") -> None:
        def act(transaction: Transaction) -> None:
            node = find_node(transaction.state, name)
            after = _restored(node, transaction.now_s)
            if after != node:
                transaction.put_node(after)

        await self._runner.transact(act)

    async def put(self, node: Node, who: str = "") -> None:
        def act(transaction: Transaction) -> None:
            check_node(transaction.state, node)
            if transaction.state.nodes.get(node.name) != node:
                transaction.put_node(node)

        await self._runner.transact(act)

    async def remove(self, name: str, who: str = "") -> None:
        """Remove a virtual node. Its pods are lost, and their workloads wait again."""

        def act(transaction: Transaction) -> None:
            find_node(transaction.state, name)
            transaction.drop_node(name)
            evict_all_pods(transaction, name, f"its node {name} is gone")

        await self._runner.transact(act)


class EmbeddedDevices:
    """Implements DeviceControl. `grade_of`: how well a run's GPU share is isolated, where that is known."""

    lists_devices = False

    def __init__(self, runner: TransactionRunner) -> None:
        self._runner = runner
        self.grade_of: Callable[[str], str] = lambda run_id: ""

    async def change_devices(self, name: str, change: Callable[[Node], Node] | None) -> None:
        def act(transaction: Transaction) -> None:
            node = find_node(transaction.state, name)
            usage = transaction.state.ledger.usage_of(name)
            after = node if change is None else keep_devices_in_use(change(node), node, usage)
            if after != node:
                transaction.put_node(after)

        await self._runner.transact(act)

    def devices_in_use(self, name: str) -> frozenset[str]:
        return devices_in_use(self._runner.state.ledger.usage_of(name))

    def run_of(self, workload: str, pod: str) -> PodRun:
        placement = self._runner.state.pods.get((workload, pod))
        return PodRun() if placement is None else PodRun(placement.run.id, self.grade_of(placement.run.id))

    async def set_counted(self, amounts: CountedAmounts) -> None:
        self._runner.state.ledger.counted = amounts

    async def set_holders(self, node: str, holders: Mapping[str, tuple[Share, ...]] | None) -> None:
        """This cluster assigns devices itself, and knows who holds them."""

    async def correct_devices(self, node: str, pod: tuple[str, str], uid: str, devices: tuple[Share, ...]) -> None:
        raise RefusedError(f"{'/'.join(pod)} is no pod of a kubelet: this cluster assigns its devices itself")


def evict_all_pods(transaction: Transaction, node: str, message: str) -> tuple[str, ...]:
    """Stop every pod on a node. Returns the evicted workloads."""
    pods_of: dict[str, list[str]] = {}
    for workload, pod in transaction.state.pods_on.get(node, ()):
        pods_of.setdefault(workload, []).append(pod)
    return tuple(name for name, pods in pods_of.items() if transitions.evict(transaction, name, pods, message))


def remember_bad_nodes(transaction: Transaction, bad_nodes: Sequence[BadNode]) -> None:
    """Workloads that lost pods on these nodes do not come back to them."""
    for bad in bad_nodes:
        node = transaction.state.nodes.get(bad.node)
        if node is not None:
            transaction.put_node(replace(node, failure=remember_bad(node.failure, [bad.workload])))


def _failed(node: Node, fault: NodeFault, now_s: int) -> Node:
    reason = fault.reason or "it failed"
    if not fault.gpu:
        now = after_failure(node.failure, now_s, is_fenced=not fault.is_unreachable)
        return replace(node, ready=False, reason=reason, failure=now)
    if all(gpu.id != fault.gpu for gpu in node.gpus):
        raise NotFoundError(f"node {node.name} has no GPU {fault.gpu}; kaiwo gpus --node {node.name} lists them")
    broken = {"healthy": False, "reason": reason, "failed_s": now_s}
    return replace(node, gpus=tuple(replace(gpu, **broken) if gpu.id == fault.gpu else gpu for gpu in node.gpus))


def _restored(node: Node, now_s: int) -> Node:
    works = {"healthy": True, "reason": "", "failed_s": 0}
    gpus = tuple(replace(gpu, **works) if gpu.failed_s else gpu for gpu in node.gpus)
    node = replace(node, gpus=gpus)
    if not node.failure.since_s:
        return node
    return replace(node, ready=True, reason="", failure=after_return(node.failure, now_s))


def _cordon(transaction: Transaction, name: str, cordoned: bool, reason: str) -> None:
    node = find_node(transaction.state, name)
    after = replace(node, cordoned=cordoned, reason=reason if cordoned else "")
    if after != node:
        transaction.put_node(after)
