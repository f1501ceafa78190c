"""Plan defragmentation: moves of running pods with which waiting pods get room.

In:    one snapshot and a number of moves.   Out: a MovePlan; equal snapshots give equal plans.
Never: changes the snapshot, or moves work that preemption could not stop.
"""

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.decide.defragment.balance_load import balance_load
from kaiwo.decide.defragment.fill_with_waiting import FillLimits, FillWithWaiting
from kaiwo.decide.defragment.movable_pods import CandidatePod, MovablePods
from kaiwo.decide.defragment.packing_table import TablePlace
from kaiwo.gpus.device_fit import device_need
from kaiwo.model.defragmentation import KeptPlace, Move, MovePlan, MoveStep
from kaiwo.model.gpus.gpu import WHOLE_MILLI, Share
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Phase
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.node_table import MILLI, SIZE, USABLE
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.view import View


def plan_room_for_waiting(snapshot: Snapshot, policy: Policy, plugins: Registry, most_moves: int) -> MovePlan:
    pods, view = movable_pods(snapshot, policy, plugins)
    fill = FillWithWaiting(pods.table, pods.waiting, pods, FillLimits(most_moves))
    steps: list[MoveStep] = []
    where = {at: pod.running.node for at, pod in enumerate(pods.pods) if pod.running is not None}
    for admission in fill.run():
        found = pods.pods[admission.pod]
        moves = []
        for at, place in admission.moves:
            moves.append(move_of(view, pods.pods[at], where[at], place))
            where[at] = view.nodes.names[place.row]
        kept = KeptPlace(
            found.workload.name,
            found.name,
            view.nodes.names[admission.place.row],
            shares_on(view, found, admission.place),
        )
        steps.append(MoveStep(f"{len(steps) + 1}", tuple(moves), (kept,), found.request.gpus * found.request.gpu_milli))
    return summed_up(snapshot, view, MovePlan(tuple(steps), waiting=len(pods.waiting), movable=pods.running,
                     is_cut_short=fill.is_cut_short))  # fmt: skip


def plan_balance(snapshot: Snapshot, policy: Policy, plugins: Registry, most_moves: int) -> MovePlan:
    """Even out the load of the nodes: each move is a step of its own."""
    pods, view = movable_pods(snapshot, policy, plugins, with_waiting=False)
    usable = view.gpus[:, USABLE] > 0
    total: IntArray = usable.sum(axis=1) * WHOLE_MILLI
    free = np.where(usable, view.gpus[:, MILLI], 0).sum(axis=1)
    found = balance_load(pods.table, total, free, most_moves)
    steps = []
    for number, (at, place) in enumerate(found.moves, 1):
        running = pods.pods[at].running
        assert running is not None
        steps.append(MoveStep(f"{number}", (move_of(view, pods.pods[at], running.node, place),)))
    return MovePlan(tuple(steps), load_gap_ppm=found.gap_ppm)


def movable_pods(
    snapshot: Snapshot, policy: Policy, plugins: Registry, with_waiting: bool = True
) -> tuple[MovablePods, View]:
    cycle = CycleInput(snapshot.read(), policy, plugins.active(policy), snapshot.now_s)
    cycle_state = CycleState(snapshot, cycle)
    return MovablePods(cycle, cycle_state, with_waiting), cycle_state.working.view


def move_of(view: View, pod: CandidatePod, source: str, place: TablePlace) -> Move:
    shares = shares_on(view, pod, place)
    move = Move(pod.workload.name, pod.name, source, view.nodes.names[place.row], shares, pod.lost_gpu_s)
    made_by, want = pod.workload.made_by, pod.request
    return move if not made_by else replace(move, made_by=made_by, cpu_milli=want.cpu_milli, memory_mib=want.memory_mib)


def shares_on(view: View, pod: CandidatePod, place: TablePlace) -> tuple[Share, ...]:
    """The parts of these devices that the pod gets."""
    if not place.columns:
        return ()
    sizes = view.gpus[place.row, SIZE, list(place.columns)]
    milli, mib = device_need(pod.request, sizes)
    gpus = view.nodes.nodes[place.row].gpus
    amounts = zip(place.columns, milli.tolist(), mib.tolist(), strict=True)
    return tuple(Share(gpus[column].id, part, size) for column, part, size in amounts)


def summed_up(snapshot: Snapshot, view: View, plan: MovePlan) -> MovePlan:
    """The plan, with what the cluster has and uses before it."""
    usable = view.gpus[:, USABLE] > 0
    capacity = int(usable.sum()) * WHOLE_MILLI
    state = snapshot.read()
    running = sum(pod.phase is Phase.RUNNING for pods in state.pods.values() for pod in pods.values())
    allocated = capacity - int(view.gpus[:, MILLI][usable].sum())
    return replace(plan, capacity_milli=capacity, allocated_milli=allocated, running=running)
