"""Track the pods of gangs and their owners, and find which gangs an event touched.

The cost of an event depends on the pods below the object that changed, never on the size of the cluster. An event that
changes nothing we read touches nothing.
"""

from typing import TypeVar

from kaiwo.clusters.kubernetes.gangs.gang import Gang
from kaiwo.clusters.kubernetes.gangs.kinds import jobset as jobsets
from kaiwo.clusters.kubernetes.gangs.kinds import kubernetes_podgroup, leaderworkerset
from kaiwo.clusters.kubernetes.gangs.kinds.other_podgroups import named_groups
from kaiwo.clusters.kubernetes.gangs.labels import JOBSET_NAME, LWS_NAME
from kaiwo.clusters.kubernetes.gangs.metadata import FullName, Owner
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex
from kaiwo.clusters.kubernetes.gangs.registry import GangId, build_gang_of, find_gang

PodName = tuple[str, str]  # namespace, name
K = TypeVar("K")
V = TypeVar("V")


def names_used(member: Member) -> list[FullName]:
    """The objects that a pod depends on by name, so that a change of the object finds the pod."""
    found = [(group, "PodGroup", name) for group, name in named_groups(member)]
    if member.pod_group:
        found.append((kubernetes_podgroup.GROUP, "PodGroup", member.pod_group))
    if member.workload[0]:
        found.append((kubernetes_podgroup.GROUP, "Workload", member.workload[0]))
    if jobset := member.labels.get(JOBSET_NAME):
        found.append((jobsets.GROUP, "JobSet", jobset))  # found by label while the Job between is unknown
    if replicas := member.labels.get(LWS_NAME):
        found.append((leaderworkerset.GROUP, "LeaderWorkerSet", replicas))
        found.append(("apps", "StatefulSet", member.name))  # a leader's workers
    return [(group, kind, member.namespace, name) for group, kind, name in found]


class GangTracker:
    """Pods, owners and gangs as they are now. Methods that change them return the gangs that they touched."""

    def __init__(self) -> None:
        self.owners = OwnerIndex()
        self._pods: dict[PodName, Member] = {}
        self._gang_of: dict[PodName, GangId] = {}  # without pods on their own
        self._members: dict[GangId, set[PodName]] = {}
        self._below: dict[str, set[PodName]] = {}  # pods by the UID of their owner
        self._owned: dict[str, set[FullName]] = {}  # objects by the UID of their owner
        self._users: dict[FullName, set[PodName]] = {}  # pods by the objects that they name
        self._gangs: dict[GangId, Gang | None] = {}  # those that are up to date

    def upsert_pod(self, member: Member) -> set[GangId]:
        pod = (member.namespace, member.name)
        before = self._pods.get(pod)
        if before == member:
            return set()
        if before is not None:
            self._unlink(pod, before)
        self._pods[pod] = member
        if member.owner:
            _add(self._below, member.owner.uid, pod)
        for named in names_used(member):
            _add(self._users, named, pod)
        return self._reassign(pod)

    def delete_pod(self, namespace: str, name: str) -> set[GangId]:
        pod = (namespace, name)
        member = self._pods.pop(pod, None)
        if member is None:
            return set()
        self._unlink(pod, member)
        return self._reassign(pod)

    def upsert_owner(self, owner: Owner) -> set[GangId]:
        named = owner.full_name
        before = self.owners.find_by_name(*named)
        if not self.owners.upsert(owner):
            return set()
        if before is not None and before.metadata.owner:
            _discard(self._owned, before.metadata.owner.uid, named)
        if owner.metadata.owner:
            _add(self._owned, owner.metadata.owner.uid, named)
        pods = self._pods_under(owner.uid, named)
        if before is not None and before.uid != owner.uid:
            pods |= self._pods_under(before.uid, named)
        return self._reassign(*pods)

    def delete_owner(self, owner: Owner) -> set[GangId]:
        if not self.owners.delete(owner):
            return set()
        if owner.metadata.owner:
            _discard(self._owned, owner.metadata.owner.uid, owner.full_name)
        return self._reassign(*self.pods_under(owner))

    def gang(self, gang_id: GangId) -> Gang | None:
        """One gang as it is now; None: it has no pods."""
        if gang_id not in self._members:
            return None
        if gang_id not in self._gangs:
            members = [self._pods[pod] for pod in sorted(self._members[gang_id])]
            self._gangs[gang_id] = build_gang_of(gang_id, members, self.owners)
        return self._gangs[gang_id]

    def gang_of(self, namespace: str, name: str) -> GangId | None:
        """The gang of a pod; None: it is on its own, or not known."""
        return self._gang_of.get((namespace, name))

    def pods(self, gang_id: GangId) -> frozenset[PodName]:
        return frozenset(self._members.get(gang_id, ()))

    def gang_ids(self) -> list[GangId]:
        return sorted(self._members)

    def pods_under(self, owner: Owner) -> set[PodName]:
        return self._pods_under(owner.uid, owner.full_name)

    def _unlink(self, pod: PodName, member: Member) -> None:
        if member.owner:
            _discard(self._below, member.owner.uid, pod)
        for named in names_used(member):
            _discard(self._users, named, pod)

    def _pods_under(self, uid: str, named: FullName) -> set[PodName]:
        """Pods whose gang may depend on this object: those that name it, and those below it at any depth."""
        found = set(self._users.get(named, ()))
        seen: set[str] = set()
        waiting = [uid]
        while waiting:
            each = waiting.pop()
            if not each or each in seen:
                continue
            seen.add(each)
            found |= self._below.get(each, set())
            children = (self.owners.find_by_name(*child) for child in self._owned.get(each, ()))
            waiting += [child.uid for child in children if child is not None]
        return found

    def _reassign(self, *pods: PodName) -> set[GangId]:
        """Find the gang of each pod again; the gang that it leaves and the one that it joins are touched."""
        touched: set[GangId] = set()
        for pod in pods:
            if old := self._gang_of.pop(pod, None):
                _discard(self._members, old, pod)
                touched.add(old)
            member = self._pods.get(pod)
            if member is not None and (new := find_gang(member, self.owners)):
                self._gang_of[pod] = new
                _add(self._members, new, pod)
                touched.add(new)
        for gang_id in touched:
            self._gangs.pop(gang_id, None)
        return touched


def _add(index: dict[K, set[V]], key: K, value: V) -> None:
    index.setdefault(key, set()).add(value)


def _discard(index: dict[K, set[V]], key: K, value: V) -> None:
    if key in index:
        index[key].discard(value)
        if not index[key]:
            del index[key]
