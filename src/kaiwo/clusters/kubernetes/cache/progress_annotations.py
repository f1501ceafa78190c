"""Read how fast running work is, from the annotation `kaiwo.ai/progress` of its pods.

A text counts once: a program that reports the same again changes the number of steps, or nothing is new. A text that
cannot be read has no effect but an Event on the pod.
"""

from collections.abc import Mapping

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.decode.workload_annotations import Texts
from kaiwo.manifests.kinds.annotations import OUR_PREFIX, UPSTREAM_PREFIX
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.progress import read_progress_text
from kaiwo.model.errors import ConfigError
from kaiwo.model.events import Event, ProgressReported

PROGRESS_ANNOTATIONS = (OUR_PREFIX + "progress", UPSTREAM_PREFIX + "progress")
_KEY_BYTES = b'/progress"'


class ProgressAnnotations:
    def __init__(self) -> None:
        self._seen: dict[str, dict[str, str]] = {}  # by workload and UID: the last text
        self._faults: dict[Key, str] = {}

    def new_reports(self, workload: str, by_slot: Mapping[str, CachedPod], now_s: int) -> list[Event]:
        """Of pods that run, what they have not said before."""
        before = self._seen.pop(workload, {})
        seen: dict[str, str] = {}
        found: list[Event] = []
        for slot, pod in by_slot.items():
            if not pod.node or _KEY_BYTES not in pod.annotations_text:
                continue
            if (annotation := progress_annotation(pod.annotations)) is None:
                continue
            key, text = annotation
            seen[pod.uid] = text
            if before.get(pod.uid) != text:
                try:
                    path = FieldPath(f"Pod '{pod.name}'", key)
                    found.append(ProgressReported(read_progress_text(text, path, workload, now_s, slot)))
                except ConfigError as error:
                    self._faults[pod.key] = f"{error}; until then it is ignored"
        if seen:
            self._seen[workload] = seen
        return found

    def delete_workload(self, workload: str) -> None:
        self._seen.pop(workload, None)

    def take_faults(self) -> dict[Key, str]:
        """By pod: what could not be read since the last call."""
        fresh, self._faults = self._faults, {}
        return fresh


def progress_annotation(annotations: Texts) -> tuple[str, str] | None:
    """The annotation that counts, and its text."""
    return next(((key, annotations[key]) for key in PROGRESS_ANNOTATIONS if key in annotations), None)
