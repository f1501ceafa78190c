"""Continue the clock at a start, and follow the system's clock later: all stored times move with it.

So every age and run time is kept. What people wrote into the calendar stays where it is: the times of reservations, and
the ends of allocations.
"""

import time
from collections.abc import Iterator

from msgspec.structs import replace

from kaiwo.clusters.embedded.lifecycle import PlacedRun, Run, TrackedWorkload, with_workload
from kaiwo.clusters.embedded.state import EmbeddedState, Transaction, put_defragmentation, put_move_step, put_recovery
from kaiwo.clusters.local.clock import Clock, ClockStart, SystemTime, describe_boot, is_plausible, start_of
from kaiwo.clusters.local.sqlite_store import Store
from kaiwo.model.amounts import duration
from kaiwo.model.events import ClockMoved, DefragmentationChanged, DefragmentationStepChanged, RecoveryChanged
from kaiwo.model.node import Node

LONG_AWAY_S = 86_400  # after a longer absence, or a clock that went wrong, nothing is forgotten for as long
WRONG_CLOCK = "Kaiwo's own goes on from where it was. Correct the system's clock, and start Kaiwo again"
MOVED = "ages and run times are kept, and reservations follow the new time"
NOT_FORGOTTEN = "old work is forgotten from tomorrow on. If the clock is wrong, correct it and start Kaiwo again"


def continue_clock(
    store: Store, state: EmbeddedState, stored_ms: str, is_wall_time: bool, now: SystemTime
) -> tuple[ClockStart, list[str]]:
    """Where the clock begins, and what people should know of it. The clock and the moved times are stored at once."""
    start = start_of(stored_ms, store.meta("clock_boot"), is_wall_time, now)
    meta = {"clock_ms": str(start.ms), "clock_boot": describe_boot(start, now) if is_wall_time else ""}
    with state.transaction(start.ms // 1000) as transaction:
        if start.step_s:
            move_times(transaction, start.step_s)
        store.save(transaction, meta)
    return start, list(_notices(state, start, is_wall_time, now))


def follow_clock(store: Store, state: EmbeddedState, clock: Clock, step_s: int, now: SystemTime) -> Transaction:
    """Store all times, moved as the system's clock was. The caller moves the clock itself, and publishes the events."""
    moved = ClockStart(now.wall_ms, step_s)
    meta = {
        "clock_ms": str(clock.next_limit_ms() + step_s * 1000),
        "clock_boot": describe_boot(moved, now),
    }
    with state.transaction(now.wall_ms // 1000) as transaction:
        move_times(transaction, step_s)
        transaction.events.append(ClockMoved(step_s))
        store.save(transaction, meta)
    return transaction


def describe_step(step_s: int) -> str:
    direction = "ahead" if step_s > 0 else "back"
    return f"the system's clock was set {direction} by {duration(abs(step_s))}; {MOVED}"


def _notices(state: EmbeddedState, start: ClockStart, is_wall_time: bool, now: SystemTime) -> Iterator[str]:
    if start.step_s:
        yield describe_step(start.step_s)
    if is_wall_time and not is_plausible(now.wall_ms):
        yield f"the system's clock says {time.gmtime(now.wall_ms / 1000).tm_year}; {WRONG_CLOCK}"
    if start.away_s >= LONG_AWAY_S and state.ended_count:
        yield f"the last Kaiwo here ran {duration(start.away_s)} ago by the clock; {NOT_FORGOTTEN}"


def move_times(transaction: Transaction, by_s: int) -> None:
    state = transaction.state
    for tracked in list(state.workloads.values()):
        transaction.put_workload(_moved_workload(tracked, by_s))
    for tracked in list(state.earlier.values()):
        transaction.put_earlier(_moved_workload(tracked, by_s))
    for (name, submission, _), attempt in list(state.attempts.items()):
        moved = replace(attempt, started_s=_moved(attempt.started_s, by_s), ended_s=_moved(attempt.ended_s, by_s))
        transaction.put_attempt((name, submission), moved)
    for run in list(state.runs.values()):
        transaction.put_run(_moved_run(run, by_s))
    for placement in list(state.pods.values()):
        pod = placement.pod
        pod = replace(pod, since_s=_moved(pod.since_s, by_s), until_s=_moved(pod.until_s, by_s))
        transaction.put_pod(PlacedRun(pod, _moved_run(placement.run, by_s)))
    for name, nominations in list(state.nominations.items()):
        kept = (replace(each, lost_s=_moved(each.lost_s, by_s), due_s=_moved(each.due_s, by_s)) for each in nominations)
        transaction.put_nominations(name, tuple(kept))
    for name, planned in list(state.planned_starts.items()):
        planned = replace(planned, start_s=_moved(planned.start_s, by_s), made_s=_moved(planned.made_s, by_s))
        transaction.put_planned_start(name, planned)
    for name, recovery in list(state.recoveries.items()):
        recovery = replace(recovery, since_s=_moved(recovery.since_s, by_s))
        put_recovery(transaction, name, recovery)
        transaction.events.append(RecoveryChanged(recovery))
    for node in list(state.nodes.values()):
        if (later := _moved_node(node, by_s)) != node:
            transaction.put_node(later)
    for asked in list(state.defragmentation.values()):
        recent = tuple(_moved(at_s, by_s) for at_s in asked.recent_s)
        begun_s, ended_s = _moved(asked.begun_s, by_s), _moved(asked.ended_s, by_s)
        asked = replace(asked, begun_s=begun_s, ended_s=ended_s, recent_s=recent)
        put_defragmentation(transaction, asked)
        transaction.events.append(DefragmentationChanged(asked))
    for step in list(state.move_steps.values()):
        moves = tuple(
            replace(move, since_s=_moved(move.since_s, by_s), until_s=_moved(move.until_s, by_s)) for move in step.moves
        )
        put_move_step(transaction, replace(step, moves=moves))
        transaction.events.append(DefragmentationStepChanged(replace(step, moves=moves)))


def _moved_workload(tracked: TrackedWorkload, by_s: int) -> TrackedWorkload:
    workload, record = tracked.workload, tracked.record
    times = {
        name: _moved(getattr(workload, name), by_s)
        for name in ("submitted_s", "not_before_s", "checkpoint_s", "broken_since_s")
    }
    record = replace(record, started_s=_moved(record.started_s, by_s), ended_s=_moved(record.ended_s, by_s))
    return with_workload(replace(tracked, record=record), **times)


def _moved_node(node: Node, by_s: int) -> Node:
    times = {name: _moved(getattr(node.failure, name), by_s) for name in ("since_s", "last_s", "out_until_s")}
    gpus = tuple(replace(gpu, failed_s=_moved(gpu.failed_s, by_s)) for gpu in node.gpus)
    return replace(node, failure=replace(node.failure, **times), gpus=gpus)


def _moved_run(run: Run, by_s: int) -> Run:
    return replace(run, ends_s=_moved(run.ends_s, by_s))


def _moved(at_s: int, by_s: int) -> int:
    """0 means that there is no such time."""
    return max(1, at_s + by_s) if at_s else 0
