"""Read when running work last saved a checkpoint, from the annotations of its pods and their owners.

A time in the future is read as now when its text is first seen; after that, the same text always means the same time.
An annotation that cannot be read has no effect.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.decode.workload_annotations import Texts
from kaiwo.manifests.kinds.annotations import OUR_PREFIX, UPSTREAM_PREFIX
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.timestamps import read_past_timestamp_s
from kaiwo.model.errors import ConfigError

# The first of these that an object has counts.
CHECKPOINT_ANNOTATIONS = (OUR_PREFIX + "last-checkpoint", UPSTREAM_PREFIX + "last-checkpoint")
_KEY_BYTES = b'/last-checkpoint"'
OwnerMetadataOf = Callable[[CachedPod], Sequence[tuple[Texts, Texts]]]  # annotations and labels of its owners


class CheckpointAnnotation(NamedTuple):
    """A checkpoint annotation of a pod, or of one of its owners."""

    key: str
    text: str
    pod: CachedPod


class CheckpointTimes:
    """The checkpoint annotations of live workloads, each with the time that was read from it."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, int]] = {}  # by workload and text
        self._faults: dict[Key, str] = {}

    def last_s(self, workload: str, pods: Sequence[CachedPod], owner_metadata: OwnerMetadataOf, now_s: int) -> int:
        """The latest time in any of their annotations; 0: they have none."""
        before = self._known.pop(workload, {})
        known: dict[str, int] = {}
        for found in _find(pods, owner_metadata):
            if found.text not in known:
                known[found.text] = before[found.text] if found.text in before else self._read(found, now_s)
        if known:
            self._known[workload] = known
        return max(known.values(), default=0)

    def delete_workload(self, workload: str) -> None:
        self._known.pop(workload, None)

    def take_faults(self) -> dict[Key, str]:
        """By pod: what could not be read since the last call."""
        fresh, self._faults = self._faults, {}
        return fresh

    def _read(self, found: CheckpointAnnotation, now_s: int) -> int:
        try:
            return min(read_past_timestamp_s(found.text, FieldPath(f"Pod '{found.pod.name}'", found.key)), now_s)
        except ConfigError as error:
            self._faults[found.pod.key] = f"{error}; until then it is ignored"
            return 0


def checkpoint_annotation(annotations: Texts) -> tuple[str, str] | None:
    """The annotation that counts, and its text."""
    return next(((key, annotations[key]) for key in CHECKPOINT_ANNOTATIONS if key in annotations), None)


def _find(pods: Sequence[CachedPod], owner_metadata: OwnerMetadataOf) -> Iterator[CheckpointAnnotation]:
    owners: set[str] = set()
    for pod in pods:
        if _KEY_BYTES in pod.annotations_text and (found := checkpoint_annotation(pod.annotations)) is not None:
            yield CheckpointAnnotation(*found, pod)
        if pod.owners and pod.owners[0].uid not in owners:  # most pods of a gang have the same owner
            owners.add(pod.owners[0].uid)
            for annotations, _ in owner_metadata(pod):
                if (found := checkpoint_annotation(annotations)) is not None:
                    yield CheckpointAnnotation(*found, pod)
