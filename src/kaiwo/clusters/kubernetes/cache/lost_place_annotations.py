"""Read and write the kept places of lost gang members: an annotation on one of the members that are left.

In:    the places of one gang.   Out: the text of the annotation, and which pod must carry which text.
The next leader reads it, and keeps the places for the rest of their time. Where the scheduler has a key, the text is
signed together with the UID of the pod that carries it: what anybody else wrote, or moved to another pod, counts for
nothing.
Never: decides which places are kept; `lost_places` does.
"""

import base64
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.decode.quantities import is_countable
from kaiwo.clusters.kubernetes.gangs.ownership import Member
from kaiwo.manifests.kinds.annotations import OUR_PREFIX
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod

LOST_PLACES_ANNOTATION = OUR_PREFIX + "lost-places"
MAX_BYTES = 16 << 20  # of the places of one gang: what unpacks to more was not written by us
# All annotations of a pod together may have 256 KB. Longer ones are not written: see `text_of`.
MAX_TEXT = 128 << 10
_KEY_BYTES = LOST_PLACES_ANNOTATION.encode()
_SEPARATOR = ":"  # between the places and the signature; base64 has none


class LostPlace(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    uid: str  # of the lost pod
    member: Member  # the lost pod as it was, for its owners
    request: Request
    place: Pod  # what it held, with the slot that it had
    since_s: int = 0  # 0: not yet published
    is_awaited: bool = False  # not lost: `member` is a leader, and the pod comes once that one runs

    def overlaps(self, other: Pod) -> bool:
        """The other pod uses this place."""
        if other.node != self.place.node:
            return False
        own, others = ({share.gpu for share in each.devices} for each in (self.place, other))
        return not own.isdisjoint(others) if own else not others


class Seals(Protocol):
    """Proves that the scheduler wrote something."""

    def seal(self, covered: bytes) -> str:
        """A signature; empty: there is no key."""

    def is_sealed(self, signature: str, covered: bytes) -> bool:
        """False: the scheduler did not sign this."""


class PodText(NamedTuple):
    """What must be written on a pod."""

    pod: CachedPod
    text: str  # the places, without the signature; empty: remove the annotation


_decode = msgspec.json.Decoder(tuple[LostPlace, ...]).decode


def carries_places(pods: Iterable[CachedPod]) -> bool:
    """A cheap test: nearly no pod does, and it is asked often."""
    return any(_KEY_BYTES in pod.annotations_text for pod in pods)


def text_of(places: Iterable[LostPlace]) -> str:
    """Without pod affinity, which has no meaning in another process. Of very many places the oldest are written."""
    found = sorted(places, key=lambda each: (each.since_s, each.uid))
    while found:
        stored = [replace(each, place=replace(each.place, neighbours=None)) for each in found]
        text = base64.b64encode(zlib.compress(msgspec.json.encode(stored))).decode()
        if len(text) <= MAX_TEXT:
            return text
        found = found[: len(found) // 2]
    return ""


def annotation_of(text: str, pod: CachedPod, seals: Seals) -> str | None:
    """The annotation for these places on this pod; None: remove it."""
    if not text:
        return None
    signature = seals.seal(_covered(pod.uid, text))
    return f"{text}{_SEPARATOR}{signature}" if signature else text


def text_on(pod: CachedPod) -> str:
    """The places as they are written on a pod, whoever wrote them."""
    return pod.annotation(LOST_PLACES_ANNOTATION).partition(_SEPARATOR)[0]


def read_places(pod: CachedPod, workload: str, now_s: int, seals: Seals) -> tuple[LostPlace, ...]:
    """The places that a pod carries; none if they are damaged, or if the scheduler did not write them."""
    text, _, signature = pod.annotation(LOST_PLACES_ANNOTATION).partition(_SEPARATOR)
    if not text or not seals.is_sealed(signature, _covered(pod.uid, text)):
        return ()
    try:
        found = _decode(zlib.decompressobj().decompress(base64.b64decode(text, validate=True), MAX_BYTES))
    except (ValueError, zlib.error, msgspec.DecodeError):
        return ()
    # The clock of the former leader may be ahead of ours: nothing is kept for longer because of that.
    return tuple(
        replace(each, place=replace(each.place, workload=workload), since_s=min(each.since_s, now_s))
        for each in found
        if is_countable(each) and each.since_s > 0 and each.member.namespace == pod.namespace
    )


def pods_to_write(text: str, carriers: Sequence[CachedPod], current: Sequence[str]) -> list[PodText]:
    """What must be written on which of these pods. `current`: the text on each of them.

    The pod that carries it already keeps it; else a bound pod does, since one that waits may be made anew.
    """
    order = sorted(range(len(carriers)), key=lambda at: (not current[at], not carriers[at].node, at))
    wanted = {order[0]: text} if order else {}
    return [PodText(pod, wanted.get(at, "")) for at, pod in enumerate(carriers) if wanted.get(at, "") != current[at]]


def _covered(uid: str, text: str) -> bytes:
    """Unlike the bytes of any grant: see `model.grant_signature`."""
    return f"kaiwo-lost-places-v1\n{uid}\n{text}".encode()
