"""Keep the places of gang members that were lost, for the pods that replace them.

In:    pods of gangs that fail, or are deleted, without being told to go; what an earlier leader wrote on a member.
Out:   a nomination for each of their places, and the text with them that a member of the gang carries.
A place is kept while the owner of the lost pod may still make another one, and while the gang lacks pods. The policy
ends it after a time, as a cycle decides; so do the end of the gang, and a node that is gone.
While this replica leads, what it knows counts; a standby, and a new leader, begin with what is on the pods.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.gang_index import GangIndex, member_of
from kaiwo.clusters.kubernetes.cache.lost_place_annotations import (
    LostPlace,
    PodText,
    Seals,
    carries_places,
    pods_to_write,
    read_places,
    text_of,
    text_on,
)
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.gangs.gang import Gang
from kaiwo.model.affinity import PodAffinity, affinity_of_nomination
from kaiwo.model.plan import Nomination
from kaiwo.model.request import Request
from kaiwo.model.workload import ACTIVE_PHASES, Pod, role_name

Report = Callable[..., None]


class UnitMembers(NamedTuple):
    """The pods of one gang as they are published now."""

    by_slot: Mapping[str, CachedPod]
    placed: Sequence[Pod]  # those that hold a place
    nominated: Iterable[str]  # slots that have a nomination of their own

    @property
    def active(self) -> list[Pod]:
        """Those that run or are about to, without those that leave."""
        return [pod for pod in self.placed if pod.phase in ACTIVE_PHASES]


class LostPlaces:
    """The kept places of every gang, by workload and by UID of the lost pod."""

    def __init__(self, gang_index: GangIndex, seals: Callable[[], Seals]) -> None:
        self.is_leading = False  # whether this replica has decided since another one led
        self._gang_index, self._seals = gang_index, seals
        self._by_workload: dict[str, dict[str, LostPlace]] = {}
        self._slots: dict[str, dict[str, str]] = {}  # by workload and slot: the UID, as last published
        self._was_read: set[str] = set()  # workloads whose pods were read: from then on what is here counts
        self._texts: dict[str, str] = {}  # by workload: what one of its pods should carry
        self._written: dict[str, str] = {}  # by UID of a pod: what the server has, and the watch does not show yet
        self._stale: dict[str, None] = {}
        self._now_s = 0

    def clock_at(self, now_s: int) -> list[str]:
        """Returns the workloads to look at again, because the clock was set back."""
        was_s, self._now_s = self._now_s, now_s or self._now_s
        return sorted(self._by_workload) if self._now_s < was_s else []

    def move_times(self, by_s: int) -> None:
        """The clock was set: places are kept for as long as before."""
        for known in self._by_workload.values():
            for uid, lost in known.items():
                known[uid] = replace(lost, since_s=max(1, lost.since_s + by_s)) if lost.since_s else lost
        self._now_s = max(0, self._now_s + by_s)

    def lose(self, name: str, pod: CachedPod, place: Pod) -> None:
        """A pod of a gang failed, is being deleted, or is gone."""
        lost = LostPlace(pod.uid, member_of(pod), pod.spec.request, place)
        self._by_workload.setdefault(name, {}).setdefault(pod.uid, lost)

    def expect(self, name: str, leader: CachedPod, request: Request, place: Pod) -> None:
        """A pod will be made once this leader runs."""
        uid = f"{leader.uid}/{place.name}"
        self._by_workload.setdefault(name, {})[uid] = LostPlace(uid, member_of(leader), request, place, is_awaited=True)

    def give_up(self, name: str, slot: str) -> bool:
        """The scheduler keeps the place of this slot no longer. False: it was not a lost member's place."""
        uid = self._slots.get(name, {}).get(slot, "")
        is_known = self._by_workload.get(name, {}).pop(uid, None) is not None
        if is_known:
            self._set_text(name)
        return is_known

    def delete_workload(self, name: str) -> None:
        for each in (self._by_workload, self._slots, self._texts, self._stale):
            each.pop(name, None)
        self._was_read.discard(name)

    def discard(self) -> list[str]:
        """Another replica leads, and tells nobody which pods it evicts: from now on what is on the pods counts."""
        names = {*self._by_workload, *self._was_read}
        self._by_workload, self._slots, self._texts, self._stale, self._written = {}, {}, {}, {}, {}
        self._was_read, self.is_leading = set(), False
        return sorted(names)

    def nominations(
        self, name: str, gang: Gang | None, members: UnitMembers, nodes: Iterable[str], now_s: int, report: Report
    ) -> dict[str, Nomination]:
        """The nominations for the places of this workload, by slot. Forgets the places that nobody can need."""
        if name not in self._was_read and (gang is None or not self._begin(name, members, now_s)):
            self._by_workload.pop(name, None)
            return {}
        known = self._by_workload.setdefault(name, {})
        for uid, lost in known.items():
            if not lost.since_s:
                known[uid] = replace(lost, since_s=max(now_s, 1))
                report("place-kept", workload=name, pod=_title(lost), node=lost.place.node)
            elif lost.since_s > now_s > 0:  # the clock was set back: nothing is kept for longer because of that
                known[uid] = replace(lost, since_s=max(now_s, 1))
        wanted = self._wanted(gang, known, members, set(nodes)) if gang is not None else []
        for uid in known.keys() - {lost.uid for lost in wanted}:
            del known[uid]
        # A place on which a replacement is about to be bound comes back if that fails.
        slots = _slots([lost for lost in wanted if not any(map(lost.overlaps, members.active))], members)
        self._slots[name] = {slot: lost.uid for slot, lost in slots.items()}
        self._set_text(name)
        return {slot: self._nomination(name, slot, lost) for slot, lost in slots.items()}

    # What is on the pods.

    def upsert_pod(self, pod: CachedPod) -> None:
        if self._written and self._written.get(pod.uid) == text_on(pod):
            del self._written[pod.uid]

    def delete_pod(self, uid: str) -> None:
        self._written.pop(uid, None)

    def record_write(self, pod: CachedPod, text: str) -> None:
        """The server has accepted it; the watch will show it later."""
        self._written[pod.uid] = text

    def pods_to_write(self, name: str, by_slot: Mapping[str, CachedPod]) -> list[PodText]:
        """What must be written on which pod of this workload."""
        if name not in self._was_read:
            return []
        carriers = [pod for _, pod in sorted(by_slot.items()) if not pod.is_terminating]
        current = [self._written.get(pod.uid, text_on(pod)) for pod in carriers]
        return pods_to_write(self._texts.get(name, ""), carriers, current)

    def take_stale(self) -> list[str]:
        """Workloads whose pods may carry something else than they should."""
        stale, self._stale = self._stale, {}
        return list(stale)

    def _begin(self, name: str, members: UnitMembers, now_s: int) -> bool:
        """Take over what an earlier leader kept, and what went while nobody led. False: there is nothing to keep."""
        pods = members.by_slot.values()
        has_text = carries_places(pods)
        known = self._by_workload.get(name, {})
        if not has_text and not known and not any(pod.is_terminating for pod in pods):
            return False
        for pod in pods if has_text else ():
            for lost in read_places(pod, name, now_s, self._seals()):
                # Followers have no rules of their own: their leader's keep others away.
                neighbours = None if lost.is_awaited else _affinity_like(lost, members)
                known.setdefault(lost.uid, replace(lost, place=replace(lost.place, neighbours=neighbours)))
        for place in members.placed if not self.is_leading else ():
            pod = members.by_slot[place.name]
            if pod.is_terminating and pod.uid not in known and _went_by_itself(pod):
                since_s = min(pod.deleted_s, now_s)
                known[pod.uid] = LostPlace(pod.uid, member_of(pod), pod.spec.request, place, since_s)
        if not has_text and not known:
            return False
        self._by_workload[name] = known
        self._was_read.add(name)
        return True

    def _set_text(self, name: str) -> None:
        text = text_of(self._by_workload.get(name, {}).values())
        self._texts[name] = text
        self._stale[name] = None

    def _wanted(
        self, gang: Gang, known: Mapping[str, LostPlace], members: UnitMembers, nodes: set[str]
    ) -> list[LostPlace]:
        """As many places as the gang lacks pods, of pods that may be replaced or come later; the oldest first."""
        bound = [pod for pod in members.active if members.by_slot[pod.name].node]
        missing = max(sum(role.count for role in gang.roles), gang.minimum) - len(bound)
        found = [
            lost
            for lost in sorted(known.values(), key=lambda each: (each.since_s, each.uid))
            if lost.place.node in nodes
            and not gang.is_suspended
            and not any(map(lost.overlaps, bound))
            and self._gang_index.replaces(lost.member)
        ]
        lost_only = [lost for lost in found if not lost.is_awaited][: max(0, missing)]
        awaited = [lost for lost in found if lost.is_awaited][: max(0, missing + gang.later - len(lost_only))]
        return lost_only + awaited

    def _nomination(self, name: str, slot: str, lost: LostPlace) -> Nomination:
        place, delay_s = lost.place, self._gang_index.replacement_delay_s(lost.member)
        return Nomination(
            name, slot, place.node, place.devices, place.cpu_milli, place.memory_mib, place.extended,
            affinity_of_nomination(place.neighbours), place.beside,
            lost.since_s, lost.since_s + delay_s if delay_s else 0, place.share_with,
            lost.is_awaited,
        )  # fmt: skip


def _slots(places: Sequence[LostPlace], members: UnitMembers) -> dict[str, LostPlace]:
    """Each place goes to a waiting pod like the lost one; where there is none yet, to the slot that it will have."""
    taken = {*members.nominated, *(pod.name for pod in members.placed)}
    staying = {slot: pod for slot, pod in members.by_slot.items() if not pod.is_terminating}
    found: dict[str, LostPlace] = {}
    for lost in places:
        role = role_name(lost.place.name)
        alike = [slot for slot, pod in staying.items() if _is_like(pod, lost)]
        alike.sort(key=lambda slot: role_name(slot) != role)
        waiting = next((slot for slot in alike if slot not in taken), "")
        used = {*members.by_slot, *taken}
        slot = waiting or next(each for number in range(len(used) + 1) if (each := f"{role}-{number}") not in used)
        taken.add(slot)
        found[slot] = lost
    return found


def _is_like(pod: CachedPod, lost: LostPlace) -> bool:
    if not lost.is_awaited:
        return pod.spec.request == lost.request
    # Controllers add the leader's domain to the followers, after the template was read.
    asked = replace(pod.spec.request, node_rules=lost.request.node_rules, node_choices=lost.request.node_choices)
    return asked == lost.request and pod.name != lost.member.name


def _affinity_like(lost: LostPlace, members: UnitMembers) -> PodAffinity | None:
    """The rules of the lost pod are those of a pod that asks for the same."""
    alike = (pod for pod in members.placed if members.by_slot[pod.name].spec.request == lost.request)
    return next((pod.neighbours for pod in alike), None)


def _went_by_itself(pod: CachedPod) -> bool:
    """Nobody evicted it. An Eviction may be that of the former leader, who needed the place for others."""
    return pod.phase == "Running" and bool(pod.node) and not pod.is_evicted and pod.deleted_s > 0


def _title(lost: LostPlace) -> str:
    return f"{lost.member.namespace}/{lost.member.name}"
