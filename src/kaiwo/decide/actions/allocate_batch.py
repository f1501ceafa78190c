"""Allocate in batches: take the turns of many single-pod workloads together when all of them fit.

When every workload of the batch starts, the order among them does not matter, so they are placed shape by shape: scores
are updated once for a whole group (five times the pods per second with 50 shapes). When one does not fit, everything is
put back and the turns are taken one by one: no workload is refused in favour of one behind it.
"""

from collections.abc import Callable

import msgspec

from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.placement.queue_limits import within_limits
from kaiwo.decide.turn_order import Lane, LaneHead, Turns, TurnsSavepoint
from kaiwo.snapshot.backlog import ClassKey, WaitingClass
from kaiwo.snapshot.node_table import FREE_GPU
from kaiwo.snapshot.queue_table import NO_PARENT, ResourceVector
from kaiwo.snapshot.request_shapes import RequestShapes
from kaiwo.snapshot.working_copy import Savepoint

LARGEST_BATCH, SMALLEST_BATCH = 2_048, 8
ALWAYS_PICKED = 64  # this many are picked whatever they need; more only while plenty is free


_NOTHING: ResourceVector = (0, 0, 0)


class StuckClasses:
    """The classes that cannot start in this cycle: no workload in them is tried again."""

    def __init__(self, cycle_state: CycleState) -> None:
        self._budget = cycle_state.budget
        self.by_key: dict[ClassKey, WaitingClass] = {}

    def add(self, waiting_class: WaitingClass) -> None:
        """This costs a step, since the obstacles of the class have to be found."""
        if waiting_class.key not in self.by_key:
            self.by_key[waiting_class.key] = waiting_class
            self._budget.used += 1


class ShapeSupply(msgspec.Struct):
    """What the cluster has for a shape while a batch is gathered."""

    room: int  # for this many pods, if nothing else is placed
    left: int  # what the picked pods leave of it
    milli: int  # milli-GPU of one pod
    charge: ResourceVector | None  # for one pod; None where that depends on the device


class AllocationBatch(msgspec.Struct):
    """The next turns, which can be given back."""

    turns: Turns[Lane]
    cycle_state: CycleState
    shapes: RequestShapes
    stuck: StuckClasses
    may_wait: Callable[[WaitingClass], bool]  # the class could be nominated for space that is being released
    picked: list[tuple[WaitingClass, int]] = []  # the class, and the workload's position in it
    by_shape: dict[int, list[int]] = {}  # positions in `picked`
    uncharged: set[int] = set()  # positions whose charge depends on the device they get
    _savepoint: Savepoint = (0, 0, 0)  # of the working copy
    _turns_savepoint: TurnsSavepoint = msgspec.field(default_factory=lambda: ({}, {}, 0))
    _lane_savepoints: dict[str, list[LaneHead]] = {}
    _supplies: dict[int, ShapeSupply] = {}
    _milli: int = 0  # milli-GPU of all picked pods
    _due: ResourceVector = _NOTHING  # picked, and not charged yet
    _payer: int = NO_PARENT  # the queue for that

    def gather(self, size: int) -> None:
        """Pick turns as if each of them started, and charge their queues, until one surely would not start."""
        cycle_state, turns, working = self.cycle_state, self.turns, self.cycle_state.working
        self._savepoint = working.savepoint()
        # The last eighth is usually in pieces too small for any pod.
        plenty = int(working.free[:, FREE_GPU].sum()) * 7 // 8
        while turns and len(self.picked) < size and not cycle_state.budget.is_spent:
            if self._milli > plenty and len(self.picked) >= ALWAYS_PICKED:
                break
            lane = turns.lane
            _, _, found = lane.first
            supply = self._supply(found) if found.is_single else None
            if self._is_stuck(found, supply):
                self._set_aside(lane, found)
                continue
            count = self._count_to_pick(lane, found, supply, size - len(self.picked)) if supply is not None else 0
            if supply is None or not count:
                break
            if not self.picked:
                self._turns_savepoint = turns.savepoint()
            self._pick(lane, found, supply, count)
        self._charge_due()
        if working.queues.models:  # which model's bound they count against is known once they have a device
            working.rollback(self._savepoint)
            self.uncharged.update(range(len(self.picked)))

    def put_back(self) -> None:
        self.cycle_state.working.rollback(self._savepoint)
        for queue, heads in self._lane_savepoints.items():
            self.turns.lanes[queue].rollback(heads)
        self.turns.rollback(self._turns_savepoint)

    def _is_stuck(self, waiting_class: WaitingClass, supply: ShapeSupply | None) -> bool:
        """It cannot start whatever the batch does: room and headroom only shrink within a cycle."""
        if waiting_class.key in self.stuck.by_key:
            return True
        if supply is None:
            return False
        if supply.room and (self.picked or self.cycle_state.charges.may_start(waiting_class)):
            return False
        if self.may_wait(waiting_class):
            return False
        self.stuck.add(waiting_class)
        return True

    def _set_aside(self, lane: Lane, waiting_class: WaitingClass) -> None:
        """Set the class aside; if the batch is put back, so is the class, until its turn comes again."""
        if self.picked:
            self._save_lane(lane, waiting_class)
        lane.set_aside()
        self.turns.requeue()

    def _save_lane(self, lane: Lane, waiting_class: WaitingClass) -> None:
        if waiting_class.queue not in self._lane_savepoints:
            self._lane_savepoints[waiting_class.queue] = lane.savepoint()

    def _count_to_pick(self, lane: Lane, waiting_class: WaitingClass, supply: ShapeSupply, most: int) -> int:
        working, queue, is_last = self.cycle_state.working, self.turns.row, self.turns.is_last_queue
        if working.queues.is_model_bounded[queue]:
            return 0
        count = min(lane.run_length(), most, supply.left) if is_last else min(1, supply.left)
        if supply.charge is None:  # the charge depends on the device, and the next turn depends on the charge
            return count if is_last else 0
        is_non_preemptible = not waiting_class.signature.is_preemptible
        if not is_non_preemptible and not working.queues.is_bounded[queue]:
            return count
        return count if within_limits(working, queue, _times(supply.charge, count), is_non_preemptible) else 0

    def _pick(self, lane: Lane, waiting_class: WaitingClass, supply: ShapeSupply, count: int) -> None:
        (_, position, _), first = lane.first, len(self.picked)
        supply.left -= count
        self._milli += supply.milli * count
        self._save_lane(lane, waiting_class)
        group = self.by_shape.setdefault(waiting_class.needs[0].shape, [])
        if count == 1:  # the usual case where kinds are mixed
            group.append(first)
            self.picked.append((waiting_class, position))
        else:
            group.extend(range(first, first + count))
            self.picked.extend([(waiting_class, position + at) for at in range(count)])
        if supply.charge is None:
            self.uncharged.update(range(first, first + count))
        else:
            self._charge(_times(supply.charge, count), not waiting_class.signature.is_preemptible)
        lane.advance(count)
        self.turns.requeue()

    def _charge(self, charge: ResourceVector, is_non_preemptible: bool) -> None:
        """Where one queue is left and has no limit, nobody looks at what it uses meanwhile: one charge is enough."""
        working, queue = self.cycle_state.working, self.turns.row
        queues = working.queues
        if is_non_preemptible or queues.is_bounded[queue] or queues.models or not self.turns.is_last_queue:
            working.charge(queue, charge, is_non_preemptible)
            return
        due, self._payer = self._due, queue
        self._due = (due[0] + charge[0], due[1] + charge[1], due[2] + charge[2])

    def _charge_due(self) -> None:
        if self._due is not _NOTHING:
            self.cycle_state.working.charge(self._payer, self._due)
            self._due = _NOTHING

    def _supply(self, waiting_class: WaitingClass) -> ShapeSupply:
        shape = waiting_class.needs[0].shape
        supply = self._supplies.get(shape)
        if supply is None:
            room, want = self.cycle_state.pods_with_room(shape), self.shapes[shape]
            charge = self.cycle_state.charges.known_charge(want)
            supply = self._supplies[shape] = ShapeSupply(room, room, want.least_milli, charge)
        return supply


def _times(charge: ResourceVector, count: int) -> ResourceVector:
    return charge if count == 1 else tuple([amount * count for amount in charge])
