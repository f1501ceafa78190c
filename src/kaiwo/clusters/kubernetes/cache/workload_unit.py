"""One workload as its pods make it: a gang, or a pod on its own.

In:    the pods of a unit, what the gang recogniser says of them, and who has which place.   Out: a View: what the
       scheduler is told, and the sentences for pods that it must not be told of.
Never: keeps anything. The same pods give the same view.

Also: What keeps a pod from being tried, and what keeps it where it is, whatever room there is.
Also: Give the pods of a role their places in it: `role-0`, `role-1` and on, without a hole.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.disruption_budgets import DisruptionBudgets
from kaiwo.clusters.kubernetes.cache.kueue_gates import KueueWorkloads, unassigned_topology
from kaiwo.clusters.kubernetes.cache.last_readable_version import LastReadable
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.gangs import Gang
from kaiwo.clusters.kubernetes.gangs.gang import GangKey as GangKey
from kaiwo.clusters.kubernetes.gangs.labels import KUEUE_REQUIRED
from kaiwo.clusters.kubernetes.volumes.claim_matching import NodeConstraint
from kaiwo.model.affinity import PodAffinity
from kaiwo.model.errors import ConfigError
from kaiwo.model.queue import THE_DEFAULT, Queue
from kaiwo.model.request import Request
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Role, SubGroup, Workload, is_whole


def explain_fault_above(wishes: Workload, queues: LastReadable[Queue], reservations: LastReadable[Reservation]) -> str:
    """Why a workload must wait until somebody mends its queue or its reservation: no version of it is known."""
    fault = queues.faults.get(wishes.queue)
    if fault and queues.items.get(wishes.queue, THE_DEFAULT) is THE_DEFAULT:
        return f"its queue '{wishes.queue}' cannot be read: {fault}"
    fault = reservations.faults.get(wishes.reservation)
    if fault and wishes.reservation not in reservations.items:
        return f"its reservation '{wishes.reservation}' cannot be read: {fault}"
    return ""


def explain_kueue(pod: CachedPod, kueue: KueueWorkloads, is_in_gang: bool) -> str:
    """Why Kueue keeps a pod from starting."""
    if pod.is_gated:
        return kueue.explain(pod)
    level = unassigned_topology(pod) if is_in_gang else ""
    if not level:
        return ""
    return (
        f"its pods must share one {level} ({KUEUE_REQUIRED}), and nobody has chosen which; let Kueue admit it, "
        "or remove the annotation"
    )


def count_evictable(
    pods: Sequence[CachedPod], budgets: DisruptionBudgets, staying: Mapping[str, str]
) -> tuple[int, str]:
    """How many of these the server would evict now, and why it would never evict one.

    `staying`: by UID, the server's words where it refused for good.
    """
    refused = next((staying[pod.uid] for pod in pods if pod.uid in staying), "") if staying else ""
    why = budgets.why_never(pods) or refused
    return (0, why) if why else (budgets.allowed(pods), "")


def assign_slots(fixed: Sequence[str], others: Sequence[str], had: Mapping[str, int]) -> dict[str, int]:
    """By UID. The `fixed` (bound, or about to be) keep theirs if they can: it is told to the scheduler.

    The places are 0 to the number of pods, since every place that is free is one that the scheduler fills.
    """
    count = len(fixed) + len(others)
    places: dict[str, int] = {}
    taken: set[int] = set()
    for group in (fixed, others):
        for uid in group:
            place = had.get(uid, count)
            if place < count and place not in taken:
                places[uid] = place
                taken.add(place)
    free = iter(sorted(set(range(count)) - taken))
    for uid in (*fixed, *others):
        if uid not in places:
            places[uid] = next(free)
    return places


Slots = dict[str, tuple[str, int]]  # by UID: role, place
ALONE = "main"
# What Kubernetes itself writes on a pod before which somebody put a gate: the same words everywhere.
GATED = "Scheduling is blocked due to non-empty scheduling gates"


class Inquiry(NamedTuple):
    """What a unit must ask the rest of the books."""

    wishes: Callable[[CachedPod], Workload]  # raises ConfigError
    sensible_wishes: Callable[[CachedPod], Workload]  # without those that make no sense
    volume_rules: Callable[[CachedPod], NodeConstraint | str]
    neighbours: Callable[[CachedPod], PodAffinity | None]
    is_in_flight: Callable[[str], bool]  # by UID: its Binding is under way
    held_back: Callable[[CachedPod], str] = lambda _: ""  # why somebody else keeps it from starting
    fault_above: Callable[[Workload], str] = lambda _: ""  # what is wrong with its queue or its reservation
    strangers: Callable[[GangKey], Mapping[str, str]] = lambda _: {}  # pods of a gang, and whom they are left to


class BlockedWorkload(NamedTuple):
    """Work that waits, and of which the scheduler must not be told."""

    workload: Workload
    reason: str


class UnitPods(NamedTuple):
    """A unit at one moment."""

    workload: Workload | None  # None: nothing for the scheduler to know
    slots: Slots  # of the pods that are bound, about to be, or may be started
    blocked_pods: dict[Key, str]  # why a pod cannot even be tried
    by_slot: dict[str, Key] = {}  # the same slots by their full name
    blocked: BlockedWorkload | None = None  # what people are shown instead of a workload


class _UnitPod(NamedTuple):
    """A pod that the scheduler is told of."""

    pod: CachedPod
    request: Request
    is_fixed: bool


def build_unit(name: str, pods: Sequence[CachedPod], group: Gang | None, had: Slots, ask: Inquiry) -> UnitPods:
    """`group`: None for a pod on its own. `pods` are ours, and not over."""
    sentences: dict[Key, str] = {}
    kept: list[_UnitPod] = []
    for pod in sorted(pods, key=lambda each: (each.created_s, each.name)):
        found = _keep(pod, ask)
        if isinstance(found, str):
            sentences[pod.key] = found
        elif found is not None:
            kept.append(found)
    waits = _gang_waits(group, kept, sentences, ask)
    if waits:
        free = [each for each in kept if not each.is_fixed]
        sentences |= {each.pod.key: waits for each in free}
        kept = [each for each in kept if each.is_fixed]
    wishes = Workload("", ())
    if kept:
        try:
            wishes = ask.wishes(kept[0].pod)
            fault = ask.fault_above(wishes)
        except ConfigError as error:
            # Who runs stays in its queue: a slip in one annotation must not move it to another.
            wishes, fault = ask.sensible_wishes(kept[0].pod), str(error)
        if fault:
            sentences |= {each.pod.key: fault for each in kept if not each.is_fixed}
            kept = [each for each in kept if each.is_fixed]
    if not kept:
        return UnitPods(
            None, {}, sentences, blocked=_held(name, pods, group, waits or next(iter(sentences.values()), GATED), ask)
        )
    roles, slots = _roles(kept, group, had)
    by_slot = {"{}-{}".format(*slots[each.pod.uid]): each.pod.key for each in kept}
    workload = replace(_workload(name, kept, roles, wishes), groups=_sub_groups(group, roles))
    return UnitPods(workload, slots, sentences, by_slot)


def _held(
    name: str, pods: Sequence[CachedPod], group: Gang | None, sentence: str, ask: Inquiry
) -> BlockedWorkload | None:
    """The same workload as if it could be tried, without wishes that make no sense."""
    kept = [_UnitPod(pod, pod.spec.request, False) for pod in pods if not pod.is_terminating]
    if not kept:
        return None
    roles, _ = _roles(kept, group, {})
    return BlockedWorkload(replace(_workload(name, kept, roles, ask.sensible_wishes(kept[0].pod)), held=True), sentence)


def _keep(pod: CachedPod, ask: Inquiry) -> _UnitPod | str | None:
    if pod.node or ask.is_in_flight(pod.uid):
        return _UnitPod(pod, _request(pod, ask), True)
    if pod.is_terminating:
        return None
    if pod.is_gated:
        return ask.held_back(pod) or None  # without a word of ours Kubernetes itself says so on a gated pod
    if pod.spec.refusal or (why := ask.held_back(pod)):
        return pod.spec.refusal or why
    request = _request(pod, ask)
    if not pod.spec.claims:
        return _UnitPod(pod, request, False)
    where = ask.volume_rules(pod)
    if isinstance(where, str):
        return where
    rules, choices = request.node_rules + where.rules, request.node_choices + where.choices
    return _UnitPod(pod, replace(request, node_rules=rules, node_choices=choices), False)


def _request(pod: CachedPod, ask: Inquiry) -> Request:
    neighbours = ask.neighbours(pod)
    return pod.spec.request if neighbours is None else replace(pod.spec.request, neighbours=neighbours)


def _gang_waits(group: Gang | None, kept: Sequence[_UnitPod], sentences: Mapping[Key, str], ask: Inquiry) -> str:
    """Why the pods of a gang that are not bound must wait, whatever room there is."""
    if group is None or all(each.is_fixed for each in kept):
        return ""
    if group.blocked_by:
        return _explain_strangers(group, ask.strangers(group.key)) or group.blocked_by
    there = {each.pod.name for each in kept}
    if group.subgroups and is_whole(
        group.subgroups, group.roles, [len(there.intersection(r.members)) for r in group.roles]
    ):
        return ""
    missing = sum(max(0, role.minimum - len(there.intersection(role.members))) for role in group.roles)
    if not missing:
        return ""
    why = next(iter(sentences.values()), "they wait at a scheduling gate")
    return f"{missing} of the {group.minimum} pods of {group.key} that start together cannot be tried: {why}"


def _explain_strangers(group: Gang, strangers: Mapping[str, str]) -> str:
    """Pods that exist are not waited for: somebody else starts them, each by itself."""
    missing = group.minimum - len(group.members)
    if not strangers or missing <= 0:
        return ""
    left = ", ".join(f"{name} is left to {scheduler}" for name, scheduler in strangers.items())
    said = group.blocked_by if len(strangers) < missing else f"{group.key} cannot start together"
    return f"{said}: {left}; make all its pods with one schedulerName"


def _roles(kept: Sequence[_UnitPod], group: Gang | None, had: Slots) -> tuple[tuple[Role, ...], Slots]:
    """A role of the gang whose pods ask for different things becomes several."""
    roles: list[Role] = []
    slots: Slots = {}
    leaves = {role.name for role in group.roles if role.minimum} if group is not None and group.subgroups else ()
    leaders = {role.name for role in group.roles if role.leads} if group is not None else ()
    for name, minimum, members in _named_roles(kept, group):
        leaf = name if name in leaves else ""
        shapes: dict[Request, list[_UnitPod]] = {}
        for each in members:
            shapes.setdefault(each.request, []).append(each)
        for number, (request, same) in enumerate(shapes.items()):
            title = name if len(shapes) == 1 else f"{name}.{number}"
            share = min(minimum, len(same))
            minimum -= share
            roles.append(Role(request, title, len(same), share, leaf, name in leaders))
            slots |= _places(title, same, had)
    return tuple(roles), slots


def _sub_groups(group: Gang | None, roles: Sequence[Role]) -> tuple[SubGroup, ...]:
    """The tree of a gang, each leaf with its kinds of pods. One that lacks pods is there, and cannot be whole."""
    if group is None or not group.subgroups:
        return ()
    leaves = []
    for leaf in group.roles:
        if leaf.minimum:
            own = [role for role in roles if role.group == leaf.name]
            is_short = sum(role.count for role in own) < leaf.minimum
            leaves.append(SubGroup(leaf.name, leaf.group, len(own) + 1 if is_short else -1))
    return (*group.subgroups, *leaves)


def _named_roles(kept: Sequence[_UnitPod], group: Gang | None) -> Iterable[tuple[str, int, list[_UnitPod]]]:
    if group is None:
        yield ALONE, 1, list(kept)
        return
    left = {each.pod.name: each for each in kept}
    for role in group.roles:
        members = [left.pop(name) for name in role.members if name in left]
        if members:
            yield role.name, role.minimum, members
    if left:  # those that leave, or are done: they hold their place until they are gone
        yield "leaving", 0, list(left.values())


def _places(role: str, same: Sequence[_UnitPod], had: Slots) -> Slots:
    fixed = [each.pod.uid for each in same if each.is_fixed]
    others = [each.pod.uid for each in same if not each.is_fixed]
    before = {uid: had[uid][1] for uid in (*fixed, *others) if uid in had and had[uid][0] == role}
    return {uid: (role, place) for uid, place in assign_slots(fixed, others, before).items()}


def _workload(name: str, kept: Sequence[_UnitPod], roles: tuple[Role, ...], wishes: Workload) -> Workload:
    return replace(
        wishes,
        name=name,
        roles=roles,
        submitted_s=min(each.pod.created_s for each in kept),
        stops_others=all(each.pod.may_preempt for each in kept),
    )
