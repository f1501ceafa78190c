"""Space that is kept for waiting pods: written on the pod itself, so that another leader keeps it too.

In:    nominations, pods.   Out: an annotation, and back; what we want it to be counts until the server has it.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.decode.quantities import is_countable
from kaiwo.manifests.kinds.annotations import OUR_PREFIX
from kaiwo.model.plan import Nomination

NOMINATION_ANNOTATION = OUR_PREFIX + "kept-space"
_MARK = NOMINATION_ANNOTATION.encode()
_decode = msgspec.json.Decoder(Nomination).decode


class NominationAnnotations:
    """The space of every waiting pod, by UID."""

    def __init__(self) -> None:
        self.wanted: dict[str, str] = {}  # the annotation as it shall be; empty: none
        self.being_written: set[str] = set()  # what a watch says meanwhile may be older than what is on its way
        self._expired: dict[str, CachedPod] = {}  # an annotation that means nothing any more and is still there

    def of(self, workload: str, slot: str, pod: CachedPod) -> Nomination | None:
        """What is kept for a pod that waits in this place."""
        text = self.wanted.get(pod.uid)
        text = _note_of(pod) if text is None else text
        if not text:
            return None
        try:
            found = _decode(text)
        except msgspec.DecodeError:
            return None  # somebody spoilt it
        return replace(found, workload=workload, pod=slot) if is_countable(found) else None

    def upsert_pod(self, pod: CachedPod) -> None:
        """The API server says how a pod is now."""
        if pod.uid not in self.being_written and self.wanted.get(pod.uid) == _note_of(pod):
            del self.wanted[pod.uid]

    def delete_pod(self, uid: str) -> None:
        """A pod is gone, or its annotation could not be written: then the one that is there counts."""
        self.wanted.pop(uid, None)
        self._expired.pop(uid, None)

    def expire(self, pods: Iterable[CachedPod]) -> None:
        """These wait no longer as they did: what was kept for them must not come back by itself."""
        for pod in pods:
            if not pod.node and (self.wanted.get(pod.uid) or _note_of(pod)):
                self.wanted[pod.uid] = ""
                self._expired[pod.uid] = pod

    def discard_decisions(self) -> None:
        """Somebody else leads: what is on the pods is what counts."""
        self.wanted, self._expired = {}, {}

    def take_expired(self) -> list[CachedPod]:
        """Those whose annotation has to be taken away."""
        lapsed, self._expired = self._expired, {}
        return list(lapsed.values())


def write_nomination(nomination: Nomination) -> str:
    """Without its neighbours: who they are follows from the pod."""
    return msgspec.json.encode(replace(nomination, neighbours=None)).decode()


def _note_of(pod: CachedPod) -> str:
    return pod.annotations.get(NOMINATION_ANNOTATION, "") if _MARK in pod.annotations_text else ""
