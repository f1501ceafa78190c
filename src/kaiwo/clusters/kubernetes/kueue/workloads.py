"""Kueue's Workload objects, as far as they say why work waits.

In:    the object.   Out: whose pods it is about, and one sentence.
"""

import msgspec

from kaiwo.clusters.kubernetes.objects import Condition, Wire

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


class Standing(msgspec.Struct, frozen=True):
    """What Kueue says of some pods."""

    namespace: str
    name: str  # that of the group, for a group of plain pods
    owners: frozenset[str]  # UIDs: of a Job, or of the pods themselves
    sentence: str


def read_standing(item: WorkloadObject) -> Standing:
    """One Workload in our words."""
    meta = item.metadata
    owners = frozenset(owner.uid for owner in meta.owner_references or ())
    return Standing(meta.namespace, meta.name, owners, _sentence(item))


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
