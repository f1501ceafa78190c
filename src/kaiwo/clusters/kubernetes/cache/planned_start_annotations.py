"""Read and write planned starts: annotations on one waiting pod of the workload, so that the next leader keeps them.

One annotation holds the time, for people; the other holds the whole planned start. While this replica leads, what it
decided counts; on a standby, what is on the pods counts.
"""

import base64
import datetime
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.decode.quantities import is_countable
from kaiwo.manifests.kinds.annotations import OUR_PREFIX
from kaiwo.model.planned_start import PlannedStart

START_ANNOTATION = OUR_PREFIX + "planned-start"
PLACE_ANNOTATION = OUR_PREFIX + "planned-place"
MAX_BYTES = 16 << 20  # of one planned start: what unpacks to more was not written by us
_KEY_BYTES = PLACE_ANNOTATION.encode()
_decode = msgspec.json.Decoder(PlannedStart).decode


class PodAnnotation(NamedTuple):
    """What must be written on a pod."""

    pod: CachedPod
    text: str  # empty: remove the annotation


class PlannedStartAnnotations:
    """What we decided, by workload, and what we wrote, by the UID of a pod."""

    def __init__(self) -> None:
        self.decided: dict[str, PlannedStart | None] = {}
        self._texts: dict[str, str] = {}  # what a pod should carry, by workload
        self._written: dict[str, str] = {}  # by UID, and not shown by the watch yet; empty: removed
        self._stale: dict[str, None] = {}

    def of(self, workload: str, waiting: Sequence[CachedPod]) -> PlannedStart | None:
        if not waiting:
            return None
        if workload in self.decided:
            return self.decided[workload]
        texts = (pod.annotation(PLACE_ANNOTATION) for pod in waiting)
        return next((found for text in texts if text and (found := read_planned_start(text, workload))), None)

    def concerns(self, workload: str, pods: Iterable[CachedPod]) -> bool:
        """Whether the workload may have a planned start. A cheap test: most have none, and it is called often."""
        return workload in self.decided or any(_KEY_BYTES in pod.annotations_text for pod in pods)

    def decide(self, workload: str, planned_start: PlannedStart | None) -> None:
        self.decided[workload] = planned_start
        self._texts[workload] = write_planned_start(planned_start) if planned_start is not None else ""

    def check(self, workload: str, waiting: Sequence[CachedPod]) -> None:
        """Mark the workload as stale when its pods do not carry what we decided."""
        if workload in self.decided and self.pods_to_write(workload, waiting):
            self._stale[workload] = None

    def pods_to_write(self, workload: str, waiting: Sequence[CachedPod]) -> list[PodAnnotation]:
        text = self._texts.get(workload, "")
        current = [self._written.get(pod.uid, pod.annotation(PLACE_ANNOTATION)) for pod in waiting]
        # The pod that carries one already keeps it: after a restart other pods may come first.
        carrier = next((at for at, current_text in enumerate(current) if current_text), 0) if text else -1
        wanted = [text if at == carrier else "" for at in range(len(waiting))]
        return [
            PodAnnotation(pod, wanted_text)
            for pod, wanted_text, current_text in zip(waiting, wanted, current, strict=True)
            if wanted_text != current_text
        ]

    def record_write(self, pod: CachedPod, text: str) -> None:
        """The server has accepted it; the watch will show it later."""
        self._written[pod.uid] = text

    def upsert_pod(self, pod: CachedPod) -> None:
        if pod.uid in self._written and self._written[pod.uid] == pod.annotation(PLACE_ANNOTATION):
            del self._written[pod.uid]

    def delete_pod(self, uid: str) -> None:
        self._written.pop(uid, None)

    def delete_workload(self, workload: str) -> None:
        self.decided.pop(workload, None)
        self._texts.pop(workload, None)
        self._stale.pop(workload, None)

    def discard_decisions(self) -> list[str]:
        """Another replica leads. Returns the workloads whose planned start may differ from what we decided."""
        names = list(self.decided)
        self.decided, self._texts, self._written, self._stale = {}, {}, {}, {}
        return names

    def take_stale(self) -> list[str]:
        stale, self._stale = self._stale, {}
        return list(stale)


def write_planned_start(planned_start: PlannedStart) -> str:
    """Compressed: 512 pods with 8 devices each are 300 KB of JSON, and all annotations together may have 256 KB."""
    return base64.b64encode(zlib.compress(msgspec.json.encode(planned_start))).decode()


def read_planned_start(text: str, workload: str) -> PlannedStart | None:
    """None: it is damaged."""
    try:
        found = _decode(zlib.decompressobj().decompress(base64.b64decode(text), MAX_BYTES))
    except (ValueError, zlib.error, msgspec.DecodeError):
        return None
    return replace(found, workload=workload) if is_countable(found) else None


def format_start_time(text: str) -> str | None:
    """The time in a written planned start, as `kubectl` shows times."""
    planned_start = read_planned_start(text, "") if text else None
    if planned_start is None:
        return None
    return datetime.datetime.fromtimestamp(planned_start.start_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
