"""What people do to workloads, queues and reservations of an embedded cluster: submit, cancel, hold, requeue, remove.

Each action is one transaction: it is done as a whole, or refused without any change. An action on many workloads
continues after a refusal.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from kaiwo.clusters.embedded import ended_work, lifecycle, transitions
from kaiwo.clusters.embedded import reservations as reservation_actions
from kaiwo.clusters.embedded.admission import (
    Item,
    admit,
    admit_queues,
    check_dependency_cycles,
    check_queues_removal,
    find_workload,
)
from kaiwo.clusters.embedded.change_workload import change_workload
from kaiwo.clusters.embedded.lifecycle import Ending, TrackedWorkload, new_workload
from kaiwo.clusters.embedded.state import Transaction, TransactionRunner
from kaiwo.clusters.protocol import Action, ChangedWorkload, WorkloadChange
from kaiwo.clusters.queue_access import check_queue_access
from kaiwo.manifests.workload_change import CHANGEABLE, WHILE_RUNNING
from kaiwo.model.errors import ConfigError, ForbiddenError, KaiwoError, NotFoundError, RefusedError
from kaiwo.model.events import ProgressReported
from kaiwo.model.performance import ProgressReport
from kaiwo.model.queue import Queue
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Phase, Workload
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState


class EmbeddedWork:
    """Implements WorkControl."""

    actions: Sequence[Action] = ("cancel", "hold", "release", "requeue")

    def __init__(self, runner: TransactionRunner) -> None:
        self._runner = runner

    async def put(
        self,
        queues: Sequence[Queue],
        items: Sequence[Item],
        who: str = "",
        dry_run: bool = False,
        reservations: Sequence[Reservation] = (),
    ) -> tuple[Queue | None, ...]:
        queues, items = list(queues), list(items)

        def act(transaction: Transaction) -> tuple[Queue | None, ...]:
            before = tuple(transaction.state.queues.get(queue.name) for queue in queues)
            for queue in admit_queues(transaction.state, queues, transaction.now_s):
                if transaction.state.queues.get(queue.name) != queue:
                    transaction.put_queue(queue)
            workloads = admit(transaction.state, items, transaction.now_s)
            reservation_actions.put(transaction, reservations)
            if dry_run:
                raise _DryRunError(before)
            _start_tracking(transaction, workloads, items)
            return before

        try:
            before = await self._runner.transact(act)
        except _DryRunError as dry:
            return dry.before
        return before

    def changeable_fields(self, record: WorkloadRecord) -> Sequence[str]:
        if record.state in (WorkloadState.STARTING, WorkloadState.RUNNING):
            return WHILE_RUNNING
        return CHANGEABLE if record.state in (WorkloadState.WAITING, WorkloadState.HELD) else ()

    def kubectl_stop(self, name: str) -> str:
        return ""

    async def submit(self, items: Sequence[Item], who: str = "") -> None:
        await self.put((), items, who)

    async def remove(
        self,
        queues: Sequence[str],
        workloads: Sequence[str],
        who: str = "",
        reservations: Sequence[str] = (),
        only_of: str | None = None,
    ) -> tuple[str, ...]:
        def act(transaction: Transaction) -> tuple[str, ...]:
            _check_all_submissions(transaction, workloads, only_of)
            reservation_actions.remove(transaction, reservations)
            return _remove(transaction, queues, workloads, _cancelled_by(who))

        stopping = await self._runner.transact(act)
        return stopping

    def reservations(self) -> Sequence[Reservation]:
        return [found for _, found in sorted(self._runner.state.reservations.items())]

    async def change(self, action: Action, name: str, who: str = "", only_of: str | None = None) -> None:
        (refusal,) = await self.change_many(action, (name,), who, only_of)
        if refusal is not None:
            raise refusal

    async def change_many(
        self, action: Action, names: Sequence[str], who: str = "", only_of: str | None = None
    ) -> tuple[KaiwoError | None, ...]:
        step = _ACTIONS[action]

        def act(transaction: Transaction) -> tuple[KaiwoError | None, ...]:
            refusals: list[KaiwoError | None] = []
            for name in names:
                try:
                    _check_user(find_workload(transaction.state, name), only_of)
                    step(transaction, name, who)
                    refusals.append(None)
                except (ConfigError, NotFoundError, RefusedError) as refusal:
                    refusals.append(refusal)
            return tuple(refusals)

        refusals = await self._runner.transact(act)
        return refusals

    async def set_many(
        self, names: Sequence[str], change: WorkloadChange, who: str = "", only_of: str | None = None
    ) -> tuple[ChangedWorkload | KaiwoError, ...]:
        def act(transaction: Transaction) -> tuple[ChangedWorkload | KaiwoError, ...]:
            results: list[ChangedWorkload | KaiwoError] = []
            for name in names:
                try:
                    _check_user(find_workload(transaction.state, name), only_of)
                    results.append(ChangedWorkload(*change_workload(transaction, _living(transaction, name), change)))
                except (ConfigError, NotFoundError, RefusedError) as refusal:
                    results.append(refusal)
            return tuple(results)

        results = await self._runner.transact(act)
        return results

    async def checkpoint(self, name: str, at_s: int = 0, who: str = "", only_of: str | None = None) -> int:
        def act(transaction: Transaction) -> int:
            _check_user(find_workload(transaction.state, name), only_of)
            return _checkpoint(transaction, name, at_s)

        saved_s = await self._runner.transact(act)
        return saved_s

    async def progress(self, report: ProgressReport, who: str = "", only_of: str | None = None) -> None:
        def act(transaction: Transaction) -> None:
            _check_user(find_workload(transaction.state, report.workload), only_of)
            _progress(transaction, report)

        await self._runner.transact(act)

    async def forget_ended(self, names: Sequence[str], who: str = "", only_of: str | None = None) -> None:
        def act(transaction: Transaction) -> None:
            _check_all_submissions(transaction, names, only_of)
            for name in names:
                if not find_workload(transaction.state, name).is_over:
                    raise RefusedError(f"workload {name} has not ended; cancel it first")
            ended_work.forget(transaction, dict.fromkeys(names))

        await self._runner.transact(act)


class _DryRunError(Exception):
    """Raised inside a transaction to roll it back."""

    def __init__(self, before: tuple[Queue | None, ...]) -> None:
        self.before = before


def _check_user(tracked: TrackedWorkload, only_of: str | None) -> None:
    """Work of an unknown user is nobody's."""
    workload = tracked.workload
    if only_of is not None and (not workload.user or workload.user != only_of):
        whose = f"user '{workload.user}'" if workload.user else "no known user"
        raise ForbiddenError(
            f"workload {workload.name} belongs to {whose}; only its user, operators and admins may change it"
        )


def _check_all_submissions(transaction: Transaction, names: Sequence[str], only_of: str | None) -> None:
    """What is forgotten includes earlier submissions of the name, and those may be of somebody else."""
    for name in names if only_of is not None else ():
        for number in transaction.state.submissions_of(find_workload(transaction.state, name).workload.name):
            tracked = transaction.state.submission((name, number))
            if tracked is not None:
                _check_user(tracked, only_of)


def _start_tracking(transaction: Transaction, workloads: Sequence[Workload], items: Sequence[Item]) -> None:
    for workload, (_, program) in zip(workloads, items, strict=True):
        before = transaction.state.workloads.get(workload.name)
        number = ended_work.keep_earlier(transaction, workload.name)
        workload = transaction.state.sized(replace(workload, image=program.image), number)
        tracked = new_workload(WorkloadRecord(workload, program, submission=number))
        transaction.put_workload(transaction.state.array_slots.seated(tracked))
        if before is not None:
            transitions.revive(transaction, workload.name, before.workload)


def _remove(transaction: Transaction, queues: Sequence[str], names: Sequence[str], message: str) -> tuple[str, ...]:
    """Returns the workloads whose pods are still stopping."""
    workloads = {name: find_workload(transaction.state, name) for name in names}
    check_queues_removal(transaction.state, queues, workloads.values())
    for tracked in workloads.values():
        if not tracked.is_over:
            transitions.stop_workload(transaction, tracked, Ending.CANCEL, message)
    stopping = [name for name in workloads if not find_workload(transaction.state, name).is_over]
    ended_work.forget(transaction, [name for name in workloads if name not in stopping])
    for queue in dict.fromkeys(queues):
        transaction.drop_queue(queue)
    return tuple(stopping)


def _cancel(transaction: Transaction, name: str, who: str) -> None:
    tracked = find_workload(transaction.state, name)
    if tracked.is_over and tracked.record.state is not WorkloadState.CANCELLED:
        raise RefusedError(f"workload {name} has already {tracked.record.state}; there is nothing to cancel")
    if not tracked.is_over:
        transitions.stop_workload(transaction, tracked, Ending.CANCEL, _cancelled_by(who))


def _hold(transaction: Transaction, name: str, who: str) -> None:
    tracked = _living(transaction, name)
    if tracked.record.state in (WorkloadState.STARTING, WorkloadState.RUNNING):
        raise RefusedError(f"workload {name} is {tracked.record.state} and only waiting work can be held; requeue it")
    _set_held(transaction, tracked, True)


def _release(transaction: Transaction, name: str, who: str) -> None:
    tracked = _living(transaction, name)
    if not tracked.workload.held and tracked.record.state in (WorkloadState.STARTING, WorkloadState.RUNNING):
        raise RefusedError(f"workload {name} is {tracked.record.state} and not held; there is nothing to release")
    _set_held(transaction, tracked, False)


def _requeue(transaction: Transaction, name: str, who: str) -> None:
    tracked = find_workload(transaction.state, name)
    if tracked.ending is Ending.CANCEL:
        raise RefusedError(f"workload {name} is being cancelled; requeue it when it has ended")
    if tracked.record.program.is_interactive:
        raise RefusedError(f"workload {name} had its input from a `kaiwo run`, which is over; run it again")
    if not tracked.is_over:
        transitions.stop_workload(transaction, tracked, Ending.REQUEUE)
        return
    queue = tracked.workload.queue
    if queue not in transaction.state.queues or transaction.state.children.get(queue):
        raise ConfigError(f"queue {queue} of workload {name} no longer takes work", "queue")
    check_queue_access(transaction.state.queues, tracked.workload)
    check_dependency_cycles(transaction.state, {name: tracked.workload}, {})
    tracked = lifecycle.wait_again(tracked, transaction.now_s)
    sized = transaction.state.sized(tracked.workload, tracked.record.submission)
    tracked = transaction.state.array_slots.seated(lifecycle.with_workload(tracked, roles=sized.roles))
    transaction.put_workload(lifecycle.with_state(tracked, ()))
    transitions.revive(transaction, name)


def _checkpoint(transaction: Transaction, name: str, at_s: int) -> int:
    """A checkpoint is never in the future: a clock that is ahead must not hide lost work."""
    tracked = _living(transaction, name)
    if not tracked.record.attempt:
        raise RefusedError(f"workload {name} has not run yet, so it has nothing to save; wait until it runs")
    saved_s = max(tracked.workload.checkpoint_s, min(at_s or transaction.now_s, transaction.now_s))
    if saved_s != tracked.workload.checkpoint_s:
        transaction.put_workload(lifecycle.with_workload(tracked, checkpoint_s=saved_s))
    return saved_s


def _progress(transaction: Transaction, report: ProgressReport) -> None:
    """Nothing is stored: what follows from it is kept with the speeds of nodes."""
    _living(transaction, report.workload)
    pods = {name: run.pod for name, run in transaction.state.pods_of.get(report.workload, {}).items()}
    if not any(pod.phase is Phase.RUNNING for pod in pods.values()):
        raise RefusedError(f"workload {report.workload} is not running, so it makes no progress; wait until it runs")
    if report.pod and report.pod not in pods:
        raise NotFoundError(
            f"workload {report.workload} has no pod {report.pod} that runs; its pods are {', '.join(sorted(pods)[:3])}"
        )
    transaction.events.append(ProgressReported(replace(report, at_s=transaction.now_s)))


_ACTIONS: Mapping[Action, Callable[[Transaction, str, str], None]] = {
    "cancel": _cancel,
    "hold": _hold,
    "release": _release,
    "requeue": _requeue,
}


def _cancelled_by(who: str) -> str:
    return f"cancelled by {who}" if who else "cancelled"


def _living(transaction: Transaction, name: str) -> TrackedWorkload:
    tracked = find_workload(transaction.state, name)
    if tracked.is_over:
        raise RefusedError(f"workload {name} has ended ({tracked.record.state}); requeue it to run it again")
    return tracked


def _set_held(transaction: Transaction, tracked: TrackedWorkload, held: bool) -> None:
    if tracked.workload.held != held:
        changed = lifecycle.begin_to_wait(lifecycle.with_workload(tracked, held=held), transaction.now_s)
        tracked = transaction.state.array_slots.seated(changed)
        pods = transaction.state.pods_of.get(tracked.workload.name, {})
        transaction.put_workload(lifecycle.with_state(tracked, [placement.pod for placement in pods.values()]))
