"""Read the metadata of a Kubernetes object, and build its workload from annotations and fields."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from kaiwo.manifests.kinds.annotations import KUEUE_QUEUE, OUR_PREFIX, UPSTREAM_PREFIX, Annotations, read_number
from kaiwo.manifests.text.field_errors import FieldPath, quote_name
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.values.names import DEFAULT_NAMESPACE, check_labels, read_name, read_namespace
from kaiwo.manifests.values.priorities import DEFAULT_TYPE, MAX_PRIORITY, TYPE_PRIORITIES, class_priority, read_type
from kaiwo.manifests.values.setting_values import read_flag
from kaiwo.manifests.values.timestamps import read_past_timestamp_s
from kaiwo.model.gpus.partitioning_plan import PartitioningPlan
from kaiwo.model.network.topology import Topology
from kaiwo.model.queue import DEFAULT_QUEUE, Queue
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Role, Workload
from kaiwo.model.workload_record import Program

MAX_USER = 253
_SERVER_FILLED = (
    "creationTimestamp", "uid", "resourceVersion", "generation", "managedFields", "selfLink", "ownerReferences",
    "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds",
)  # fmt: skip


class ManifestDefaults(msgspec.Struct, frozen=True):
    """Values for fields that a document leaves out."""

    submitted_s: int = 0
    namespace: str = DEFAULT_NAMESPACE
    queue: str = DEFAULT_QUEUE
    user: str = ""


NO_DEFAULTS = ManifestDefaults()


class Parsed(msgspec.Struct, frozen=True):
    """Everything that a text describes, with warnings about what is not used."""

    submissions: tuple[tuple[Workload, Program], ...] = ()
    queues: tuple[Queue, ...] = ()
    warnings: tuple[str, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    partitioning: tuple[PartitioningPlan, ...] = ()
    topologies: tuple[Topology, ...] = ()
    totals: "dict[str, GpuTotal]" = {}  # by workload that asks for GPUs in total


class GpuTotal(msgspec.Struct, frozen=True):
    """A workload asks for GPUs in total. Its roles divide them; who knows the cluster may divide them otherwise."""

    gpus: int
    is_by_gpu: bool  # CPU and memory follow from the GPUs of a pod


class ManifestWork(NamedTuple):
    """One workload of a text, and the gang it belongs to."""

    workload: Workload
    program: Program
    owner: str = ""
    gang: str = ""
    gang_size: int = 0  # 0: not given
    leads: bool = False  # it is the leader of its gang
    total: GpuTotal | None = None


class ManifestObject:
    """A document with `metadata` and `spec`."""

    def __init__(
        self, document: Mapping[str, Any], where: str, defaults: ManifestDefaults, warnings: list[str]
    ) -> None:
        kind = document.get("kind")
        metadata = document.get("metadata")
        written = metadata.get("name") if isinstance(metadata, dict) else None
        self.owner = f"{kind} {quote_name(written)}" if isinstance(written, str) and written else f"{where} ({kind})"
        self.defaults = defaults
        self.fields = FieldReader(document, self.owner, warnings)
        self.fields.skip("apiVersion", "kind", "status")
        self.metadata = self.fields.inner("metadata")
        self.name = self._read_name()
        self.namespace = self.metadata.read("namespace", read_namespace, defaults.namespace)
        self.spec = self.fields.inner("spec")
        self.warnings = warnings

    def finish(self, strict: bool = True) -> None:
        finish_metadata(self.metadata, strict)
        self.fields.finish(strict)

    def read_labels(self) -> dict[str, str]:
        return check_labels(self.metadata.text_map("labels"), self.metadata.path_of("labels"))

    def require_spec(self) -> None:
        """Refuse an object with an empty `spec`: what belongs there was probably lost."""
        if not self.fields.has("spec"):
            fact = "is empty" if "spec" in self.fields.written else "is missing"
            raise self.fields.path_of("spec").error(f"{fact}; write its fields below it, two spaces in")

    def _read_name(self) -> str:
        if not self.metadata.has("name"):
            way_out = "; generateName cannot be used here" if self.metadata.has("generateName") else ""
            raise self.metadata.path_of("name").error(f"is missing; give the object a name{way_out}")
        return self.metadata.read("name", read_name, "")


def finish_metadata(metadata: FieldReader, strict: bool = True) -> None:
    """Report unknown fields of an object's `metadata`, or of its template's."""
    metadata.skip("name", "generateName", "namespace", "labels", "annotations", *_SERVER_FILLED)
    metadata.finish(strict)


class ObjectSettings(msgspec.Struct, frozen=True):
    """What an object's own fields, not its annotations, say about the workload."""

    queue: str = ""
    user: str = ""
    priority_class: str = ""
    class_path: FieldPath = FieldPath("", "priorityClassName")
    priority: int | None = None
    time_limit_s: int = 0
    held: bool = False
    labels: dict[str, str] = {}
    levels: dict[str, str] = {}  # by their names in `Workload`


def build_workload(
    item: ManifestObject, annotations: Annotations, roles: tuple[Role, ...], settings: ObjectSettings
) -> Workload:
    """Build the workload: annotations count before the object's own fields, and those before the defaults."""
    kind = annotations.read("type", read_type, DEFAULT_TYPE)
    return Workload(
        name=f"{item.namespace}/{item.name}",
        roles=roles,
        queue=_read_queue(item, annotations, settings),
        user=check_user(
            annotations.text("user")
            or settings.user
            or annotations.labels.get(UPSTREAM_PREFIX + "user", "")
            or item.defaults.user,
            FieldPath(item.owner, "user"),
        ),
        kind=kind,
        priority=_read_priority(item, annotations, settings, TYPE_PRIORITIES[kind]),
        submitted_s=item.defaults.submitted_s,
        held=annotations.read("hold", read_flag, settings.held),
        checkpoint_s=annotations.read("last-checkpoint", read_past_timestamp_s, 0),
        labels=settings.labels | item.read_labels(),
        **({"time_limit_s": settings.time_limit_s} | settings.levels | annotations.settings()),
    )


def check_user(user: str, path: FieldPath) -> str:
    if len(user) > MAX_USER or not user.isprintable():
        raise path.error(f"must be printable and have at most {MAX_USER} characters; shorten it")
    return user


def _read_queue(item: ManifestObject, annotations: Annotations, settings: ObjectSettings) -> str:
    labels = annotations.labels
    for field, value in (
        (annotations.path_of("queue").field, annotations.text("queue")),
        ("spec.clusterQueue", settings.queue),
        (OUR_PREFIX + "queue", labels.get(OUR_PREFIX + "queue", "")),
        (KUEUE_QUEUE, labels.get(KUEUE_QUEUE, "")),
    ):
        if value:
            return read_name(value, FieldPath(item.owner, field))
    return item.defaults.queue


def _read_priority(item: ManifestObject, annotations: Annotations, settings: ObjectSettings, default: int) -> int:
    asked = annotations.read(
        "priority", lambda value, path: read_number(value, path, -MAX_PRIORITY, MAX_PRIORITY), None
    )
    if asked is not None:
        return asked
    if settings.priority_class:
        return class_priority(settings.priority_class, settings.class_path, default, item.warnings)
    return default if settings.priority is None else settings.priority
