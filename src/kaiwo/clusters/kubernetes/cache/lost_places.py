"""Keep the places of gang members that were lost, for the pods that replace them.

In:    pods of gangs that fail, or are deleted, without being told to go.   Out: a nomination for each of their places.
A place is kept while the owner of the lost pod may still make another one, and while the gang lacks pods. The policy
ends it after a time, as a cycle decides; so do the end of the gang, and a node that is gone.
Never: stored. It lasts minutes, and a scheduler that takes over keeps none.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kaiwo.clusters.kubernetes.cache.gang_index import GangIndex
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.gangs.gang import Gang
from kaiwo.model.affinity import affinity_of_nomination
from kaiwo.model.plan import Nomination
from kaiwo.model.workload import ACTIVE_PHASES, Pod, role_name

Report = Callable[..., None]


class LostPlace(NamedTuple):
    pod: CachedPod  # as it was when it was lost
    place: Pod  # what it held, with the slot that it had
    since_s: int = 0  # 0: not yet published

    def overlaps(self, other: Pod) -> bool:
        """The other pod uses this place."""
        if other.node != self.place.node:
            return False
        own, others = ({share.gpu for share in each.devices} for each in (self.place, other))
        return not own.isdisjoint(others) if own else not others


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

    def __init__(self, gang_index: GangIndex) -> None:
        self._gang_index = gang_index
        self._by_workload: dict[str, dict[str, LostPlace]] = {}
        self._slots: dict[str, dict[str, str]] = {}  # by workload and slot: the UID, as last published

    def lose(self, name: str, pod: CachedPod, place: Pod) -> None:
        """A pod of a gang failed, is being deleted, or is gone."""
        self._by_workload.setdefault(name, {}).setdefault(pod.uid, LostPlace(pod, place))

    def give_up(self, name: str, slot: str) -> bool:
        """The scheduler keeps the place of this slot no longer. False: it was not a lost member's place."""
        uid = self._slots.get(name, {}).get(slot, "")
        is_known = self._by_workload.get(name, {}).pop(uid, None) is not None
        self._tidy(name)
        return is_known

    def delete_workload(self, name: str) -> None:
        self._by_workload.pop(name, None)
        self._slots.pop(name, None)

    def discard(self) -> list[str]:
        """Another replica leads, and tells nobody which pods it evicts: from now on nothing is kept."""
        names = list(self._by_workload)
        self._by_workload, self._slots = {}, {}
        return names

    def nominations(
        self, name: str, gang: Gang | None, members: UnitMembers, nodes: Iterable[str], now_s: int, report: Report
    ) -> dict[str, Nomination]:
        """The nominations for the places of this workload, by slot. Forgets the places that nobody can need."""
        known = self._by_workload.get(name)
        if not known:
            return {}
        if gang is None:
            self.delete_workload(name)
            return {}
        for uid, lost in known.items():
            if not lost.since_s:
                known[uid] = lost._replace(since_s=max(now_s, 1))
                report("place-kept", workload=name, pod="/".join(lost.pod.key), node=lost.place.node)
        wanted = self._wanted(gang, known, members, set(nodes))
        for uid in known.keys() - {lost.pod.uid for lost in wanted}:
            del known[uid]
        # A place on which a replacement is about to be bound comes back if that fails.
        slots = _slots([lost for lost in wanted if not any(map(lost.overlaps, members.active))], members)
        self._slots[name] = {slot: lost.pod.uid for slot, lost in slots.items()}
        self._tidy(name)
        return {slot: self._nomination(name, slot, lost) for slot, lost in slots.items()}

    def _wanted(
        self, gang: Gang, known: Mapping[str, LostPlace], members: UnitMembers, nodes: set[str]
    ) -> list[LostPlace]:
        """As many places as the gang lacks pods, of pods that may be replaced; the oldest first."""
        bound = [pod for pod in members.active if members.by_slot[pod.name].node]
        missing = max(sum(role.count for role in gang.roles), gang.minimum) - len(bound)
        found = [
            lost
            for lost in sorted(known.values(), key=lambda each: (each.since_s, each.pod.uid))
            if lost.place.node in nodes
            and not gang.is_suspended
            and not any(map(lost.overlaps, bound))
            and self._gang_index.replaces(lost.pod)
        ]
        return found[: max(0, missing)]

    def _nomination(self, name: str, slot: str, lost: LostPlace) -> Nomination:
        place, delay_s = lost.place, self._gang_index.replacement_delay_s(lost.pod)
        return Nomination(
            name, slot, place.node, place.devices, place.cpu_milli, place.memory_mib, place.extended,
            affinity_of_nomination(place.neighbours), place.beside,
            lost.since_s, lost.since_s + delay_s if delay_s else 0, place.share_with,
        )  # fmt: skip

    def _tidy(self, name: str) -> None:
        if not self._by_workload.get(name):
            self.delete_workload(name)


def _slots(places: Sequence[LostPlace], members: UnitMembers) -> dict[str, LostPlace]:
    """Each place goes to a waiting pod like the lost one; where there is none yet, to the slot that it will have."""
    taken = {*members.nominated, *(pod.name for pod in members.placed)}
    staying = {slot: pod for slot, pod in members.by_slot.items() if not pod.is_terminating}
    found: dict[str, LostPlace] = {}
    for lost in places:
        role = role_name(lost.place.name)
        alike = [slot for slot, pod in staying.items() if pod.spec.request == lost.pod.spec.request]
        alike.sort(key=lambda slot: role_name(slot) != role)
        waiting = next((slot for slot in alike if slot not in taken), "")
        used = {*members.by_slot, *taken}
        slot = waiting or next(each for number in range(len(used) + 1) if (each := f"{role}-{number}") not in used)
        taken.add(slot)
        found[slot] = lost
    return found
