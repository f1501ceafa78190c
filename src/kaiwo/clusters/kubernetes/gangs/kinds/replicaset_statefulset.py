"""ReplicaSet and StatefulSet: how many pods each keeps.

They are no gangs by themselves, since each of their pods is of use alone. Pods that name a gang are counted here. A
Deployment's number stands on its ReplicaSets: during an update the old one and the new one have a part of it each, and
together more than that, since some new pods come before old ones go.
"""

from collections.abc import Iterable, Sequence

import msgspec

from kaiwo.clusters.kubernetes.gangs.gang import (
    SIZE_UNKNOWN,
    Gang,
    GangKey,
    WantedPods,
    alive,
    build_flat_gang,
    build_gang,
    names_by_role,
)
from kaiwo.clusters.kubernetes.gangs.labels import DEPLOYMENT_REPLICAS
from kaiwo.clusters.kubernetes.gangs.members import Member
from kaiwo.clusters.kubernetes.gangs.metadata import Owner, read_count
from kaiwo.clusters.kubernetes.gangs.owners import OwnerIndex, OwnerLink, explain_unknown

GROUP = "apps"
KINDS = ("ReplicaSet", "StatefulSet")


class ReplicatedSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    replicas: int | None = 1
    pod_management_policy: str | None = None  # of a StatefulSet; one after the other unless it says `Parallel`


class Replicated(Owner, frozen=True, gc=False):
    spec: ReplicatedSpec | None = None

    @property
    def count(self) -> int:
        spec = self.spec or ReplicatedSpec()
        return 1 if spec.replicas is None else max(0, spec.replicas)

    @property
    def is_ordered(self) -> bool:
        """Each pod comes after the one before it is ready."""
        policy = self.spec.pod_management_policy if self.spec else None
        return self.kind == "StatefulSet" and policy != "Parallel"


def find_key(member: Member, line: Sequence[OwnerLink], owners: OwnerIndex) -> GangKey | None:
    """All ReplicaSets of a Deployment count together."""
    above = [link.reference for link in line[:2]]
    if not above or above[0].group != GROUP or above[0].kind not in KINDS:
        return None
    of_it = above[-1] if above[-1].kind == "Deployment" else above[0]
    return GangKey(of_it.kind, member.namespace, of_it.name, of_it.uid)


def assemble(key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang:
    sets: dict[str, Replicated] = {}
    for member in members:
        owner = owners.find(member.owner.uid) if member.owner else None
        if isinstance(owner, Replicated):
            sets[owner.uid] = owner
        elif member.is_alive:
            waits = explain_unknown(owner, str(key))
            return build_flat_gang(key, members, len(alive(members)), SIZE_UNKNOWN, waits)
    count = _count(sets.values())
    is_ordered = any(each.is_ordered for each in sets.values())
    now = min(count, len(alive(members))) if is_ordered else count
    want = WantedPods("main", now, now, later=count - now)
    return build_gang(key, [want], names_by_role(members, lambda _: "main"), "all replicas")


def _count(sets: Iterable[Replicated]) -> int:
    """Of a Deployment never more than it wants: pods beyond that are there for the time of an update."""
    living = [each for each in sets if each.count]
    desired = [read_count(each.annotations.get(DEPLOYMENT_REPLICAS)) for each in living]
    total = sum(each.count for each in living)
    return min(total, max((each for each in desired if each is not None), default=total))
