"""Which devices a pod holds: written on the pod in the same step as its node.

In:    shares, pods.   Out: an annotation, and back.
A pod that somebody else placed has no such annotation: the kubelet chose its devices and tells nobody. For our books it
is dealt the least used ones, so that as many are counted as it holds.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kaiwo.clusters.kubernetes.seen import Key, SeenPod
from kaiwo.clusters.ledger import Ledger, Use
from kaiwo.manifests.annotations import OURS
from kaiwo.model.gpu import WHOLE_MILLI, Gpu, Share
from kaiwo.model.node import Node
from kaiwo.model.plan import Start

GRANT_NOTE = OURS + "granted-devices"
FILLS_NOTE = OURS + "fills-until"  # on a pod that fills a gap: see `Start.until_s`
Shares = tuple[Share, ...]
_decode = msgspec.json.Decoder(Shares).decode
_FILLS_MARK = FILLS_NOTE.encode()


class Grants:
    """The devices of every pod."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._dealt: dict[str, tuple[str, Shares]] = {}  # by UID: its node, and what it was dealt there
        self._early: dict[str, set[Key]] = {}  # by node: pods that were seen before it

    def of(self, pod: SeenPod, nodes: Mapping[str, Node], is_ours: bool) -> Shares:
        """What a bound pod holds."""
        if is_ours and (granted := read_grant(pod.notes)) is not None:
            return granted
        count = pod.ask.gpus_by_resource
        if not count:
            return ()
        node = nodes.get(pod.node)
        if node is None:
            self._early.setdefault(pod.node, set()).add(pod.key)
            return ()
        dealt = self._dealt.get(pod.uid)
        if dealt is None or dealt[0] != pod.node:
            shares = deal(count, node.gpus, self._ledger.use_of(pod.node))
            dealt = self._dealt[pod.uid] = (pod.node, shares)
        return dealt[1]

    def waited_for(self, node: str) -> set[Key]:
        """The node is there now: whose devices can be dealt at last."""
        return self._early.pop(node, set())

    def forget(self, uid: str) -> None:
        self._dealt.pop(uid, None)


def write_grant(shares: Sequence[Share]) -> str:
    """`[{"gpu":"gpu-0","milli":1000,"mib":196608}]`."""
    return msgspec.json.encode(shares).decode()


def read_grant(notes: Mapping[str, str]) -> Shares | None:
    """None: there is none, or somebody spoilt it."""
    text = notes.get(GRANT_NOTE)
    if text is None:
        return None
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return None


def notes_of(start: Start) -> dict[str, str]:
    """What a Binding writes on its pod."""
    notes = {GRANT_NOTE: write_grant(start.devices)}
    return notes | {FILLS_NOTE: str(start.until_s)} if start.until_s else notes


def fills_until_s(pod: SeenPod) -> int:
    """Until when nobody touches a pod that fills a gap; 0: it fills none."""
    text = pod.notes.get(FILLS_NOTE, "") if _FILLS_MARK in pod.notes_text else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else 0


def deal(count: int, gpus: Iterable[Gpu], use: Use) -> Shares:
    """The least used devices, whole. More than there are cannot be dealt."""
    order = sorted((use.devices.get(gpu.id, (0, 0)), place, gpu) for place, gpu in enumerate(gpus))
    return tuple(Share(gpu.id, WHOLE_MILLI, gpu.memory_mib) for _, _, gpu in order[:count])
