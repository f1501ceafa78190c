"""Index which pods belong to which unit (a gang, or a pod on its own), and which units a change touched.

A pod can name another gang at any time, also once it runs. Who pays for it was settled when it started: a gang whose
running pods are paid by another queue, or that may not be stopped, does not take it.
"""

import hashlib
from typing import NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.cache.checkpoint_annotations import CHECKPOINT_ANNOTATIONS
from kaiwo.clusters.kubernetes.decode.pod_decoder import SETTLED_KEYS, CachedPod, Key
from kaiwo.clusters.kubernetes.gangs.gang import Gang, GangKey
from kaiwo.clusters.kubernetes.gangs.gang_tracker import GangTracker
from kaiwo.clusters.kubernetes.gangs.labels import USED_ANNOTATIONS, USED_LABELS, keep_used
from kaiwo.clusters.kubernetes.gangs.metadata import Owner, Reference, TemplateSpec, WorkloadReference, read_gang_name
from kaiwo.clusters.kubernetes.gangs.ownership import Member
from kaiwo.clusters.kubernetes.gangs.registry import GangId
from kaiwo.clusters.kubernetes.gangs.replacements import may_be_replaced, replacement_delay_s

Unit = GangId | Key  # a gang, or a pod on its own
_GANG_ANNOTATION = b'.ai/gang"'
_read_group = msgspec.json.Decoder(TemplateSpec).decode


class WorkloadNames:
    """The names of units: `namespace/name`, short, unique, and constant for as long as the unit exists."""

    def __init__(self) -> None:
        self.unit_of: dict[str, Unit] = {}
        self._name_of: dict[Unit, str] = {}

    def name(self, unit: Unit) -> str:
        """The plain name. A pod and a Job, or a Job and its successor, may share it: then the second gets a suffix."""
        found = self._name_of.get(unit)
        if found is None:
            found = _plain_name(unit)
            if found in self.unit_of:
                suffix = hashlib.blake2b(repr(unit).encode(), digest_size=3).hexdigest()
                found = f"{found}.{suffix}"
            self._name_of[unit] = found
            self.unit_of[found] = unit
        return found

    def find(self, unit: Unit) -> str | None:
        return self._name_of.get(unit)

    def delete(self, unit: Unit) -> None:
        name = self._name_of.pop(unit, None)
        if name is not None:
            del self.unit_of[name]


class OwnerMetadata(NamedTuple):
    """The annotations and labels of an owner that are settings of its workload."""

    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}


class OwnerObject(NamedTuple):
    """An object that owns pods: what decides about gangs, and its settings for the workload."""

    owner: Owner
    metadata: OwnerMetadata = OwnerMetadata()


class SettledTerms(NamedTuple):
    """What was settled when a pod started. They are ordered by age: the oldest of a gang is the first."""

    created_s: int
    name: str
    terms: tuple[str, ...]  # empty: an earlier version has started it, and wrote none


class GangIndex:
    """Every pod is in one unit, or in none. A change touches the units it concerns; `take_touched` returns them."""

    def __init__(self, names: WorkloadNames) -> None:
        self.unit_of: dict[Key, Unit] = {}
        self.keys_of: dict[Unit, set[Key]] = {}
        self._names = names
        self._gangs = GangTracker()
        self._touched_gangs: set[GangId] = set()
        self._owner_metadata: dict[str, OwnerMetadata] = {}  # by UID of an owner
        self._with_checkpoint: set[str] = set()  # UIDs of owners with a checkpoint annotation
        self._settled: dict[Key, SettledTerms] = {}  # of the bound pods that name a gang
        self._touched: dict[Unit, None] = {}
        self._are_all_touched = False

    def upsert_pod(self, pod: CachedPod) -> None:
        if pod.owners or pod.labels_text or pod.annotations_text or pod.group_text:  # others are on their own
            self._touched_gangs |= self._gangs.upsert_pod(member_of(pod))
        gang_id = self._gangs.gang_of(*pod.key)
        if gang_id is None:
            self._settled.pop(pod.key, None)
            self.assign(pod.key, pod.key)
            return
        if self._is_settled_anew(pod):
            self._touched_gangs.add(gang_id)
        self.touch(pod.key)

    def delete_pod(self, key: Key) -> None:
        self._settled.pop(key, None)
        self._touched_gangs |= self._gangs.delete_pod(*key)
        self.assign(key, None)

    def upsert_owner(self, item: OwnerObject) -> None:
        self._touched_gangs |= self._gangs.upsert_owner(item.owner)
        uid, now = item.owner.uid, item.metadata
        before = self._owner_metadata.get(uid, OwnerMetadata())
        if before == now:
            return
        self._owner_metadata[uid] = now
        has_checkpoint = any(key in now.annotations for key in CHECKPOINT_ANNOTATIONS)
        (self._with_checkpoint.add if has_checkpoint else self._with_checkpoint.discard)(uid)
        changed = {key for key, _ in before.annotations.items() ^ now.annotations.items()}
        if changed.issubset(CHECKPOINT_ANNOTATIONS) and before.labels == now.labels:
            for key in self._gangs.pods_under(item.owner):  # programs write checkpoints often
                self.touch(key)
        else:
            self._are_all_touched = True  # people seldom change the others

    def delete_owner(self, item: OwnerObject) -> None:
        self._touched_gangs |= self._gangs.delete_owner(item.owner)
        self._owner_metadata.pop(item.owner.uid, None)
        self._with_checkpoint.discard(item.owner.uid)

    def assign(self, key: Key, unit: Unit | None) -> None:
        """Put a pod into a unit; None: into none."""
        before = self.unit_of.get(key)
        if before is not None and before != unit:
            self.keys_of[before].discard(key)
            self._touched[before] = None
            del self.unit_of[key]
        if unit is not None:
            self.unit_of[key] = unit
            self.keys_of.setdefault(unit, set()).add(key)
            self._touched[unit] = None

    def touch(self, key: Key) -> None:
        if key in self.unit_of:
            self._touched[self.unit_of[key]] = None

    def touch_workload(self, name: str) -> None:
        if name in self._names.unit_of:
            self._touched[self._names.unit_of[name]] = None

    def touch_gang(self, gang: GangId | None) -> None:
        """Does nothing if the gang has no pods of ours."""
        if gang in self.keys_of:
            self._touched[gang] = None

    def touch_all(self) -> None:
        """Something changed that any pod may depend on, which is rare."""
        self._are_all_touched = True

    def take_touched(self) -> list[Unit]:
        """The units to compute again. The pods of a gang are assigned once, however many of them changed."""
        gang_ids, self._touched_gangs = self._touched_gangs, set()
        for gang_id in sorted(gang_ids):
            gang = self._gangs.gang(gang_id)
            members = set(self._gangs.pods(gang_id))
            strangers = self._paid_by_others(members)
            for key in members:
                # A workload does not start while its own pods are being stopped; those of a previous run are not its.
                is_member = gang is not None and key[1] not in gang.previous_run and key not in strangers
                self.assign(key, gang_id if is_member else key)
            for key in self.keys_of.get(gang_id, set()) - members:
                other = self._gangs.gang_of(*key)
                self.assign(key, other if other is not None and self._gangs.gang(other) else key)
            self._touched[gang_id] = None
        if self._are_all_touched:
            self._are_all_touched = False
            self._touched |= dict.fromkeys(self.keys_of)
        touched, self._touched = self._touched, {}
        return list(touched)

    def _is_settled_anew(self, pod: CachedPod) -> bool:
        before = self._settled.pop(pod.key, None)
        if pod.node and not pod.is_finished:
            notes = pod.annotations
            terms = tuple(notes.get(key, "") for key in SETTLED_KEYS)
            self._settled[pod.key] = SettledTerms(pod.created_s, pod.name, terms if all(terms) else ())
        return before != self._settled.get(pod.key)

    def _paid_by_others(self, members: set[Key]) -> set[Key]:
        """The running pods of a gang that started on other terms than its oldest one."""
        settled = {key: found for key in members if (found := self._settled.get(key)) is not None and found.terms}
        if len({found.terms for found in settled.values()}) < 2:
            return set()
        oldest = min(settled.values())
        return {key for key, found in settled.items() if found.terms != oldest.terms}

    def gang(self, unit: Unit) -> Gang | None:
        """The gang of a unit; None for a pod on its own."""
        return self._gangs.gang(unit) if isinstance(unit, GangId) else None

    def is_in_gang(self, key: Key) -> bool:
        return isinstance(self.unit_of.get(key), GangId)

    def replaces(self, member: Member) -> bool:
        """Whether the owner of a lost pod may still make another one."""
        return may_be_replaced(member, self._gangs.owners)

    def replacement_delay_s(self, member: Member) -> int:
        return replacement_delay_s(member, self._gangs.owners)

    def top_owner(self, pod: CachedPod) -> Reference | None:
        """The object above all that make this pod, as far as it has been seen; None: nothing makes it."""
        links = self._gangs.owners.chain(member_of(pod))
        return links[-1].reference if links else None

    def owner_metadata(self, pod: CachedPod) -> list[OwnerMetadata]:
        """The annotations and labels of a pod's owners, nearest first."""
        if not pod.owners or not self._owner_metadata:
            return []
        uids = (link.reference.uid for link in self._gangs.owners.chain(member_of(pod)))
        return [self._owner_metadata[uid] for uid in uids if uid in self._owner_metadata]

    def owner_checkpoints(self, pod: CachedPod) -> list[OwnerMetadata]:
        """The same, but empty when no owner has a checkpoint annotation: few do, and every workload calls this."""
        return self.owner_metadata(pod) if self._with_checkpoint else []


class ForeignMembers:
    """Pods of another scheduler that name a gang of ours: such a gang can never start as a whole."""

    def __init__(self) -> None:
        self._by_gang: dict[GangId, dict[Key, str]] = {}
        self._gang_of: dict[Key, GangId] = {}

    def upsert_pod(self, pod: CachedPod) -> GangId | None:
        """A pod of another scheduler is new or changed. Returns the gang that it names."""
        names_gang = _GANG_ANNOTATION in pod.annotations_text and not (pod.is_finished or pod.is_terminating)
        name = read_gang_name((pod.annotations,)) if names_gang else ""
        if not name:
            return self.delete_pod(pod.key)
        gang_id = GangId("gang", GangKey("gang", pod.namespace, name))
        self._by_gang.setdefault(gang_id, {})[pod.key] = pod.scheduler
        self._gang_of[pod.key] = gang_id
        return gang_id

    def delete_pod(self, key: Key) -> GangId | None:
        """The pod is gone, finished, or ours. Returns the gang that it named."""
        gang_id = self._gang_of.pop(key, None)
        if gang_id is not None:
            self._by_gang[gang_id].pop(key)
            if not self._by_gang[gang_id]:
                del self._by_gang[gang_id]
        return gang_id

    def of(self, gang: GangKey) -> dict[str, str]:
        """The scheduler of each such pod, by its name."""
        return {key[1]: scheduler for key, scheduler in sorted(self._by_gang.get(GangId("gang", gang), {}).items())}


def member_of(pod: CachedPod) -> Member:
    group = _read_group(pod.group_text) if pod.group_text else TemplateSpec()
    workload = group.workload_ref or WorkloadReference()
    return Member(
        name=pod.name,
        namespace=pod.namespace,
        labels=keep_used(pod.labels, USED_LABELS),
        annotations=keep_used(pod.annotations, USED_ANNOTATIONS),
        owner=next((owner for owner in pod.owners if owner.controller), None),
        node=pod.node,
        phase=pod.phase,
        is_ready=pod.is_ready,
        is_leaving=pod.is_terminating,
        pod_group=(group.scheduling_group and group.scheduling_group.pod_group_name) or "",
        workload=(workload.name or "", workload.pod_group or "", workload.pod_group_replica_key or ""),
    )


def _plain_name(unit: Unit) -> str:
    if not isinstance(unit, GangId):
        return f"{unit[0]}/{unit[1]}"
    key = unit.key
    return f"{key.namespace}/{key.name}" + (f"-{key.part}" if key.part else "")
