"""The Kubernetes PodGroup and Workload API (alpha): a pod names its group, which says how many pods start together.

Since 1.36 `spec.schedulingGroup` names a PodGroup; in 1.35 `spec.workloadRef` named a pod group inside a Workload. The
policy `basic` requires nothing: such pods are scheduled one by one. A pod may name a group that does not exist yet. A
topology constraint names a node label: all pods of the group run on nodes with one value of it.
"""

from collections.abc import Sequence

import msgspec

from kaiwo.clusters.kubernetes.gangs.gang import Gang, GangKey, alive, build_flat_gang
from kaiwo.clusters.kubernetes.gangs.kinds.declared_sizes import build_minimum_gang, count_declared
from kaiwo.clusters.kubernetes.gangs.metadata import Owner, Unreadable
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex, OwnerLink, explain_unknown
from kaiwo.model.network.constraint import TopologyConstraint

GROUP = "scheduling.k8s.io"


class GangPolicy(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    min_count: int | None = 1


class PodGroupPolicy(msgspec.Struct, frozen=True, gc=False):
    gang: GangPolicy | None = None


class TopologyKey(msgspec.Struct, frozen=True, gc=False):
    key: str = ""  # of a node label


class SchedulingConstraints(msgspec.Struct, frozen=True, gc=False):
    topology: tuple[TopologyKey, ...] | None = None


class PodGroupSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scheduling_policy: PodGroupPolicy | None = None
    scheduling_constraints: SchedulingConstraints | None = None

    @property
    def levels(self) -> TopologyConstraint | None:
        """The API allows one constraint; should there be several, the first counts."""
        topology = (self.scheduling_constraints and self.scheduling_constraints.topology) or ()
        key = next((each.key for each in topology if each.key), "")
        return TopologyConstraint(required=key) if key else None


class PodGroup(Owner, frozen=True, gc=False):
    spec: PodGroupSpec | None = None


class WorkloadGroup(msgspec.Struct, frozen=True, gc=False):
    name: str
    policy: PodGroupPolicy | None = None


class WorkloadSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    pod_groups: tuple[WorkloadGroup, ...] | None = None


class KubernetesWorkload(Owner, frozen=True, gc=False):
    spec: WorkloadSpec | None = None


def find_key(member: Member, chain: Sequence[OwnerLink], owners: OwnerIndex) -> GangKey | None:
    """The policy does not matter: a pod that names a group has left its owner's gang, even if the policy is `basic`."""
    if member.pod_group:
        return GangKey("PodGroup", member.namespace, member.pod_group)
    workload, group, replica = member.workload
    part = "/".join(filter(None, (group, replica)))
    return GangKey("Workload", member.namespace, workload, part=part) if workload else None


def assemble(key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang | None:
    """None: the policy is `basic` and asks for no domain, so the pods are not a gang."""
    owner = owners.find_by_name(GROUP, key.kind, key.namespace, key.name)
    if not isinstance(owner, PodGroup | KubernetesWorkload):
        return _without_policy(key, members, owners, _explain_absent(key, owner))
    policy = _policy(owner, key)
    if policy is None:
        blocked_by = f"{key}: the Workload has no such pod group; add it, or name another one"
        return _without_policy(key, members, owners, blocked_by)
    levels = owner.spec.levels if isinstance(owner, PodGroup) and owner.spec else None
    if policy.gang is None and levels is None:
        return None
    minimum = (policy.gang and policy.gang.min_count) or 1  # pods of one domain, with the policy `basic` one by one
    gang = build_minimum_gang(key, members, minimum, "the pod group's minimum", owners)
    return gang if levels is None else msgspec.structs.replace(gang, levels=levels)


def _without_policy(key: GangKey, members: Sequence[Member], owners: OwnerIndex, blocked_by: str) -> Gang:
    minimum = max(count_declared(members, owners).least, len(alive(members)))
    return build_flat_gang(key, members, minimum, "all pods that name the group", blocked_by)


def _explain_absent(key: GangKey, owner: Owner | None) -> str:
    if isinstance(owner, Unreadable):
        return explain_unknown(owner, str(key))
    return f"{key} does not exist yet, and its pods name it: it says how many of them start together"


def _policy(owner: PodGroup | KubernetesWorkload, key: GangKey) -> PodGroupPolicy | None:
    if isinstance(owner, PodGroup):
        return (owner.spec and owner.spec.scheduling_policy) or PodGroupPolicy()
    group, _, _ = key.part.partition("/")
    listed = (owner.spec and owner.spec.pod_groups) or ()
    return next((each.policy or PodGroupPolicy() for each in listed if each.name == group), None)
