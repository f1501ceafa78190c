"""One run of the defragmentation protocol: fill the openb cluster with best-fit, then move pods to place what waits.

In:    a trace, a seed and a part of the pods that may move.   Out: the curve of allocated GPUs against moved pods.
Pods arrive until they have asked for all GPUs. Those that were dropped are tried once more in the order of arrival.
Every step of the plan is carried out on the cluster state, and what is then free is counted anew from its pods.
"""

import time
from collections.abc import Callable
from itertools import accumulate
from random import Random

import msgspec
from msgspec.structs import replace

from kaiwo.decide.defragment.assume_step import assume_step
from kaiwo.decide.defragment.plan_moves import plan_room_for_waiting
from kaiwo.model.defragmentation import MovePlan
from kaiwo.model.errors import ClusterError
from kaiwo.model.events import PodChanged, PodGone, WorkloadChanged, WorkloadGone
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Phase
from kaiwo.plugins.registry import Registry
from kaiwo.simulate.openb_run import OpenbProgress, arrivals_in_order, nodes_by_rank, percent
from kaiwo.simulate.openb_trace import OpenbTrace
from kaiwo.simulate.placement_policies import placement_policy
from kaiwo.simulate.virtual_clock import Arrival, VirtualClock
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import CPU, MEMORY, MILLI, PODS

FILLED_BY = "best-fit"
PROGRESS_EVERY = 100
CURVE_EVERY_PERMILLE = 5  # a point of the curve for each half percent of the pods


class CurvePoint(msgspec.Struct, frozen=True):
    moved_percent: float  # moves, of all running pods
    allocated: float  # % of all GPUs


class DefragFigures(msgspec.Struct, frozen=True):
    seed: int
    pods: int  # that ran before
    waiting: int
    allocated_before: float
    allocated: float
    moves: int
    moved_pods: int  # a pod that moves twice counts once
    moved_percent: float  # moves, of the pods that ran before
    started: int
    plan_s: float
    plan_cpu_s: float
    curve: list[CurvePoint]


def run_defrag(
    trace: OpenbTrace, seed: int, max_moved_percent: float, report: Callable[[OpenbProgress], None] = lambda _: None
) -> DefragFigures:
    clock, dropped = _fill(trace, seed, report)
    state = clock.runner.state
    now_s = dropped[-1].at_s + 1 if dropped else 1
    state.patch(
        [PodChanged(replace(pod, phase=Phase.RUNNING)) for pods in state.pods.values() for pod in pods.values()]
    )
    state.patch([WorkloadChanged(each.workload) for each in dropped])
    running = sum(len(pods) for pods in state.pods.values())
    snapshot = state.snapshot(now_s)
    placing = placement_policy(FILLED_BY, trace.requests, seed)
    began, cpu_began = time.perf_counter(), time.process_time()
    plan = plan_room_for_waiting(snapshot, placing.policy, placing.plugins, int(running * max_moved_percent / 100))
    plan_s, plan_cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    before = percent(_allocated_milli(state), trace.gpu_milli)
    curve = carry_out(state, plan, trace.gpu_milli, running, now_s)
    moved = {(move.workload, move.pod) for step in plan.steps for move in step.moves}
    return DefragFigures(
        seed=seed,
        pods=running,
        waiting=len(dropped),
        allocated_before=round(before, 3),
        allocated=curve[-1].allocated,
        moves=plan.moves,
        moved_pods=len(moved),
        moved_percent=round(100 * plan.moves / max(1, running), 3),
        started=len(plan.steps),
        plan_s=round(plan_s, 2),
        plan_cpu_s=round(plan_cpu_s, 2),
        curve=curve,
    )


def carry_out(state: ClusterState, plan: MovePlan, gpu_milli: int, running: int, now_s: int) -> list[CurvePoint]:
    """Step by step; an amount below zero anywhere is an error of the plan."""
    curve = [CurvePoint(0.0, round(percent(_allocated_milli(state), gpu_milli), 3))]
    moves = shown = 0
    for number, step in enumerate(plan.steps, 1):
        assume_step(state, step, now_s)
        state.refresh_tables()
        if (state.nodes.free[:, [CPU, MEMORY, PODS]] < 0).any() or (state.nodes.gpus[:, MILLI] < 0).any():
            raise ClusterError(f"step {step.name} of the plan uses more than a node has")
        moves += len(step.moves)
        if number == len(plan.steps) or 1000 * (moves - shown) >= CURVE_EVERY_PERMILLE * running:
            shown = moves
            allocated = percent(_allocated_milli(state), gpu_milli)
            curve.append(CurvePoint(round(100 * moves / max(1, running), 3), round(allocated, 3)))
    return curve


def _fill(trace: OpenbTrace, seed: int, report: Callable[[OpenbProgress], None]) -> tuple[VirtualClock, list[Arrival]]:
    """The filled cluster, and the pods that fitted neither when they arrived nor at the end."""
    arrivals = trace.arrivals(seed)
    placing = placement_policy(FILLED_BY, trace.requests, seed)
    clock = VirtualClock(nodes_by_rank(trace, arrivals), placing.policy, placing.plugins, drops=True)
    asked = accumulate(trace.requests[row].gpus * trace.requests[row].gpu_milli for row in arrivals.order)
    count = sum(milli <= trace.gpu_milli for milli in asked)
    first = arrivals_in_order(trace, arrivals)[:count]
    dropped: list[Arrival] = []
    for number, outcome in enumerate(clock.run(first)):
        if not outcome.starts:
            dropped.append(outcome.arrival)
        if number % PROGRESS_EVERY == 0:
            report(OpenbProgress(seed, number, count + count // 2))
    again = [Arrival(count + number, each.workload) for number, each in enumerate(dropped)]
    left = [outcome.arrival for outcome in clock.run(again) if not outcome.starts]
    return clock, left


def run_down(trace: OpenbTrace, seed: int, policy: Policy, plugins: Registry, ended_part: float) -> ClusterState:
    """A cluster that a policy filled until pods asked for all GPUs, after a part of them has ended at random."""
    arrivals = trace.arrivals(seed)
    clock = VirtualClock(nodes_by_rank(trace, arrivals), policy, plugins, drops=True)
    asked = accumulate(trace.requests[row].gpus * trace.requests[row].gpu_milli for row in arrivals.order)
    count = sum(milli <= trace.gpu_milli for milli in asked)
    for _ in clock.run(arrivals_in_order(trace, arrivals)[:count]):
        pass
    state, draw = clock.runner.state, Random(seed)
    running = sorted((pod.workload, pod.name) for pods in state.pods.values() for pod in pods.values())
    for workload, pod in draw.sample(running, int(len(running) * ended_part)):
        state.patch([WorkloadGone(workload), PodGone(workload, pod)])
    left = [pod for pods in state.pods.values() for pod in pods.values()]
    state.patch([PodChanged(replace(pod, phase=Phase.RUNNING)) for pod in left])
    return state


def _allocated_milli(state: ClusterState) -> int:
    """As the running pods say, not as the tables count."""
    return sum(share.milli for pods in state.pods.values() for pod in pods.values() for share in pod.devices)
