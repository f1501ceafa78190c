"""Start what fits: the queue whose turn it is, the workload that stands first in it, again and again.

In:    the desk and the classes that deserve a try.   Out: starts on the desk, and the classes that are stuck.

Also: Let elastic work that has just started grow, once everybody had a turn: the poorest queue first, a pod at a time.
"""

from collections.abc import Callable, Mapping

from kaiwo.decide.actions.allocate_batch import LARGEST, SMALLEST, Window
from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.placement.place_pods import Placed, paid_for, place_pods
from kaiwo.decide.placement.place_workload import ALL_PODS, Placement, first_missing_pod, place_workload
from kaiwo.decide.turn_order import Lane, Next, Turns
from kaiwo.model.plan import Start
from kaiwo.model.planned_start import PlannedStart
from kaiwo.snapshot.backlog import WaitingClass, needs_of_each_choice, needs_to_make_room_for


class Growing:
    """The work of one queue that could use more, in the order in which it began."""

    def __init__(self) -> None:
        self._works: list[tuple[Placement, Next]] = []

    def __bool__(self) -> bool:
        return bool(self._works)

    def join(self, placement: Placement, needs: Next) -> None:
        """Behind those who began before."""
        self._works.append((placement, needs))

    @property
    def first(self) -> Placement:
        """Who is next."""
        return self._works[0][0]

    def next_of(self) -> Next:
        """What one more pod of the first one needs, and since when it waited: it stands for its queue."""
        return self._works[0][1]

    def drop(self) -> None:
        """The first one cannot grow any more."""
        del self._works[0]


def grow(desk: CycleState, lanes: dict[str, Growing], is_over: Callable[[], bool]) -> None:
    """Until nobody can grow any more. Where one queue is left its work takes all that it can."""
    turns = Turns(lanes, desk.working, desk.active, Growing.next_of)
    while turns and not is_over():
        lane = turns.lane
        starts = lane.first.grow(ALL_PODS if turns.is_last_queue else 1)
        desk.starts.extend(starts)
        desk.steps += max(1, len(starts))
        if not starts or turns.is_last_queue:
            lane.drop()
        turns.again()


STEPS_A_RELEASE = 4  # the nodes on which somebody leaves are looked at anew


def line_up(
    desk: CycleState, candidates: list[WaitingClass], always: WaitingClass | None = None, whatever_limits: bool = False
) -> tuple[Turns[Lane], list[WaitingClass]]:
    """Those who may start by their queue, in lanes; and those who may not. One who is asked about always has a turn.

    Who could never start has none, nor who waits for a planned start: their queue would stand in the order by what
    nobody uses now.
    """
    hopeless, promised = desk.state.backlog.impossible, desk.promised
    able: list[WaitingClass] = []
    barred: list[WaitingClass] = []
    for found in candidates:
        is_asked_for = (found is always or whatever_limits) and desk.takes_work(found.queue)
        could_start = found.key not in hopeless and not (promised and is_planned(promised, found))
        (able if is_asked_for or (could_start and desk.may_start(found)) else barred).append(found)
    return Turns(lanes_of(able), desk.working, desk.active, desk.next_of), barred


def is_planned(promised: Mapping[str, PlannedStart], found: WaitingClass) -> bool:
    """Everybody in the class waits for a planned start."""
    return 0 < len(found.waiters) <= len(promised) and all(name in promised for _, name in found.waiters)


def lanes_of(classes: list[WaitingClass]) -> dict[str, Lane]:
    """By queue."""
    by_queue: dict[str, list[WaitingClass]] = {}
    for found in classes:
        by_queue.setdefault(found.queue, []).append(found)
    return {queue: Lane(together) for queue, together in by_queue.items()}


class Allocate:
    """Gives every queue its turns until nothing more starts."""

    def __init__(self, desk: CycleState, turns: Turns[Lane]) -> None:
        self._desk, self._turns = desk, turns
        self._size = LARGEST  # of the next window
        self._alone = 0  # turns to take one by one before the next window
        self._growing: dict[str, Growing] = {}  # by queue: who began in this cycle with no more than it needs
        self._is_cut = False  # the next window ends before one who did not fit into the last

    def run(self, is_over: Callable[[], bool]) -> None:
        """Many turns at once while all of them fit, else one by one."""
        while self._turns and not is_over():
            # Beside promises everybody sees the nodes as long as they stay: no two turns are alike.
            is_plain = self._desk.shades is None and not self._desk.stopped and not self._desk.begun
            if self._alone or not is_plain or not self._window():
                self._alone = max(0, self._alone - 1)
                self._turn()
        # Beside promises it is the next cycle's matter: how long it stays decides where it may grow.
        if self._growing and self._desk.shades is None and not is_over():
            grow(self._desk, self._growing, is_over)

    def _window(self) -> bool:
        """Start the next turns together, all of them or none; where one does not fit, those before it."""
        desk = self._desk
        window = Window(self._turns, desk)
        window.gather(min(self._size, max(1, desk.most_steps - desk.steps)))
        if not window.picked:
            return not self._turns
        starts, reached = self._start_window(window)
        if reached < len(window.picked):
            window.put_back()
            desk.steps += len(window.picked) // 8  # looking took its time, too
            # Where a large group took all the room, half may still fit; halved again, it costs no more than all of it.
            half = len(window.picked) // 2
            self._size, self._is_cut = half if self._is_cut else max(half, reached), True
            if self._size < SMALLEST:
                self._alone, self._size, self._is_cut = SMALLEST, SMALLEST, False
            return not self._alone
        if self._is_cut:  # next comes the one who did not fit, and others soon
            self._alone, self._size, self._is_cut = 1, SMALLEST, False
        self._size = min(LARGEST, self._size * 2)
        desk.starts.extend(starts)
        desk.steps += len(starts)
        return True

    def _start_window(self, window: Window) -> tuple[list[Start], int]:
        """Large requests first, each group at once: the starts, and how many turns come before who does not fit."""
        desk, shapes = self._desk, self._desk.state.backlog.shapes
        starts: dict[int, Start] = {}
        with desk.working.trial() as attempt:
            groups = sorted(window.by_shape.items(), key=lambda item: (-shapes[item[0]].charge_milli, item[1]))
            for shape, group in groups:
                placed = desk.placer.place(shape, shapes[shape], len(group))
                if len(placed) < len(group):
                    return [], group[len(placed)]
                for at, each in zip(group, placed, strict=True):
                    found, position = window.picked[at]
                    if at in window.unpaid and not self._pays(found, each):
                        return [], at
                    starts[at] = self._single_start(found, position, each)
            attempt.keep()
        return [starts[at] for at in sorted(starts)], len(window.picked)

    def _pays(self, found: WaitingClass, placed: Placed) -> bool:
        """Charge the queue, if its limits allow."""
        working, want = self._desk.working, self._desk.state.backlog.shapes[found.needs[0].shape]
        return self._desk.payer(found).pays(working, paid_for(working, want, [placed]))

    def _turn(self) -> None:
        """Try who is first, alone."""
        desk, lane = self._desk, self._turns.lane
        name, position, found = lane.first
        started = 0
        if name in desk.stopped or name in desk.begun:  # it does not grow while some of it has to go, nor start twice
            desk.steps += 1
            lane.advance(1)
            self._turns.again()
            return
        if found.key not in desk.stuck and desk.could_fit(found, name):
            started = self._start_single(found, position) if found.is_single else self._start_one(name, found)
        desk.steps += max(1, started)
        if started or self._waits_for_release(name, found) or desk.seeks_shorter(found, name):
            lane.advance(1)
            if found.key in desk.passed_over and found not in lane.rest():
                desk.mark_stuck(found)
        else:
            lane.set_aside()
            desk.mark_stuck(found)
        self._turns.again()

    def _waits_for_release(self, name: str, found: WaitingClass) -> bool:
        """Keep space for a workload that fits once those who are leaving are gone."""
        desk = self._desk
        if not desk.may_wait_for_release(found) or name in desk.promised or not desk.leaves_dues(found, name):
            return False
        desk.steps += STEPS_A_RELEASE
        workload = desk.state.workloads[name]
        desk.working.count_releasing(+1)
        tries = (
            place_workload(desk.working, desk.placer, desk.state, workload, needs, grows=False)
            for needs in needs_of_each_choice(found) or [needs_to_make_room_for(found)]
        )
        placement = next(filter(None, tries), None)
        desk.working.count_releasing(-1)
        if placement is None:
            if desk.may_start(found):
                desk.hopeless.add(found.needs)
            return False
        desk.keep(workload, placement)
        return True

    def _start_single(self, found: WaitingClass, position: int) -> int:
        """Start a workload of one pod."""
        desk, shape = self._desk, found.needs[0].shape
        if not desk.may_start(found):
            return 0
        placed = place_pods(desk.working, desk.placer, desk.payer(found), shape, desk.state.backlog.shapes[shape], 1)
        if placed is None:
            return 0
        desk.starts.append(self._single_start(found, position, placed[0]))
        return 1

    def _single_start(self, found: WaitingClass, position: int, placed: Placed) -> Start:
        state = self._desk.state
        workload = state.workloads[found.waiters.at(position)[1]]
        return Start(workload.name, first_missing_pod(state, workload), placed.node, placed.devices)

    def _start_one(self, name: str, found: WaitingClass) -> int:
        """Start one workload of several pods, whole or not at all."""
        desk = self._desk
        if not desk.may_start(found):
            return 0
        workload = desk.state.workloads[name]
        # First what everybody needs to start, then more; sub-groups and what runs already grow in their turn.
        grows = found.choices is not None or not any(needed for _, _, needed in found.needs)
        placement = place_workload(desk.working, desk.placer, desk.state, workload, found.needs, grows=grows)
        if placement is None:
            return 0
        if placement.gang is not None and not grows:
            self._growing.setdefault(found.queue, Growing()).join(placement, desk.one_pod_of(found, workload))
        desk.starts.extend(placement.starts)
        desk.given_up.extend(placement.given_up)
        return len(placement.starts)
