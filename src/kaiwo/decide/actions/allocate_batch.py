"""Take many turns together when all of them fit.

In:    whose turn it is.   Out: the next turns of single pods, in order, that could all start.
When everybody in the window starts, the order among them does not matter, so they are placed shape by shape: one
repair serves a whole group (five times the pods a second with 50 shapes). When one does not fit, everything is put
back and the turns are taken one by one: nobody is ever refused for the sake of somebody behind.
"""

from dataclasses import dataclass, field

from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.placement.queue_limits import within_limits
from kaiwo.decide.turn_order import Head, Lane, Mark, Turns
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.node_table import FREE_GPU
from kaiwo.snapshot.queue_table import ResourceVector

LARGEST, SMALLEST = 2_048, 8
SAFE = 64  # so many are picked whatever they need; more only while there is plenty for all of them


@dataclass(slots=True)
class Stock:
    """What the cluster has for a shape while a window is gathered."""

    room: int  # for so many pods, if nothing else came
    left: int  # of it, beside those who were picked
    milli: int  # of GPUs, that one of them needs
    charge: ResourceVector | None  # what a queue pays for one of them, if that does not hang on the device it gets


@dataclass(slots=True)
class Window:
    """The next turns, and how to give them back."""

    turns: Turns[Lane]
    desk: CycleState
    picked: list[tuple[WaitingClass, int]] = field(default_factory=list)  # the class and the position in its line
    by_shape: dict[int, list[int]] = field(default_factory=dict)  # positions in `picked`
    unpaid: set[int] = field(default_factory=set)  # of these, whose price hangs on the device they get
    _paid: tuple[int, int] = (0, 0)  # where the working copy stood
    _order: Mark = field(default_factory=lambda: ({}, {}, 0))
    _lanes: dict[str, list[Head]] = field(default_factory=dict)
    _stocks: dict[int, Stock] = field(default_factory=dict)
    _milli: int = 0  # of GPUs, that those who were picked need

    def gather(self, size: int) -> None:
        """Pick turns as if each of them started, and let their queues pay, until one surely would not start."""
        desk, turns = self.desk, self.turns
        self._paid = desk.working.savepoint()
        # What is left at the end is in pieces that fit nobody.
        plenty = int(desk.working.free[:, FREE_GPU].sum()) * 7 // 8
        while turns and len(self.picked) < size and not desk.is_spent:
            if self._milli > plenty and len(self.picked) >= SAFE:
                break
            lane = turns.lane
            found = lane.head[2]
            stock = self._stock(found) if found.is_single else None
            if self._is_stuck(found, stock):
                self._set_aside(lane, found)
                continue
            count = self._how_many(lane, found, stock, size - len(self.picked)) if stock is not None else 0
            if stock is None or not count:
                break
            if not self.picked:
                self._order = turns.mark()
            self._pick(lane, found, stock, count)
        if desk.working.queues.models:  # of which model's bound they take is known once they have a device
            desk.working.rollback(self._paid)
            self.unpaid.update(range(len(self.picked)))

    def put_back(self) -> None:
        """Nobody of the window had a turn, and nobody paid."""
        self.desk.working.rollback(self._paid)
        for queue, heads in self._lanes.items():
            self.turns.lanes[queue].back_to(heads)
        self.turns.back_to(self._order)

    def _is_stuck(self, found: WaitingClass, stock: Stock | None) -> bool:
        """It cannot start whatever the window does: room and limits only shrink within a cycle."""
        desk = self.desk
        if found.key in desk.stuck:
            return True
        if stock is None:
            return False
        if stock.room and (self.picked or desk.may_start(found)):
            return False
        if desk.may_wait_for_release(found):
            return False
        desk.mark_stuck(found)
        return True

    def _set_aside(self, lane: Lane, found: WaitingClass) -> None:
        """When the window is put back it stands there again, until its turn comes: its place is nobody else's."""
        if self.picked:
            self._mark(lane, found)
        lane.set_aside()
        self.turns.again()

    def _mark(self, lane: Lane, found: WaitingClass) -> None:
        if found.queue not in self._lanes:
            self._lanes[found.queue] = lane.mark()

    def _how_many(self, lane: Lane, found: WaitingClass, stock: Stock, most: int) -> int:
        """How many of the first class can be picked now."""
        working, queue, is_last = self.desk.working, self.turns.row, self.turns.is_last_queue
        if working.queues.is_model_bounded[queue]:
            return 0
        count = min(lane.run(), most, stock.left) if is_last else min(1, stock.left)
        if stock.charge is None:  # what its queue pays hangs on the device, and whose turn is next hangs on that
            return count if is_last else 0
        is_fixed = not found.signature.is_preemptible
        if not is_fixed and not working.queues.is_bounded[queue]:
            return count
        return count if within_limits(working, queue, _times(stock.charge, count), is_fixed) else 0

    def _pick(self, lane: Lane, found: WaitingClass, stock: Stock, count: int) -> None:
        position, first = lane.head[1], len(self.picked)
        stock.left -= count
        self._milli += stock.milli * count
        self._mark(lane, found)
        positions = range(first, first + count)
        self.by_shape.setdefault(found.needs[0].shape, []).extend(positions)
        self.picked.extend([(found, position + at) for at in range(count)])
        if stock.charge is None:
            self.unpaid.update(positions)
        else:
            self.desk.working.charge(self.turns.row, _times(stock.charge, count), not found.signature.is_preemptible)
        lane.advance(count)
        self.turns.again()

    def _stock(self, found: WaitingClass) -> Stock:
        shape = found.needs[0].shape
        stock = self._stocks.get(shape)
        if stock is None:
            room, want = self.desk.room(shape), self.desk.state.backlog.shapes[shape]
            stock = self._stocks[shape] = Stock(room, room, want.charge_milli, self.desk.known_charge(want, 1))
        return stock


def _times(charge: ResourceVector, count: int) -> ResourceVector:
    return charge if count == 1 else tuple([amount * count for amount in charge])
