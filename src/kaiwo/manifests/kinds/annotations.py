"""Kaiwo's annotations, under its own prefix and under upstream's.

Those of the pod template count before those of the object, `kaiwo.ai/` before `kaiwo.silogen.ai/`.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from kaiwo.manifests.text.field_errors import FieldPath, join, show, suggest
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.values.gpu_request import (
    GpuFieldNames,
    WrittenGpus,
    read_grade,
    read_isolation,
    read_partition,
    read_share_with,
    read_threads_milli,
)
from kaiwo.manifests.values.names import check_label_key, check_labels
from kaiwo.manifests.values.quantities import MAX_GPUS, read_fraction_milli, read_gpu_mib
from kaiwo.manifests.values.setting_values import READERS, check_levels, read_flag
from kaiwo.model.workload_fields import FIELDS

T = TypeVar("T")

OUR_PREFIX = "kaiwo.ai/"
UPSTREAM_PREFIX = "kaiwo.silogen.ai/"
KNOWN_ANNOTATIONS = (
    "gpu-fraction", "gpu-memory", "gpu-devices", "gpu-sharing", "gpu-isolation", "gpu-isolation-grade", "gpu-models",
    "gpu-partition", "gpu-share-with", "gpu-threads",
    "queue", "user", "type", "priority", "hold", "gang", "gang-size", "leader", "min-pods", "last-checkpoint",
    "progress", "simulate", "run-locally",
    *(field.annotation.removeprefix(OUR_PREFIX) for field in FIELDS),
)  # fmt: skip
# Written by Kaiwo itself, or read elsewhere: an object that was read from a cluster may carry them.
SCHEDULER_ANNOTATIONS = (
    "granted-devices", "grant-signature", "devices", "kept-space", "lost-places", "planned-start", "planned-place",
    "fills-until", "gpu-grade", "gpu-note", "last-checkpoint", "rank", "world-size", "rank-hosts", "progress",
)  # fmt: skip
_NAMES = {field.name: field.annotation.removeprefix(OUR_PREFIX) for field in FIELDS}
MAX_CHARACTERS = 1_000  # of a setting; the longest that make sense list GPU models or nodes
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_GROUP_SIZE = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_MINIMUM = "kueue.x-k8s.io/job-min-parallelism"


class Annotations:
    """The annotations of one object; those nearest to the pod count first."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._found: dict[str, tuple[str, FieldPath]] = {}
        self.labels: dict[str, str] = {}

    def add(self, metadata: FieldReader) -> None:
        """Add those of one `metadata`, unless they were added before."""
        path = metadata.path_of("annotations")
        notes = metadata.text_map("annotations")
        for key, value in sorted(notes.items(), key=lambda item: not item[0].startswith(OUR_PREFIX)):
            if len(value) > MAX_CHARACTERS and _short(key) in KNOWN_ANNOTATIONS:
                fact = f"has more than {MAX_CHARACTERS:,} characters"
                raise FieldPath(path.owner, key).error(f"{fact}, which no setting needs; shorten it")
            self._found.setdefault(_short(key), (value, FieldPath(path.owner, key)))
        self.labels = check_labels(metadata.text_map("labels"), metadata.path_of("labels")) | self.labels
        for key in notes:
            check_label_key(key, path)
        prefixed = [key for key in notes if key.startswith((OUR_PREFIX, UPSTREAM_PREFIX))]
        unknown = [key for key in prefixed if _short(key) not in KNOWN_ANNOTATIONS]
        slips = [key for key in unknown if key.startswith(OUR_PREFIX) and _short(key) not in SCHEDULER_ANNOTATIONS]
        if slips:
            hint = suggest(slips[0], [OUR_PREFIX + name for name in KNOWN_ANNOTATIONS]) or "; remove it"
            raise FieldPath(path.owner, slips[0]).error(f"is not a known annotation{hint}")
        if unknown:
            metadata.warnings.append(f"{self.owner}: annotations not used here: {join(unknown)}")

    def read(self, name: str, reader: Callable[[object, FieldPath], T], default: T) -> T:
        if name not in self._found:
            return default
        value, path = self._found[name]
        return reader(value, path)

    def text(self, name: str, default: str = "") -> str:
        return self.read(name, lambda value, _: str(value), default)

    def path_of(self, name: str) -> FieldPath:
        """The annotation's path: where it was written, or where it would be."""
        return self._found[name][1] if name in self._found else FieldPath(self.owner, OUR_PREFIX + name)

    def settings(self) -> dict[str, Any]:
        """The settings that were written, by their name in `Workload`; the table of workload fields lists them."""
        found = {}
        for field in FIELDS:
            name = field.annotation.removeprefix(OUR_PREFIX)
            if name in self._found:
                found[field.name] = READERS[field.kind].read_text(*self._found[name])
        check_levels(found, self.path_of, _NAMES)
        return found

    def written_gpus(self, whole: int, vendor: str, models: tuple[str, ...]) -> WrittenGpus:
        """What the annotations add to a number of whole GPUs."""
        return WrittenGpus(
            whole,
            self.read("gpu-fraction", read_fraction_milli, None),
            self.read("gpu-memory", read_gpu_mib, None),
            self.read("gpu-devices", read_devices, None),
            models or self.read("gpu-models", _read_list, ()),
            vendor,
            self.read("gpu-sharing", read_flag, None),
            self.read("gpu-isolation", read_isolation, ""),
            self.read("gpu-partition", read_partition, ""),
            self.read("gpu-isolation-grade", read_grade, ""),
            self.read("gpu-share-with", read_share_with, ()),
            self.read("gpu-threads", read_threads_milli, 0),
        )

    def gpu_field_names(self, whole: str, models: str) -> GpuFieldNames:
        """The names of the annotations, for messages."""
        names = ("fraction", "memory", "devices", "sharing", "isolation", "partition")
        written: dict[str, Any] = {name: self.path_of(f"gpu-{name}").field for name in names}
        written["grade"] = self.path_of("gpu-isolation-grade").field
        written["threads"] = self.path_of("gpu-threads").field
        written["share_with"] = self.path_of("gpu-share-with").field
        return GpuFieldNames(self.owner, whole, models=models, allows_whole=True, **written)


def read_number(value: object, path: FieldPath, least: int, most: int) -> int:
    text = str(value)
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 12 and least <= int(text) <= most):
        fact = f"is {show(value)}, but must be a whole number from {least:,} to {most:,}"
        raise path.error(f'{fact}; write "{max(least, 1)}"')
    return int(text)


def read_devices(value: object, path: FieldPath) -> int:
    return read_number(value, path, 1, MAX_GPUS)


def _read_list(value: object, _: FieldPath) -> tuple[str, ...]:
    return tuple(name for part in str(value).split(",") if (name := part.strip()))


def _short(key: str) -> str:
    return key.removeprefix(UPSTREAM_PREFIX if key.startswith(UPSTREAM_PREFIX) else OUR_PREFIX)
