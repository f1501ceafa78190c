"""A pod as the scheduler remembers it: small, and sharing whatever is equal with the others.

In:    a pod from the wire.   Out: a SeenPod of less than a kilobyte.
Measured with bench/decode.py: what is not needed for every pod (labels, annotations) stays text until it is asked for,
and what equal pods ask for is worked out once. Reading it all into dictionaries took three times as long.

Also: Pods that are resized in place: what the kubelet has given them counts beside what they ask for.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw

from kaiwo.clusters.kubernetes.decode.pod_request import NO_CLAIMS, Claims, PodRequest, read_pod_request
from kaiwo.clusters.kubernetes.decode.quantities import seconds
from kaiwo.clusters.kubernetes.decode.wire_objects import (
    NOTHING,
    Condition,
    Pod,
    PodBody,
    PodContainer,
    PodSpec,
    PodStatus,
    Volume,
    Wire,
)
from kaiwo.clusters.kubernetes.gangs.labels import KUEUE_REQUIRED, USED_ANNOTATIONS
from kaiwo.clusters.kubernetes.gangs.metadata import Reference
from kaiwo.manifests.kinds.annotations import OUR_PREFIX, UPSTREAM_PREFIX


class GivenText(Wire, omit_defaults=True):
    """What one container has been given, as text."""

    name: str = ""
    resources: Raw = NOTHING
    allocated_resources: Raw = NOTHING


class StandingText(Wire, omit_defaults=True):
    """Becomes `objects.Standing`."""

    containers: list[GivenText] = []
    pod: GivenText | None = None
    is_infeasible: bool = False


_read_given = msgspec.json.Decoder(list[GivenText]).decode
_read_named = msgspec.json.Decoder(list[PodContainer]).decode
_read_resize_conditions = msgspec.json.Decoder(list[Condition]).decode
_write = msgspec.json.Encoder().encode


def standing_text(body: PodBody, status: PodStatus) -> bytes:
    """Of this pod."""
    if status.container_statuses is NOTHING and status.resources is NOTHING:
        return b""
    found = _differing(body.containers, bytes(status.container_statuses))
    if status.init_container_statuses is not NOTHING and b'"Always"' in bytes(body.init_containers):
        found += _differing(_read_named(body.init_containers), bytes(status.init_container_statuses))
    pod = None
    if body.resources is not NOTHING and status.resources is not NOTHING:
        pod = GivenText("", status.resources, status.allocated_resources)
    if not found and pod is None:
        return b""
    return _write(StandingText(found, pod, _is_infeasible(status)))


def _differing(containers: Sequence[PodContainer], statuses: bytes) -> list[GivenText]:
    if b'"resources":' not in statuses or (len(containers) == 1 and _repeats(statuses, bytes(containers[0].resources))):
        return []
    asked = {each.name: bytes(each.resources) for each in containers}
    return [
        given
        for given in _read_given(statuses)
        if given.resources is not NOTHING and not _is_same(asked.get(given.name, b""), given)
    ]


def _repeats(statuses: bytes, asked: bytes) -> bool:
    """The status of a lone container says the words of its spec, in the order in which a kubelet writes them."""
    requests = asked.partition(b'"requests":')[2][:-1]
    return b'"allocatedResources":' + requests + b',"resources":' + asked in statuses


def _is_same(asked: bytes, given: GivenText) -> bool:
    allocated = bytes(given.allocated_resources)
    return bytes(given.resources) == asked and (not allocated or b'"requests":' + allocated in asked)


def _is_infeasible(status: PodStatus) -> bool:
    """The node can never give what is asked for, so it does not count."""
    conditions = _read_resize_conditions(status.conditions) if status.conditions is not NOTHING else ()
    return next((each.reason == "Infeasible" for each in conditions if each.type == "PodResizePending"), False)


NOTES_KEPT_BYTES = 256  # a longer text of annotations is cut down to those that are read
NOTES_OF_GANGS = frozenset((*USED_ANNOTATIONS, KUEUE_REQUIRED))
_LEADER = b'"leaderworkerset.sigs.k8s.io/'
_GPU_KEYS = (OUR_PREFIX + "gpu-", UPSTREAM_PREFIX + "gpu-")
_GPU_NOTES = tuple(key.encode() for key in _GPU_KEYS)
# The fields of PodSpec that `read_ask` reads, as (name in JSON, name in PodBody).
_PARTS = tuple(
    (f',"{field}":'.encode(), name)
    for field, name in (
        ("initContainers", "init_containers"),
        ("overhead", "overhead"),
        ("resources", "resources"),
        ("nodeSelector", "node_selector"),
        ("affinity", "affinity"),
        ("tolerations", "tolerations"),
        ("topologySpreadConstraints", "topology_spread_constraints"),
        ("resourceClaims", "resource_claims"),
    )
)

Key = tuple[str, str]  # namespace, name
Texts = dict[str, str]

_read_texts = msgspec.json.Decoder(Texts).decode
_read_owners = msgspec.json.Decoder(tuple[Reference, ...]).decode
_read_conditions = msgspec.json.Decoder(list[Condition]).decode
_read_volumes = msgspec.json.Decoder(list[Volume]).decode
_read_spec = msgspec.json.Decoder(PodSpec).decode


class CachedPod(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a pod."""

    namespace: str
    name: str
    uid: str
    version: int  # the server's; a higher one is newer
    spec: PodRequest
    labels_text: bytes = b""
    annotations_text: bytes = b""
    owners: tuple[Reference, ...] = ()
    node: str = ""
    scheduler: str = ""
    phase: str = "Pending"
    created_s: int = 0
    started_s: int = 0
    priority: int | None = None  # None: nobody worked it out; see `priorities`
    priority_class: str = ""
    is_terminating: bool = False  # told to go, and still there
    is_gated: bool = False
    may_preempt: bool = True
    nominated_node: str = ""  # the node on which its own scheduler keeps space for it
    is_ready: bool = False  # worked out for pods of a LeaderWorkerSet alone: nobody else asks
    group_text: bytes = b""  # what Kubernetes' own group API says of it

    @property
    def key(self) -> Key:
        """Unique at any one time; the uid is unique for ever."""
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
        """Its annotations, as far as anybody reads them."""
        return _read_texts(self.annotations_text) if self.annotations_text else {}


class PodDecoder:
    """Makes SeenPods. What is equal is kept once."""

    def __init__(self) -> None:
        self._asks: dict[bytes, PodRequest] = {}
        self._texts: dict[str, str] = {}
        self._owners: dict[bytes, tuple[Reference, ...]] = {}

    def decode(self, pod: Pod) -> CachedPod:
        """One pod."""
        meta, spec, status = pod.metadata, pod.spec, pod.status
        share = self._texts.setdefault
        notes = _notes(bytes(meta.annotations))
        return CachedPod(
            share(meta.namespace, meta.namespace),
            meta.name,
            meta.uid,
            _version(meta.resource_version),
            self._ask(spec, status, notes, meta.name),
            bytes(meta.labels),
            notes,
            self._share_owners(bytes(meta.owner_references)),
            share(spec.node_name, spec.node_name),
            share(spec.scheduler_name, spec.scheduler_name),
            share(status.phase, status.phase),
            seconds(meta.creation_timestamp),
            seconds(status.start_time),
            spec.priority,
            share(spec.priority_class_name, spec.priority_class_name),
            meta.deletion_timestamp is not None,
            spec.scheduling_gates is not NOTHING and len(bytes(spec.scheduling_gates)) > 2,
            spec.preemption_policy != "Never",
            share(status.nominated_node_name, status.nominated_node_name),
            _LEADER in bytes(meta.labels) and _is_ready(status),
            _group_text(spec),
        )

    def drop_unused(self, pods: Iterable[CachedPod]) -> None:
        """Drop what no living pod shares any more: pods come and go for months."""
        living = list(pods)
        asks, owners = {id(pod.spec) for pod in living}, {id(pod.owners) for pod in living}
        self._asks = {text: ask for text, ask in self._asks.items() if id(ask) in asks}
        self._owners = {text: found for text, found in self._owners.items() if id(found) in owners}
        self._texts = {text: text for pod in living for text in _texts_of(pod)}

    def _ask(self, body: PodBody, status: PodStatus, notes: bytes, pod: str) -> PodRequest:
        """Known by its text: the smallest spec that asks for the same. It is read only when it is new."""
        parts: list[bytes | Raw] = []
        standing = standing_text(body, status)
        for container in body.containers:
            parts += (b',{"resources":' if parts else b'{"containers":[{"resources":', container.resources or b"null")
            if container.ports is not NOTHING and b"hostPort" in bytes(container.ports):
                parts += (b',"ports":', container.ports)
            if standing:
                parts += (b',"name":', msgspec.json.encode(container.name))
            parts.append(b"}")
        parts.append(b"]")
        if standing:
            parts += (b',"standing":', standing)
        for name, field in _PARTS:
            if (raw := getattr(body, field)) is not NOTHING:
                parts += (name, raw)
        parts.append(b"}")
        text = b"".join(parts)
        claims = _claims(bytes(body.volumes), pod)
        gpu_notes = _gpu_notes(notes)
        key = text if not claims.names and not gpu_notes else text + repr((claims, sorted(gpu_notes.items()))).encode()
        found = self._asks.get(key)
        if found is None:
            found = self._asks[key] = read_pod_request(_read_spec(text), gpu_notes, "the pod", claims)
        return found

    def _share_owners(self, text: bytes) -> tuple[Reference, ...]:
        if not text:
            return ()
        found = self._owners.get(text)
        if found is None:
            found = self._owners[text] = _read_owners(text)
        return found


def _version(text: str) -> int:
    """Where in the server's history the pod stands. What was never stored, as others may ask about, is before all."""
    return int(text) if text.isdecimal() else 0


def _texts_of(pod: CachedPod) -> tuple[str, ...]:
    return pod.namespace, pod.node, pod.nominated_node, pod.scheduler, pod.phase


def _notes(text: bytes) -> bytes:
    if len(text) <= NOTES_KEPT_BYTES:
        return text
    found = _read_texts(text).items()
    kept = {
        key: value for key, value in found if key in NOTES_OF_GANGS or key.startswith((OUR_PREFIX, UPSTREAM_PREFIX))
    }
    return msgspec.json.encode(kept) if kept else b""


def _gpu_notes(text: bytes) -> Texts:
    """Those of its annotations that say what it wants of a GPU."""
    if _GPU_NOTES[0] not in text and _GPU_NOTES[1] not in text:
        return {}
    return {key: value for key, value in _read_texts(text).items() if key.startswith(_GPU_KEYS)}


def _is_ready(status: PodStatus) -> bool:
    if status.phase != "Running":
        return False
    return any(item.type == "Ready" and item.status == "True" for item in _read_conditions(status.conditions or b"[]"))


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
