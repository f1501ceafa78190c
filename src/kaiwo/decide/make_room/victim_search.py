"""Search for victims whose eviction makes room for one waiting workload, the preemptor.

First, victims are removed in order until the preemptor fits. Then each unit whose place is not needed gets it back, the
last removed first; a unit that lost its place is offered another one. So no more work stops than necessary.
"""

from functools import partial

import numpy as np

from kaiwo.decide.make_room.room_state import RoomMade, RoomState
from kaiwo.decide.make_room.victim_rules import VictimRule
from kaiwo.decide.make_room.victim_units import UnitLane, VictimUnit
from kaiwo.decide.placement.links import carries_again
from kaiwo.decide.placement.place_again import DisplacedPods, place_again
from kaiwo.decide.placement.place_pods import NodeCosts, Placed, Placer
from kaiwo.decide.placement.place_workload import Placement, place_workload
from kaiwo.decide.placement.pod_affinity import may_return, still_holds
from kaiwo.decide.placement.queue_limits import QueueCharge, within_limits
from kaiwo.decide.turn_order import NO_NEED, Turns
from kaiwo.gpus.share_rules import may_share_again
from kaiwo.model.network.level_groups import levels_of
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Workload, role_of
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.backlog import RoleNeeds
from kaiwo.snapshot.node_table import FREE_GPU, NodeTable
from kaiwo.snapshot.queue_table import ResourceVector

TRIED_ONE_BY_ONE = 32  # units; then the steps grow, since what is not needed is given back
UNITS_PER_STEP = 4


class VictimSearch:
    def __init__(
        self,
        room: RoomState,
        placer: Placer,  # of the preemptor
        workload: Workload,
        needs: RoleNeeds,
        rule: VictimRule,
        lanes: dict[str, UnitLane],
        within_budgets: bool = False,  # remove no more than eviction budgets allow, even of what is given back later
    ) -> None:
        self._cycle, self._cycle_state, self._masks = room.cycle, room.cycle_state, room.masks
        self._victims, self._budget = room.victims, room.budget
        self._placer, self._workload, self._needs, self._rule = placer, workload, needs, rule
        self._working, self._within_budgets = self._cycle_state.working, within_budgets
        self._turns = Turns(lanes, self._working.view, self._cycle.plugins, lambda _: NO_NEED, reverse=True)
        self.removed: list[VictimUnit] = []  # all that were tried

    def find_room(self) -> RoomMade | None:
        """The room found; None, with nothing changed, if there is none."""
        with self._working.trial() as attempt:
            room = self._remove_until_it_fits()
            self._cycle_state.budget.used += 1 + len(self.removed) // UNITS_PER_STEP + self._placer.take_retries()
            if room is not None:
                attempt.keep()
            return room

    def _remove_until_it_fits(self) -> RoomMade | None:
        next_try = 0
        is_last = False
        while True:
            if len(self.removed) >= next_try or is_last:
                room = self._try_placement()
                if room is not None or is_last:
                    return room
                next_try = len(self.removed) + max(1, (len(self.removed) - TRIED_ONE_BY_ONE) // 4)
            is_last = not self._remove_next()

    def _try_placement(self) -> RoomMade | None:
        """The preemptor's placement after the removals so far, if the rule allows it."""
        with self._working.trial() as attempt:
            placement = self._place()
            if placement is None:
                return None
            room = self._give_back(placement)
            if not self._rule.may_stop(room.stopped, self._paid(placement)) or not self._obeys_affinity(placement):
                return None
            if not self._budget.allows(unit.workload for unit in (*room.stopped, *(unit for unit, _ in room.moved))):
                return None
            attempt.keep()
            return room

    def _paid(self, placement: Placement) -> ResourceVector:
        """What its queue is finally charged; for memory and partitions that depends on the devices."""
        shapes = self._cycle.state.backlog.shapes
        if not any(shapes[shape].charge_depends_on_device for shape, _, _ in self._needs):
            return (0, 0, 0)  # the rule knows the charge already
        wants = [role_of(self._workload, start.pod).request for start in placement.starts]
        kept = self._cycle.state.nominations.get(self._workload.name, {}).values()
        shares = [share for start in placement.starts for share in start.devices]
        return (
            sum(share.charge_milli for share in shares)
            - sum(share.charge_milli for each in kept for share in each.devices),
            sum(want.cpu_milli for want in wants) - sum(each.cpu_milli for each in kept),
            sum(want.memory_mib for want in wants) - sum(each.memory_mib for each in kept),
        )

    def _obeys_affinity(self, placement: Placement) -> bool:
        """The rules between pods still hold with all restored pods; otherwise victims would stop for nothing."""
        working, workload = self._working, self._workload
        return all(
            still_holds(working, role_of(workload, start.pod).request, working.nodes.row[start.node])
            for start in placement.starts
        )

    def _remove_next(self) -> bool:
        """Remove the next unit. Once the next unit of a queue is protected, the queue gives no more."""
        while self._turns:
            lane = self._turns.lane
            unit = lane[0]
            if self._within_budgets and not self._budget.allows([each.workload for each in (*self.removed, unit)]):
                lane.popleft()
                self._turns.requeue()
                continue
            if self._rule.may_remove(unit):
                lane.popleft()
                queue = self._queue_of(unit)
                for pod in unit.pods:
                    self._working.release(pod, queue, False)
                self.removed.append(unit)
                self._turns.requeue()
                return True
            lane.clear()
            self._turns.requeue()
        return False

    def _place(self) -> Placement | None:
        """Place the preemptor on what is free, where it displaces the fewest units."""
        if not self._may_fit():
            return None
        placer = self._placer.with_costs(DisplacementCosts(self._working.nodes, self.removed))
        return place_workload(placer, self._cycle.state, self._workload, self._needs, grows=False)

    def _may_fit(self) -> bool:
        """Necessary conditions: first by sums, before any node is examined; then by shapes."""
        if self._workload.name in self._cycle.state.nominations:
            return True  # what is nominated is not among what is free
        free, shapes = np.maximum(self._working.free[:, FREE_GPU], 0).sum(), self._cycle.state.backlog.shapes
        if free < sum(shapes[need.shape].least_milli * need.needed for need in self._needs):
            return False
        return all(self._placer.room(need.shape) >= need.needed for need in self._needs)

    def _give_back(self, placement: Placement) -> RoomMade:
        """Restore the units whose places are not needed, and look for other places for the rest; surplus comes last."""
        room = RoomMade(placement)
        needed = [unit for unit in reversed(self.removed) if not unit.is_surplus]
        surplus = [unit for unit in reversed(self.removed) if unit.is_surplus]
        displaced = {unit.workload.name: unit for unit in needed if not self._restore(unit)}
        lost = {name for name, unit in displaced.items() if not self._move(unit, room)}
        for unit in surplus:
            if unit.workload.name in lost:
                room.stopped.append(unit)
            elif not self._restore(unit):
                self._move(unit, room)
        room.stopped.reverse()
        self._add_surplus(room)
        return room

    def _add_surplus(self, room: RoomMade) -> None:
        """Surplus cannot run without the pods that its workload needs: it stops with them, or restarts in its place."""
        victims = self._victims
        gone = {id(unit) for unit in (*room.stopped, *(unit for unit, _ in room.moved))}
        for unit in [each for each in room.stopped if not each.is_surplus]:
            room.stopped.extend(each for each in victims.surplus_of(unit) if id(each) not in gone)
        for unit, _ in [each for each in room.moved if not each[0].is_surplus]:
            for each in [each for each in victims.surplus_of(unit) if id(each) not in gone]:
                if all(self._may_restart(self._placer, pod, unit.workload) for pod in each.pods):
                    room.moved.append((each, [(pod, Placed(pod.node, pod.devices)) for pod in each.pods]))
                else:
                    room.stopped.append(each)

    def _move(self, unit: VictimUnit, room: RoomMade) -> bool:
        """Another place for the unit, outside what planned starts will use; else it is stopped."""
        placer = self._placer
        if self._masks is not None:
            charge = QueueCharge(self._queue_of(unit), unit.charge, is_non_preemptible=False)
            placer = placer.under(self._masks.mask_for(unit.workload, charge))
        moved = self._place_again(placer, unit)
        if moved is None:
            room.stopped.append(unit)
            return False
        room.moved.append((unit, moved))
        return True

    def _restore(self, unit: VictimUnit) -> bool:
        """Give all pods of a unit their places back, or none."""
        working, queue = self._working, self._queue_of(unit)
        if not self._is_within_limits(unit, queue):
            return False
        with working.trial() as attempt:
            if not all(self._restore_pod(pod, queue) for pod in unit.pods):
                return False
            if not carries_again(working, unit.workload.name, levels_of(unit.workload)):
                return False  # the preemptor, or a unit that was moved for it, uses its links now
            attempt.keep()
        return True

    def _restore_pod(self, pod: Pod, queue: int) -> bool:
        """Give a pod its place back, unless it is taken or a pod there must be apart from it."""
        working = self._working
        row = working.nodes.row.get(pod.node)
        if row is None or not may_return(working, pod.neighbours, row):
            return False
        return may_share_again(working.view, pod, row) and working.restore(pod, queue)

    def _place_again(self, placer: Placer, unit: VictimUnit) -> list[tuple[Pod, Placed]] | None:
        """New places for the pods of a unit that lost theirs. The rest of a gang restarts where it was."""
        working, queue = self._working, self._queue_of(unit)
        if not self._is_within_limits(unit, queue) or not self._could_move(placer, unit):
            return None
        moved: list[tuple[Pod, Placed]] = []
        with working.trial() as attempt:
            lost = self._restore_some(placer, unit, queue)
            moved += [(pod, Placed(pod.node, pod.devices)) for pod in unit.pods if pod not in lost]
            request_of = partial(self._cycle.state.request_of, unit.workload)
            displaced = DisplacedPods(unit.workload, [pod.name for pod in lost], request_of)
            placed = place_again(placer, self._cycle.state, displaced)
            if placed is None:
                return None
            moved += [(pod, placed.places[pod.name]) for pod in lost]
            attempt.keep()
        return moved

    def _restore_some(self, placer: Placer, unit: VictimUnit, queue: int) -> list[Pod]:
        """The pods that cannot have their places back; the others have theirs."""
        with self._working.trial() as attempt:
            returns = (
                self._may_restart(placer, pod, unit.workload) and self._restore_pod(pod, queue) for pod in unit.pods
            )
            lost = [pod for pod, is_back in zip(unit.pods, returns, strict=True) if not is_back]
            if lost:
                attempt.keep()
                return lost
        return list(unit.pods)  # the places are free, but their links are not

    def _may_restart(self, placer: Placer, pod: Pod, workload: Workload) -> bool:
        """A pod that goes on may be where no new one starts: in a domain that was closed since, on a cordoned node."""
        return placer.allows(self._cycle.state.request_of(workload, role_of(workload, pod.name)), pod.node)

    def _could_move(self, placer: Placer, unit: VictimUnit) -> bool:
        """A necessary condition, cached for equal requests: there is room for another such pod."""
        if len(unit.pods) > 1:
            return True
        role = role_of(unit.workload, unit.pods[0].name)
        return placer.room_for(self._cycle.state.request_of(unit.workload, role)) > 0

    def _is_within_limits(self, unit: VictimUnit, queue: int) -> bool:
        """The preemptor may have used up the limits of queues above both."""
        queues = self._working.queues
        if not queues.is_bounded[queue]:
            return True
        if set(queues.path[queues.row[self._workload.queue]]).isdisjoint(queues.path[queue]):
            return True
        return within_limits(self._working, queue, unit.charge)

    def _queue_of(self, unit: VictimUnit) -> int:
        return self._working.queues.row[unit.workload.queue]


class DisplacementCosts(NodeCosts):
    """The cost of places that removed units had: how many units lose theirs."""

    def __init__(self, nodes: NodeTable, removed: list[VictimUnit]) -> None:
        self._nodes = nodes
        self._units: dict[int, list[list[int]]] = {}  # by node: the devices of each unit there, in order of removal
        self._costs: dict[Request, IntArray] = {}
        for unit in removed:
            self._add(unit)

    def of_nodes(self, want: Request) -> IntArray:
        """How many units must leave each node so that one such pod fits."""
        costs = self._costs.get(want)
        if costs is None:
            costs = self._costs[want] = np.zeros(len(self._nodes.names), np.int64)
            for row, units in self._units.items():
                if want.gpus:
                    taken = {column for unit in units for column in unit}
                    free = len(self._nodes.column[row]) - len(taken)  # at most: others may hold some of them
                    costs[row] = len(_cheapest(units, want.gpus - max(0, min(free, want.gpus))))
                else:
                    costs[row] = len(units)
        return costs

    def cheapest_first(self, row: int, columns: IntArray, want: Request) -> IntArray:
        """Devices that no removed unit had, then those of as few units as possible."""
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

    def _add(self, unit: VictimUnit) -> None:
        by_row: dict[int, list[int]] = {}
        for pod in unit.pods:
            row = self._nodes.row.get(pod.node)
            if row is not None:
                found = by_row.setdefault(row, [])
                found.extend(self._nodes.column[row][s.gpu] for s in pod.devices if s.gpu in self._nodes.column[row])
        for row, devices in by_row.items():
            self._units.setdefault(row, []).append(devices)


def _cheapest(units: list[list[int]], need: int) -> list[list[int]]:
    """As few units as have this many devices: the smallest one that is enough alone, else the largest first."""
    left, chosen = [unit for unit in units if unit], []
    while need > 0 and left:
        enough = [unit for unit in left if len(unit) >= need]
        best = min(enough, key=len) if enough else max(left, key=len)
        left.remove(best)
        chosen.append(best)
        need -= len(best)
    return chosen
