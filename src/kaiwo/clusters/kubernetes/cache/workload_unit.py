"""Build a workload from the pods of one unit: a gang, or a pod on its own.

In:    the unit's live pods, its gang, the slots that its pods had, and the parts of the cache that they depend on.
Out:   UnitPods: the workload with a slot for each pod, and the reasons why other pods cannot be tried.
Never: keeps anything. The same pods give the same result.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.affinity_index import AffinityIndex
from kaiwo.clusters.kubernetes.cache.gang_index import ForeignMembers, GangIndex, member_of
from kaiwo.clusters.kubernetes.cache.in_flight import InFlight
from kaiwo.clusters.kubernetes.cache.kaiwo_object_cache import QueueCache, ReservationCache
from kaiwo.clusters.kubernetes.cache.kueue_gates import KueueWorkloads, kueue_levels, kueue_set_group
from kaiwo.clusters.kubernetes.cache.priority_classes import PriorityClasses
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.decode.pod_request import read_pod_request
from kaiwo.clusters.kubernetes.decode.wire_objects import PodSpec
from kaiwo.clusters.kubernetes.decode.workload_annotations import read_valid_settings, read_workload_settings
from kaiwo.clusters.kubernetes.gangs.gang import ExclusiveDomain, Gang
from kaiwo.clusters.kubernetes.volumes.volume_cache import ClaimUsers
from kaiwo.model.errors import ConfigError
from kaiwo.model.network.constraint import Followers, TopologyConstraint
from kaiwo.model.priority_cap import DEFAULT_MAX_PRIORITY
from kaiwo.model.queue import UNBOUNDED_DEFAULT_QUEUE
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, SubGroup, Workload, has_minimum

SINGLE_POD_ROLE = "main"
# What Kubernetes itself writes on a gated pod.
GATED = "Scheduling is blocked due to non-empty scheduling gates"


class Slot(NamedTuple):
    """The position of a pod in its workload: its role, and its number in that role."""

    role: str
    number: int

    def __str__(self) -> str:
        return f"{self.role}-{self.number}"


Slots = dict[str, Slot]  # by UID


class UnitParts(Protocol):
    """The parts of the cluster cache that a unit depends on."""

    gang_index: GangIndex
    foreign_members: ForeignMembers
    in_flight: InFlight
    queue_cache: QueueCache
    reservation_cache: ReservationCache
    priorities: PriorityClasses
    kueue: KueueWorkloads
    claim_users: ClaimUsers
    affinity_index: AffinityIndex
    are_users_checked: bool


class BlockedWorkload(NamedTuple):
    """A waiting workload that the scheduler must not see yet."""

    workload: Workload
    reason: str
    is_held: bool = False  # by a person, with an annotation


class UnitPods(NamedTuple):
    workload: Workload | None  # None: nothing for the scheduler
    slots: Slots  # of the pods that are bound, in flight, or may start
    blocked_pods: dict[Key, str]  # why a pod cannot be tried
    by_slot: dict[str, Key] = {}  # the same slots by their full name
    blocked: BlockedWorkload | None = None  # what people see instead of a workload


class _UnitPod(NamedTuple):
    pod: CachedPod
    request: Request
    is_fixed: bool  # bound, or its Binding is in flight


def build_unit(name: str, pods: Sequence[CachedPod], gang: Gang | None, old_slots: Slots, parts: UnitParts) -> UnitPods:
    """`gang`: None for a pod on its own. `pods`: our live pods. `old_slots`: the slots that they had before."""
    blocked: dict[Key, str] = {}
    kept: list[_UnitPod] = []
    for pod in sorted(pods, key=lambda each: (each.created_s, each.name)):
        found = _read_pod(pod, parts)
        if isinstance(found, str):
            blocked[pod.key] = found
        elif found is not None:
            kept.append(found)
    gang_reason = _explain_gang(gang, kept, blocked, parts)
    if gang_reason:
        kept = _block_waiting(kept, gang_reason, blocked)
    settings = Workload("", ())
    if kept:
        # What runs was settled when it started, so a pod that waits does not speak for it, however old it is.
        speaker = next((each.pod for each in kept if each.is_fixed), kept[0].pod)
        try:
            settings = _settings(speaker, parts)
            fault = _explain_hold(name) if settings.held else _explain_fault(settings, parts)
        except ConfigError as error:
            # Running work stays in its queue: a mistake in one annotation must not move it to another.
            settings, fault = _settings(speaker, parts, read_valid_settings), str(error)
        if fault:
            kept = _block_waiting(kept, fault, blocked)
    if not kept:
        reason = gang_reason or next(iter(blocked.values()), GATED)
        return UnitPods(None, {}, blocked, blocked=_blocked_workload(name, pods, gang, reason, parts))
    roles, slots, set_groups = _roles(kept, gang, old_slots)
    if gang is not None and gang.domains and not gang.subgroups:
        set_groups = (*_exclusive_groups(gang, kept, roles, slots), *set_groups)
    by_slot = {str(slots[each.pod.uid]): each.pod.key for each in kept}
    workload = replace(_workload(name, kept, roles, settings), groups=_sub_groups(gang, roles) or set_groups)
    members = [member_of(each.pod) for each in kept]
    workload = replace(workload, is_replaced=all(map(parts.gang_index.replaces, members)))
    if gang is None and members[0].owner is not None:
        workload = replace(workload, made_by=members[0].owner.uid)
    if gang is not None and gang.levels is not None and workload.levels is None:
        workload = _with_levels(workload, gang.levels)
    return UnitPods(workload, slots, blocked, by_slot)


def assign_slots(fixed: Sequence[str], others: Sequence[str], old_slots: Mapping[str, int]) -> dict[str, int]:
    """Slot numbers by UID. The `fixed` pods (bound or in flight) keep theirs if they can: they are published.

    The numbers have no holes, since the scheduler fills every free slot.
    """
    count = len(fixed) + len(others)
    slots: dict[str, int] = {}
    taken: set[int] = set()
    for uid in (*fixed, *others):
        slot = old_slots.get(uid, count)
        if slot < count and slot not in taken:
            slots[uid] = slot
            taken.add(slot)
    free = iter(sorted(set(range(count)) - taken))
    for uid in (*fixed, *others):
        if uid not in slots:
            slots[uid] = next(free)
    return slots


def _read_pod(pod: CachedPod, parts: UnitParts) -> _UnitPod | str | None:
    """The pod for the scheduler, or the reason why it cannot be tried; None: it does not wait for us."""
    if pod.node or pod.uid in parts.in_flight.starts:
        return _UnitPod(pod, _request(pod, parts), True)
    if pod.is_terminating:
        return None
    if pod.is_gated:
        return parts.kueue.explain(pod) or None  # otherwise Kubernetes itself writes the reason on a gated pod
    if reason := pod.spec.refusal or parts.affinity_index.explain_refusal(pod):
        return reason
    request = _request(pod, parts)
    if not pod.spec.claims:
        return _UnitPod(pod, request, False)
    where = parts.claim_users.rules(pod)
    if isinstance(where, str):
        return where
    rules, choices = request.node_rules + where.rules, request.node_choices + where.choices
    return _UnitPod(pod, replace(request, node_rules=rules, node_choices=choices), False)


def _request(pod: CachedPod, parts: UnitParts) -> Request:
    affinity = parts.affinity_index.affinity_of(pod)
    return pod.spec.request if affinity is None else replace(pod.spec.request, neighbours=affinity)


def _settings(pod: CachedPod, parts: UnitParts, read: Callable[..., Workload] = read_workload_settings) -> Workload:
    """The workload's settings, from the annotations of a pod and its owners. May raise ConfigError.

    Work that no webhook saw names no queue: it gets the one that the webhook would have given it.
    """
    sources = [(pod.annotations, pod.labels), *parts.gang_index.owner_metadata(pod)]
    priority, has_class = parts.priorities.of(pod)
    queues = parts.queue_cache
    default = queues.queue_of(pod.namespace)
    settings = read(f"Pod '{pod.name}'", sources, priority, has_class, queues.items.__contains__, default)
    if not parts.are_users_checked:
        settings = replace(settings, user="")  # anybody may have written it
    if settings.time_limit_s and not settings.preemptible:
        # Nothing enforces `kaiwo.ai/time` here. It must not let work into a gap that nothing makes it leave.
        expected_s = min(filter(None, (settings.estimate_s, settings.time_limit_s)))
        settings = replace(settings, time_limit_s=0, estimate_s=expected_s)
    value = parts.priorities.value_of_class(pod) if has_class else 0
    return replace(settings, class_priority=value) if value > DEFAULT_MAX_PRIORITY else settings


def _block_waiting(kept: Sequence[_UnitPod], reason: str, blocked: dict[Key, str]) -> list[_UnitPod]:
    """Block all pods but the fixed ones for this reason. Returns the fixed ones."""
    blocked.update({each.pod.key: reason for each in kept if not each.is_fixed})
    return [each for each in kept if each.is_fixed]


def _blocked_workload(
    name: str, pods: Sequence[CachedPod], gang: Gang | None, reason: str, parts: UnitParts
) -> BlockedWorkload | None:
    """The workload as people see it while it is blocked, without settings that are invalid."""
    kept = [_UnitPod(pod, pod.spec.request, False) for pod in pods if not pod.is_terminating]
    if not kept:
        return None
    roles, _, _ = _roles(kept, gang, {})
    workload = _workload(name, kept, roles, _settings(kept[0].pod, parts, read_valid_settings))
    reason = _explain_hold(name) if workload.held else reason
    return BlockedWorkload(replace(workload, held=True), reason, workload.held)


def _explain_hold(name: str) -> str:
    return f"it is held; release it with: kaiwo release {name.removeprefix('default/')}"


def _explain_fault(settings: Workload, parts: UnitParts) -> str:
    """Why the workload waits until its queue or its reservation is corrected: no version of it can be read."""
    queues, reservations = parts.queue_cache, parts.reservation_cache
    fault = queues.faults.get(settings.queue)
    if fault and queues.items.get(settings.queue, UNBOUNDED_DEFAULT_QUEUE).is_implicit:
        return f"its queue '{settings.queue}' cannot be read: {fault}"
    fault = reservations.faults.get(settings.reservation)
    if fault and settings.reservation not in reservations.items:
        return f"its reservation '{settings.reservation}' cannot be read: {fault}"
    return ""


def _explain_gang(gang: Gang | None, kept: Sequence[_UnitPod], blocked: Mapping[Key, str], parts: UnitParts) -> str:
    """Why the unbound pods of a gang must wait, however much room there is."""
    if gang is None or all(each.is_fixed for each in kept):
        return ""
    if gang.blocked_by:
        return _explain_foreign(gang, parts.foreign_members.of(gang.key)) or gang.blocked_by
    names = {each.pod.name for each in kept}
    counts = [len(names.intersection(role.members)) for role in gang.roles]
    if gang.subgroups and has_minimum(gang.subgroups, gang.roles, counts):
        return ""
    missing = sum(max(0, role.minimum - count) for role, count in zip(gang.roles, counts, strict=True))
    if not missing:
        return ""
    why = next(iter(blocked.values()), "they wait at a scheduling gate")
    return f"{missing} of the {gang.minimum} pods of {gang.key} that start together cannot be tried: {why}"


def _explain_foreign(gang: Gang, foreign: Mapping[str, str]) -> str:
    """Pods of another scheduler exist and are not waited for: that scheduler starts each of them by itself."""
    missing = gang.minimum - len(gang.members)
    if not foreign or missing <= 0:
        return ""
    listed = ", ".join(f"{name} is left to {scheduler}" for name, scheduler in foreign.items())
    reason = gang.blocked_by if len(foreign) < missing else f"{gang.key} cannot start together"
    return f"{reason}: {listed}; make all its pods with one schedulerName"


def _roles(
    kept: Sequence[_UnitPod], gang: Gang | None, old_slots: Slots
) -> tuple[tuple[Role, ...], Slots, tuple[SubGroup, ...]]:
    """The roles of the workload, and the sub-groups of roles that share a domain.

    A role of the gang whose pods have different requests becomes several.
    """
    roles: list[Role] = []
    slots: Slots = {}
    leaves = {role.name for role in gang.roles if role.minimum} if gang is not None and gang.subgroups else ()
    leaders = {role.name for role in gang.roles if role.leads} if gang is not None else ()
    gang_groups = gang.subgroups if gang is not None else ()
    set_groups: dict[str, TopologyConstraint | None] = {}
    # A pod in several exclusive domains is in the narrowest, which comes last.
    exclusive = gang.domains if gang is not None and not gang_groups else ()
    domain_of = {pod: domain.name for domain in exclusive for pod in domain.members}
    for name, minimum, members in _named_roles(kept, gang):
        leaf = name if name in leaves else ""
        shapes: dict[tuple[Request, str], list[_UnitPod]] = {}
        for each in members:
            shapes.setdefault((each.request, domain_of.get(each.pod.name, "")), []).append(each)
        for number, ((request, domain), same) in enumerate(shapes.items()):
            title = name if len(shapes) == 1 else f"{name}.{number}"
            share = min(minimum, len(same))
            minimum -= share
            # A part of a role: Kueue's annotations are about the pods of one template, which are alike.
            levels = kueue_levels(same[0].pod) if gang is not None and not domain else None
            # Pod sets that share a domain are a sub-group, and the levels are those of the sub-group.
            shared = kueue_set_group(same[0].pod) if levels is not None and not gang_groups else ""
            if shared:
                set_groups.setdefault(shared, levels)
                levels = None
            roles.append(Role(request, title, len(same), share, leaf or shared or domain, name in leaders, levels))
            slots |= _slots(title, same, old_slots)
    return tuple(roles), slots, tuple(SubGroup(name, levels=each) for name, each in set_groups.items())


def _exclusive_groups(
    gang: Gang, kept: Sequence[_UnitPod], roles: Sequence[Role], slots: Slots
) -> tuple[SubGroup, ...]:
    """A sub-group for each domain that a part of the gang has to itself. That no other work of this kind is there is a
    rule between pods, which their controller has written."""
    by_name = {each.pod.name: each for each in kept}
    names = {role.group for role in roles}
    parents = {domain.name: domain.parent for domain in gang.domains}
    used = names | {parents.get(name, "") for name in names}
    found = []
    for domain in gang.domains:
        if domain.name not in used:
            continue
        leader, followers = by_name.get(domain.leader), None
        if domain.later and leader is not None:
            followers = Followers(slots[leader.pod.uid].role, domain.later, _request_of_followers(domain))
        levels = TopologyConstraint(required=domain.level, followers=followers)
        found.append(SubGroup(domain.name, domain.parent, levels=levels))
    return tuple(found)


def _request_of_followers(domain: ExclusiveDomain) -> Request | None:
    """What a template of their own says, to which their controller adds the leader's domain. None: as their leader."""
    if domain.template is not None:
        try:
            spec = msgspec.convert(domain.template, PodSpec, strict=False)
            return read_pod_request(spec, {}, "the template of the workers").request
        except (msgspec.ValidationError, ConfigError):
            pass  # the API server refuses such a template, or refuses its pods
    return None


def _sub_groups(gang: Gang | None, roles: Sequence[Role]) -> tuple[SubGroup, ...]:
    """The tree of a gang's sub-groups. A leaf that lacks pods is included, and cannot be complete."""
    if gang is None or not gang.subgroups:
        return ()
    leaves = []
    for leaf in gang.roles:
        if leaf.minimum:
            own = [role for role in roles if role.group == leaf.name]
            is_short = sum(role.count for role in own) < leaf.minimum
            leaves.append(SubGroup(leaf.name, leaf.group, len(own) + 1 if is_short else -1, leaf.levels))
    return (*gang.subgroups, *leaves)


def _with_levels(workload: Workload, levels: TopologyConstraint) -> Workload:
    """The levels of the gang's own object, where no annotation of ours says something else."""
    return replace(
        workload,
        topology=levels.topology,
        required_level=levels.required,
        preferred_level=levels.preferred,
        placement_strategy=levels.strategy,
    )


def _named_roles(kept: Sequence[_UnitPod], gang: Gang | None) -> Iterable[tuple[str, int, list[_UnitPod]]]:
    if gang is None:
        yield SINGLE_POD_ROLE, 1, list(kept)
        return
    left = {each.pod.name: each for each in kept}
    for role in gang.roles:
        members = [left.pop(name) for name in role.members if name in left]
        if members:
            yield role.name, role.minimum, members
    if left:  # pods that leave or are done hold their slot until they are gone
        yield "leaving", 0, list(left.values())


def _slots(role: str, same: Sequence[_UnitPod], old: Slots) -> Slots:
    fixed = [each.pod.uid for each in same if each.is_fixed]
    others = [each.pod.uid for each in same if not each.is_fixed]
    before = {uid: old[uid].number for uid in (*fixed, *others) if uid in old and old[uid].role == role}
    return {uid: Slot(role, number) for uid, number in assign_slots(fixed, others, before).items()}


def _workload(name: str, kept: Sequence[_UnitPod], roles: tuple[Role, ...], settings: Workload) -> Workload:
    return replace(
        settings,
        name=name,
        roles=roles,
        submitted_s=min(each.pod.created_s for each in kept),
        stops_others=all(each.pod.may_preempt for each in kept),
        image=kept[0].pod.image,
    )
