"""The ledger: how much of each node the pods hold. It has the last word on what fits: a wrong plan is refused here."""

from collections.abc import Iterable, KeysView, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.model.gpus.gpu import WHOLE_MILLI, Share
from kaiwo.model.node import CountedAmounts, Node
from kaiwo.model.workload import Phase, Pod

GONE = "the machine no longer shows it"


class NodeUsage:
    __slots__ = ("cpu_milli", "devices", "extended", "memory_mib", "pods")

    def __init__(self) -> None:
        self.cpu_milli = 0
        self.memory_mib = 0
        self.pods = 0
        self.devices: dict[str, tuple[int, int]] = {}  # gpu: milli, MiB
        self.extended: dict[str, int] = {}

    def copy(self) -> "NodeUsage":
        copy = NodeUsage()
        copy.cpu_milli, copy.memory_mib, copy.pods = self.cpu_milli, self.memory_mib, self.pods
        copy.devices, copy.extended = dict(self.devices), dict(self.extended)
        return copy

    def add(self, pod: Pod, sign: int = 1) -> None:
        """Add what the pod holds; with sign -1, subtract it."""
        self.cpu_milli += sign * pod.cpu_milli
        self.memory_mib += sign * pod.memory_mib
        self.pods += sign
        for share in pod.devices:
            milli, mib = self.devices.get(share.gpu, (0, 0))
            self.devices[share.gpu] = (milli + sign * share.milli, mib + sign * share.mib)
        for name, amount in pod.extended:
            self.extended[name] = self.extended.get(name, 0) + sign * amount


class Misfit(NamedTuple):
    """Why a pod cannot start on the node that a plan chose. Without a node: it could not start on any."""

    node: str
    why: str


class Ledger:
    def __init__(self) -> None:
        self._usage: dict[str, NodeUsage] = {}
        self._sharing: dict[tuple[str, str], dict[tuple[str, str], Pod]] = {}  # by node and GPU: pods that share it
        self.counted = CountedAmounts()  # by plugins, on top of what nodes offer

    def take(self, pod: Pod) -> None:
        if holds(pod):
            self._usage.setdefault(pod.node, NodeUsage()).add(pod)
            for share in pod.devices:
                if share.milli < WHOLE_MILLI:
                    self._sharing.setdefault((pod.node, share.gpu), {})[pod.workload, pod.name] = pod

    def give_back(self, pod: Pod) -> None:
        if not holds(pod):
            return
        usage = self._usage[pod.node]
        usage.add(pod, -1)
        if not usage.pods:
            del self._usage[pod.node]
        for share in pod.devices:
            if (sharing := self._sharing.get((pod.node, share.gpu))) is not None:
                sharing.pop((pod.workload, pod.name), None)
                if not sharing:
                    del self._sharing[pod.node, share.gpu]

    def pods_sharing(self, node: str, gpu: str) -> Iterable[Pod]:
        """The pods that have shares of a GPU."""
        return self._sharing.get((node, gpu), {}).values()

    def nodes_in_use(self) -> KeysView[str]:
        return self._usage.keys()

    def usage_of(self, node: str) -> NodeUsage:
        """What is held of a node; read-only."""
        return self._usage.get(node) or NodeUsage()

    def refusal(self, nodes: Mapping[str, Node], pods: Sequence[Pod]) -> str:
        """Why these pods cannot all be placed now, in one sentence; empty when they can."""
        misfit = self.first_misfit(nodes, pods)
        return misfit.why if misfit else ""

    def first_misfit(self, nodes: Mapping[str, Node], pods: Sequence[Pod]) -> Misfit | None:
        """The first of these pods that cannot be placed now with those before it."""
        trial: dict[str, NodeUsage] = {}
        for pod in pods:
            node = nodes.get(pod.node)
            if node is None:
                return Misfit(pod.node, f"node {pod.node} is gone")
            if node.cordoned or not node.ready:
                return Misfit(pod.node, f"node {pod.node} is {'cordoned' if node.cordoned else 'not ready'}")
            if self.counted:
                node = replace(node, extended=node.extended | self.counted.of(node.name))
            if pod.node not in trial:
                trial[pod.node] = self.usage_of(pod.node).copy()
            usage = trial[pod.node]
            usage.add(pod)
            taken = NodeUsage()
            taken.add(pod)
            if why := _broken_device(node, pod.devices) or _shortage(node, usage, taken):
                return Misfit(pod.node, why)
        return self._pool_misfit(pods) if self.counted.floating else None

    def _pool_misfit(self, pods: Sequence[Pod]) -> Misfit | None:
        """The first pool that these pods would exceed with all that are placed."""
        for name, most in self.counted.floating.items():
            wanted = sum(amount for pod in pods for resource, amount in pod.extended if resource == name)
            held = sum(usage.extended.get(name, 0) for usage in self._usage.values()) if wanted else 0
            if wanted and held + wanted > most:
                return Misfit("", f"of {most} {name} {held} are in use, and it needs {wanted}")
        return None


def holds(pod: Pod) -> bool:
    return pod.phase is not Phase.DONE


def overcommit(node: Node, usage: NodeUsage) -> str:
    """The first resource of which pods hold more than the node has, in one sentence; empty when there is none."""
    return _shortage(node, usage, usage)


def _shortage(node: Node, usage: NodeUsage, taken: NodeUsage) -> str:
    """The first resource in `taken` of which more is used than the node has; `usage` includes what is taken.

    A node may shrink while its pods run, and other schedulers place pods too: a resource that is already overcommitted
    does not count against a pod that takes none of it.
    """
    if taken.cpu_milli > 0 and usage.cpu_milli > node.cpu_milli:
        return f"node {node.name} has not enough CPU left"
    if taken.memory_mib > 0 and usage.memory_mib > node.memory_mib:
        return f"node {node.name} has not enough memory left"
    if usage.pods > node.pods:
        return f"node {node.name} has no pod slot left"
    gpus = {gpu.id: gpu for gpu in node.gpus}
    for name, (milli, mib) in taken.devices.items():
        if not milli and not mib:
            continue
        if name not in gpus:
            return f"node {node.name} has no device {name}"
        used_milli, used_mib = usage.devices[name]
        if (milli > 0 and used_milli > gpus[name].milli) or (mib > 0 and used_mib > gpus[name].memory_mib):
            return f"device {name} of node {node.name} has not enough left"
    for name, amount in taken.extended.items():
        if amount > 0 and usage.extended[name] > node.extended.get(name, 0):
            return f"node {node.name} has not enough {name} left"
    return ""


def devices_in_use(usage: NodeUsage) -> frozenset[str]:
    return frozenset(name for name, amounts in usage.devices.items() if any(amounts))


def keep_devices_in_use(after: Node, before: Node, usage: NodeUsage) -> Node:
    """The new node, with the devices that pods still hold although the node no longer has them."""
    shown = {gpu.id for gpu in after.gpus}
    held = [gpu for gpu in before.gpus if gpu.id not in shown and gpu.id in devices_in_use(usage)]
    kept = (replace(gpu, healthy=False, reason=GONE, next_mode="", is_changing=False) for gpu in held)
    return replace(after, gpus=(*after.gpus, *kept))


def _broken_device(node: Node, devices: Sequence[Share]) -> str:
    gpus = {gpu.id: gpu for gpu in node.gpus}
    for share in devices:
        gpu = gpus.get(share.gpu)
        if gpu is None:
            return f"node {node.name} has no device {share.gpu}"
        if not gpu.healthy:
            return f"device {share.gpu} of node {node.name} is not healthy"
    return ""
