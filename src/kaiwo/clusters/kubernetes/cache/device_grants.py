"""Read and write the annotation with the devices that were granted to a pod, and assume devices where there is none.

The annotation is written in the Binding, together with the node.
A pod that another scheduler placed has no such annotation: the kubelet chose its devices, and we do not know which. The
least used ones are assumed, so that the number is right. The same is done for a pod whose annotation names devices that
its node does not have, unless an agent reports the node's devices: the node shrank, or the annotation is wrong.
Where grants are signed, one without a valid signature counts as none. Where the node's agent says which pods hold
devices, a pod without a grant holds what the agent says and nothing else.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.decode.quantities import is_countable
from kaiwo.clusters.ledger import Ledger, NodeUsage
from kaiwo.manifests.kinds.annotations import OUR_PREFIX
from kaiwo.model.gpus.gpu import WHOLE_MILLI, Gpu, Share, are_mixed, vendor_of
from kaiwo.model.grant_signature import SIGNATURE_ANNOTATION
from kaiwo.model.node import Node
from kaiwo.model.plan import Start
from kaiwo.model.request import with_rounded_charges

GRANT_ANNOTATION = OUR_PREFIX + "granted-devices"
FILLS_ANNOTATION = OUR_PREFIX + "fills-until"  # on a backfilled pod: see `Start.until_s`
Shares = tuple[Share, ...]
_GRANT_BYTES = GRANT_ANNOTATION.encode()
_decode = msgspec.json.Decoder(Shares).decode


class GrantSignatures(Protocol):
    def sign(self, uid: str, node: str, devices: str) -> str:
        """The annotation that goes beside this grant; empty: grants are not signed."""

    def is_honoured(self, pod: CachedPod, devices: str) -> bool:
        """False: the scheduler did not sign this grant."""

    def seal(self, covered: bytes) -> str:
        """The signature of anything else that the scheduler writes; empty: nothing is signed."""

    def is_sealed(self, signature: str, covered: bytes) -> bool:
        """False: the scheduler did not sign this."""


class UnsignedGrants:
    """Where there are no keys, whatever is written on a pod of ours counts."""

    def sign(self, uid: str, node: str, devices: str) -> str:
        return ""

    def is_honoured(self, pod: CachedPod, devices: str) -> bool:
        return True

    def seal(self, covered: bytes) -> str:
        return ""

    def is_sealed(self, signature: str, covered: bytes) -> bool:
        return True


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
        self.signatures: GrantSignatures = UnsignedGrants()
        self._holders: dict[str, Mapping[str, Shares]] = {}  # by node: what its agent gave to pods, by UID

    def of(self, pod: CachedPod, node: Node | None, is_granted: bool, has_agent: bool) -> Shares:
        """What a bound pod holds. `has_agent`: an agent reports which devices the node has."""
        granted = self._granted(pod) if is_granted else None
        count = pod.spec.gpus_by_resource
        holders = self._holders.get(pod.node)
        if not granted and not count and _GRANT_BYTES not in pod.annotations_text:
            return ()
        self._on.setdefault(pod.node, set()).add(pod.key)
        if not granted and holders is not None:
            self._assumed.pop(pod.uid, None)
            return holders.get(pod.uid, ())
        there = {gpu.id for gpu in node.gpus} if node is not None else set()
        is_known = granted is not None and (has_agent or all(share.gpu in there for share in granted))
        if node is None or is_known or not count:
            self._assumed.pop(pod.uid, None)
            return with_rounded_charges(pod.spec.request, granted or (), node.gpus if node is not None else ())
        before = self._assumed.get(pod.uid)
        known = before.shares if before is not None and before.node == pod.node else granted or ()
        held = _assume_shares(pod.spec.by_vendor, node, known, self._ledger.usage_of(pod.node))
        self._assumed[pod.uid] = AssumedDevices(pod.key, pod.node, held)
        # Where the node has fewer, what was granted still counts, for its queue.
        missing = [share for share in granted or () if share.gpu not in there]
        return (held + tuple(missing))[:count]

    def _granted(self, pod: CachedPod) -> Shares | None:
        annotations = pod.annotations
        granted = read_grant(annotations)
        return granted if granted and self.signatures.is_honoured(pod, annotations[GRANT_ANNOTATION]) else None

    def set_holders(self, node: str, holders: Mapping[str, Shares] | None) -> set[Key]:
        """What the agent of a node says that it gave to pods. Returns the pods to check again."""
        if self._holders.get(node) == holders:
            return set()
        if holders is None:
            del self._holders[node]
        else:
            self._holders[node] = holders
        return set(self._on.get(node, ()))

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
    return shares if is_countable(shares) and all(_is_possible(share) for share in shares) else None


def _is_possible(share: Share) -> bool:
    return 0 <= share.round_milli <= 1 and 0 <= share.threads_milli <= WHOLE_MILLI


def grant_annotations(signatures: GrantSignatures, uid: str, node: str, devices: Sequence[Share]) -> dict[str, str]:
    """The grant of one pod with its signature. There is nothing to sign where there are no devices."""
    text = write_grant(devices)
    signature = signatures.sign(uid, node, text) if devices else ""
    return {GRANT_ANNOTATION: text} | ({SIGNATURE_ANNOTATION: signature} if signature else {})


def start_annotations(signatures: GrantSignatures, uid: str, start: Start) -> dict[str, str]:
    granted = grant_annotations(signatures, uid, start.node, start.devices)
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
