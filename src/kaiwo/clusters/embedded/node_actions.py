"""What people and node agents do to nodes and devices of an embedded cluster: cordon, drain, add, remove, change."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from kaiwo.clusters.embedded import transitions
from kaiwo.clusters.embedded.admission import check_node, find_node
from kaiwo.clusters.embedded.state import Transaction, TransactionRunner
from kaiwo.clusters.ledger import devices_in_use, keep_devices_in_use
from kaiwo.clusters.protocol import PodRun
from kaiwo.model.errors import RefusedError
from kaiwo.model.gpu import Share
from kaiwo.model.node import Node


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


def _cordon(transaction: Transaction, name: str, cordoned: bool, reason: str) -> None:
    node = find_node(transaction.state, name)
    after = replace(node, cordoned=cordoned, reason=reason if cordoned else "")
    if after != node:
        transaction.put_node(after)
