"""Why pods wait at Kueue's gates.

In:    Workloads and gated pods as they come and go.   Out: a sentence for each, and which pods a change concerns.

Also: Kueue beside us: it decides when work may run and on which kind of node, we decide where exactly.
Also: Kueue's Workload objects, as far as they say why work waits.
"""

import msgspec

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.decode.wire_objects import Condition, Wire
from kaiwo.clusters.kubernetes.gangs.labels import KUEUE_GROUP, KUEUE_REQUIRED
from kaiwo.manifests.kinds.node_affinity import HOSTNAME

GROUP, KIND = "kueue.x-k8s.io", "Workload"
MOST = 300  # characters of Kueue's own words


class _Owner(Wire):
    uid: str = ""


class _Meta(Wire):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    owner_references: tuple[_Owner, ...] | None = None


class _Spec(Wire):
    queue_name: str = ""
    active: bool = True


class _Admission(Wire):
    cluster_queue: str = ""


class _Check(Wire):
    name: str = ""
    state: str = ""
    message: str = ""


class _Status(Wire):
    admission: _Admission | None = None
    conditions: tuple[Condition, ...] | None = None
    admission_checks: tuple[_Check, ...] | None = None


class WorkloadObject(Wire):
    """One Workload, of any version: these fields are in all of them."""

    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class KueueState(msgspec.Struct, frozen=True):
    """What Kueue says of some pods."""

    namespace: str
    name: str  # that of the group, for a group of plain pods
    owners: frozenset[str]  # UIDs: of a Job, or of the pods themselves
    sentence: str


def read_kueue_state(item: WorkloadObject) -> KueueState:
    """One Workload in our words."""
    meta = item.metadata
    owners = frozenset(owner.uid for owner in meta.owner_references or ())
    return KueueState(meta.namespace, meta.name, owners, _sentence(item))


def _sentence(item: WorkloadObject) -> str:
    where = f"queue {item.spec.queue_name}" if item.spec.queue_name else "no queue"
    if not item.spec.active:
        return f"Kueue has set it aside ({where}); set spec.active of its Workload {item.metadata.name} to true again"
    facts = {each.type: each for each in item.status.conditions or ()}
    admission = item.status.admission.cluster_queue if item.status.admission else ""
    if _holds(facts.get("Admitted")):
        return f"Kueue has admitted it to {admission or 'its cluster queue'} and has yet to take its gate away"
    if _holds(facts.get("QuotaReserved")):
        open_checks = [check for check in item.status.admission_checks or () if check.state != "Ready"]
        return f"Kueue keeps quota of {admission} for it and waits for {_checks(open_checks)}"
    said = facts.get("QuotaReserved") or facts.get("Evicted")
    why = f": {said.message[:MOST]}" if said is not None and said.message else ""
    return f"Kueue has not admitted it yet ({where}){why}"


def _checks(checks: list[_Check]) -> str:
    listed = [f"{check.name} ({check.message[:MOST]})" if check.message else check.name for check in checks]
    return ", ".join(listed) or "its last step"


def _holds(condition: Condition | None) -> bool:
    return condition is not None and condition.status == "True"


MARK = b'"kueue.x-k8s.io/'
TAS_LABEL = "kueue.x-k8s.io/tas"
UNKNOWN = "it waits for Kueue, which has no Workload for it yet; is Kueue running, and does its local queue exist?"


class KueueWorkloads:
    """What Kueue says, by Workload."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], KueueState] = {}
        self._by_owner: dict[str, KueueState] = {}
        self._gated: dict[Key, CachedPod] = {}

    def upsert_pod(self, pod: CachedPod) -> None:
        """A pod of ours is there, or different."""
        if pod.is_gated and is_managed_by_kueue(pod):
            self._gated[pod.key] = pod
        else:
            self._gated.pop(pod.key, None)

    def delete_pod(self, key: Key) -> None:
        self._gated.pop(key, None)

    def upsert(self, standing: KueueState) -> list[Key]:
        """Whom it concerns."""
        key = (standing.namespace, standing.name)
        before = self._by_name.get(key)
        if before == standing:
            return []
        if before is not None:
            self._drop_owners(before)
        self._by_name[key] = standing
        self._by_owner |= dict.fromkeys(standing.owners, standing)
        return self._concerned(standing)

    def delete(self, standing: KueueState) -> list[Key]:
        """Whom it concerned."""
        self._by_name.pop((standing.namespace, standing.name), None)
        self._drop_owners(standing)
        return self._concerned(standing)

    def explain(self, pod: CachedPod) -> str:
        """Why a gated pod waits; empty: Kueue has nothing to do with it."""
        if not is_managed_by_kueue(pod):
            return ""
        found = self._by_owner.get(pod.uid) or self._by_name.get((pod.namespace, pod.labels.get(KUEUE_GROUP, "")))
        found = found or next((self._by_owner[each.uid] for each in pod.owners if each.uid in self._by_owner), None)
        return found.sentence if found is not None else UNKNOWN

    def _concerned(self, standing: KueueState) -> list[Key]:
        return [pod.key for pod in self._gated.values() if self._is_about(standing, pod)]

    @staticmethod
    def _is_about(standing: KueueState, pod: CachedPod) -> bool:
        if pod.namespace != standing.namespace:
            return False
        uids = {pod.uid, *(owner.uid for owner in pod.owners)}
        return not standing.owners.isdisjoint(uids) or pod.labels.get(KUEUE_GROUP) == standing.name

    def _drop_owners(self, standing: KueueState) -> None:
        for uid in standing.owners:
            if self._by_owner.get(uid) == standing:
                del self._by_owner[uid]


def is_managed_by_kueue(pod: CachedPod) -> bool:
    """Kueue looks after it."""
    return MARK in pod.labels_text or MARK in pod.annotations_text


def unassigned_topology(pod: CachedPod) -> str:
    """The level that its pods must share, where nobody has chosen the domain; empty: there is nothing to choose.

    Kueue marks the pods for which it chooses, and writes the domain into their node selectors before it lets them go.
    """
    if MARK not in pod.annotations_text:
        return ""
    level = pod.annotations.get(KUEUE_REQUIRED, "")
    chosen = {rule.key for rule in pod.spec.request.node_rules if rule.operator == "In"}
    return "" if TAS_LABEL in pod.labels or chosen & {level, HOSTNAME} else level
