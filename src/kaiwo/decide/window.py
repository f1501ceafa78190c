"""Take many turns together when all of them fit.

In:    whose turn it is.   Out: the next turns of single pods, in order, that could all start.
When everybody in the window starts, the order among them does not matter, so they are placed shape by shape: one
repair serves a whole group (five times the pods a second with 50 shapes). When one does not fit, everything is put
back and the turns are taken one by one: nobody is ever refused for the sake of somebody behind.
"""

from dataclasses import dataclass, field

from kaiwo.decide.desk import Desk
from kaiwo.decide.limits import within_limits
from kaiwo.decide.order import Head, Lane, Mark, Turns
from kaiwo.snapshot.backlog import WaitingClass

LARGEST, SMALLEST = 2_048, 8


@dataclass(slots=True)
class Window:
    """The next turns, and how to give them back."""

    turns: Turns[Lane]
    desk: Desk
    picked: list[tuple[WaitingClass, int]] = field(default_factory=list)  # the class and the position in its line
    by_shape: dict[int, list[int]] = field(default_factory=dict)  # positions in `picked`
    _order: Mark = field(default_factory=lambda: ({}, {}, 0))
    _lanes: dict[str, list[Head]] = field(default_factory=dict)
    _rooms: dict[int, int] = field(default_factory=dict)
    _emptied: list[str] = field(default_factory=list)  # queues in which only stuck ones were left

    def gather(self, size: int) -> None:
        """Pick turns as if each of them started, until one surely would not."""
        mark = self.desk.working.mark()
        while self.turns and len(self.picked) < size and not self.desk.is_spent:
            lane = self.turns.lane
            if self._drop_stuck(lane):
                continue
            count = self._how_many(lane, size - len(self.picked))
            if not count:
                break
            if not self.picked:
                self._order = self.turns.mark()
            self._pick(lane, count)
        self.desk.working.back_to(mark)

    def put_back(self) -> None:
        """Nobody of the window had a turn."""
        for queue, heads in self._lanes.items():
            self.turns.lanes[queue].back_to(heads)
        self.turns.back_to(self._order, self._emptied)

    def _drop_stuck(self, lane: Lane) -> bool:
        """Set aside who cannot start whatever the window does: room and limits only shrink within a cycle."""
        desk = self.desk
        _, _, found = lane.first
        if found.key not in desk.stuck:
            if not is_single(found) or (desk.could_fit(found) and (self.picked or desk.may_start(found))):
                return False
            if desk.may_wait_for_release(found):
                return False
            desk.steps += 1
            desk.give_up(found)
        lane.set_aside()
        if not lane:
            self._emptied.append(found.queue)
        self.turns.again()
        return True

    def _how_many(self, lane: Lane, most: int) -> int:
        """How many of the first class can be picked now."""
        desk = self.desk
        _, _, found = lane.first
        if not is_single(found) or desk.working.queues.is_model_bounded[desk.payer(found).queue]:
            return 0
        shape = found.needs[0][0]
        want = desk.picture.backlog.shapes[shape]
        if shape not in self._rooms:
            self._rooms[shape] = desk.room(shape)
        count = min(self._run(lane), most, self._rooms[shape])
        charge = desk.known_charge(want, count)
        if charge is None:  # what its queue pays hangs on the device it gets, and whose turn is next hangs on that
            return count if self.turns.is_last_queue else 0
        queue, is_fixed, _ = desk.payer(found)
        return count if within_limits(desk.working, queue, charge, is_fixed) else 0

    def _pick(self, lane: Lane, count: int) -> None:
        desk = self.desk
        _, position, found = lane.first
        shape = found.needs[0][0]
        self._rooms[shape] -= count
        self._lanes.setdefault(found.queue, lane.mark())
        group = self.by_shape.setdefault(shape, [])
        group.extend(range(len(self.picked), len(self.picked) + count))
        self.picked.extend((found, position + at) for at in range(count))
        charge = desk.known_charge(desk.picture.backlog.shapes[shape], count)
        if charge is not None:
            queue, is_fixed, _ = desk.payer(found)
            desk.working.charge(queue, charge, is_fixed)
        lane.advance(count)
        self.turns.again()

    def _run(self, lane: Lane) -> int:
        """Equal work goes together where no other queue would come between."""
        return lane.run() if self.turns.is_last_queue else 1


def is_single(found: WaitingClass) -> bool:
    """One pod is missing of each workload, and no space is kept for it."""
    return len(found.needs) == 1 and found.needs[0][1:] == (1, 1) and not found.signature[2]
