"""The fields of Kubernetes objects that Kaiwo reads, as they come over the wire. Other fields are never decoded.

A field that the server may leave out has a default; one that it may send as null says so.
"""

from typing import Any

import msgspec
from msgspec import Raw

from kaiwo.clusters.kubernetes.gangs.metadata import Reference

NOTHING = Raw()
Amounts = dict[str, str | int | float]
Texts = dict[str, str]


class Wire(msgspec.Struct, rename="camel", gc=False):
    """Kubernetes writes camelCase."""


class Meta(Wire):
    """The metadata of every object but a pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0  # counts the changes of the spec
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Texts | None = None
    annotations: Texts | None = None
    owner_references: tuple[Reference, ...] | None = None


class Condition(Wire):
    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""


class Expression(Wire):
    """One requirement on labels or fields."""

    key: str
    operator: str = "In"
    values: tuple[str, ...] | None = None


class LabelSelector(Wire):
    """All of these must hold for the labels. An empty selector matches everything, a missing one nothing."""

    match_labels: Texts | None = None
    match_expressions: tuple[Expression, ...] | None = None


class Term(Wire):
    """All of these must hold."""

    match_expressions: tuple[Expression, ...] | None = None
    match_fields: tuple[Expression, ...] | None = None


class NodeSelector(Wire):
    """One of these must hold."""

    node_selector_terms: tuple[Term, ...] | None = None


class Resources(Wire):
    requests: Amounts | None = None
    limits: Amounts | None = None
    claims: list[Any] | None = None


class Port(Wire):
    """Only a port of the node matters to a scheduler."""

    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class Container(Wire):
    name: str = ""
    resources: Resources | None = None
    ports: list[Port] | None = None
    restart_policy: str = ""


class PreferredTerm(Wire):
    weight: int = 1
    preference: Term = msgspec.field(default_factory=Term)


class NodeAffinity(Wire):
    preferred: tuple[PreferredTerm, ...] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class PodTerm(Wire):
    """The pods that a rule selects. The server has merged `matchLabelKeys` and `mismatchLabelKeys` into it."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None


class PodAffinity(Wire):
    """Preferred terms are not read."""

    required: tuple[PodTerm, ...] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Wire):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Wire):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(Wire):
    """A topology spread constraint."""

    when_unsatisfiable: str = "DoNotSchedule"
    topology_key: str = ""
    max_skew: int = 1
    min_domains: int | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class ClaimName(Wire):
    claim_name: str = ""


class Volume(Wire):
    """A volume of a pod. Without a claim it does not restrict the nodes of the pod."""

    name: str = ""
    persistent_volume_claim: ClaimName | None = None
    ephemeral: Any = None  # its claim is named after the pod and the volume


class AllocatedResources(Wire):
    """What the kubelet has given to a container, or to a pod as a whole."""

    name: str = ""
    resources: Resources | None = None  # in use now
    allocated_resources: Amounts | None = None  # promised


class ResizeState(Wire):
    """Where the spec and the status of a pod differ that is being resized in place."""

    containers: tuple[AllocatedResources, ...] = ()
    pod: AllocatedResources | None = None
    is_infeasible: bool = False  # the node can never give what the spec asks for


class PodSpec(Wire):
    """What a pod asks for. It is decoded once for all pods that ask for the same: see `PodDecoder`."""

    containers: list[Container]
    init_containers: list[Container] | None = None
    overhead: Amounts | None = None
    resources: Resources | None = None
    node_selector: Texts | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    resource_claims: list[Any] | None = None
    allocated: ResizeState | None = None  # from its status


class PodMeta(Wire):
    """Labels, annotations and owners stay text until something reads them."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Raw = NOTHING
    annotations: Raw = NOTHING
    owner_references: Raw = NOTHING


class PodContainer(Wire):
    """Equal texts request the same, so containers are compared by their text."""

    name: str = ""
    image: str = ""
    resources: Raw = NOTHING
    ports: Raw = NOTHING


class PodBody(Wire):
    """The fields of PodSpec as text, and those that differ from pod to pod."""

    containers: list[PodContainer]
    init_containers: Raw = NOTHING
    overhead: Raw = NOTHING
    resources: Raw = NOTHING
    node_selector: Raw = NOTHING
    affinity: Raw = NOTHING
    tolerations: Raw = NOTHING
    topology_spread_constraints: Raw = NOTHING
    resource_claims: Raw = NOTHING
    volumes: Raw = NOTHING
    scheduling_gates: Raw = NOTHING
    scheduling_group: Raw = NOTHING
    workload_ref: Raw = NOTHING
    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None  # resolved by the server, unless its admission plugin for that is off
    priority_class_name: str = ""
    preemption_policy: str = ""
    termination_grace_period_seconds: int | None = None
    hostname: str = ""
    subdomain: str = ""


class PodStatus(Wire):
    phase: str = "Pending"
    start_time: str | None = None
    nominated_node_name: str = ""
    conditions: Raw = NOTHING
    container_statuses: Raw = NOTHING
    init_container_statuses: Raw = NOTHING
    resources: Raw = NOTHING
    allocated_resources: Raw = NOTHING


class Pod(Wire):
    metadata: PodMeta
    spec: PodBody
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class WireTaint(Wire):
    key: str
    value: str = ""
    effect: str = "NoSchedule"


class NodeSpec(Wire):
    unschedulable: bool = False
    taints: list[WireTaint] | None = None


class NodeStatus(Wire):
    allocatable: Amounts | None = None
    conditions: list[Condition] | None = None


class Node(Wire):
    metadata: Meta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class PhaseStatus(Wire):
    """Of a claim: Pending | Bound | Lost. Of a volume: Available | Bound | Released | Failed."""

    phase: str = ""


class ClaimSpec(Wire):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] | None = None
    volume_mode: str | None = None
    resources: Resources | None = None
    selector: LabelSelector | None = None
    volume_attributes_class_name: str | None = None


class Claim(Wire):
    """A PersistentVolumeClaim."""

    metadata: Meta
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: PhaseStatus = msgspec.field(default_factory=PhaseStatus)


class VolumeNodeAffinity(Wire):
    required: NodeSelector | None = None


class VolumeSpec(Wire):
    node_affinity: VolumeNodeAffinity | None = None
    capacity: Amounts | None = None
    access_modes: tuple[str, ...] | None = None
    volume_mode: str | None = None
    storage_class_name: str = ""
    claim_ref: Meta | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolume(Wire):
    metadata: Meta
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)
    status: PhaseStatus = msgspec.field(default_factory=PhaseStatus)


class TopologyTerm(Wire):
    """Where a provisioner makes volumes: all of these must hold."""

    match_label_expressions: tuple[Expression, ...] | None = None


class StorageClass(Wire):
    metadata: Meta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] | None = None


class Namespace(Wire):
    metadata: Meta


class PriorityClass(Wire):
    metadata: Meta
    value: int = 0
    global_default: bool = False


class ReplicatedSpec(Wire):
    replicas: int | None = None
    pod_management_policy: str | None = None


class Replicated(Wire):
    """A ReplicaSet or a StatefulSet, without its pod template: a cluster keeps ten old ones for each Deployment."""

    metadata: Meta
    spec: ReplicatedSpec | None = None
