"""Read and write the annotation with the devices that were granted to a pod, and assume devices where there is none.

The annotation is written in the Binding, together with the node.
A pod that another scheduler placed has no such annotation: the kubelet chose its devices, and we do not know which. The
least used ones are assumed, so that the number is right. The same is done for a pod whose annotation names devices that
its node does not have, unless an agent reports the node's devices: the node shrank, or the annotation is wrong.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.decode.quantities import is_countable
from kaiwo.clusters.ledger import Ledger, NodeUsage
from kaiwo.manifests.kinds.annotations import OUR_PREFIX
from kaiwo.model.gpu import WHOLE_MILLI, Gpu, Share, are_mixed, vendor_of
from kaiwo.model.node import Node
from kaiwo.model.plan import Start

GRANT_ANNOTATION = OUR_PREFIX + "granted-devices"
FILLS_ANNOTATION = OUR_PREFIX + "fills-until"  # on a backfilled pod: see `Start.until_s`
Shares = tuple[Share, ...]
_decode = msgspec.json.Decoder(Shares).decode


class AssumedDevices(NamedTuple):
    """The devices that are assumed for a pod whose real ones are unknown."""

    key: Key
    node: str
    shares: Shares


class DeviceGrants:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._assumed: dict[str, AssumedDevices] = {}  # by UID
        self._on: dict[str, set[Key]] = {}  # by node: pods to check again when it has other devices

    def of(self, pod: CachedPod, node: Node | None, is_granted: bool, has_agent: bool) -> Shares:
        """What a bound pod holds. `has_agent`: an agent reports which devices the node has."""
        granted = read_grant(pod.annotations) if is_granted else None
        count = pod.spec.gpus_by_resource
        if not granted and not count:
            return ()
        self._on.setdefault(pod.node, set()).add(pod.key)
        there = {gpu.id for gpu in node.gpus} if node is not None else set()
        is_known = granted is not None and (has_agent or all(share.gpu in there for share in granted))
        if node is None or is_known or not count:
            self._assumed.pop(pod.uid, None)
            return granted or ()
        before = self._assumed.get(pod.uid)
        known = before.shares if before is not None and before.node == pod.node else granted or ()
        held = _assume_shares(pod.spec.by_vendor, node, known, self._ledger.usage_of(pod.node))
        self._assumed[pod.uid] = AssumedDevices(pod.key, pod.node, held)
        # Where the node has fewer, what was granted still counts, for its queue.
        missing = [share for share in granted or () if share.gpu not in there]
        return (held + tuple(missing))[:count]

    def take_pods_on(self, node: str) -> set[Key]:
        """The node has other devices now. Returns the pods to check again."""
        return self._on.pop(node, set())

    def conflicts(self, nodes: Mapping[str, Node], changed: Collection[str]) -> list[Key]:
        """Pods whose assumed device turned out to be held by another pod, while another device is free.

        `changed`: nodes on which the devices of a pod changed. At start-up pods come in any order.
        """
        found: list[Key] = []
        used = {name: dict(self._ledger.usage_of(name).devices) for name in changed if name in nodes}
        for uid, (key, name, shares) in list(self._assumed.items()):
            conflict = _conflict(shares, nodes[name], used[name]) if name in used else None
            if conflict is not None:
                milli, mib = used[name][conflict.gpu]
                used[name][conflict.gpu] = milli - conflict.milli, mib - conflict.mib
                kept = tuple(share for share in shares if share is not conflict)
                self._assumed[uid] = AssumedDevices(key, name, kept)
                found.append(key)
        return found

    def delete_pod(self, pod: CachedPod) -> None:
        self._assumed.pop(pod.uid, None)
        for node in (pod.node, pod.nominated_node):
            if node in self._on:
                self._on[node].discard(pod.key)


def write_grant(shares: Sequence[Share]) -> str:
    """`[{"gpu":"gpu-0","milli":1000,"mib":196608}]`."""
    return msgspec.json.encode(shares).decode()


def read_grant(annotations: Mapping[str, str]) -> Shares | None:
    """None: there is none, or it cannot be read."""
    text = annotations.get(GRANT_ANNOTATION)
    if text is None:
        return None
    try:
        shares = _decode(text)
    except msgspec.DecodeError:
        return None
    return shares if is_countable(shares) else None


def grant_annotations(start: Start) -> dict[str, str]:
    granted = {GRANT_ANNOTATION: write_grant(start.devices)}
    return granted | {FILLS_ANNOTATION: str(start.until_s)} if start.until_s else granted


def fills_until_s(pod: CachedPod) -> int:
    """Until when a backfilled pod is not preempted; 0: it is not backfilled."""
    text = pod.annotation(FILLS_ANNOTATION)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else 0


def least_used(count: int, gpus: Iterable[Gpu], usage: NodeUsage) -> Shares:
    """The `count` least used devices, whole, or fewer if there are not enough."""
    order = sorted((usage.devices.get(gpu.id, (0, 0)), index, gpu) for index, gpu in enumerate(gpus))
    return tuple(Share(gpu.id, WHOLE_MILLI, gpu.memory_mib) for _, _, gpu in order[:count])


def _assume_shares(by_vendor: Iterable[tuple[str, int]], node: Node, known: Shares, usage: NodeUsage) -> Shares:
    """As many devices of each vendor as the kubelet assigned: those in `known` first, then the least used."""
    found: Shares = ()
    is_mixed = are_mixed(node.gpus)
    for vendor, count in by_vendor:
        mine = [gpu for gpu in node.gpus if not is_mixed or vendor_of(gpu) == vendor]
        names = {gpu.id for gpu in mine}
        kept = tuple(share for share in known if share.gpu in names)[:count]
        own = {share.gpu for share in found + kept}
        found += kept + least_used(count - len(kept), (gpu for gpu in mine if gpu.id not in own), usage)
    return found


def _conflict(shares: Shares, node: Node, used: Mapping[str, tuple[int, int]]) -> Share | None:
    sizes = {gpu.id: gpu.milli for gpu in node.gpus}
    if all(any(used.get(gpu, (0, 0))) for gpu in sizes):
        return None  # no other device is free
    return next((each for each in shares if used.get(each.gpu, (0, 0))[0] > sizes.get(each.gpu, 0)), None)
