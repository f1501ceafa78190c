"""Consolidate: move running work together so that a waiting workload fits. Nothing is stopped for good."""

from kaiwo.decide.make_room.room_state import Attempt, RoomState
from kaiwo.decide.make_room.victim_rules import OnlyMoves
from kaiwo.decide.make_room.victim_search import VictimSearch
from kaiwo.decide.placement.place_pods import Placer
from kaiwo.model.workload import Workload
from kaiwo.snapshot.backlog import WaitingClass, needs_to_make_room_for


def attempt(room: RoomState, placer: Placer, workload: Workload, waiting_class: WaitingClass) -> Attempt:
    queues = sorted(room.victims.queues())
    lanes = room.victims.lanes(queues, lambda unit: unit.workload.name != workload.name)
    if not lanes:
        return Attempt()
    search = VictimSearch(room, placer, workload, needs_to_make_room_for(waiting_class), OnlyMoves(), lanes)
    return Attempt(search.find_room())
