"""Planned starts, written on a pod of the workload that waits, so that another leader keeps them too.

In:    promises, pods.   Out: two annotations on one pod: the time for people, and all of it for the next leader.
While we lead, what we decided counts; somebody who follows believes the pods.
"""

import base64
import datetime
import zlib
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.decode.quantities import is_countable
from kaiwo.manifests.kinds.annotations import OUR_PREFIX
from kaiwo.model.planned_start import PlannedStart

START_ANNOTATION = OUR_PREFIX + "planned-start"
PLACE_ANNOTATION = OUR_PREFIX + "planned-place"
MOST_BYTES = 16 << 20  # of one promise: what unpacks to more was not written by us
_MARK = PLACE_ANNOTATION.encode()
_decode = msgspec.json.Decoder(PlannedStart).decode


class PlannedStartAnnotations:
    """What we decided, by workload, and what we wrote, by the UID of a pod."""

    def __init__(self) -> None:
        self.decided: dict[str, PlannedStart | None] = {}
        self._texts: dict[str, str] = {}  # of those: what a pod shall say
        self._written: dict[str, str] = {}  # and not seen yet; empty: taken away
        self._stale: dict[str, None] = {}

    def of(self, workload: str, waiting: Sequence[CachedPod]) -> PlannedStart | None:
        """The planned start of those who wait."""
        if not waiting:
            return None
        if workload in self.decided:
            return self.decided[workload]
        texts = (_note_of(pod) for pod in waiting)
        return next((found for text in texts if text and (found := read_planned_start(text, workload))), None)

    def concerns(self, workload: str, pods: Iterable[CachedPod]) -> bool:
        """Whether there is anything to say about it: most have no planned start, and are told often."""
        return workload in self.decided or any(_MARK in pod.annotations_text for pod in pods)

    def decide(self, workload: str, promise: PlannedStart | None) -> None:
        """It has this planned start from now on, or none."""
        self.decided[workload] = promise
        self._texts[workload] = write_planned_start(promise) if promise is not None else ""

    def check(self, workload: str, waiting: Sequence[CachedPod]) -> None:
        """Remember it when its pods do not say what we decided."""
        if workload in self.decided and self.pods_to_write(workload, waiting):
            self._stale[workload] = None

    def pods_to_write(self, workload: str, waiting: Sequence[CachedPod]) -> list[tuple[CachedPod, str]]:
        """Which pods must be written, and what they shall say; empty: nothing."""
        text = self._texts.get(workload, "")
        said = [self._written.get(pod.uid, _note_of(pod)) for pod in waiting]
        # The pod that says something already goes on saying it: after a restart others may stand first.
        bearer = next((at for at, note in enumerate(said) if note), 0) if text else -1
        wanted = [text if at == bearer else "" for at in range(len(waiting))]
        return [(pod, want) for pod, want, note in zip(waiting, wanted, said, strict=True) if want != note]

    def record_write(self, pod: CachedPod, text: str) -> None:
        """The server has it; its word comes later."""
        self._written[pod.uid] = text

    def upsert_pod(self, pod: CachedPod) -> None:
        """The API server says how a pod is now."""
        if pod.uid in self._written and self._written[pod.uid] == _note_of(pod):
            del self._written[pod.uid]

    def delete_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._written.pop(uid, None)

    def delete_workload(self, workload: str) -> None:
        """All of it is gone."""
        self.decided.pop(workload, None)
        self._texts.pop(workload, None)
        self._stale.pop(workload, None)

    def discard_decisions(self) -> list[str]:
        """Somebody else leads: whose planned start may be another than we decided."""
        names = list(self.decided)
        self.decided, self._texts, self._written, self._stale = {}, {}, {}, {}
        return names

    def take_stale(self) -> list[str]:
        """The workloads whose pods must be written."""
        stale, self._stale = self._stale, {}
        return list(stale)


def write_planned_start(promise: PlannedStart) -> str:
    """Packed: the places of 512 pods with 8 devices each are 300 KB of JSON, and all annotations may have 256."""
    return base64.b64encode(zlib.compress(msgspec.json.encode(promise))).decode()


def read_planned_start(text: str, workload: str) -> PlannedStart | None:
    """None: somebody spoilt it."""
    try:
        unpacked = zlib.decompressobj().decompress(base64.b64decode(text), MOST_BYTES)
        found = _decode(unpacked)
    except (ValueError, zlib.error, msgspec.DecodeError):
        return None
    return replace(found, workload=workload) if is_countable(found) else None


def format_start_time(text: str) -> str | None:
    """The time in a written promise, as `kubectl` shows times."""
    promise = read_planned_start(text, "") if text else None
    if promise is None:
        return None
    return datetime.datetime.fromtimestamp(promise.start_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _note_of(pod: CachedPod) -> str:
    return pod.annotations.get(PLACE_ANNOTATION, "") if _MARK in pod.annotations_text else ""
