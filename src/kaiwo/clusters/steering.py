"""What people do to a workload: cancel, hold, release and requeue it, note that it saved its work.

In:    a Change, one workload's name, and who wants it.   Out: its next life in the Change.
Never: changes anything before it has found that it may: whoever steers many goes on after a refusal.
"""

from collections.abc import Callable, Mapping

from kaiwo.clusters import happenings, lifecycle
from kaiwo.clusters.admission import check_circles, check_welcome, find_life
from kaiwo.clusters.lifecycle import Ending, Life
from kaiwo.clusters.world import Change
from kaiwo.model.errors import ConfigError, RefusedError
from kaiwo.model.program import State


def cancel(change: Change, name: str, who: str) -> None:
    """Stop its pods, then it is `cancelled`."""
    life = find_life(change.world, name)
    if life.is_over and life.record.state is not State.CANCELLED:
        raise RefusedError(f"workload {name} has already {life.record.state}; there is nothing to cancel")
    if not life.is_over:
        happenings.stop_workload(change, life, Ending.CANCEL, cancelled(who))


def hold(change: Change, name: str, who: str) -> None:
    """Keep a waiting workload from starting."""
    life = _living(change, name)
    if life.record.state in (State.STARTING, State.RUNNING):
        raise RefusedError(f"workload {name} is {life.record.state} and only waiting work can be held; requeue it")
    _set_held(change, life, True)


def release(change: Change, name: str, who: str) -> None:
    """Undo `hold`."""
    life = _living(change, name)
    if not life.workload.held and life.record.state in (State.STARTING, State.RUNNING):
        raise RefusedError(f"workload {name} is {life.record.state} and not held; there is nothing to release")
    _set_held(change, life, False)


def requeue(change: Change, name: str, who: str) -> None:
    """Stop it if it runs, then let it wait again; an ended one waits again with fresh retries."""
    life = find_life(change.world, name)
    if life.ending is Ending.CANCEL:
        raise RefusedError(f"workload {name} is being cancelled; requeue it when it has ended")
    if life.record.program.is_interactive:
        raise RefusedError(f"workload {name} had its input from a `kaiwo run`, which gives it only once; run it again")
    if not life.is_over:
        happenings.stop_workload(change, life, Ending.REQUEUE)
        return
    _check_queue(change, life)
    check_circles(change.world, {name: life.workload}, {})
    life = lifecycle.wait_again(life, change.now_s)
    change.put_life(lifecycle.with_state(life, ()))
    happenings.revive(change, name)


def checkpoint(change: Change, name: str, at_s: int) -> int:
    """It saved its work then; 0: now. Returns when it last did. A clock that is ahead must not hide what it loses."""
    life = _living(change, name)
    if not life.record.attempt:
        raise RefusedError(f"workload {name} has not run yet, so it has nothing to save; wait until it runs")
    saved_s = max(life.workload.checkpoint_s, min(at_s or change.now_s, change.now_s))
    if saved_s != life.workload.checkpoint_s:
        change.put_life(lifecycle.with_workload(life, checkpoint_s=saved_s))
    return saved_s


STEPS: Mapping[str, Callable[[Change, str, str], None]] = {
    "cancel": cancel,
    "hold": hold,
    "release": release,
    "requeue": requeue,
}


def cancelled(who: str) -> str:
    """Why it ended, for people."""
    return f"cancelled by {who}" if who else "cancelled"


def _living(change: Change, name: str) -> Life:
    life = find_life(change.world, name)
    if life.is_over:
        raise RefusedError(f"workload {name} has ended ({life.record.state}); requeue it to run it again")
    return life


def _set_held(change: Change, life: Life, held: bool) -> None:
    if life.workload.held != held:
        life = lifecycle.with_workload(life, held=held)
        pods = change.world.pods_of.get(life.workload.name, {})
        change.put_life(lifecycle.with_state(life, [placement.pod for placement in pods.values()]))


def _check_queue(change: Change, life: Life) -> None:
    queue = life.workload.queue
    if queue not in change.world.queues or change.world.children.get(queue):
        raise ConfigError(f"queue {queue} of workload {life.workload.name} takes no work any more", "queue")
    check_welcome(change.world.queues, life.workload)
