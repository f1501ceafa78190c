"""Make room for one waiting workload by stopping or moving others.

In:    the desk, the workload, what could be stopped and the rule that protects it.
Out:   its whole placement, with who must go and who moves; or nothing, and nothing changed.
First whatever may go is taken in order until the workload fits; then everybody whose place it did not need has it back,
the last taken first; who lost it is offered another one. So no more is stopped than the placement needs.

Also: What it costs others when a waiting workload takes their places: how many units lose theirs.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.make_room.victim_units import UnitLane, VictimUnit
from kaiwo.decide.placement.place_pods import Payer, Placed, place_pods
from kaiwo.decide.placement.place_workload import Placement, place_workload
from kaiwo.decide.placement.pod_affinity import may_stand, still_holds
from kaiwo.decide.placement.queue_limits import within_limits
from kaiwo.decide.planned_starts.future_quota import QueueCharge
from kaiwo.decide.turn_order import Turns
from kaiwo.gpus.isolation_grades import may_come_back
from kaiwo.model.affinity import kept
from kaiwo.model.plan import Cause, Eviction, Nomination
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Workload, role_of
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.backlog import RoleNeeds
from kaiwo.snapshot.node_table import FREE_GPU, NodeTable
from kaiwo.snapshot.queue_table import ResourceVector


class TakenPlaces:
    """Who was where."""

    def __init__(self, nodes: NodeTable, taken: list[VictimUnit]) -> None:
        self._nodes = nodes
        self._units: dict[int, list[list[int]]] = {}  # by node: the devices of each unit there, in the order of taking
        self._prices: dict[Request, IntArray] = {}
        for unit in taken:
            self._note(unit)

    def of_nodes(self, want: Request) -> IntArray:
        """How many units must go from each node so that one such pod fits."""
        prices = self._prices.get(want)
        if prices is None:
            prices = self._prices[want] = np.zeros(len(self._nodes.names), np.int64)
            for row, units in self._units.items():
                if want.gpus:
                    taken = {column for unit in units for column in unit}
                    free = len(self._nodes.column[row]) - len(taken)  # at most: others may hold some of them
                    prices[row] = len(_cheapest(units, want.gpus - max(0, min(free, want.gpus))))
                else:
                    prices[row] = len(units)
        return prices

    def cheapest_first(self, row: int, columns: IntArray, want: Request) -> IntArray:
        """Devices that nobody had, then those of as few units as will do."""
        units = self._units.get(row)
        if not units:
            return columns
        taken = {column for unit in units for column in unit}
        ordered = [column for column in columns.tolist() if column not in taken]
        for unit in _cheapest(units, want.gpus - len(ordered)):
            ordered.extend(column for column in unit if column not in ordered)
        known = set(columns.tolist())
        ordered.extend(column for column in columns.tolist() if column not in ordered)
        return np.array([column for column in ordered if column in known], columns.dtype)

    def _note(self, unit: VictimUnit) -> None:
        by_row: dict[int, list[int]] = {}
        for pod in unit.pods:
            row = self._nodes.row.get(pod.node)
            if row is not None:
                found = by_row.setdefault(row, [])
                found.extend(self._nodes.column[row][s.gpu] for s in pod.devices if s.gpu in self._nodes.column[row])
        for row, devices in by_row.items():
            self._units.setdefault(row, []).append(devices)


def _cheapest(units: list[list[int]], need: int) -> list[list[int]]:
    """As few units as give so many devices: the smallest that is enough alone, else the largest and again."""
    left, chosen = [unit for unit in units if unit], []
    while need > 0 and left:
        enough = [unit for unit in left if len(unit) >= need]
        best = min(enough, key=len) if enough else max(left, key=len)
        left.remove(best)
        chosen.append(best)
        need -= len(best)
    return chosen


EACH = 32  # so many units are looked at one by one; then by ever larger steps, since what is not needed is given back
UNITS_A_STEP = 4


class Rule(Protocol):
    """What protects running work from one claim."""

    def may_go(self, unit: VictimUnit) -> bool:
        """This unit may be taken next, after all that were."""

    def may_stand(self, stopped: list[VictimUnit], paid: ResourceVector) -> bool:
        """Exactly these may be stopped and lose their place, for somebody who pays so much."""


@dataclass(slots=True)
class RoomMade:
    """How a claim is met."""

    placement: Placement
    stopped: list[VictimUnit] = field(default_factory=list)
    moved: list[tuple[VictimUnit, list[tuple[Pod, Placed]]]] = field(default_factory=list)


class VictimSearch:
    """One waiting workload that needs others to go."""

    def __init__(
        self,
        desk: CycleState,
        workload: Workload,
        needs: RoleNeeds,
        rule: Rule,
        lanes: dict[str, UnitLane],
        within_budgets: bool = False,  # take no more than eviction budgets let go, also of what is given back later
    ) -> None:
        self._desk, self._workload, self._needs, self._rule = desk, workload, needs, rule
        self._within_budgets = within_budgets
        self._turns = Turns(lanes, desk.working, desk.active, _nothing_next, reverse=True)
        self._taken: list[VictimUnit] = []

    @property
    def looked_at(self) -> int:
        """How many units were taken in the search."""
        return len(self._taken)

    def meet(self) -> RoomMade | None:
        """Find the room, with nothing changed when there is none."""
        with self._desk.working.trial() as attempt:
            room = self._take_until_it_stands()
            self._desk.steps += 1 + len(self._taken) // UNITS_A_STEP
            if room is not None:
                attempt.keep()
            return room

    def _take_until_it_stands(self) -> RoomMade | None:
        look_at = 0
        is_last = False
        while True:
            if len(self._taken) >= look_at or is_last:
                room = self._room()
                if room is not None or is_last:
                    return room
                look_at = len(self._taken) + max(1, (len(self._taken) - EACH) // 4)
            is_last = not self._take_next()

    def _room(self) -> RoomMade | None:
        """The workload's placement with what is taken by now, if the rule lets it stand."""
        with self._desk.working.trial() as attempt:
            placement = self._place()
            if placement is None:
                return None
            room = self._give_back(placement)
            if not self._rule.may_stand(room.stopped, self._paid(placement)) or not self._is_lawful(placement):
                return None
            if not self._desk.spared.lets(_workloads(room)):
                return None
            attempt.keep()
            return room

    def _paid(self, placement: Placement) -> ResourceVector:
        """What its queue pays in the end: of memory and partitions the devices decide."""
        shapes = self._desk.state.backlog.shapes
        if not any(shapes[shape].hangs_on_device for shape, _, _ in self._needs):
            return (0, 0, 0)  # as the rule knows
        wants = [role_of(self._workload, start.pod).request for start in placement.starts]
        kept = self._desk.state.nominations.get(self._workload.name, {}).values()
        shares = [share for start in placement.starts for share in start.devices]
        return (
            sum(share.milli for share in shares) - sum(share.milli for each in kept for share in each.devices),
            sum(want.cpu_milli for want in wants) - sum(each.cpu_milli for each in kept),
            sum(want.memory_mib for want in wants) - sum(each.memory_mib for each in kept),
        )

    def _is_lawful(self, placement: Placement) -> bool:
        """The rules between pods hold beside all who have their places again, too: else nobody goes for nothing."""
        working, workload = self._desk.working, self._workload
        return all(
            still_holds(working, role_of(workload, start.pod).request, working.nodes.row[start.node])
            for start in placement.starts
        )

    def _take_next(self) -> bool:
        """Free what the next unit holds. A queue whose next unit is protected gives nothing more."""
        desk = self._desk
        while self._turns:
            lane = self._turns.lane
            unit = lane.first
            if self._within_budgets and not self._desk.spared.lets([each.workload for each in (*self._taken, unit)]):
                lane.advance()
                self._turns.again()
                continue
            if self._rule.may_go(unit):
                lane.advance()
                queue = desk.working.queues.row[unit.workload.queue]
                for pod in unit.pods:
                    desk.working.release(pod, queue, False)
                self._taken.append(unit)
                self._turns.again()
                return True
            lane.close()
            self._turns.again()
        return False

    def _place(self) -> Placement | None:
        """The workload on what is free by now, where it costs the others least."""
        desk = self._desk
        if not self._may_fit():
            return None
        desk.placer.prices = TakenPlaces(desk.working.nodes, self._taken)
        placement = place_workload(desk.working, desk.placer, desk.state, self._workload, self._needs, grows=False)
        desk.placer.prices = None
        return placement

    def _may_fit(self) -> bool:
        """A necessary condition by sums, before any node is looked at; then by shapes."""
        desk = self._desk
        if self._workload.name in desk.state.nominations:
            return True  # what is kept for it is not among what is free
        free = np.maximum(desk.working.free[:, FREE_GPU], 0).sum()
        if free < self._need_milli():
            return False
        return all(desk.book.state(shape).room >= needed for shape, _, needed in self._needs)

    def _need_milli(self) -> int:
        shapes = self._desk.state.backlog.shapes
        return sum(shapes[shape].charge_milli * needed for shape, _, needed in self._needs)

    def _give_back(self, placement: Placement) -> RoomMade:
        """Everybody whose place was not needed keeps it; the others are offered another one.

        What a workload can spare is looked at last: it does not run on without what it needs.
        """
        room = RoomMade(placement)
        homeless = {unit.workload.name: unit for unit in reversed(self._taken) if not self._stays(unit)}
        spare = [unit for unit in reversed(self._taken) if unit.is_surplus]
        lost = {name for name, unit in homeless.items() if not self._move(unit, room)}
        for unit in spare:
            if unit.workload.name in lost:
                room.stopped.append(unit)
            elif not self._takes_back(unit):
                self._move(unit, room)
        room.stopped.reverse()
        self._take_along(room)
        return room

    def _take_along(self, room: RoomMade) -> None:
        """What a workload could spare does not run on without what it needs: it goes, or begins anew in its place."""
        roster = self._desk.roster
        gone = {id(unit) for unit in (*room.stopped, *(unit for unit, _ in room.moved))}
        for unit in [each for each in room.stopped if not each.is_surplus]:
            room.stopped.extend(each for each in roster.spare_of(unit) if id(each) not in gone)
        for unit, _ in [each for each in room.moved if not each[0].is_surplus]:
            for each in [each for each in roster.spare_of(unit) if id(each) not in gone]:
                room.moved.append((each, [(pod, Placed(pod.node, pod.devices)) for pod in each.pods]))

    def _stays(self, unit: VictimUnit) -> bool:
        """What a workload needs has its places again; what it can spare is looked at later."""
        return unit.is_surplus or self._takes_back(unit)

    def _move(self, unit: VictimUnit, room: RoomMade) -> bool:
        """Another place for the unit, which minds planned starts on its own account; else it is stopped."""
        book, shades = self._desk.book, self._desk.shades
        ours = book.shade
        if shades is not None:
            book.shade = shades.of(unit.workload, QueueCharge(self._queue_of(unit), unit.charge, is_fixed=False))
        moved = self._place_again(unit)
        book.shade = ours
        if moved is None:
            room.stopped.append(unit)
            return False
        room.moved.append((unit, moved))
        return True

    def _takes_back(self, unit: VictimUnit) -> bool:
        """All pods of a unit have their places again."""
        working, queue = self._desk.working, self._queue_of(unit)
        if not self._is_within_limits(unit, queue):
            return False
        with working.trial() as attempt:
            if not all(self._returns(pod, queue) for pod in unit.pods):
                return False
            attempt.keep()
        return True

    def _returns(self, pod: Pod, queue: int) -> bool:
        """A pod has its place again, unless it is taken, or somebody came who must be apart from it."""
        working = self._desk.working
        row = working.nodes.row.get(pod.node)
        if row is None or not may_stand(working, pod.neighbours, row) or not may_come_back(working, pod, row):
            return False
        return working.restore(pod, queue)

    def _place_again(self, unit: VictimUnit) -> list[tuple[Pod, Placed]] | None:
        """Other places for those pods of a unit that lost theirs. The rest of a gang begins anew where it was."""
        desk, working, queue = self._desk, self._desk.working, self._queue_of(unit)
        if not self._is_within_limits(unit, queue) or not self._could_move(unit):
            return None
        moved: list[tuple[Pod, Placed]] = []
        with working.trial() as attempt:
            lost = [pod for pod in unit.pods if not self._returns(pod, queue)]
            moved += [(pod, Placed(pod.node, pod.devices)) for pod in unit.pods if pod not in lost]
            for pod in lost:
                want = desk.state.request_of(unit.workload, role_of(unit.workload, pod.name))
                placed = place_pods(working, desk.placer, Payer(queue, is_fixed=False), -1, want, 1)
                if placed is None:
                    return None
                moved.append((pod, placed[0]))
            attempt.keep()
        return moved

    def _could_move(self, unit: VictimUnit) -> bool:
        """A necessary condition that is kept for equal requests: of a single pod, that there is room for another."""
        if len(unit.pods) > 1:
            return True
        role = role_of(unit.workload, unit.pods[0].name)
        return self._desk.book.state_of(self._desk.state.request_of(unit.workload, role)).room > 0

    def _is_within_limits(self, unit: VictimUnit, queue: int) -> bool:
        """The claim may have used what the limits of queues above both leave."""
        queues = self._desk.working.queues
        if not queues.is_bounded[queue]:
            return True
        if set(queues.path[queues.row[self._workload.queue]]).isdisjoint(queues.path[queue]):
            return True
        return within_limits(self._desk.working, queue, unit.charge)

    def _queue_of(self, unit: VictimUnit) -> int:
        return self._desk.working.queues.row[unit.workload.queue]


def carry_out(desk: CycleState, workload: Workload, room: RoomMade, cause: Cause) -> None:
    """Write a met claim on the desk: who goes, and the space that is kept for those who come."""
    desk.keep(workload, room.placement)
    for unit in room.stopped:
        lost = unit.lost_gpu_s
        for pod in unit.pods:
            desk.evict(Eviction(pod.workload, pod.name, cause, workload.name, lost))
            lost = 0  # told once a unit
    for unit, moves in room.moved:
        lost = unit.lost_gpu_s
        for pod, placed in moves:
            desk.evict(Eviction(pod.workload, pod.name, cause, workload.name, lost))
            lost = 0
            amounts = (pod.cpu_milli, pod.memory_mib, pod.extended, kept(pod.neighbours), pod.beside)
            desk.nominations.append(Nomination(pod.workload, pod.name, placed.node, placed.devices, *amounts))


def _workloads(room: RoomMade) -> list[Workload]:
    return [unit.workload for unit in (*room.stopped, *(unit for unit, _ in room.moved))]


def _nothing_next(_: UnitLane) -> tuple[ResourceVector, int]:
    return (0, 0, 0), 0
