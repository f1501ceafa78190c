"""Decode the metadata of Kubernetes objects: name, labels, annotations, owners, and the gang that they name.

Only these fields are decoded. A field that is null is read as if it were absent.
"""

from collections.abc import Iterable

import msgspec

from kaiwo.clusters.kubernetes.gangs.labels import KUEUE_GROUP, PREFIXES, USED_ANNOTATIONS, USED_LABELS, keep_used

Texts = dict[str, str]
FullName = tuple[str, str, str, str]  # API group, kind, namespace, name

MAX_PODS = 100_000  # of one gang
FLAGS = ("true", "false")  # on a Job, `kaiwo.ai/gang` may also say whether its pods are a gang


class Reference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A reference to the owner of an object. The owner itself may not be known yet, or never."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = False

    @property
    def group(self) -> str:
        return group_of_version(self.api_version)

    def is_a(self, group: str, *kinds: str) -> bool:
        return self.kind in kinds and self.group == group


class Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The part of `metadata` that decides to which gang a pod belongs. Unused labels and annotations are dropped."""

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
        """The one owner that creates and re-creates it. Other owners only keep it from being garbage-collected."""
        return next((each for each in self.owner_references or () if each.controller), None)


class Template(msgspec.Struct, frozen=True, gc=False):
    """What a controller gives to the pods that it creates."""

    metadata: Metadata | None = None
    spec: "TemplateSpec | None" = None

    @property
    def annotations(self) -> Texts:
        return (self.metadata and self.metadata.annotations) or {}

    @property
    def labels(self) -> Texts:
        return (self.metadata and self.metadata.labels) or {}


class TemplateSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scheduling_group: "SchedulingGroup | None" = None
    workload_ref: "WorkloadReference | None" = None


class SchedulingGroup(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    pod_group_name: str | None = ""


class WorkloadReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Kubernetes 1.35: the pod group of a Workload, and the replica of it."""

    name: str | None = ""
    pod_group: str | None = ""
    pod_group_replica_key: str | None = ""


class Owner(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Any object that owns pods, directly or not. Kinds whose spec is read add their `spec` and `status`."""

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
    def full_name(self) -> FullName:
        return self.group, self.kind, self.namespace, self.name

    @property
    def annotations(self) -> Texts:
        return self.metadata.annotations or {}

    @property
    def makes_pods(self) -> bool:
        """Whether its controller may still make pods: not if it is being deleted, or has ended."""
        return self.metadata.deletion_timestamp is None


class OwnerCondition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


def has_condition(conditions: Iterable[OwnerCondition] | None, *types: str) -> bool:
    return any(each.type in types and each.status == "True" for each in conditions or ())


class Unreadable(Owner, frozen=True, gc=False):
    """An object of a known kind that could not be decoded as that kind."""

    fault: str = ""


def group_of_version(api_version: str) -> str:
    """`jobset.x-k8s.io/v1alpha2` is of the group `jobset.x-k8s.io`; the core group has no name."""
    group, slash, _ = api_version.partition("/")
    return group if slash else ""


def read_count(text: str | None) -> int | None:
    """A count from a label or an annotation; None where it is no count."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 9:
        return None
    return int(text)


def read_annotation(name: str, places: Iterable[Texts]) -> str:
    """One of our annotations, from the nearest place that has it."""
    for place in places:
        for prefix in PREFIXES:
            if value := place.get(prefix + name):
                return value
    return ""


def read_gang_name(places: Iterable[Texts]) -> str:
    name = read_annotation("gang", places)
    return "" if name in FLAGS else name


def read_gang_names(template: Template | None, annotations: Texts) -> tuple[str, ...]:
    """Every gang that pods made from this template name; all are empty when the pods belong to their owner's gang."""
    template = template or Template()
    spec = template.spec or TemplateSpec()
    workload = spec.workload_ref or WorkloadReference()
    return (
        read_gang_name((template.annotations, annotations)),
        template.labels.get(KUEUE_GROUP, ""),
        (spec.scheduling_group and spec.scheduling_group.pod_group_name) or "",
        workload.name or "",
        workload.pod_group or "",
    )
