"""Find the fewest running pods that must move so that the lost pods of a gang fit where its levels require.

In:    a gang that lacks pods, and what may move.   Out: places for its missing pods and for all that move, or None.
Sets of pods are tried in the order of their size. So the first that works is the smallest, up to `MAX_SETS` sets; then
whole parts of the gang are tried, the narrowest first, and at last all of it. Other workloads move only where the
policy has the action `consolidate`, each as a whole, and only if they keep their own levels.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from kaiwo.decide.make_room.room_state import RoomMade, RoomState
from kaiwo.decide.make_room.victim_units import VictimUnit
from kaiwo.decide.placement.levels import NO_LEVEL, constraint_levels
from kaiwo.decide.placement.place_again import DisplacedPods, PlacedAgain, place_again
from kaiwo.decide.placement.place_pods import Placed, Placer
from kaiwo.decide.placement.place_workload import Placement
from kaiwo.decide.placement.pod_affinity import still_holds
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.network.constraint import CONSOLIDATED
from kaiwo.model.network.level_groups import PartKey, WorkloadLevels, levels_of, role_numbers
from kaiwo.model.plan import Start
from kaiwo.model.workload import Phase, Pod, Workload, pod_index, role_name, role_of

MAX_SETS = 512  # sets of pods that are tried for one gang
MAX_UNITS = 24  # units of other work that may move for it


class Swap(NamedTuple):
    room: RoomMade
    moved: tuple[str, ...]  # its own pods
    others: tuple[str, ...]  # workloads
    is_whole: bool  # all its pods move


class _MovedSet(NamedTuple):
    own: tuple[Pod, ...]
    units: tuple[VictimUnit, ...]


class SwapSearch:
    def __init__(self, room: RoomState, placer: Placer, workload: Workload, missing: Sequence[str]) -> None:
        self._room, self._placer, self._workload, self._missing = room, placer, workload, missing
        self._cycle, self._working, self._state = room.cycle, room.cycle_state.working, room.cycle.state
        levels = levels_of(workload)
        assert levels is not None, "without levels, every node is as good as another"
        self._levels: WorkloadLevels = levels
        pods = self._state.pods.get(workload.name, {})
        evicted = room.victims.evicted
        self._own = [
            pods[name]
            for name in sorted(pods)
            if pods[name].phase is Phase.RUNNING and (workload.name, name) not in evicted
        ]
        self.tries = 0

    def find(self) -> Swap | None:
        """The smallest swap; None, with nothing changed, if there is none."""
        sets = islice(self._by_size(), MAX_SETS)
        seen = set[tuple[str, ...]]()
        for moved in (*sets, *self._whole_parts()):
            key = tuple(pod.name for pod in moved.own) if not moved.units else ()
            if key and key in seen:
                continue
            seen.add(key)
            self.tries += 1
            found = self._try(moved)
            if found is not None:
                return found
        return None

    def _by_size(self) -> Iterator[_MovedSet]:
        """All sets of own pods and units of others, by the number of pods; of equal ones, those with fewer others."""
        groups, units = self._groups(), self._units()
        most = len(self._own) + sum(len(unit.pods) for unit in units)
        for size in range(most + 1):
            for of_others in range(size + 1):
                for chosen in _units_of_size(units, of_others):
                    for own in _pods_of_size(groups, size - of_others):
                        yield _MovedSet(own, chosen)

    def _whole_parts(self) -> Iterator[_MovedSet]:
        """The pods of each part that lacks some, by the number of pods; the last is all of them."""
        numbers = role_numbers(self._workload)
        keys: dict[PartKey, None] = {}
        for name in self._missing:
            keys |= dict.fromkeys(self._levels.parts_of(numbers[role_name(name)], pod_index(name)))
        parts = [tuple(pod for pod in self._own if key in self._parts_of(pod)) for key in keys]
        for own in sorted({*parts, tuple(self._own)}, key=lambda each: (len(each), [pod.name for pod in each])):
            yield _MovedSet(own, ())

    def _groups(self) -> list[list[Pod]]:
        """Own pods that are alike: which of them moves makes no difference."""
        found: dict[tuple[object, ...], list[Pod]] = {}
        for pod in self._own:
            is_plain = all(share.milli == WHOLE_MILLI for share in pod.devices)
            devices = len(pod.devices) if is_plain else pod.devices
            found.setdefault((role_name(pod.name), self._parts_of(pod), pod.node, devices), []).append(pod)
        return list(found.values())

    def _units(self) -> list[VictimUnit]:
        """Work of others that could make room: first what runs in the domains that the gang is bound to."""
        if "consolidate" not in self._cycle.policy.actions:
            return []
        victims, nodes = self._room.victims, self._home_nodes()
        found = [
            unit
            for queue in sorted(victims.queues())
            for unit in victims.units(queue)
            if unit.workload.name != self._workload.name
            and not any((pod.workload, pod.name) in victims.evicted for pod in unit.pods)
            and (unit.is_surplus or not victims.surplus_of(unit))
        ]
        is_away = {id(unit): not any(pod.node in nodes for pod in unit.pods) for unit in found}
        return sorted(found, key=lambda unit: (is_away[id(unit)], len(unit.pods), unit.order))[:MAX_UNITS]

    def _home_nodes(self) -> frozenset[str]:
        """The nodes of the domains that its pods are bound to."""
        nodes = self._working.nodes
        found: set[str] = set()
        for pod in self._own:
            row = nodes.row.get(pod.node)
            for key in self._parts_of(pod) if row is not None else ():
                levels = constraint_levels(nodes, self._levels.constraint(key), CONSOLIDATED)
                if levels.required != NO_LEVEL and not levels.unknown:
                    domains = levels.levels[levels.required].domain_of_node
                    found.update(nodes.names[at] for at in (domains == domains[row]).nonzero()[0])
        return frozenset(found) or frozenset(nodes.names)

    def _try(self, moved: _MovedSet) -> Swap | None:
        state, workload, working = self._state, self._workload, self._working
        kept = state.nominations.get(workload.name, {})
        queue = working.queues.row.get(workload.queue)
        if queue is None or not self._room.budget.allows(unit.workload for unit in moved.units):
            return None
        names = [*self._missing, *(pod.name for pod in moved.own)]
        with working.trial() as attempt:
            for nomination in kept.values():
                working.release(nomination, queue, not workload.preemptible)
            for pod in moved.own:
                working.release(pod, queue, not workload.preemptible)
            for unit in moved.units:
                for pod in unit.pods:
                    working.release(pod, working.queues.row[unit.workload.queue], False)
            mine = self._place(workload, names)
            if mine is None:
                return None
            others = []
            for unit in moved.units:
                found = self._place(unit.workload, [pod.name for pod in unit.pods])
                if found is None:
                    return None
                others.append((unit, [(pod, found.places[pod.name]) for pod in unit.pods]))
            if not self._obeys_affinity(mine.places):
                return None
            attempt.keep()
        starts = [Start(workload.name, name, place.node, place.devices) for name, place in mine.places.items()]
        given_up = [(workload.name, pod) for pod in sorted(kept)]
        placement = Placement([start for start in starts if start.pod in self._missing], given_up)
        placement.domains = list(mine.domains)
        room = RoomMade(placement, moved=others)
        room.own = [(pod, mine.places[pod.name]) for pod in moved.own]
        whole = bool(self._own) and len(moved.own) == len(self._own)
        own = tuple(pod.name for pod in moved.own)
        return Swap(room, own, tuple(sorted({unit.workload.name for unit in moved.units})), whole)

    def _place(self, workload: Workload, pods: Sequence[str]) -> PlacedAgain | None:
        displaced = DisplacedPods(workload, pods, partial(self._state.request_of, workload))
        return place_again(self._placer, self._state, displaced)

    def _obeys_affinity(self, places: dict[str, Placed]) -> bool:
        working, workload = self._working, self._workload
        return all(
            still_holds(working, role_of(workload, name).request, working.nodes.row[place.node])
            for name, place in places.items()
        )

    def _parts_of(self, pod: Pod) -> tuple[PartKey, ...]:
        return self._levels.parts_of(role_numbers(self._workload)[role_name(pod.name)], pod_index(pod.name))


def _units_of_size(units: Sequence[VictimUnit], pods: int, start: int = 0) -> Iterator[tuple[VictimUnit, ...]]:
    """Sets of units with this many pods together."""
    if not pods:
        yield ()
        return
    for at in range(start, len(units)):
        left = pods - len(units[at].pods)
        if left >= 0:
            for rest in _units_of_size(units, left, at + 1):
                yield (units[at], *rest)


def _pods_of_size(groups: Sequence[list[Pod]], pods: int, start: int = 0) -> Iterator[tuple[Pod, ...]]:
    """Sets of this many pods; of pods that are alike, the first ones."""
    if not pods:
        yield ()
        return
    if start == len(groups):
        return
    for count in range(min(pods, len(groups[start])), -1, -1):
        for rest in _pods_of_size(groups, pods - count, start + 1):
            yield (*groups[start][:count], *rest)
