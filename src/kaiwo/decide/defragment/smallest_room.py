"""Find the fewest running pods that must move so that one waiting workload fits.

In:    a waiting workload, and which work may move.   Out: its places and those of the pods that move, or None.
Sets of pods are tried in the order of their size, so the first that works is the smallest: up to `MAX_SETS` sets. Pods
that are alike count once, and of those the one that loses the least work moves. Pods of gangs move by themselves
where all levels of the gang hold afterwards. Every place comes from the same placement as in a cycle.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations, islice, permutations
from typing import NamedTuple

import numpy as np

from kaiwo.decide.defragment.movable_work import MovableWork
from kaiwo.decide.make_room.room_state import RoomMade, RoomState
from kaiwo.decide.make_room.victim_rules import OnlyMoves
from kaiwo.decide.make_room.victim_search import VictimSearch
from kaiwo.decide.placement.place_again import DisplacedPods, place_again
from kaiwo.decide.placement.place_pods import NodeCosts, Placed, Placer
from kaiwo.decide.placement.place_workload import place_workload
from kaiwo.decide.placement.pod_affinity import still_holds
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.plan import Start
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Workload, role_of
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.backlog import needs_to_make_room_for
from kaiwo.snapshot.node_table import CPU, MEMORY, MILLI, PODS, USABLE

MAX_SETS = 3_000  # sets of pods that are tried
MAX_SIZE = 16  # pods of one set
MAX_ORDERS = 6  # in which the pods of one set are placed
SAME_SIZE = 40  # sets that are tried after the first that works, for one that loses less work


class PlacedMove(NamedTuple):
    pod: Pod
    place: Placed


class RoomFound(NamedTuple):
    starts: tuple[Start, ...]
    moves: tuple[PlacedMove, ...]
    is_smallest: bool

    @property
    def key(self) -> tuple[int, list[tuple[str, str]]]:
        return len(self.moves), sorted((move.pod.workload, move.pod.name) for move in self.moves)


class FirstOn(NodeCosts):
    """One node costs nothing, all others something."""

    def __init__(self, row: int, nodes: int) -> None:
        self._costs: IntArray = np.ones(nodes, np.int64)
        self._costs[row] = 0

    def of_nodes(self, want: Request) -> IntArray:
        return self._costs


class SmallestRoom:
    def __init__(self, room: RoomState, movable: MovableWork, workload: Workload, most_sets: int = MAX_SETS) -> None:
        self._most_sets = most_sets
        self._room, self._movable, self._workload = room, movable, workload
        self._state, self._working = room.cycle.state, room.cycle_state.working
        self._waiting_class = self._state.backlog.class_of(workload.name)
        self._needs = needs_to_make_room_for(self._waiting_class)
        self._placer = room.placer_for(workload, self._waiting_class)
        self._lost: dict[tuple[str, str], int] = {}
        self._groups = self._group_alike()
        self.tries = 0
        self.is_too_little_free = False  # in the whole cluster, so that no moves can help
        self.is_cut_short = False  # not all sets were tried

    def find(self) -> RoomFound | None:
        """The smallest room; None, with nothing changed, if there is none."""
        if not self._could_help():
            return None
        self.is_too_little_free = not self._is_enough_free()
        if self.is_too_little_free:
            return None
        found: RoomFound | None = None
        more = SAME_SIZE
        for number, pods in enumerate(self._by_size()):
            if number >= self._most_sets:
                self.is_cut_short = found is None
                break
            if found is not None and (len(pods) > len(found.moves) or not more):
                break
            if found is not None:
                more -= 1
                if self._loss(pods) >= self._loss([move.pod for move in found.moves]):
                    continue
            self.tries += 1
            found = self._try(pods) or found
        return found or self._of_whole_units()

    def _could_help(self) -> bool:
        """Moves leave what queues use and what GPUs there are as they are: no set need be tried where that is short."""
        may_start = self._room.cycle_state.charges.may_start(self._waiting_class)
        return may_start and self._waiting_class.key not in self._state.backlog.impossible

    def _is_enough_free(self) -> bool:
        """Whether the free amounts of all nodes together are enough: moves free nothing, they only bring it together.

        A pod that asks for less at its next start, or on another device, does free the difference.
        """
        free, gpus = self._working.free, self._working.gpus
        milli = int(np.where(gpus[:, USABLE] > 0, gpus[:, MILLI], 0).sum())
        amounts = np.array([*np.maximum(free[:, (CPU, MEMORY, PODS)], 0).sum(axis=0), milli], np.int64)
        for pod in (pod for group in self._groups for pod in group):
            want = self._request_of(pod)
            taken = (pod.cpu_milli, pod.memory_mib, 1, sum(share.milli for share in pod.devices))
            amounts += np.maximum(np.subtract(taken, _asked(want)), 0)
        for need in self._needs:
            amounts -= need.needed * np.array(_asked(self._state.backlog.shapes[need.shape]), np.int64)
        return bool((amounts >= 0).all())

    def _request_of(self, pod: Pod) -> Request:
        workload = self._state.workloads[pod.workload]
        return self._state.request_of(workload, role_of(workload, pod.name))

    def _by_size(self) -> Iterator[tuple[Pod, ...]]:
        """Sets of pods that could make room, by their number."""
        if sum(need.needed for need in self._needs) != 1:
            for size in range(MAX_SIZE + 1):
                yield from _of_size(self._groups, size)
            return
        yield ()
        least, by_node = self._least_on(), dict[str, list[list[Pod]]]()
        for group in self._groups:
            by_node.setdefault(group[0].node, []).append(group)
        nodes = sorted((least[name], name) for name in by_node if name in least)
        for size in range(1, MAX_SIZE + 1):
            for others in range(size):
                for fewest, name in nodes:
                    if fewest > size - others:
                        break
                    elsewhere = [group for group in self._groups if group[0].node != name] if others else []
                    for extra in _of_size(elsewhere, others):
                        for own in _of_size(by_node[name], size - others):
                            yield (*own, *extra)

    def _least_on(self) -> dict[str, int]:
        """By node: how many pods must leave it before a pod of the workload fits; each resource by itself."""
        want = self._room.cycle.state.backlog.shapes[next(need.shape for need in self._needs if need.needed)]
        nodes, found = self._working.nodes, dict[str, int]()
        on_node: dict[str, list[Pod]] = {}
        for pod in (pod for group in self._groups for pod in group):
            on_node.setdefault(pod.node, []).append(pod)
        for name, pods in on_node.items():
            row = nodes.row.get(name)
            if row is None:
                continue
            free, gpus = self._working.free[row], self._working.gpus[row]
            whole = int(((gpus[MILLI] >= WHOLE_MILLI) & (gpus[USABLE] > 0)).sum())
            needs = (
                (want.cpu_milli - int(free[CPU]), [pod.cpu_milli for pod in pods]),
                (want.memory_mib - int(free[MEMORY]), [pod.memory_mib for pod in pods]),
                (1 - int(free[PODS]), [1] * len(pods)),
                ((want.gpus if want.is_whole else 0) - whole, [len(pod.devices) for pod in pods]),
            )
            counts = [_fewest(need, amounts) for need, amounts in needs]
            if None not in counts:
                found[name] = max(1, *(each for each in counts if each is not None))
        return found

    def _group_alike(self) -> list[list[Pod]]:
        """Pods of which it makes no difference which one moves, but for the work that is lost."""
        found: dict[tuple[object, ...], list[Pod]] = {}
        for pod in self._movable.pods():
            workload = self._state.workloads[pod.workload]
            if workload.name == self._workload.name or pod.node not in self._working.nodes.row:
                continue
            want = self._request_of(pod)
            is_alone = workload.pods == 1 and workload.levels is None and want.neighbours is None
            is_whole = all(share.milli == WHOLE_MILLI for share in pod.devices)
            key = (
                pod.node, want, workload.queue, "" if is_alone else pod.workload, "" if is_whole else pod.devices,
            )  # fmt: skip
            found.setdefault(key, []).append(pod)
            self._lost[pod.workload, pod.name] = self._movable.lost_gpu_s(workload, pod)
        groups = [
            sorted(group, key=lambda pod: (self._loss([pod]), pod.workload, pod.name)) for group in found.values()
        ]
        return sorted(groups, key=lambda group: (group[0].node, group[0].workload, group[0].name))

    def _loss(self, pods: Sequence[Pod]) -> int:
        return sum(self._lost[pod.workload, pod.name] for pod in pods)

    def _try(self, pods: tuple[Pod, ...]) -> RoomFound | None:
        by_workload: dict[str, list[Pod]] = {}
        for pod in pods:
            by_workload.setdefault(pod.workload, []).append(pod)
        if any(0 <= self._state.workloads[name].may_go < len(own) for name, own in by_workload.items()):
            return None
        nodes = self._working.nodes
        rows = sorted({nodes.row[pod.node] for pod in pods}) or [0]
        placers = [self._placer.with_costs(FirstOn(row, len(nodes.names))) for row in rows]
        with self._working.trial():
            for pod in pods:
                workload = self._state.workloads[pod.workload]
                self._working.release(pod, self._working.queues.row[workload.queue], not workload.preemptible)
            ordered = sorted(by_workload, key=lambda name: (-_size(by_workload[name]), name))
            for placer in placers:
                for order in islice(permutations(ordered), MAX_ORDERS):
                    found = self._place(placer, {name: by_workload[name] for name in order})
                    if found is not None:
                        return found
        return None

    def _place(self, placer: Placer, by_workload: dict[str, list[Pod]]) -> RoomFound | None:
        state, working = self._state, self._working
        with working.trial():
            placement = place_workload(placer, state, self._workload, self._needs, grows=False)
            if placement is None:
                return None
            moves: list[PlacedMove] = []
            for name, pods in by_workload.items():
                workload = state.workloads[name]
                displaced = DisplacedPods(workload, [pod.name for pod in pods], partial(state.request_of, workload))
                placed = place_again(self._placer, state, displaced)
                if placed is None:
                    return None
                for pod in pods:
                    place = placed.places[pod.name]
                    moves.append(PlacedMove(pod, place))
            if any(move.place.node == move.pod.node and _same(move) for move in moves):
                return None  # it need not move
            wants = [(role_of(self._workload, start.pod).request, start.node) for start in placement.starts]
            wants += [
                (role_of(state.workloads[each.pod.workload], each.pod.name).request, each.place.node) for each in moves
            ]
            if not all(still_holds(working, want, working.nodes.row[node]) for want, node in wants):
                return None
        return RoomFound(tuple(placement.starts), tuple(moves), True)

    def _of_whole_units(self) -> RoomFound | None:
        """Beyond what can be tried set by set: victims are taken in order until it fits, and placed again."""
        victims = self._room.victims
        lanes = victims.lanes(
            sorted(victims.queues()),
            lambda unit: unit.workload.name != self._workload.name and self._movable.reason(unit.workload) is None,
        )
        if not lanes:
            return None
        with self._working.trial():
            search = VictimSearch(self._room, self._placer, self._workload, self._needs, OnlyMoves(), lanes)
            room = search.find_room()
        return None if room is None else RoomFound(tuple(room.placement.starts), _moves_of(room), False)


def _moves_of(room: RoomMade) -> tuple[PlacedMove, ...]:
    """The pods that change their place; the others of their gangs stay."""
    moves = (PlacedMove(pod, placed) for _, pairs in room.moved for pod, placed in pairs)
    return tuple(each for each in moves if not _same(each))


def _same(move: PlacedMove) -> bool:
    return move.pod.node == move.place.node and move.pod.devices == move.place.devices


def _size(pods: Sequence[Pod]) -> int:
    return sum(share.milli for pod in pods for share in pod.devices)


def _asked(want: Request) -> tuple[int, int, int, int]:
    return want.cpu_milli, want.memory_mib, 1, want.least_milli


def _fewest(need: int, amounts: Sequence[int]) -> int | None:
    """How many of the largest amounts are needed; None: all of them are too little."""
    count = 0
    for amount in sorted(amounts, reverse=True):
        if need <= 0:
            break
        need, count = need - amount, count + 1
    return count if need <= 0 else None


def _of_size(groups: Sequence[Sequence[Pod]], size: int) -> Iterator[tuple[Pod, ...]]:
    """Sets of this many pods; of pods that are alike, the first ones."""
    if not size:
        yield ()
        return
    if size == 1:
        yield from ((group[0],) for group in groups)
        return
    if all(len(group) == 1 for group in groups):
        yield from (tuple(group[0] for group in chosen) for chosen in combinations(groups, size))
        return
    for at in range(len(groups)):
        for count in range(min(size, len(groups[at])), 0, -1):
            for rest in _of_size(groups[at + 1 :], size - count):
                yield (*groups[at][:count], *rest)
