"""Read when running work last saved a checkpoint, from the annotations of its pods and their owners.

In:    annotations, and the time at which they are read.   Out: seconds; a sentence about what cannot be read.
Never: moves with the clock. A future time is cut off when its text is first read, so the same text stays the same time;
       and what cannot be read has no effect.
"""

from collections.abc import Callable, Iterator, Sequence

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.decode.workload_annotations import Texts
from kaiwo.manifests.kinds.annotations import OUR_PREFIX, UPSTREAM_PREFIX
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.timestamps import read_past_timestamp_s
from kaiwo.model.errors import ConfigError

CHECKPOINT_ANNOTATIONS = (
    OUR_PREFIX + "last-checkpoint",
    UPSTREAM_PREFIX + "last-checkpoint",
)  # the first that is there counts
_KEY_BYTES = b'/last-checkpoint"'
Found = tuple[str, str, CachedPod]  # key, text, and the pod that carries it or whose owner does


class CheckpointTimes:
    """The texts of live workloads, and the times that they came to."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, int]] = {}  # by workload and text
        self._faults: dict[Key, str] = {}

    def last_s(
        self,
        workload: str,
        pods: Sequence[CachedPod],
        owner_metadata: Callable[[CachedPod], Sequence[tuple[Texts, Texts]]],
        now_s: int,
    ) -> int:
        """The latest time that any of them gives; 0: none does."""
        before = self._known.pop(workload, {})
        known: dict[str, int] = {}
        for key, text, pod in _found(pods, owner_metadata):
            if text not in known:
                known[text] = before[text] if text in before else self._read(key, text, pod, now_s)
        if known:
            self._known[workload] = known
        return max(known.values(), default=0)

    def delete_workload(self, workload: str) -> None:
        """A workload is gone."""
        self._known.pop(workload, None)

    def take_faults(self) -> dict[Key, str]:
        """By pod: what could not be read since the last call."""
        fresh, self._faults = self._faults, {}
        return fresh

    def _read(self, key: str, text: str, pod: CachedPod, now_s: int) -> int:
        try:
            return min(read_past_timestamp_s(text, FieldPath(f"Pod '{pod.name}'", key)), now_s)
        except ConfigError as error:
            self._faults[pod.key] = f"{error}; until then it is ignored"
            return 0


def checkpoint_annotation(notes: Texts) -> tuple[str, str] | None:
    """The annotation that counts, and its text."""
    return next(((key, notes[key]) for key in CHECKPOINT_ANNOTATIONS if key in notes), None)


def _found(
    pods: Sequence[CachedPod], owner_metadata: Callable[[CachedPod], Sequence[tuple[Texts, Texts]]]
) -> Iterator[Found]:
    owners: set[str] = set()
    for pod in pods:
        if _KEY_BYTES in pod.annotations_text and (found := checkpoint_annotation(pod.annotations)) is not None:
            yield (*found, pod)
        if pod.owners and pod.owners[0].uid not in owners:  # most pods of a gang have the same
            owners.add(pod.owners[0].uid)
            for notes, _ in owner_metadata(pod):
                if (found := checkpoint_annotation(notes)) is not None:
                    yield (*found, pod)
