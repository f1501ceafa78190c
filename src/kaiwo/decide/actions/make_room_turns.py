"""Whose turn it is to have room made.

In:    the desk, an action that makes room, and those who wait for it.   Out: what it found, on the desk.
Never: lets the size of somebody for whom nobody is stopped now decide when its queue is served.
"""

from collections.abc import Callable

from kaiwo.decide.actions.allocate import lanes_of
from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.make_room.preemption_cooldown import must_wait
from kaiwo.decide.make_room.victim_search import RoomMade, carry_out
from kaiwo.decide.turn_order import Lane, Turns
from kaiwo.model.plan import Cause
from kaiwo.model.workload import Workload
from kaiwo.snapshot.backlog import WaitingClass

Attempt = Callable[[CycleState, Workload, WaitingClass], RoomMade | None]


def give_turns(
    desk: CycleState, action: str, waiting: list[WaitingClass], attempt: Attempt, cause: Cause
) -> list[WaitingClass]:
    """One after the other, the queue that the orders put first. Returns those whom the budget did not reach."""
    served = {start.workload for start in desk.starts} | desk.placed
    lanes = lanes_of([found for found in waiting if desk.takes_work(found.queue)])
    for lane in lanes.values():
        _pass_over(desk, action, lane, served)
    turns = Turns(lanes, desk.working, desk.active, desk.next_of)
    while turns and not desk.is_spent:
        lane = turns.lane
        name, _, found = lane.first
        workload = desk.state.workloads[name]
        if desk.shades is not None:  # what is promised to others cannot be had by making room, either
            desk.book.shade = desk.shades.of(workload, desk.due_of(found))
        desk.steps += 1
        room = attempt(desk, workload, found)
        desk.book.shade = None
        if room is not None:
            carry_out(desk, workload, room, cause)
            desk.verdicts.pop(found.key, None)
            lane.advance(1)
        else:
            lane.set_aside()
            if desk.starts:  # who just began cannot be stopped yet, and may have what this one is owed
                desk.look_again(desk.working.now_s + 1)
        _pass_over(desk, action, lane, served)
        turns.again()
    return [found for lane in turns.lanes.values() for found in lane.rest()]


def _pass_over(desk: CycleState, action: str, lane: Lane, served: set[str]) -> None:
    """Whoever makes nobody go now is not the next of its queue: nobody's turn hangs on its size.

    It costs no step: a line of them must not use up a cycle.
    """
    while lane:
        name, _, found = lane.first
        workload = desk.state.workloads[name]
        if name not in served and workload.stops_others and not must_wait(desk, workload, found, action):
            return
        lane.advance(1)
