"""What people do to a workload: cancel, hold, release and requeue it, note that it saved its work.

In:    a Change, one workload's name, and who wants it.   Out: its next life in the Change.
Never: changes anything before it has found that it may: whoever steers many goes on after a refusal.

Also: Queues and work that come together, or go together: one change for all of it.
"""

from collections.abc import Callable, Mapping, Sequence

from kaiwo.clusters.embedded import lifecycle, transitions
from kaiwo.clusters.embedded.admission import (
    Item,
    admit,
    admit_queues,
    check_circles,
    check_queues_removal,
    find_life,
)
from kaiwo.clusters.embedded.lifecycle import Ending, Life, new_life
from kaiwo.clusters.embedded.state import Transaction
from kaiwo.clusters.queue_access import check_queue_access
from kaiwo.model.errors import ConfigError, RefusedError
from kaiwo.model.queue import Queue
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState


def put(change: Transaction, queues: Sequence[Queue], items: Sequence[Item]) -> list[Workload]:
    """Put the queues in, and look at the work. Returns it as it would begin its life."""
    for queue in admit_queues(change.world, queues, change.now_s):
        if change.world.queues.get(queue.name) != queue:
            change.put_queue(queue)
    return admit(change.world, items, change.now_s)


def begin(change: Transaction, workloads: Sequence[Workload], items: Sequence[Item]) -> None:
    """Begin the lives of what was admitted."""
    for workload, (_, program) in zip(workloads, items, strict=True):
        before = change.world.lives.get(workload.name)
        if before is not None:
            transitions.forget(change, [workload.name])
        change.put_life(new_life(WorkloadRecord(workload, program)))
        if before is not None:
            transitions.revive(change, workload.name, before.workload)


def remove(change: Transaction, queues: Sequence[str], workloads: Sequence[str], message: str) -> tuple[str, ...]:
    """Stop and forget the work, and drop the queues. Returns the workloads whose pods are still stopping."""
    lives = [find_life(change.world, name) for name in dict.fromkeys(workloads)]
    check_queues_removal(change.world, queues, lives)
    for life in lives:
        if not life.is_over:
            transitions.stop_workload(change, life, Ending.CANCEL, message)
    stopping = [life.workload.name for life in lives if not find_life(change.world, life.workload.name).is_over]
    transitions.forget(change, [life.workload.name for life in lives if life.workload.name not in stopping])
    for queue in dict.fromkeys(queues):
        change.drop_queue(queue)
    return tuple(stopping)


def cancel(change: Transaction, name: str, who: str) -> None:
    """Stop its pods, then it is `cancelled`."""
    life = find_life(change.world, name)
    if life.is_over and life.record.state is not WorkloadState.CANCELLED:
        raise RefusedError(f"workload {name} has already {life.record.state}; there is nothing to cancel")
    if not life.is_over:
        transitions.stop_workload(change, life, Ending.CANCEL, cancelled(who))


def hold(change: Transaction, name: str, who: str) -> None:
    """Keep a waiting workload from starting."""
    life = _living(change, name)
    if life.record.state in (WorkloadState.STARTING, WorkloadState.RUNNING):
        raise RefusedError(f"workload {name} is {life.record.state} and only waiting work can be held; requeue it")
    _set_held(change, life, True)


def release(change: Transaction, name: str, who: str) -> None:
    """Undo `hold`."""
    life = _living(change, name)
    if not life.workload.held and life.record.state in (WorkloadState.STARTING, WorkloadState.RUNNING):
        raise RefusedError(f"workload {name} is {life.record.state} and not held; there is nothing to release")
    _set_held(change, life, False)


def requeue(change: Transaction, name: str, who: str) -> None:
    """Stop it if it runs, then let it wait again; an ended one waits again with fresh retries."""
    life = find_life(change.world, name)
    if life.ending is Ending.CANCEL:
        raise RefusedError(f"workload {name} is being cancelled; requeue it when it has ended")
    if life.record.program.is_interactive:
        raise RefusedError(f"workload {name} had its input from a `kaiwo run`, which gives it only once; run it again")
    if not life.is_over:
        transitions.stop_workload(change, life, Ending.REQUEUE)
        return
    _check_queue(change, life)
    check_circles(change.world, {name: life.workload}, {})
    life = lifecycle.wait_again(life, change.now_s)
    change.put_life(lifecycle.with_state(life, ()))
    transitions.revive(change, name)


def checkpoint(change: Transaction, name: str, at_s: int) -> int:
    """It saved its work then; 0: now. Returns when it last did. A clock that is ahead must not hide what it loses."""
    life = _living(change, name)
    if not life.record.attempt:
        raise RefusedError(f"workload {name} has not run yet, so it has nothing to save; wait until it runs")
    saved_s = max(life.workload.checkpoint_s, min(at_s or change.now_s, change.now_s))
    if saved_s != life.workload.checkpoint_s:
        change.put_life(lifecycle.with_workload(life, checkpoint_s=saved_s))
    return saved_s


STEPS: Mapping[str, Callable[[Transaction, str, str], None]] = {
    "cancel": cancel,
    "hold": hold,
    "release": release,
    "requeue": requeue,
}


def cancelled(who: str) -> str:
    """Why it ended, for people."""
    return f"cancelled by {who}" if who else "cancelled"


def _living(change: Transaction, name: str) -> Life:
    life = find_life(change.world, name)
    if life.is_over:
        raise RefusedError(f"workload {name} has ended ({life.record.state}); requeue it to run it again")
    return life


def _set_held(change: Transaction, life: Life, held: bool) -> None:
    if life.workload.held != held:
        life = lifecycle.with_workload(life, held=held)
        pods = change.world.pods_of.get(life.workload.name, {})
        change.put_life(lifecycle.with_state(life, [placement.pod for placement in pods.values()]))


def _check_queue(change: Transaction, life: Life) -> None:
    queue = life.workload.queue
    if queue not in change.world.queues or change.world.children.get(queue):
        raise ConfigError(f"queue {queue} of workload {life.workload.name} takes no work any more", "queue")
    check_queue_access(change.world.queues, life.workload)
