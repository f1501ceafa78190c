"""Changes that may be worth advice: each is a changed copy of the cluster, to be run forward.

In:    a question.   Out: candidates, at most a few of each kind.
Never: raises a limit, opens a closed node, uses what is reserved, or sends work to another queue: these are decisions
       of people, and advice is no way around them. A quota moves only between queues of one parent, and within limits.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.advise.advice import AdviceKind, Change, Moves, NodeMode, QuotaChange, SizeChange
from kaiwo.advise.size_work import resized_workload
from kaiwo.advise.verify_advice import AdviceQuestion, AdviceTrial
from kaiwo.decide.defragment.assume_step import assume_step
from kaiwo.decide.defragment.plan_for_goal import plan_for_goal
from kaiwo.forecast.expected_starts import run_key_of
from kaiwo.forecast.run_time_forecast import RunKey
from kaiwo.gpus.fragments import measure_fragments
from kaiwo.model.defragmentation import DefragmentationGoal, GoalKind, Move, MovePlan
from kaiwo.model.events import Event, NodeChanged, QueueChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.gpus.partition_modes import legal_modes, partition_gpu
from kaiwo.model.queue import UNLIMITED, Queue
from kaiwo.model.workload import Workload
from kaiwo.snapshot.cluster_state import ClusterState

MOST_KINDS = 8  # of work that is sized
MOST_STUCK = 6  # waiting workloads for which room is looked for
MOST_QUOTAS = 6
MOST_NODES = 2  # of each mode
FEW_MOVES = 2


class AdviceCandidate(NamedTuple):
    kind: AdviceKind
    subject: str
    change: Change
    trial: AdviceTrial


def candidates(question: AdviceQuestion, arrivals: Sequence[Workload]) -> Iterator[AdviceCandidate]:
    """The cheapest to follow first."""
    if question.policy.adjustment != "off":
        yield from _right_sizes(question, arrivals)
    yield from _moves(question, arrivals)
    yield from _repartitions(question, arrivals)
    yield from _quotas(question, arrivals)


def _right_sizes(question: AdviceQuestion, arrivals: Sequence[Workload]) -> Iterator[AdviceCandidate]:
    """Of each kind of work: what waits of it and what will arrive of it asks for what it used before."""
    state, waiting = question.state, set(question.state.backlog.queued_names())
    kinds: dict[RunKey, list[Workload]] = {}
    for workload in (*(state.workloads[name] for name in sorted(waiting)), *arrivals):
        if question.uses.of(run_key_of(workload)):
            kinds.setdefault(run_key_of(workload), []).append(workload)
    most = sorted(kinds, key=lambda key: (-key.size * len(kinds[key]), key))[:MOST_KINDS]
    for key in most:
        runs = question.uses.of(key)
        resized = {each.name: resized_workload(state, each, runs, question.rule) for each in kinds[key]}
        changed = {name: found.workload for name, found in resized.items() if found is not None}
        reasons = next((found.reasons for found in resized.values() if found is not None), ())
        if not changed:
            continue
        names = tuple(name for name in sorted(changed) if name in waiting)
        copy = _with(state, [WorkloadChanged(changed[name]) for name in names])
        trial = AdviceTrial(copy, [changed.get(each.name, each) for each in arrivals])
        change = SizeChange(key.user, key.queue, key.name, key.image, names, reasons)
        yield AdviceCandidate(AdviceKind.RIGHT_SIZE, key.name, change, trial)


def _moves(question: AdviceQuestion, arrivals: Sequence[Workload]) -> Iterator[AdviceCandidate]:
    """Room for one workload by few moves; then room for as many as possible."""
    state = question.state
    tried = 0
    for waiting_class in sorted(state.backlog.by_key.values(), key=lambda each: each.key):
        name = waiting_class.waiters.name_at(0)
        if name not in state.workloads or name in state.pods or tried >= MOST_STUCK or not question.may_go_on():
            continue
        tried += 1
        plan = _plan(question, DefragmentationGoal(GoalKind.WORKLOAD, name, most_moves=FEW_MOVES))
        if plan.steps:
            yield _moved(question, plan, AdviceKind.MOVE, arrivals, name)
    if tried and question.may_go_on():
        plan = _plan(question, DefragmentationGoal(GoalKind.WAITING))
        if plan.moves > FEW_MOVES or len(plan.steps) > 1:
            yield _moved(question, plan, AdviceKind.DEFRAGMENT, arrivals)


def _plan(question: AdviceQuestion, goal: DefragmentationGoal) -> MovePlan:
    return plan_for_goal(question.state.snapshot(question.now_s), question.policy, question.plugins, goal)


def _moved(
    question: AdviceQuestion, plan: MovePlan, kind: AdviceKind, arrivals: Sequence[Workload], workload: str = ""
) -> AdviceCandidate:
    state = question.state.fork()
    before = stranded_milli(state)
    for step in plan.steps:
        assume_step(state, replace(step, starts=()), question.now_s)  # whether they start is for the run to say
    moves: list[Move] = [move for step in plan.steps for move in step.moves]
    starts = tuple(dict.fromkeys(place.workload for step in plan.steps for place in step.starts))
    change = Moves(tuple(moves), starts, workload, (before, stranded_milli(state)), plan.lost_gpu_s)
    return AdviceCandidate(kind, workload or "cluster", change, AdviceTrial(state, arrivals))


def stranded_milli(state: ClusterState) -> int:
    """Free GPU amounts that no request of the learned mix can use."""
    state.refresh_tables()
    return measure_fragments(state.nodes, state.seen_requests.weights).stranded_milli


def _repartitions(question: AdviceQuestion, arrivals: Sequence[Workload]) -> Iterator[AdviceCandidate]:
    """An empty node in the mode that waiting work asks for. Nodes with work, reservations or promises stay."""
    state, wanted = question.state, dict[str, None]()
    for name in sorted(state.backlog.queued_names()):
        for role in state.workloads[name].roles:
            if role.request.is_partition:
                wanted[role.request.partition] = None
    kept = {place.node for planned in state.planned_starts.values() for place in planned.places}
    kept |= {node for each in state.reservations.objects.values() for node in each.nodes}
    for text in wanted:
        tried = 0
        for node in sorted(state.node_objects.values(), key=lambda each: each.name):
            is_empty = not state.allocations_on.get(node.name) and node.name not in kept
            mode = next((mode for gpu in node.gpus for mode in legal_modes(gpu.model)
                         if text in (mode.compute, mode.profile)), None)  # fmt: skip
            if tried >= MOST_NODES or not is_empty or mode is None or any(gpu.profile for gpu in node.gpus):
                continue
            parts = [partition_gpu(gpu, mode) for gpu in node.gpus]
            if all(parts):
                tried += 1
                changed = replace(node, gpus=tuple(part for each in parts for part in each))
                trial = AdviceTrial(_with(state, [NodeChanged(changed)]), arrivals)
                yield AdviceCandidate(AdviceKind.REPARTITION, node.name, NodeMode(node.name, mode.profile), trial)


def _quotas(question: AdviceQuestion, arrivals: Sequence[Workload]) -> Iterator[AdviceCandidate]:
    """The part of a quota that nobody below it uses or waits for, to a sibling whose work waits beyond its own."""
    state, tried = question.state, 0
    held, wanted = _held_and_wanted(state)
    leaves = state.queue_objects.keys() - {queue.parent for queue in state.queue_objects.values()}
    for name in sorted(leaves, key=lambda each: (-wanted.get(each, 0), each)):
        queue = state.queue_objects[name]
        missing = held.get(name, 0) + wanted.get(name, 0) - queue.gpu.quota
        missing = min(missing, queue.gpu.limit - queue.gpu.quota if queue.gpu.limit != UNLIMITED else missing)
        if not wanted.get(name) or queue.gpu.quota == UNLIMITED or missing < WHOLE_MILLI:
            continue
        for donor in sorted(leaves - {name}):
            other = state.queue_objects[donor]
            spare = other.gpu.quota - held.get(donor, 0) - wanted.get(donor, 0)
            is_sibling = other.parent == queue.parent and other.gpu.quota != UNLIMITED
            amount = min(missing, spare) // WHOLE_MILLI * WHOLE_MILLI
            if not is_sibling or amount <= 0 or tried >= MOST_QUOTAS:
                continue
            tried += 1
            yield _moved_quota(question, queue, other, amount, arrivals)


def _moved_quota(
    question: AdviceQuestion, queue: Queue, donor: Queue, amount: int, arrivals: Sequence[Workload]
) -> AdviceCandidate:
    more, less = queue.gpu.quota + amount, donor.gpu.quota - amount
    events = [
        QueueChanged(replace(queue, gpu=replace(queue.gpu, quota=more))),
        QueueChanged(replace(donor, gpu=replace(donor.gpu, quota=less))),
    ]
    change = QuotaChange(queue.name, donor.name, (queue.gpu.quota, more), (donor.gpu.quota, less))
    return AdviceCandidate(AdviceKind.QUOTA, queue.name, change, AdviceTrial(_with(question.state, events), arrivals))


def _held_and_wanted(state: ClusterState) -> tuple[dict[str, int], dict[str, int]]:
    """By queue, in thousandths of a GPU."""
    held: dict[str, int] = {}
    wanted: dict[str, int] = {}
    for name, workload in state.workloads.items():
        milli = sum(share.charge_milli for pod in state.pods.get(name, {}).values() for share in pod.devices)
        held[workload.queue] = held.get(workload.queue, 0) + milli
        if state.backlog.is_queued(name) and not milli:
            asked = sum(role.request.charge_milli * role.count for role in workload.roles)
            wanted[workload.queue] = wanted.get(workload.queue, 0) + asked
    return held, wanted


def _with(state: ClusterState, events: Sequence[Event]) -> ClusterState:
    copy = state.fork()
    copy.patch(events)
    return copy
