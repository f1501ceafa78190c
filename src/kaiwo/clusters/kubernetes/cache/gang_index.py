"""Which pods make up which workload: gangs, and pods on their own.

In:    pods and the objects above them.   Out: units, and which of them were touched.

Also: A pod as the gang recogniser wants it.
Also: Pods that name a gang of ours and are left to another scheduler: the gang can never start whole.
"""

from typing import NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.cache.checkpoint_annotations import CHECKPOINT_ANNOTATIONS
from kaiwo.clusters.kubernetes.cache.workload_names import Unit
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.gangs import Gang, GangId, GangTracker, Member
from kaiwo.clusters.kubernetes.gangs.gang import GangKey as GangKey
from kaiwo.clusters.kubernetes.gangs.gang_names import read_gang_name
from kaiwo.clusters.kubernetes.gangs.labels import USED_ANNOTATIONS, USED_LABELS, keep_used
from kaiwo.clusters.kubernetes.gangs.metadata import Owner, TemplateSpec

_read_group = msgspec.json.Decoder(TemplateSpec).decode


def member_of(pod: CachedPod) -> Member:
    """One pod."""
    group = _read_group(pod.group_text) if pod.group_text else TemplateSpec()
    workload = group.workload_ref
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
        workload=(workload.name or "", workload.pod_group or "", workload.pod_group_replica_key or "")
        if workload
        else ("", "", ""),
    )


def may_be_in_a_gang(pod: CachedPod) -> bool:
    """A pod without an owner, labels, annotations or a group stands alone: there is no need to look."""
    return bool(pod.owners or pod.labels_text or pod.annotations_text or pod.group_text)


Metadata = tuple[dict[str, str], dict[str, str]]  # annotations and labels
NOTHING_SAID: Metadata = ({}, {})


class OwnerObject(NamedTuple):
    """An object above pods: what the recogniser reads of it, and what it says about its workload."""

    owner: Owner
    notes: dict[str, str]
    labels: dict[str, str]


class GangIndex:
    """Every pod is in one unit, or in none."""

    def __init__(self) -> None:
        self.unit_of: dict[Key, Unit] = {}
        self.keys_of: dict[Unit, set[Key]] = {}
        self._gangs = GangTracker()
        self._touched_gangs: set[GangId] = set()  # gangs to look at anew
        self._owner_metadata: dict[str, Metadata] = {}  # by UID of an object above pods
        self._with_checkpoint: set[str] = set()  # of those: who says when the work was saved
        self._touched: dict[Unit, None] = {}
        self._are_all_touched = False

    def upsert_pod(self, pod: CachedPod) -> None:
        """A pod of ours is there, or different."""
        if may_be_in_a_gang(pod):
            self._touched_gangs |= self._gangs.upsert_pod(member_of(pod))
        if self._gangs.gang_of(*pod.key) is None:
            self.assign(pod.key, pod.key)
        else:
            self.touch(pod.key)

    def delete_pod(self, key: Key) -> None:
        """A pod is gone."""
        self._touched_gangs |= self._gangs.delete_pod(*key)
        self.assign(key, None)

    def upsert_owner(self, above: OwnerObject) -> None:
        """An object above pods is there, or different."""
        self._touched_gangs |= self._gangs.upsert_owner(above.owner)
        uid, said = above.owner.uid, (above.notes, above.labels)
        before = self._owner_metadata.get(uid, NOTHING_SAID)
        if before == said:
            return
        self._owner_metadata[uid] = said
        (
            self._with_checkpoint.add
            if any(key in said[0] for key in CHECKPOINT_ANNOTATIONS)
            else self._with_checkpoint.discard
        )(uid)
        if (
            all(key in CHECKPOINT_ANNOTATIONS for key, _ in before[0].items() ^ said[0].items())
            and before[1] == said[1]
        ):
            for key in self._gangs.pods_under(above.owner):  # programs write this again and again
                self.touch(key)
        else:
            self._are_all_touched = True  # people seldom change the others

    def delete_owner(self, above: OwnerObject) -> None:
        """An object above pods is gone."""
        self._touched_gangs |= self._gangs.delete_owner(above.owner)
        self._owner_metadata.pop(above.owner.uid, None)
        self._with_checkpoint.discard(above.owner.uid)

    def assign(self, key: Key, unit: Unit | None) -> None:
        """Into a unit, or out of all."""
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
        """Something else about a pod changed."""
        if key in self.unit_of:
            self._touched[self.unit_of[key]] = None

    def touch_all(self) -> None:
        """Something that any pod may hang on changed; people seldom do that."""
        self._are_all_touched = True

    def touch_unit(self, unit: Unit) -> None:
        self._touched[unit] = None

    def take_touched(self) -> list[Unit]:
        """The units to work out anew. A gang's pods find their unit once, however many of them changed."""
        places, self._touched_gangs = self._touched_gangs, set()
        for place in sorted(places):
            group = self._gangs.gang(place)
            members = set(self._gangs.pods(place))
            for key in members:
                # A workload does not start while pods of its own are being stopped; those of a run before are not its.
                is_of_it = group is not None and key[1] not in group.previous_run
                self.assign(key, place if is_of_it else key)
            for key in self.keys_of.get(place, set()) - members:
                elsewhere = self._gangs.gang_of(*key)
                self.assign(key, elsewhere if elsewhere is not None and self._gangs.gang(elsewhere) else key)
            self._touched[place] = None
        if self._are_all_touched:
            self._are_all_touched = False
            self._touched |= dict.fromkeys(self.keys_of)
        touched, self._touched = self._touched, {}
        return list(touched)

    def gang(self, unit: Unit) -> Gang | None:
        """What the recogniser says of a unit; None for a pod on its own."""
        return self._gangs.gang(unit) if isinstance(unit, GangId) else None

    def owner_metadata(self, pod: CachedPod) -> list[Metadata]:
        """Annotations and labels of the objects above a pod, nearest first."""
        if not pod.owners or not self._owner_metadata:
            return []
        links = self._gangs.owners.chain(member_of(pod))
        return [
            self._owner_metadata[link.reference.uid] for link in links if link.reference.uid in self._owner_metadata
        ]

    def owner_checkpoints(self, pod: CachedPod) -> list[Metadata]:
        """The same, where any object says when the work was saved; few do, and every workload is asked."""
        return self.owner_metadata(pod) if self._with_checkpoint else []


_NOTE = b'.ai/gang"'


class ForeignMembers:
    """Those that are there."""

    def __init__(self) -> None:
        self._by_gang: dict[GangId, dict[Key, str]] = {}
        self._gang_of: dict[Key, GangId] = {}

    def see(self, pod: CachedPod) -> GangId | None:
        """A pod of another scheduler is there, or different; the gang that it names."""
        if _NOTE not in pod.annotations_text or pod.is_finished or pod.is_terminating:
            return self.forget(pod.key)
        name = read_gang_name((pod.annotations,))
        if not name:
            return self.forget(pod.key)
        place = GangId("gang", GangKey("gang", pod.namespace, name))
        self._by_gang.setdefault(place, {})[pod.key] = pod.scheduler
        self._gang_of[pod.key] = place
        return place

    def forget(self, key: Key) -> GangId | None:
        """It is gone, over, or ours; the gang that it named."""
        place = self._gang_of.pop(key, None)
        if place is not None:
            self._by_gang[place].pop(key)
            if not self._by_gang[place]:
                del self._by_gang[place]
        return place

    def of(self, gang: GangKey) -> dict[str, str]:
        """Names of pods, with the scheduler that each is left to."""
        return {key[1]: scheduler for key, scheduler in sorted(self._by_gang.get(GangId("gang", gang), {}).items())}
