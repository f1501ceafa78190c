"""Turn plans of moves and their runs into the API's answers."""

from collections import Counter
from collections.abc import Sequence

from kaiwo.api.presenters.fragments_view import kind_rooms
from kaiwo.api.views.defragmentation import (
    DefragmentationView,
    KeptWorkView,
    MoveLimitsView,
    MovePlaceView,
    MovePlanView,
    MoveRunView,
    MoveStepView,
    MoveView,
)
from kaiwo.explain.defragmentation_sentences import KEPT, SKIPPED, goal_sentence
from kaiwo.gpus.fragments import ClusterFragments
from kaiwo.model.amounts import count, duration, gpus
from kaiwo.model.defragmentation import (
    GoalKind,
    Move,
    MovePlan,
    MoveProgress,
    MoveState,
    MoveStep,
    RunState,
    StepProgress,
)
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.policy import Policy
from kaiwo.runtime.defragmentation.defragmentation import NamedPlan, RunStatus

HOUR_S = 3600


def plan_view(found: NamedPlan, fragments: ClusterFragments, policy: Policy) -> MovePlanView:
    plan = found.plan
    rooms = [each for each in kind_rooms(fragments) if not each.pods]
    gap = [each / 1_000_000 for each in plan.load_gap_ppm] if plan.goal.kind is GoalKind.BALANCE else []
    return MovePlanView(
        name=found.name,
        as_of_s=found.as_of_s,
        goal=goal_sentence(plan.goal),
        moves=plan.moves,
        moved_percent=round(100 * plan.moves / max(1, plan.running), 2),
        lost_gpu_hours=_hours(plan.lost_gpu_s),
        least_s=max(0, plan.moves - 1) // policy.moves_per_hour * HOUR_S,
        gpu_milli=plan.capacity_milli,
        used_before_milli=plan.allocated_milli,
        used_after_milli=plan.allocated_milli + plan.gained_milli,
        running=plan.running,
        movable=plan.movable,
        waiting=plan.waiting,
        is_smallest=plan.is_smallest,
        is_cut_short=plan.is_cut_short,
        free_nodes=list(plan.free_nodes),
        load_gap=gap,
        steps=[_step(number, step, None) for number, step in enumerate(plan.steps)],
        kept=[KeptWorkView(each.workload, each.gpu_milli, each.reason.value, KEPT[each.reason]) for each in plan.kept],
        kinds=rooms,
        limits=limits_view(policy),
        message=plan_message(found),
    )


def status_view(status: RunStatus | None, policy: Policy, now_s: int, opens_s: int) -> DefragmentationView:
    if status is None:
        message = "nothing has been run yet; make a plan with: kaiwo defrag plan"
        return DefragmentationView(now_s, None, limits_view(policy), message)
    run, progress = status
    states = Counter(move.state for step in progress for move in step.moves)
    view = MoveRunView(
        name=run.name,
        goal=goal_sentence(run.goal),
        state=run.state.value,
        by=run.by,
        begun_s=run.begun_s,
        ended_s=run.ended_s,
        moves=sum(states.values()),
        moved=states[MoveState.MOVED],
        moving=states[MoveState.MOVING],
        waiting=states[MoveState.WAITING],
        not_moved=states[MoveState.KEPT] + states[MoveState.UNPLACED] + states[MoveState.ENDED],
        steps=[_step(each.number, run.steps[each.number], each) for each in progress],
    )
    return DefragmentationView(now_s, view, limits_view(policy), _run_message(view, opens_s - now_s))


def limits_view(policy: Policy) -> MoveLimitsView:
    return MoveLimitsView(list(policy.move_hours), policy.moves_at_once, policy.moves_per_hour)


def _step(number: int, step: MoveStep, progress: StepProgress | None) -> MoveStepView:
    each = progress.moves if progress is not None else [None] * len(step.moves)
    return MoveStepView(
        number + 1,
        [_move(*pair) for pair in zip(step.moves, each, strict=True)],
        [MovePlaceView(place.workload, place.pod, place.node, _names(place.devices)) for place in step.starts],
        step.gained_milli,
        step.frees,
        SKIPPED.get(progress.reason, "") if progress is not None else "",
    )


def _move(move: Move, progress: MoveProgress | None) -> MoveView:
    told = (progress.state.value, progress.since_s, progress.until_s) if progress is not None else ()
    return MoveView(
        move.workload, move.pod, move.source, move.node, _names(move.devices), _hours(move.lost_gpu_s), *told
    )


def _names(devices: Sequence[Share]) -> list[str]:
    return [share.gpu for share in devices]


def _hours(gpu_s: int) -> float:
    return round(gpu_s / HOUR_S, 2)


def plan_message(found: NamedPlan) -> str:
    plan = found.plan
    if not plan.steps:
        return _nothing(plan)
    run = f"run it with: kaiwo defrag run {found.name}"
    match plan.goal.kind:
        case GoalKind.NODES:
            freed = len(plan.free_nodes) + sum(bool(step.frees) for step in plan.steps)
            return f"{count(plan.moves, 'move')} would leave {count(freed, 'node')} without work; {run}"
        case GoalKind.BALANCE:
            return f"{count(plan.moves, 'move')} would even out the load of the nodes; {run}"
        case _:
            room = f"make room for {count(sum(len(step.starts) for step in plan.steps), 'waiting pod')}"
            return f"{count(plan.moves, 'move')} would {room} ({gpus(plan.gained_milli)} more in use); {run}"


def _nothing(plan: MovePlan) -> str:
    match plan.goal.kind:
        case GoalKind.WORKLOAD if plan.is_too_little_free:
            return (
                f"no moves can make room for {plan.goal.workload}: it asks for more than is free in the whole cluster; "
                "kaiwo why says what it waits for"
            )
        case GoalKind.WORKLOAD if plan.too_many:
            return (
                f"room for {plan.goal.workload} takes {plan.too_many} moves, more than may be made; "
                f"allow them with: --most-moves {plan.too_many}"
            )
        case GoalKind.WORKLOAD:
            rest = ", but not everything was tried" if plan.is_cut_short else ""
            return (
                f"no moves were found that make room for {plan.goal.workload}{rest}; kaiwo why says what it waits for"
            )
        case GoalKind.NODES if plan.goal.nodes <= len(plan.free_nodes):
            return f"{count(len(plan.free_nodes), 'node')} have no work already, so nothing needs to move"
        case GoalKind.NODES:
            return "no moves were found that leave more nodes without work"
        case GoalKind.BALANCE:
            return "the load of the nodes is even enough, or nothing may move"
        case _ if not plan.waiting and plan.planned:
            have = "workloads have" if plan.planned > 1 else "workload has"
            return (
                f"{plan.planned} waiting {have} a planned start, and no other work waits for room; "
                "moves for one of them: kaiwo defrag plan --for WORKLOAD"
            )
        case _ if not plan.waiting:
            return "no work waits for room, so nothing needs to move"
        case _:
            return "no moves were found that make room for waiting work"


def _run_message(view: MoveRunView, waits_s: int) -> str:
    match view.state:
        case RunState.RUNNING:
            later = f"; moves begin again in {duration(waits_s)}" if waits_s > 0 and view.waiting else ""
            return f"{view.moved} of {count(view.moves, 'move')} made, {view.moving} under way{later}"
        case RunState.ABORTING:
            return f"it is being aborted: {count(view.moving, 'move')} under way end, and no more begin"
        case RunState.ABORTED:
            return f"it was aborted after {view.moved} of {count(view.moves, 'move')}; what has moved stays moved"
        case _:
            return f"it is done: {view.moved} of {count(view.moves, 'move')} made"
