"""Read and write the nominations of waiting pods: annotations on the pod, so that the next leader keeps them.

A decision counts at once, even before the server has its annotation.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.decode.quantities import is_countable
from kaiwo.manifests.kinds.annotations import OUR_PREFIX
from kaiwo.model.plan import Nomination

NOMINATION_ANNOTATION = OUR_PREFIX + "kept-space"
_decode = msgspec.json.Decoder(Nomination).decode


class NominationAnnotations:
    """The nomination of every waiting pod, by UID."""

    def __init__(self) -> None:
        self.wanted: dict[str, str] = {}  # the annotation as it should be; empty: none
        self.being_written: set[str] = set()  # the watch may still show what was there before
        self._expired: dict[str, CachedPod] = {}  # the annotation is out of date and still there

    def of(self, workload: str, slot: str, pod: CachedPod) -> Nomination | None:
        text = self.wanted.get(pod.uid)
        text = pod.annotation(NOMINATION_ANNOTATION) if text is None else text
        if not text:
            return None
        try:
            found = _decode(text)
        except msgspec.DecodeError:
            return None  # it is damaged
        return replace(found, workload=workload, pod=slot) if is_countable(found) else None

    def upsert_pod(self, pod: CachedPod) -> None:
        text = pod.annotation(NOMINATION_ANNOTATION)
        if pod.uid not in self.being_written and self.wanted.get(pod.uid) == text:
            del self.wanted[pod.uid]
        if not text:
            self._expired.pop(pod.uid, None)

    def delete_pod(self, uid: str) -> None:
        """A pod is gone, or its annotation could not be written: then the annotation on the pod counts."""
        self.wanted.pop(uid, None)
        self._expired.pop(uid, None)

    def expire(self, pods: Iterable[CachedPod]) -> None:
        """These pods no longer wait in a slot: their old nominations must not become valid again."""
        for pod in pods:
            if not pod.node and (self.wanted.get(pod.uid) or pod.annotation(NOMINATION_ANNOTATION)):
                self.wanted[pod.uid] = ""
                self._expired[pod.uid] = pod

    def expire_bound(self, pod: CachedPod) -> None:
        """The pod is bound: its annotation keeps nothing any more, and goes."""
        if pod.uid not in self.being_written and pod.annotation(NOMINATION_ANNOTATION):
            self._expired[pod.uid] = pod

    def discard_decisions(self) -> None:
        """Another replica leads: what is on the pods counts. What is left on bound pods goes in any case."""
        self.wanted, self._expired = {}, {uid: pod for uid, pod in self._expired.items() if pod.node}

    def take_expired(self) -> list[CachedPod]:
        expired, self._expired = self._expired, {}
        return list(expired.values())


def write_nomination(nomination: Nomination) -> str:
    """Without the pod affinity, which follows from the pod."""
    return msgspec.json.encode(replace(nomination, neighbours=None)).decode()
