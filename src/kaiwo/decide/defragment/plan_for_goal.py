"""Plan a defragmentation for one goal: the moves, what they bring and cost, and what is not moved and why.

In:    one snapshot and a goal.   Out: a MovePlan; equal snapshots give equal plans.
Never: changes the snapshot, or moves work that preemption could not stop.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.decide.defragment.assume_step import assume_step
from kaiwo.decide.defragment.free_nodes import NodesToFree
from kaiwo.decide.defragment.movable_work import MovableWork
from kaiwo.decide.defragment.plan_moves import plan_balance, plan_room_for_waiting, summed_up
from kaiwo.decide.defragment.smallest_room import PlacedMove, RoomFound, SmallestRoom
from kaiwo.decide.make_room.room_state import RoomState
from kaiwo.decide.planned_starts.keep_planned import hold_lost_places, keep_planned_starts
from kaiwo.decide.reservations import apply_reservations
from kaiwo.model.defragmentation import (
    DefragmentationGoal,
    GoalKind,
    KeptPlace,
    Move,
    MovePlan,
    MoveStep,
)
from kaiwo.model.policy import Policy
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.snapshot import Snapshot

MOVED_PERCENT = 8  # of the running pods, at most, where the goal names no number
BALANCE_PERCENT = 5  # the same where the load is evened out
FEWEST_MOVES = 16
MOST_TRIED = 24  # classes of waiting work for which the search over arrays found nothing, such as gangs
SETS_OF_MANY = 300  # sets of pods that are tried for each of them


def plan_for_goal(snapshot: Snapshot, policy: Policy, plugins: Registry, goal: DefragmentationGoal) -> MovePlan:
    state, now_s = snapshot.read(), snapshot.now_s
    room, movable = planning_room(snapshot, policy, plugins)
    most = goal.most_moves or max(FEWEST_MOVES, MOVED_PERCENT * _running(state) // 100)
    match goal.kind:
        case GoalKind.WORKLOAD:
            plan = _room_for_workload(room, movable, goal, most)
        case GoalKind.NODES:
            plan = _free_nodes(room, movable, goal, most)
        case GoalKind.BALANCE:
            most = goal.most_moves or max(1, BALANCE_PERCENT * _running(state) // 100)
            plan = plan_balance(state.fork().snapshot(now_s), policy, plugins, most)
        case _:
            plan = _room_for_waiting(state, policy, plugins, now_s, most)
    view = room.cycle_state.working.view
    return replace(summed_up(snapshot, view, plan), goal=goal, kept=movable.kept(), movable=len(list(movable.pods())))


def planning_room(snapshot: Snapshot, policy: Policy, plugins: Registry) -> tuple[RoomState, MovableWork]:
    """As a cycle sees the cluster when it makes room: reservations and planned starts keep their places."""
    cycle = CycleInput(snapshot.read(), policy, plugins.active(policy), snapshot.now_s)
    cycle_state = CycleState(snapshot, cycle)
    reserved = apply_reservations(cycle, cycle_state)
    planned = keep_planned_starts(cycle, cycle_state, reserved.evictions)
    hold_lost_places(cycle_state, planned, +1)
    room = RoomState(cycle, cycle_state, planned.masks, planned.starts, (), reserved.evictions)
    return room, MovableWork(cycle, cycle_state.working.view)


def _room_for_workload(room: RoomState, movable: MovableWork, goal: DefragmentationGoal, most: int) -> MovePlan:
    state = room.cycle.state
    if not state.backlog.is_queued(goal.workload):
        return MovePlan()
    search = SmallestRoom(room, movable, state.workloads[goal.workload])
    found = search.find()
    if found is None:
        return MovePlan(waiting=1, is_cut_short=search.is_cut_short, is_too_little_free=search.is_too_little_free)
    if len(found.moves) > most:
        return MovePlan(waiting=1, too_many=len(found.moves))
    return MovePlan((step_of(room, movable, found, "1"),), waiting=1, is_smallest=found.is_smallest)


def _room_for_waiting(state: ClusterState, policy: Policy, plugins: Registry, now_s: int, most: int) -> MovePlan:
    """Single pods with plain requests by a search over arrays; then the rest, one workload at a time."""
    after = state.fork()
    plan = plan_room_for_waiting(after.snapshot(now_s), policy, plugins, most)
    steps = list(plan.steps)
    for step in steps:
        assume_step(after, step, now_s)
    waiting = plan.waiting
    for name in _left(after, {step.beneficiary for step in steps}):
        room, movable = planning_room(after.snapshot(now_s), policy, plugins)
        found = SmallestRoom(room, movable, after.workloads[name], SETS_OF_MANY).find()
        waiting += 1
        if found is not None and len(found.moves) + sum(len(step.moves) for step in steps) <= most:
            step = step_of(room, movable, found, f"{len(steps) + 1}")
            steps.append(step)
            assume_step(after, step, now_s)
    planned = sum(map(state.backlog.is_queued, state.planned_starts))
    return replace(plan, steps=tuple(steps), waiting=waiting, planned=planned)


def _free_nodes(room: RoomState, movable: MovableWork, goal: DefragmentationGoal, most: int) -> MovePlan:
    search = NodesToFree(room, movable)
    found = search.find(goal.nodes, most)
    steps = [
        MoveStep(f"{number}", tuple(move_of(room.cycle.state, movable, each) for each in moves), frees=node)
        for number, (node, moves) in enumerate(found, 1)
    ]
    return MovePlan(tuple(steps), free_nodes=search.free)


def step_of(room: RoomState, movable: MovableWork, found: RoomFound, name: str) -> MoveStep:
    moves = tuple(move_of(room.cycle.state, movable, each) for each in found.moves)
    starts = tuple(KeptPlace(start.workload, start.pod, start.node, start.devices) for start in found.starts)
    gained = sum(share.milli for start in starts for share in start.devices)
    return MoveStep(name, moves, starts, gained)


def move_of(state: ClusterState, movable: MovableWork, found: PlacedMove) -> Move:
    pod, place = found.pod, found.place
    lost = movable.lost_gpu_s(state.workloads[pod.workload], pod)
    move = Move(pod.workload, pod.name, pod.node, place.node, place.devices, lost)
    made_by = state.workloads[pod.workload].made_by
    return move if not made_by else replace(move, made_by=made_by, cpu_milli=pod.cpu_milli, memory_mib=pod.memory_mib)


def _left(state: ClusterState, served: set[str]) -> Sequence[str]:
    """The first of each class that still waits, the most important first."""
    found = []
    for waiting_class in state.backlog.by_key.values():
        name = waiting_class.waiters.name_at(0)
        workload = state.workloads.get(name)
        if workload is None or name in served or name in state.nominations or name in state.planned_starts:
            continue
        is_new = name not in state.pods
        if is_new and waiting_class.key not in state.backlog.impossible:
            found.append((-workload.priority, workload.submitted_s, name))
    return [name for _, _, name in sorted(found)[:MOST_TRIED]]


def _running(state: ClusterState) -> int:
    return sum(len(pods) for pods in state.pods.values())
