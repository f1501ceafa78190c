"""Explain why pods wait for Kueue, which decides when work may run and on which kind of node."""

import msgspec

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.decode.wire_objects import Condition, Meta, Wire
from kaiwo.clusters.kubernetes.gangs.labels import (
    KUEUE_GROUP,
    KUEUE_PREFERRED,
    KUEUE_REQUIRED,
    KUEUE_SET_GROUP,
    KUEUE_SLICE_REQUIRED,
    KUEUE_SLICE_SIZE,
)
from kaiwo.manifests.kinds.node_affinity import HOSTNAME
from kaiwo.model.network.constraint import TopologyConstraint

GROUP, KIND = "kueue.x-k8s.io", "Workload"
MAX_CHARACTERS = 300  # of Kueue's own message
_PREFIX_BYTES = b'"kueue.x-k8s.io/'
TAS_LABEL = "kueue.x-k8s.io/tas"
UNKNOWN = "it waits for Kueue, which has no Workload for it yet; is Kueue running, and does its local queue exist?"


class KueueState(msgspec.Struct, frozen=True):
    """Why Kueue keeps some pods waiting."""

    namespace: str
    name: str  # that of the group, for a group of plain pods
    owners: frozenset[str]  # UIDs: of a Job, or of the pods themselves
    reason: str

    def is_about(self, pod: CachedPod) -> bool:
        if pod.namespace != self.namespace:
            return False
        uids = {pod.uid, *(owner.uid for owner in pod.owners)}
        return not self.owners.isdisjoint(uids) or pod.labels.get(KUEUE_GROUP) == self.name


class KueueWorkloads:
    """Kueue's Workloads, and the gated pods that wait for them."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], KueueState] = {}
        self._by_owner: dict[str, KueueState] = {}
        self._gated: dict[Key, CachedPod] = {}

    def upsert_pod(self, pod: CachedPod) -> None:
        if pod.is_gated and is_managed_by_kueue(pod):
            self._gated[pod.key] = pod
        else:
            self._gated.pop(pod.key, None)

    def delete_pod(self, key: Key) -> None:
        self._gated.pop(key, None)

    def upsert(self, state: KueueState) -> list[Key]:
        """A Workload is new or changed. Returns the pods that it concerns."""
        key = (state.namespace, state.name)
        before = self._by_name.get(key)
        if before == state:
            return []
        if before is not None:
            self._drop_owners(before)
        self._by_name[key] = state
        self._by_owner |= dict.fromkeys(state.owners, state)
        return self._pods_of(state)

    def delete(self, state: KueueState) -> list[Key]:
        """A Workload is gone. Returns the pods that it concerned."""
        self._by_name.pop((state.namespace, state.name), None)
        self._drop_owners(state)
        return self._pods_of(state)

    def explain(self, pod: CachedPod) -> str:
        """Why a gated pod waits; empty: Kueue does not manage it."""
        if not is_managed_by_kueue(pod):
            return ""
        found = self._by_owner.get(pod.uid) or self._by_name.get((pod.namespace, pod.labels.get(KUEUE_GROUP, "")))
        found = found or next((self._by_owner[each.uid] for each in pod.owners if each.uid in self._by_owner), None)
        return found.reason if found is not None else UNKNOWN

    def _pods_of(self, state: KueueState) -> list[Key]:
        return [pod.key for pod in self._gated.values() if state.is_about(pod)]

    def _drop_owners(self, state: KueueState) -> None:
        for uid in state.owners:
            if self._by_owner.get(uid) == state:
                del self._by_owner[uid]


def is_managed_by_kueue(pod: CachedPod) -> bool:
    return _PREFIX_BYTES in pod.labels_text or _PREFIX_BYTES in pod.annotations_text


def kueue_levels(pod: CachedPod) -> TopologyConstraint | None:
    """The levels that Kueue's annotations ask for the pods of its pod set; None: none, or Kueue has chosen the domain.

    Kueue labels the pods for which it chooses, and writes the domain into their node selectors before it ungates them.
    """
    if _PREFIX_BYTES not in pod.annotations_text:
        return None
    notes = pod.annotations
    required, preferred = notes.get(KUEUE_REQUIRED, ""), notes.get(KUEUE_PREFERRED, "")
    slice_level, slice_size = notes.get(KUEUE_SLICE_REQUIRED, ""), notes.get(KUEUE_SLICE_SIZE, "")
    has_slices = bool(slice_level) and slice_size.isdecimal() and int(slice_size[:9]) > 0
    if not (required or preferred or has_slices):
        return None
    chosen = {rule.key for rule in pod.spec.request.node_rules if rule.operator == "In"}
    if TAS_LABEL in pod.labels or chosen & {required or preferred, HOSTNAME}:
        return None
    segment = (int(slice_size[:9]), slice_level) if has_slices else (0, "")
    return TopologyConstraint("", required, preferred, "", *segment)


def kueue_set_group(pod: CachedPod) -> str:
    """The name that its pod set shares with others: all of them run in one domain. Empty: it is by itself."""
    return pod.annotation(KUEUE_SET_GROUP)


class _Spec(Wire):
    queue_name: str = ""
    active: bool = True


class _Admission(Wire):
    cluster_queue: str = ""


class _Check(Wire):
    name: str = ""
    state: str = ""
    message: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.message[:MAX_CHARACTERS]})" if self.message else self.name


class _Status(Wire):
    admission: _Admission | None = None
    conditions: tuple[Condition, ...] | None = None
    admission_checks: tuple[_Check, ...] | None = None


class KueueWorkload(Wire):
    """A Kueue Workload, of any version: these fields are in all of them."""

    metadata: Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


def read_kueue_state(item: KueueWorkload) -> KueueState:
    meta = item.metadata
    owners = frozenset(owner.uid for owner in meta.owner_references or ())
    return KueueState(meta.namespace, meta.name, owners, _explain(item))


def _explain(item: KueueWorkload) -> str:
    where = f"queue {item.spec.queue_name}" if item.spec.queue_name else "no queue"
    if not item.spec.active:
        return f"Kueue has deactivated it ({where}); set spec.active of its Workload {item.metadata.name} to true again"
    facts = {each.type: each for each in item.status.conditions or ()}
    true_facts = {name for name, each in facts.items() if each.status == "True"}
    admission = item.status.admission.cluster_queue if item.status.admission else ""
    if "Admitted" in true_facts:
        return f"Kueue has admitted it to {admission or 'its cluster queue'} and has not removed its gate yet"
    if "QuotaReserved" in true_facts:
        checks = [str(check) for check in item.status.admission_checks or () if check.state != "Ready"]
        return f"Kueue has reserved quota of {admission} for it and waits for {', '.join(checks) or 'its last step'}"
    last = facts.get("QuotaReserved") or facts.get("Evicted")
    why = f": {last.message[:MAX_CHARACTERS]}" if last is not None and last.message else ""
    return f"Kueue has not admitted it yet ({where}){why}"
