"""Decode pods into CachedPods, which are small and share what is equal with other pods.

In:    a pod from the wire.   Out: a CachedPod of less than a kilobyte.
Measured with bench/decode.py: what few pods need (labels, annotations) stays text until it is read, and what equal pods
ask for is computed once. Reading everything into dictionaries took three times as long.
For a pod that is resized in place, what the kubelet has allocated counts too, not only what its spec asks for.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw

from kaiwo.clusters.kubernetes.decode.pod_request import NO_CLAIMS, Claims, PodRequest, read_pod_request
from kaiwo.clusters.kubernetes.decode.quantities import read_time_s
from kaiwo.clusters.kubernetes.decode.wire_objects import (
    NOTHING,
    Condition,
    Pod,
    PodBody,
    PodContainer,
    PodMeta,
    PodSpec,
    PodStatus,
    Volume,
    Wire,
)
from kaiwo.clusters.kubernetes.gangs.labels import KAI_LEVELS, KUEUE_LEVELS, USED_ANNOTATIONS
from kaiwo.clusters.kubernetes.gangs.metadata import Reference
from kaiwo.manifests.kinds.annotations import (
    KNOWN_ANNOTATIONS,
    MAX_CHARACTERS,
    OUR_PREFIX,
    SCHEDULER_ANNOTATIONS,
    UPSTREAM_PREFIX,
)

MAX_ANNOTATIONS_BYTES = 256  # longer annotations are cut down to those that are read
SETTLED_KEYS = (OUR_PREFIX + "queue", OUR_PREFIX + "preemptible")  # who pays, and whether it may be stopped
GANG_ANNOTATIONS = frozenset((*USED_ANNOTATIONS, *KUEUE_LEVELS, *KAI_LEVELS))
_FOR_CONTAINERS = ("world-size", "rank-hosts")  # written for containers, and read by nobody here
_OUR_ANNOTATIONS = frozenset(
    prefix + name
    for prefix in (OUR_PREFIX, UPSTREAM_PREFIX)
    for name in SCHEDULER_ANNOTATIONS
    if name not in _FOR_CONTAINERS
)
_SETTINGS = GANG_ANNOTATIONS.union(
    prefix + name for prefix in (OUR_PREFIX, UPSTREAM_PREFIX) for name in KNOWN_ANNOTATIONS
)
_EVICTED_BYTES = b'"EvictionByEvictionAPI"'  # the reason in the condition DisruptionTarget
_LEADER_BYTES = b'"leaderworkerset.sigs.k8s.io/'
_GPU_KEYS = (OUR_PREFIX + "gpu-", UPSTREAM_PREFIX + "gpu-")
_GPU_KEY_BYTES = tuple(key.encode() for key in _GPU_KEYS)
# The fields of PodSpec that `read_pod_request` reads, as (name in JSON, name in PodBody).
_PARTS = tuple(
    (f',"{field.encode_name}":'.encode(), field.name)
    for field in msgspec.structs.fields(PodBody)
    if field.name in PodSpec.__struct_fields__ and field.name != "containers"
)

Key = tuple[str, str]  # namespace, name
Texts = dict[str, str]

_read_texts = msgspec.json.Decoder(Texts).decode
_read_owners = msgspec.json.Decoder(tuple[Reference, ...]).decode
_read_conditions = msgspec.json.Decoder(list[Condition]).decode
_read_volumes = msgspec.json.Decoder(list[Volume]).decode
_read_spec = msgspec.json.Decoder(PodSpec).decode
_read_containers = msgspec.json.Decoder(list[PodContainer]).decode


class CachedPod(msgspec.Struct, frozen=True, gc=False):
    namespace: str
    name: str
    uid: str
    version: int  # the server's; a higher one is newer, 0 was never stored
    spec: PodRequest
    labels_text: bytes = b""
    annotations_text: bytes = b""
    owners: tuple[Reference, ...] = ()
    node: str = ""
    scheduler: str = ""
    phase: str = "Pending"
    created_s: int = 0
    started_s: int = 0
    priority: int | None = None  # None: the server did not resolve it; see `priority_classes`
    priority_class: str = ""
    is_terminating: bool = False  # being deleted, and still there
    is_gated: bool = False
    may_preempt: bool = True
    nominated_node: str = ""  # the node on which its own scheduler keeps space for it
    is_ready: bool = False  # only for pods of a LeaderWorkerSet; nothing else needs it
    group_text: bytes = b""  # its group in Kubernetes' own PodGroup and Workload API
    deleted_s: int = 0  # when it was told to go; 0: it was not
    is_evicted: bool = False  # it was told to go through the Eviction API
    grace_s: int = 0  # how long it may take to go; 0: it was not told to
    asked_grace_s: int = 0  # how long it would like to take
    host_name: str = ""  # under which the other pods find it, where that is not the name of the pod
    image: str = ""  # of its first container

    @property
    def host(self) -> str:
        """The name under which the other pods of its gang reach it, if a Service of theirs publishes it."""
        return self.host_name or self.name

    @property
    def key(self) -> Key:
        """Unique among the pods that exist now; the UID is unique forever."""
        return self.namespace, self.name

    @property
    def is_finished(self) -> bool:
        """Succeeded or failed: it holds nothing."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def labels(self) -> Texts:
        return _read_texts(self.labels_text) if self.labels_text else {}

    @property
    def annotations(self) -> Texts:
        """Its annotations, at least those that Kaiwo reads."""
        return _read_texts(self.annotations_text) if self.annotations_text else {}

    def annotation(self, name: str) -> str:
        """One annotation; empty: it has none. Nothing is decoded unless the name occurs in the text."""
        return self.annotations.get(name, "") if name.encode() in self.annotations_text else ""


class PodDecoder:
    """Makes CachedPods. Equal parts are kept once.

    `is_guarded`: an admission policy lets only kubelets and schedulers write the status of pods. Without it, whoever
    may write a pod may write its status: a nominated node and allocated amounts would keep space that is not his.
    """

    def __init__(self, is_guarded: bool = True) -> None:
        self._is_guarded = is_guarded
        self._requests: dict[bytes, PodRequest] = {}
        self._texts: dict[str, str] = {}
        self._owners: dict[bytes, tuple[Reference, ...]] = {}

    def decode(self, pod: Pod) -> CachedPod:
        meta, spec, status = pod.metadata, pod.spec, pod.status
        share = self._texts.setdefault
        annotations = _keep_read(bytes(meta.annotations))
        nominated = status.nominated_node_name if self._is_guarded else ""
        image = spec.containers[0].image[:MAX_CHARACTERS] if spec.containers else ""
        return CachedPod(
            share(meta.namespace, meta.namespace),
            meta.name,
            meta.uid,
            int(meta.resource_version) if meta.resource_version.isdecimal() else 0,
            self._request(spec, status, annotations, meta.name),
            bytes(meta.labels),
            annotations,
            self._share_owners(bytes(meta.owner_references)),
            share(spec.node_name, spec.node_name),
            share(spec.scheduler_name, spec.scheduler_name),
            share(status.phase, status.phase),
            read_time_s(meta.creation_timestamp),
            read_time_s(status.start_time),
            spec.priority,
            share(spec.priority_class_name, spec.priority_class_name),
            meta.deletion_timestamp is not None,
            spec.scheduling_gates is not NOTHING and len(bytes(spec.scheduling_gates)) > 2,
            spec.preemption_policy != "Never",
            share(nominated, nominated),
            _LEADER_BYTES in bytes(meta.labels) and _is_ready(status),
            _group_text(spec),
            _deleted_s(meta),
            meta.deletion_timestamp is not None and _EVICTED_BYTES in bytes(status.conditions),
            meta.deletion_grace_period_seconds or 0,
            spec.termination_grace_period_seconds or 0,
            _host_name(meta.name, spec),
            share(image, image),
        )

    def drop_unused(self, pods: Iterable[CachedPod]) -> None:
        """Drop shared parts that no live pod uses any longer: pods come and go for months."""
        live = list(pods)
        requests, owners = {id(pod.spec) for pod in live}, {id(pod.owners) for pod in live}
        self._requests = {text: found for text, found in self._requests.items() if id(found) in requests}
        self._owners = {text: found for text, found in self._owners.items() if id(found) in owners}
        self._texts = {
            text: text
            for pod in live
            for text in (pod.namespace, pod.node, pod.nominated_node, pod.scheduler, pod.phase, pod.image)
        }

    def _request(self, body: PodBody, status: PodStatus, annotations: bytes, pod: str) -> PodRequest:
        """Look the request up by a text, the smallest spec that asks for the same; decode it only when it is new."""
        parts: list[bytes | Raw] = []
        allocated = _allocated_text(body, status) if self._is_guarded else b""
        for container in body.containers:
            parts += (b',{"resources":' if parts else b'{"containers":[{"resources":', container.resources or b"null")
            if container.ports is not NOTHING and b"hostPort" in bytes(container.ports):
                parts += (b',"ports":', container.ports)
            if allocated:
                parts += (b',"name":', msgspec.json.encode(container.name))
            parts.append(b"}")
        parts.append(b"]")
        if allocated:
            parts += (b',"allocated":', allocated)
        for name, field in _PARTS:
            if (raw := getattr(body, field)) is not NOTHING:
                parts += (name, raw)
        parts.append(b"}")
        text = b"".join(parts)
        claims = _claims(bytes(body.volumes), pod)
        gpu_annotations = _gpu_annotations(annotations)
        key = text
        if claims.names or gpu_annotations:
            key += repr((claims, sorted(gpu_annotations.items()))).encode()
        found = self._requests.get(key)
        if found is None:
            found = self._requests[key] = read_pod_request(_read_spec(text), gpu_annotations, "the pod", claims)
        return found

    def _share_owners(self, text: bytes) -> tuple[Reference, ...]:
        if not text:
            return ()
        found = self._owners.get(text)
        if found is None:
            found = self._owners[text] = _read_owners(text)
        return found


def _keep_read(text: bytes) -> bytes:
    if len(text) <= MAX_ANNOTATIONS_BYTES:
        return text
    # A pod may have 256 kB of annotations. One character more than is allowed shows that a value is too long.
    kept = {
        key: value if key in _OUR_ANNOTATIONS else value[: MAX_CHARACTERS + 1]
        for key, value in _read_texts(text).items()
        if key in _SETTINGS or key in _OUR_ANNOTATIONS
    }
    return msgspec.json.encode(kept) if kept else b""


def _host_name(name: str, spec: PodBody) -> str:
    """`train-worker-0.train`: by the DNS of Kubernetes; empty: it is the name of the pod."""
    host = ".".join(filter(None, (spec.hostname or name, spec.subdomain)))
    return "" if host == name else host


def _gpu_annotations(text: bytes) -> Texts:
    if _GPU_KEY_BYTES[0] not in text and _GPU_KEY_BYTES[1] not in text:
        return {}
    return {key: value for key, value in _read_texts(text).items() if key.startswith(_GPU_KEYS)}


def _is_ready(status: PodStatus) -> bool:
    if status.phase != "Running":
        return False
    return any(item.type == "Ready" and item.status == "True" for item in _read_conditions(status.conditions or b"[]"))


def _deleted_s(meta: PodMeta) -> int:
    """The server stores when the grace period ends, not when it began."""
    if meta.deletion_timestamp is None:
        return 0
    return max(1, read_time_s(meta.deletion_timestamp) - (meta.deletion_grace_period_seconds or 0))


def _group_text(body: PodBody) -> bytes:
    if body.scheduling_group is NOTHING and body.workload_ref is NOTHING:
        return b""
    group, workload = bytes(body.scheduling_group), bytes(body.workload_ref)
    return b'{"schedulingGroup":' + (group or b"null") + b',"workloadRef":' + (workload or b"null") + b"}"


def _claims(volumes: bytes, pod: str) -> Claims:
    if b'"persistentVolumeClaim"' not in volumes and b'"ephemeral"' not in volumes:
        return NO_CLAIMS
    found, own = [], []
    for volume in _read_volumes(volumes):
        if volume.persistent_volume_claim is not None:
            found.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            found.append(f"{pod}-{volume.name}")
            own.append(found[-1])
    return Claims(tuple(found), tuple(own))


class ContainerAllocation(Wire, omit_defaults=True):
    name: str = ""
    resources: Raw = NOTHING
    allocated_resources: Raw = NOTHING


class AllocatedText(Wire, omit_defaults=True):
    """What the containers of a resized pod have been allocated; becomes `wire_objects.Allocated`."""

    containers: list[ContainerAllocation] = []
    pod: ContainerAllocation | None = None
    is_infeasible: bool = False


_read_allocations = msgspec.json.Decoder(list[ContainerAllocation]).decode


def _allocated_text(body: PodBody, status: PodStatus) -> bytes:
    """Empty if the kubelet has allocated exactly what the spec asks for."""
    if status.container_statuses is NOTHING and status.resources is NOTHING:
        return b""
    found = _differing(body.containers, bytes(status.container_statuses))
    if status.init_container_statuses is not NOTHING and b'"Always"' in bytes(body.init_containers):
        found += _differing(_read_containers(body.init_containers), bytes(status.init_container_statuses))
    pod = None
    if body.resources is not NOTHING and status.resources is not NOTHING:
        pod = ContainerAllocation("", status.resources, status.allocated_resources)
    if not found and pod is None:
        return b""
    return msgspec.json.encode(AllocatedText(found, pod, _is_infeasible(status)))


def _differing(containers: Sequence[PodContainer], statuses: bytes) -> list[ContainerAllocation]:
    if b'"resources":' not in statuses or (len(containers) == 1 and _repeats(statuses, bytes(containers[0].resources))):
        return []
    requested = {each.name: bytes(each.resources) for each in containers}
    return [
        given
        for given in _read_allocations(statuses)
        if given.resources is not NOTHING and not _is_same(requested.get(given.name, b""), given)
    ]


def _repeats(statuses: bytes, asked: bytes) -> bool:
    """Whether the status of a single container repeats the text of its spec, in the order in which a kubelet writes."""
    requests = asked.partition(b'"requests":')[2][:-1]
    return b'"allocatedResources":' + requests + b',"resources":' + asked in statuses


def _is_same(asked: bytes, given: ContainerAllocation) -> bool:
    allocated = bytes(given.allocated_resources)
    return bytes(given.resources) == asked and (not allocated or b'"requests":' + allocated in asked)


def _is_infeasible(status: PodStatus) -> bool:
    """Whether the node can never allocate what the spec asks for; then that request does not count."""
    conditions = _read_conditions(status.conditions) if status.conditions is not NOTHING else ()
    return next((each.reason == "Infeasible" for each in conditions if each.type == "PodResizePending"), False)
