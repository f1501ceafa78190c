"""RayCluster: the head and the workers that are wanted are one gang.

With the autoscaler on, only each group's smallest number of replicas must start; the rest is elastic. RayJob and
RayService own a RayCluster and change nothing here; the pod that submits a RayJob belongs to a separate Job, which is
created once the cluster runs.
"""

from collections.abc import Sequence

import msgspec

from kaiwo.clusters.kubernetes.gangs.gang import (
    Gang,
    GangKey,
    WantedPods,
    build_gang,
    build_ownerless_gang,
    owner_key,
    wanted_together,
)
from kaiwo.clusters.kubernetes.gangs.labels import RAY_GROUP, RAY_NODE
from kaiwo.clusters.kubernetes.gangs.metadata import Owner, Template, read_gang_names
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex, OwnerLink

GROUP = "ray.io"
HEAD = "head"


class HeadGroup(msgspec.Struct, frozen=True, gc=False):
    template: Template | None = None


class WorkerGroup(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Equal workers; one replica is several pods when it spans hosts."""

    group_name: str = ""
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = 1
    suspend: bool | None = False
    template: Template | None = None

    @property
    def hosts(self) -> int:
        return 1 if self.num_of_hosts is None else max(0, self.num_of_hosts)

    @property
    def least(self) -> int:
        return 0 if self.suspend else min(self._at_least, self._at_most) * self.hosts

    @property
    def wanted(self) -> int:
        """The number of pods that the operator keeps: between the smallest and the largest."""
        asked = self._at_least if self.replicas is None else self.replicas
        return 0 if self.suspend else min(max(asked, self._at_least), self._at_most) * self.hosts

    @property
    def _at_least(self) -> int:
        return max(0, self.min_replicas or 0)

    @property
    def _at_most(self) -> int:
        return 2**31 - 1 if self.max_replicas is None else max(0, self.max_replicas)


class RaySpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    enable_in_tree_autoscaling: bool | None = False
    head_group_spec: HeadGroup | None = None
    worker_group_specs: tuple[WorkerGroup, ...] | None = None
    suspend: bool | None = False


class RayCluster(Owner, frozen=True, gc=False):
    spec: RaySpec | None = None

    @property
    def makes_pods(self) -> bool:
        return super().makes_pods and not (self.spec and self.spec.suspend)


def find_key(member: Member, chain: Sequence[OwnerLink], owners: OwnerIndex) -> GangKey | None:
    """Its own pods only: a Job that cleans up after it is not part of the cluster."""
    return owner_key(member, member.owner, GROUP, "RayCluster")


def assemble(key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang:
    cluster = owners.find(key.uid)
    if not isinstance(cluster, RayCluster):
        return build_ownerless_gang(key, members, cluster)
    spec = cluster.spec or RaySpec()
    wants = [WantedPods(HEAD, 1, 1)]
    names = {HEAD: read_gang_names((spec.head_group_spec or HeadGroup()).template, {})}
    for group in spec.worker_group_specs or ():
        names[_worker_role(group.group_name)] = read_gang_names(group.template, {})
        minimum = group.least if spec.enable_in_tree_autoscaling else group.wanted
        wants.append(WantedPods(_worker_role(group.group_name), max(group.wanted, minimum), minimum))
    rule = "the head and the wanted workers"
    if spec.enable_in_tree_autoscaling:
        rule = "the head and each group's smallest number of workers"
    wants = wanted_together(wants, names, members, _role_of)
    return build_gang(key, wants, members, _role_of, rule, spec.suspend)


def _role_of(member: Member) -> str:
    return HEAD if member.labels.get(RAY_NODE) == "head" else _worker_role(member.labels.get(RAY_GROUP, ""))


def _worker_role(group: str) -> str:
    """A group of workers may be called `head` too."""
    return f"{group}-workers" if group in ("", HEAD) else group
