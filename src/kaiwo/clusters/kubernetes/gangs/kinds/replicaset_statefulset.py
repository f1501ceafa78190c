"""ReplicaSet and StatefulSet: how many pods each keeps.

They are not gangs by themselves, since each of their pods is useful alone; but their pods may name a gang. A
Deployment's number is on its ReplicaSets: during an update the old one and the new one each have a part of it, and
together more than that, since some new pods are created before old ones are deleted.
"""

from collections.abc import Iterable, Sequence

import msgspec

from kaiwo.clusters.kubernetes.gangs.gang import (
    Gang,
    GangKey,
    WantedPods,
    alive,
    build_gang,
    build_ownerless_gang,
    owner_key,
)
from kaiwo.clusters.kubernetes.gangs.labels import DEPLOYMENT_REPLICAS
from kaiwo.clusters.kubernetes.gangs.metadata import Owner, read_count
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex, OwnerLink

GROUP = "apps"


class ReplicatedOwnerSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    replicas: int | None = 1
    pod_management_policy: str | None = None  # of a StatefulSet: its pods come one by one unless this is `Parallel`


class ReplicatedOwner(Owner, frozen=True, gc=False):
    spec: ReplicatedOwnerSpec | None = None

    @property
    def count(self) -> int:
        spec = self.spec or ReplicatedOwnerSpec()
        return 1 if spec.replicas is None else max(0, spec.replicas)

    @property
    def is_ordered(self) -> bool:
        """Whether each pod is created only after the one before it is ready."""
        policy = self.spec.pod_management_policy if self.spec else None
        return self.kind == "StatefulSet" and policy != "Parallel"


def find_key(member: Member, chain: Sequence[OwnerLink], owners: OwnerIndex) -> GangKey | None:
    """All ReplicaSets of a Deployment count together."""
    key = owner_key(member, member.owner, GROUP, "ReplicaSet", "StatefulSet")
    if key and len(chain) > 1 and (above := chain[1].reference).kind == "Deployment":
        return GangKey("Deployment", member.namespace, above.name, above.uid)
    return key


def assemble(key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang:
    sets: dict[str, ReplicatedOwner] = {}
    for member in members:
        owner = owners.find(member.owner.uid) if member.owner else None
        if isinstance(owner, ReplicatedOwner):
            sets[owner.uid] = owner
        elif member.is_alive:
            return build_ownerless_gang(key, members, owner)
    count = _count(sets.values())
    is_ordered = any(each.is_ordered for each in sets.values())
    now = min(count, len(alive(members))) if is_ordered else count
    want = WantedPods("main", now, now, later=count - now)
    return build_gang(key, [want], members, lambda _: "main", "all replicas")


def _count(sets: Iterable[ReplicatedOwner]) -> int:
    """Of a Deployment never more than it wants: pods beyond that exist only during an update."""
    living = [each for each in sets if each.count]
    desired = [read_count(each.annotations.get(DEPLOYMENT_REPLICAS)) for each in living]
    total = sum(each.count for each in living)
    return min(total, max((each for each in desired if each is not None), default=total))
