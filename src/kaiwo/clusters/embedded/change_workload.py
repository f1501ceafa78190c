"""Change a workload in place: its settings, its queue or its size while it waits; priority and times while it runs.

Its age stays as it is. The change is checked as a submission would be, and made as a whole or not at all.
"""

from collections.abc import Callable

from msgspec.structs import fields, replace

from kaiwo.clusters.embedded import lifecycle
from kaiwo.clusters.embedded.admission import check_placeable
from kaiwo.clusters.embedded.lifecycle import PlacedRun, TrackedWorkload
from kaiwo.clusters.embedded.state import Transaction
from kaiwo.model.errors import RefusedError
from kaiwo.model.events import WorkloadGone
from kaiwo.model.workload import Phase, Workload
from kaiwo.model.workload_record import WorkloadState

WHILE_RUNNING = frozenset({"priority", "time_limit_s", "estimate_s"})
# A change of these keeps what was planned for the workload: where it fits stays the same.
KEEPS_PLACE = WHILE_RUNNING | {"held", "preemption_delay_s", "restart_s", "expires_s"}


def change_workload(
    transaction: Transaction, tracked: TrackedWorkload, change: Callable[[Workload], Workload]
) -> tuple[Workload, Workload]:
    """Apply the change. Returns the workload before and after it."""
    before = tracked.workload
    after = change(before)
    changed = {field.name for field in fields(before) if getattr(before, field.name) != getattr(after, field.name)}
    if not changed:
        return before, after
    _check_state(tracked, changed)
    check_placeable(transaction.state, after, transaction.now_s)
    pods = transaction.state.pods_of.get(before.name, {})
    if not pods and not changed <= KEEPS_PLACE:
        # What was planned and nominated was for another size, queue or place.
        transaction.put_nominations(before.name, ())
        transaction.put_planned_start(before.name, None)
        transaction.events.append(WorkloadGone(before.name))
    tracked = replace(tracked, record=replace(tracked.record, workload=after))
    if "held" in changed:
        tracked = transaction.state.array_slots.seated(lifecycle.begin_to_wait(tracked, transaction.now_s))
    transaction.put_workload(lifecycle.with_state(tracked, [placement.pod for placement in pods.values()]))
    if "time_limit_s" in changed:
        for placement in list(pods.values()):
            _limit_run(transaction, tracked, placement)
    return before, tracked.workload


def _check_state(tracked: TrackedWorkload, changed: set[str]) -> None:
    name, state = tracked.workload.name, tracked.record.state
    if state in (WorkloadState.WAITING, WorkloadState.HELD):
        return
    if state not in (WorkloadState.STARTING, WorkloadState.RUNNING):
        raise RefusedError(f"workload {name} is {state}; it can be changed once it waits again")
    if not changed <= WHILE_RUNNING:
        raise RefusedError(
            f"workload {name} is {state}, and only its priority, time and estimate can be changed now; to change the "
            f"rest: kaiwo requeue {name}, kaiwo hold {name}, then change and release it"
        )


def _limit_run(transaction: Transaction, tracked: TrackedWorkload, placement: PlacedRun) -> None:
    """A simulated run ends at another time; a process is told its new limit once this is stored."""
    if placement.pod.phase not in (Phase.ASSUMED, Phase.RUNNING):
        return
    if placement.run.is_process:
        transaction.runs_to_limit.append(placement)
        return
    run = lifecycle.simulated_run(tracked.record, placement.run, placement.pod.since_s)
    run = replace(run, ends_s=max(run.ends_s, transaction.now_s + 1))
    transaction.put_run(run)
    transaction.put_pod(replace(placement, run=run))
    transaction.runs_to_limit.append(replace(placement, run=run))
