"""What every Kubernetes object says about itself: names, labels, and who owns it.

Only these fields are decoded; the rest of the object never exists. A field that is null reads as if it were absent.
"""

import msgspec

from kaiwo.clusters.kubernetes.gangs.labels import USED_ANNOTATIONS, USED_LABELS, keep_used

Texts = dict[str, str]

MOST_PODS = 100_000  # of one gang


class Reference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """An object named as the owner of another one. It may not be known yet, or never."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = False

    @property
    def group(self) -> str:
        return group_of_version(self.api_version)


class Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The part of `metadata` that decides to which gang a pod belongs. Labels and annotations that nobody reads go."""

    name: str | None = ""
    namespace: str | None = ""
    uid: str | None = ""
    labels: Texts | None = None
    annotations: Texts | None = None
    owner_references: tuple[Reference, ...] | None = None
    deletion_timestamp: str | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "labels", keep_used(self.labels, USED_LABELS))
        msgspec.structs.force_setattr(self, "annotations", keep_used(self.annotations, USED_ANNOTATIONS))

    @property
    def owner(self) -> Reference | None:
        """The one owner that made it and makes it anew. Other owners only keep it from being collected."""
        return next((each for each in self.owner_references or () if each.controller), None)


class Template(msgspec.Struct, frozen=True, gc=False):
    """The labels and annotations that a controller gives to what it makes."""

    metadata: Metadata | None = None
    spec: "TemplateSpec | None" = None

    @property
    def annotations(self) -> Texts:
        return (self.metadata and self.metadata.annotations) or {}

    @property
    def labels(self) -> Texts:
        return (self.metadata and self.metadata.labels) or {}


class TemplateSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The part of a pod template's spec that names a gang."""

    scheduling_group: "SchedulingGroup | None" = None
    workload_ref: "WorkloadReference | None" = None


class SchedulingGroup(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Kubernetes 1.36: the PodGroup of a pod."""

    pod_group_name: str | None = ""


class WorkloadReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Kubernetes 1.35: the pod group of a Workload, and the replica of it."""

    name: str | None = ""
    pod_group: str | None = ""
    pod_group_replica_key: str | None = ""


class Owner(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Any object that stands above pods. Kinds that we read further add their `spec` and `status`."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()

    @property
    def group(self) -> str:
        return group_of_version(self.api_version)

    @property
    def name(self) -> str:
        return self.metadata.name or ""

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or ""

    @property
    def uid(self) -> str:
        return self.metadata.uid or ""

    @property
    def annotations(self) -> Texts:
        return self.metadata.annotations or {}


class Unreadable(Owner, frozen=True, gc=False):
    """An object of a known kind that is not as its kind should be."""

    fault: str = ""


def group_of_version(api_version: str) -> str:
    """`jobset.x-k8s.io/v1alpha2` is of the group `jobset.x-k8s.io`; the core group has no name."""
    group, slash, _ = api_version.partition("/")
    return group if slash else ""


def read_gang_count(text: str | None) -> int | None:
    """The same of a gang's pods, of which there is at least one; None where it cannot be."""
    count = read_count(text)
    return count if count and count <= MOST_PODS else None


def read_count(text: str | None) -> int | None:
    """A count written as text, as labels and annotations have it; None where it is no count."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 9:
        return None
    return int(text)
