"""Which devices a pod holds: written on the pod in the same step as its node.

In:    shares, pods.   Out: an annotation, and back.
A pod that somebody else placed has no such annotation: the kubelet chose its devices and tells nobody. For our books it
is dealt the least used ones, so that as many are counted as it holds. So is a pod whose annotation names devices that
its node does not have, where nobody but the kubelet counts them: the node shrank, or somebody wrote nonsense.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.decode.quantities import is_countable
from kaiwo.clusters.ledger import Ledger, Use
from kaiwo.manifests.kinds.annotations import OUR_PREFIX
from kaiwo.model.gpu import WHOLE_MILLI, Gpu, Share, are_mixed, vendor_of
from kaiwo.model.node import Node
from kaiwo.model.plan import Start

GRANT_ANNOTATION = OUR_PREFIX + "granted-devices"
FILLS_ANNOTATION = OUR_PREFIX + "fills-until"  # on a pod that fills a gap: see `Start.until_s`
Shares = tuple[Share, ...]
_decode = msgspec.json.Decoder(Shares).decode
_FILLS_MARK = FILLS_ANNOTATION.encode()


class AssumedDevices(NamedTuple):
    """What our books say of a pod whose devices nobody tells."""

    key: Key
    node: str
    shares: Shares


class DeviceGrants:
    """The devices of every pod."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._dealt: dict[str, AssumedDevices] = {}  # by UID
        self._on: dict[str, set[Key]] = {}  # by node: pods to look at again when it has other devices

    def of(self, pod: CachedPod, node: Node | None, is_ours: bool, is_listed: bool) -> Shares:
        """What a bound pod holds. `is_listed`: an agent tells which devices the node has."""
        granted = read_grant(pod.annotations) if is_ours else None
        count = pod.spec.gpus_by_resource
        if not granted and not count:
            return ()
        self._on.setdefault(pod.node, set()).add(pod.key)
        there = {gpu.id for gpu in node.gpus} if node is not None else set()
        is_told = granted is not None and (is_listed or all(share.gpu in there for share in granted))
        if node is None or is_told or not count:
            self._dealt.pop(pod.uid, None)
            return granted or ()
        before = self._dealt.get(pod.uid)
        known = before.shares if before is not None and before.node == pod.node else granted or ()
        held = _held(pod.spec.by_vendor, node, known, self._ledger.use_of(pod.node))
        self._dealt[pod.uid] = AssumedDevices(pod.key, pod.node, held)
        # Where the node has fewer than that, what was granted counts on, for its queue.
        gone = [share for share in granted or () if share.gpu not in there]
        return (held + tuple(gone))[:count]

    def changed(self, node: str) -> set[Key]:
        """The node has other devices now: whose must be looked at again."""
        return self._on.pop(node, set())

    def clashes(self, nodes: Mapping[str, Node], busy: Collection[str]) -> list[Key]:
        """Whose deal is on a device that somebody else turned out to hold, while another one is free.

        `busy`: nodes on which somebody's devices changed. At a start pods come in any order, dealt ones first.
        """
        found: list[Key] = []
        used = {name: dict(self._ledger.use_of(name).devices) for name in busy if name in nodes}
        for uid, (key, name, shares) in list(self._dealt.items()):
            clash = _clash(shares, nodes[name], used[name]) if name in used else None
            if clash is not None:
                milli, mib = used[name][clash.gpu]
                used[name][clash.gpu] = milli - clash.milli, mib - clash.mib
                self._dealt[uid] = AssumedDevices(key, name, tuple(share for share in shares if share is not clash))
                found.append(key)
        return found

    def forget(self, pod: CachedPod) -> None:
        """It is gone."""
        self._dealt.pop(pod.uid, None)
        for node in (pod.node, pod.nominated_node):
            if node in self._on:
                self._on[node].discard(pod.key)


def write_grant(shares: Sequence[Share]) -> str:
    """`[{"gpu":"gpu-0","milli":1000,"mib":196608}]`."""
    return msgspec.json.encode(shares).decode()


def read_grant(notes: Mapping[str, str]) -> Shares | None:
    """None: there is none, or somebody spoilt it."""
    text = notes.get(GRANT_ANNOTATION)
    if text is None:
        return None
    try:
        shares = _decode(text)
    except msgspec.DecodeError:
        return None
    return shares if is_countable(shares) else None


def grant_annotations(start: Start) -> dict[str, str]:
    """What a Binding writes on its pod."""
    notes = {GRANT_ANNOTATION: write_grant(start.devices)}
    return notes | {FILLS_ANNOTATION: str(start.until_s)} if start.until_s else notes


def fills_until_s(pod: CachedPod) -> int:
    """Until when nobody touches a pod that fills a gap; 0: it fills none."""
    text = pod.annotations.get(FILLS_ANNOTATION, "") if _FILLS_MARK in pod.annotations_text else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else 0


def least_used(count: int, gpus: Iterable[Gpu], use: Use) -> Shares:
    """The least used devices, whole. More than there are cannot be dealt."""
    order = sorted((use.devices.get(gpu.id, (0, 0)), place, gpu) for place, gpu in enumerate(gpus))
    return tuple(Share(gpu.id, WHOLE_MILLI, gpu.memory_mib) for _, _, gpu in order[:count])


def _held(by_vendor: Iterable[tuple[str, int]], node: Node, known: Shares, use: Use) -> Shares:
    """Of each vendor as many as the kubelet gave out: those that it is known to have, then the least used."""
    found: Shares = ()
    is_mixed = are_mixed(node.gpus)
    for vendor, count in by_vendor:
        mine = [gpu for gpu in node.gpus if not is_mixed or vendor_of(gpu) == vendor]
        names = {gpu.id for gpu in mine}
        kept = tuple(share for share in known if share.gpu in names)[:count]
        found += kept + least_used(count - len(kept), _others(mine, found + kept), use)
    return found


def _others(gpus: Iterable[Gpu], kept: Shares) -> list[Gpu]:
    own = {share.gpu for share in kept}
    return [gpu for gpu in gpus if gpu.id not in own]


def _clash(shares: Shares, node: Node, used: Mapping[str, tuple[int, int]]) -> Share | None:
    sizes = {gpu.id: gpu.milli for gpu in node.gpus}
    if all(any(used.get(gpu, (0, 0))) for gpu in sizes):
        return None  # there is nothing else to deal
    return next((each for each in shares if used.get(each.gpu, (0, 0))[0] > sizes.get(each.gpu, 0)), None)
