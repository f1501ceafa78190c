"""The fields of Kubernetes objects that Kaiwo reads, as they come over the wire. The rest never exists here.

A field that the server may leave out has a default; one that it may send as null says so.
"""

from typing import Any

import msgspec
from msgspec import Raw

NOTHING = Raw()


class Wire(msgspec.Struct, rename="camel", gc=False):
    """Kubernetes writes camelCase."""


class Meta(Wire):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


Amounts = dict[str, str | int | float]


class Resources(Wire):
    """What a container asks for."""

    requests: Amounts | None = None
    limits: Amounts | None = None
    claims: list[Any] | None = None


class Port(Wire):
    """Only a port of the node matters to a scheduler."""

    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class Container(Wire):
    """One container, whatever it runs."""

    name: str = ""
    resources: Resources | None = None
    ports: list[Port] | None = None
    restart_policy: str = ""


class Expression(Wire):
    """One requirement on labels or fields."""

    key: str
    operator: str = "In"
    values: tuple[str, ...] | None = None


class Term(Wire):
    """All of these must hold."""

    match_expressions: tuple[Expression, ...] | None = None
    match_fields: tuple[Expression, ...] | None = None


class NodeSelector(Wire):
    """One of these must hold."""

    node_selector_terms: tuple[Term, ...] | None = None


class PreferredTerm(Wire):
    """Nodes that are better than others."""

    weight: int = 1
    preference: Term = msgspec.field(default_factory=Term)


class NodeAffinity(Wire):
    """On which nodes a pod must be, and on which it would rather be."""

    preferred: tuple[PreferredTerm, ...] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class LabelSelector(Wire):
    """All of these must hold of a pod's labels, or of a namespace's. An empty one matches all, a missing one none."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Expression, ...] | None = None


class PodTerm(Wire):
    """Pods near which, or apart from which, a pod must be. The server has merged the keys of labels into it."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None


class PodAffinity(Wire):
    """What is only preferred is not read."""

    required: tuple[PodTerm, ...] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Wire):
    """Where a pod wants to be."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Wire):
    """Which taints do not matter."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Spread(Wire):
    """How evenly pods want to lie."""

    when_unsatisfiable: str = "DoNotSchedule"
    topology_key: str = ""
    max_skew: int = 1
    min_domains: int | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class ClaimName(Wire):
    """A volume's claim."""

    claim_name: str = ""


class Volume(Wire):
    """Volumes without a claim do not bind a pod to nodes."""

    name: str = ""
    persistent_volume_claim: ClaimName | None = None
    ephemeral: Any = None  # its claim is named after the pod and the volume


class Allocation(Wire):
    """What the kubelet has given to a container, or to a pod as a whole."""

    name: str = ""
    resources: Resources | None = None  # what runs now
    allocated_resources: Amounts | None = None  # what it has promised


class Allocated(Wire):
    """Of a pod that is resized in place, those parts of which spec and status differ: see `resizing`."""

    containers: tuple[Allocation, ...] = ()
    pod: Allocation | None = None
    is_infeasible: bool = False  # what it asks for will never be given


class PodSpec(Wire):
    """What a pod asks for. It is read once for all pods that ask for the same: see `seen`."""

    containers: list[Container]
    init_containers: list[Container] | None = None
    overhead: Amounts | None = None
    resources: Resources | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[Spread] | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[Any] | None = None
    allocated: Allocated | None = None  # from its status


class PodMeta(Wire):
    """Labels, annotations and owners stay as they were written until somebody asks for them."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Raw = NOTHING
    annotations: Raw = NOTHING
    owner_references: Raw = NOTHING


class PodContainer(Wire):
    """Equal texts ask for equal things, so the text is enough to know them by."""

    name: str = ""
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
    priority: int | None = None  # the server works it out, unless somebody took that part of it away
    priority_class_name: str = ""
    preemption_policy: str = ""


class PodStatus(Wire):
    """Where it is in its life."""

    phase: str = "Pending"
    start_time: str | None = None
    nominated_node_name: str = ""
    conditions: Raw = NOTHING
    container_statuses: Raw = NOTHING
    init_container_statuses: Raw = NOTHING
    resources: Raw = NOTHING
    allocated_resources: Raw = NOTHING


class Pod(Wire):
    """One pod."""

    metadata: PodMeta
    spec: PodBody
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class WireTaint(Wire):
    """Keeps pods away."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class NodeSpec(Wire):
    """What people say of a node."""

    unschedulable: bool = False
    taints: list[WireTaint] | None = None


class Condition(Wire):
    """One fact about an object."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""


class NodeStatus(Wire):
    """What the kubelet says of a node."""

    allocatable: Amounts | None = None
    conditions: list[Condition] | None = None


class Node(Wire):
    """One node."""

    metadata: Meta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class ClaimSpec(Wire):
    """Which volume a claim got, or what it asks of one."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] | None = None
    volume_mode: str | None = None
    resources: Resources | None = None
    selector: LabelSelector | None = None
    volume_attributes_class_name: str | None = None


class ClaimStatus(Wire):
    """Pending | Bound | Lost."""

    phase: str = ""


class ClaimOwner(Wire):
    """Who made a claim."""

    uid: str = ""
    controller: bool | None = None


class ClaimMeta(Meta):
    """A claim of an ephemeral volume belongs to its pod."""

    owner_references: tuple[ClaimOwner, ...] | None = None


class Claim(Wire):
    """A PersistentVolumeClaim."""

    metadata: ClaimMeta
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)


class VolumeNodeAffinity(Wire):
    """On which nodes a volume can be used."""

    required: NodeSelector | None = None


class ClaimRef(Wire):
    """Whose a volume is."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeSpec(Wire):
    """Of a PersistentVolume."""

    node_affinity: VolumeNodeAffinity | None = None
    capacity: Amounts | None = None
    access_modes: tuple[str, ...] | None = None
    volume_mode: str | None = None
    storage_class_name: str = ""
    claim_ref: ClaimRef | None = None
    volume_attributes_class_name: str | None = None


class VolumeStatus(Wire):
    """Available | Bound | Released | Failed."""

    phase: str = ""


class PersistentVolume(Wire):
    """A volume that exists."""

    metadata: Meta
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)
    status: VolumeStatus = msgspec.field(default_factory=VolumeStatus)


class TopologyTerm(Wire):
    """Where a provisioner makes volumes: all of these must hold."""

    match_label_expressions: tuple[Expression, ...] | None = None


class StorageClass(Wire):
    """How volumes are made, and when."""

    metadata: Meta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] | None = None


class Namespace(Wire):
    """Its labels say which rules between pods reach into it."""

    metadata: Meta


class PriorityClass(Wire):
    """A name for a number."""

    metadata: Meta
    value: int = 0
    global_default: bool = False


class OwnedMeta(Meta):
    """With who made it."""

    owner_references: list[Any] | None = None


class ReplicatedSpec(Wire):
    """How many pods, and whether at once. The pod template, most of such an object, never exists here."""

    replicas: int | None = None
    pod_management_policy: str | None = None


class Replicated(Wire):
    """A ReplicaSet or a StatefulSet. A cluster keeps ten old ReplicaSets for each Deployment."""

    metadata: OwnedMeta
    spec: ReplicatedSpec | None = None


class QueueMeta(Meta):
    """Its generation counts the changes of what people wrote."""

    generation: int = 0


class QueueObject(Wire):
    """A KaiwoQueue. Its spec is read by the same code as a file's."""

    metadata: QueueMeta
    spec: dict[str, Any] | None = None
    status: Raw = NOTHING  # see `memory`
