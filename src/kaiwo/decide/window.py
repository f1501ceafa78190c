"""Take many turns together when all of them fit.

In:    whose turn it is.   Out: the next turns of single pods, in order, that could all start.
When everybody in the window starts, the order among them does not matter, so they are placed shape by shape: one
repair serves a whole group (five times the pods a second with 50 shapes). When one does not fit, everything is put
back and the turns are taken one by one: nobody is ever refused for the sake of somebody behind.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from kaiwo.decide.gang import within_limits
from kaiwo.decide.order import Head, Lane, Turns
from kaiwo.model.request import Request
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.picture import Picture
from kaiwo.snapshot.queues import Charge
from kaiwo.snapshot.working import Working

LARGEST, SMALLEST = 512, 8


@dataclass(slots=True)
class Window:
    """The next turns, and how to give them back."""

    turns: Turns
    picked: list[tuple[WaitingClass, int]] = field(default_factory=list)  # the class and the position in its line
    by_shape: dict[int, list[int]] = field(default_factory=dict)  # positions in `picked`
    _order: list[tuple[tuple[int, ...], str]] = field(default_factory=list)
    _lanes: dict[str, list[Head]] = field(default_factory=dict)

    def gather(self, working: Working, picture: Picture, room: Callable[[int], int], size: int) -> None:
        """Pick turns as if each of them started, until one surely would not."""
        self._order = self.turns.mark()
        mark = working.mark()
        rooms: dict[int, int] = {}
        while self.turns and len(self.picked) < size:
            lane = self.turns.lane
            _, position, found = lane.first
            if not is_single(found):
                break
            shape = found.needs[0][0]
            if picture.backlog.shapes[shape].is_memory and not self.turns.is_last_queue:
                break  # what its queue pays is known only once it has a device, and whose turn is next hangs on that
            if shape not in rooms:
                rooms[shape] = room(shape)
            count = min(self._run(lane), size - len(self.picked), rooms[shape])
            charge = _likely_charge(picture.backlog.shapes[shape], count)
            queue = working.queues.row[found.queue]
            if count == 0 or not within_limits(working, queue, charge):
                break
            rooms[shape] -= count
            self._lanes.setdefault(found.queue, lane.mark())
            group = self.by_shape.setdefault(shape, [])
            group.extend(range(len(self.picked), len(self.picked) + count))
            self.picked.extend((found, position + at) for at in range(count))
            working.charge(queue, charge)
            lane.advance(count)
            self.turns.again()
        working.back_to(mark)

    def put_back(self) -> None:
        """Nobody of the window had a turn."""
        for queue, heads in self._lanes.items():
            self.turns.lanes[queue].back_to(heads)
        self.turns.back_to(self._order)

    def _run(self, lane: Lane) -> int:
        """Equal work goes together where no other queue would come between."""
        return lane.run() if self.turns.is_last_queue else 1


def is_single(found: WaitingClass) -> bool:
    """One pod is missing of each workload, and no space is kept for it."""
    return len(found.needs) == 1 and found.needs[0][1:] == (1, 1) and not found.signature[2]


def _likely_charge(want: Request, count: int) -> Charge:
    """What a queue pays for such pods; a memory request's milli are only known once it has a device."""
    return want.charge_milli * count, want.cpu_milli * count, want.memory_mib * count
