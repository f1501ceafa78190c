"""State transitions of pods and workloads: start, evict, a run that started, ended or was refused.

Changes only the transaction: never starts a process or a timer. A workload's pods start together or not at all.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from kaiwo.clusters.embedded import ended_work, lifecycle
from kaiwo.clusters.embedded.lifecycle import Ending, Exit, ExitReason, PlacedRun, Run, TrackedWorkload
from kaiwo.clusters.embedded.state import Transaction, put_recovery
from kaiwo.clusters.ledger import Misfit
from kaiwo.clusters.plan_checks import (
    STILL_STOPPING,
    Owners,
    by_workload,
    check_devices,
    check_evictions,
    check_starts,
    find_misfit,
    is_up,
)
from kaiwo.model.affinity import affinity_of_nomination
from kaiwo.model.events import NominationChanged, PodGone
from kaiwo.model.plan import Nomination, Plan, Start
from kaiwo.model.workload import Phase, Pod, Workload
from kaiwo.model.workload_record import WorkloadState
from kaiwo.snapshot.assumed_events import assumed_pod

RUNS_KEPT = 3  # folders of earlier runs of one pod


def start(transaction: Transaction, name: str, starts: Sequence[Start]) -> list[str]:
    """Place the pods of one workload, all or none. Returns the names of the placed pods."""
    state = transaction.state
    tracked = state.workloads.get(name)
    placed = {pod: placement.pod for pod, placement in state.pods_of.get(name, {}).items()}
    checked = check_starts(name, tracked is not None and tracked.wants_pods, starts, placed)
    transaction.events += checked.events
    if tracked is None or not checked.starts:
        return []
    pods = _pods_to_place(transaction, tracked, checked.starts, placed)
    if isinstance(pods, Misfit):
        transaction.events += [PodGone(name, start.pod) for start in checked.starts]
        transaction.put_workload(lifecycle.refuse(tracked, transaction.now_s, pods.why))
        return []
    if all(pod.phase is Phase.DONE for pod in placed.values()):
        tracked = lifecycle.begin_attempt(tracked, transaction.now_s)
    ended_work.record_start(transaction, tracked, pods)
    for pod in pods:
        _place(transaction, tracked, pod)
    _update_state(transaction, tracked)
    return [pod.name for pod in pods]


def evict(
    transaction: Transaction, name: str, pods: Sequence[str], message: str, only_named: bool = False
) -> list[str]:
    """Stop these pods, or the whole workload when it cannot run without them. They wait again without a failure.

    `only_named`: the others wait for the replacements of these.
    """
    tracked = transaction.state.workloads.get(name)
    placed = transaction.state.pods_of.get(name, {})
    placed_pods = {pod: placement.pod for pod, placement in placed.items()}
    checked = check_evictions(name, tracked.workload if tracked else None, pods, placed_pods, only_named)
    transaction.events += checked.events
    if tracked is None or not checked.pods:
        return []
    ended_work.record_eviction(transaction, tracked, message)
    if checked.is_whole:
        tracked = lifecycle.stop_all(tracked, Ending.EVICT, transaction.now_s, message)
    _stop(transaction, [placed[pod] for pod in checked.pods])
    _update_state(transaction, tracked)
    return list(checked.pods)


def record_nominations(transaction: Transaction, plan: Plan) -> None:
    """Store the plan's nominations. One ends when its pod starts or the plan gives it up."""
    kept = transaction.state.nominations
    fresh = by_workload(plan.nominations)
    over = {(start.workload, start.pod) for start in plan.starts} | set(plan.given_up)
    over |= {(nomination.workload, nomination.pod) for nomination in plan.nominations}
    for name in sorted({name for name, _ in over if name in kept} | set(fresh)):
        tracked = transaction.state.workloads.get(name)
        if tracked is not None and tracked.wants_pods:
            before = [each for each in kept.get(name, ()) if (name, each.pod) not in over]
            transaction.put_nominations(name, (*before, *fresh.get(name, ())))


def record_planned_starts(transaction: Transaction, plan: Plan) -> None:
    """Store the planned starts, so that a restarted scheduler keeps them."""
    for name in plan.unpromised:
        transaction.put_planned_start(name, None)
    for planned in plan.promises:
        tracked = transaction.state.workloads.get(planned.workload)
        if tracked is not None and tracked.wants_pods:
            transaction.put_planned_start(planned.workload, planned)


def record_recoveries(transaction: Transaction, plan: Plan) -> None:
    """Store the recoveries that are under way, so that a restarted scheduler goes on with them."""
    for name in plan.recovered:
        put_recovery(transaction, name, None)
    for recovery in plan.recoveries:
        tracked = transaction.state.workloads.get(recovery.workload)
        if tracked is not None and tracked.wants_pods:
            put_recovery(transaction, recovery.workload, recovery)


def stop_workload(transaction: Transaction, tracked: TrackedWorkload, ending: Ending, message: str = "") -> None:
    """Stop all its pods; a workload without pods ends at once."""
    tracked = lifecycle.stop_all(tracked, ending, transaction.now_s, message)
    _stop_live_pods(transaction, tracked.workload.name)
    _update_state(transaction, tracked)


def run_started(transaction: Transaction, run_id: str) -> None:
    placement = _find(transaction, run_id)
    if placement is None or placement.pod.phase is not Phase.ASSUMED:
        return
    transaction.put_pod(replace(placement, pod=replace(placement.pod, phase=Phase.RUNNING)))
    _update_state(transaction, transaction.state.workloads[placement.pod.workload])


def run_refused(transaction: Transaction, run_id: str, why: str) -> None:
    """The run could not start: its workload waits again, longer each time."""
    placement = _find(transaction, run_id)
    if placement is None:
        return
    tracked = transaction.state.workloads[placement.pod.workload]
    transaction.drop_pod(placement.pod.workload, placement.pod.name)
    stop_workload(transaction, tracked, Ending.REFUSE, why)


def run_overdue(transaction: Transaction, run_id: str) -> None:
    """The run's time is up and it is being stopped: the attempt has failed, and ends when its pods are gone."""
    placement = _find(transaction, run_id)
    if placement is None or not is_up(placement.pod):
        return
    pod = placement.pod
    tracked = transaction.state.workloads[pod.workload]
    tracked = lifecycle.fail(tracked, lifecycle.OUT_OF_TIME, pod.name, transaction.now_s)
    _keep_places(transaction, tracked)
    _stop_live_pods(transaction, pod.workload)
    _update_state(transaction, tracked)


def run_ended(transaction: Transaction, run_id: str, end: Exit) -> None:
    """The run is over: its pod is done or gone, or its failure ends the whole attempt."""
    placement = _find(transaction, run_id)
    if placement is None:
        return
    pod = placement.pod
    if end.reason is ExitReason.NEVER_STARTED and is_up(pod):
        # Its start was given up, and Kaiwo ended before it could store that: the command did nothing.
        run_refused(transaction, run_id, end.message or "its start was given up")
        return
    tracked = transaction.state.workloads[pod.workload]
    ended_work.record_peak(transaction, tracked, end.peak_mib)
    # A pod that finished before it could be stopped has done its work.
    if end.is_success and tracked.ending in (Ending.NONE, Ending.EVICT):
        transaction.put_pod(replace(placement, pod=replace(pod, phase=Phase.DONE)))
    elif pod.phase is Phase.RELEASING:
        transaction.drop_pod(pod.workload, pod.name)
        if _sets_exit_code(tracked, end):
            tracked = replace(tracked, record=replace(tracked.record, exit_code=end.code))
    else:
        tracked = lifecycle.fail(tracked, end, pod.name, transaction.now_s)
        _keep_places(transaction, tracked)
        transaction.drop_pod(pod.workload, pod.name)
        _stop_live_pods(transaction, pod.workload)
    _update_state(transaction, tracked)


def adopt_run(transaction: Transaction, tracked: TrackedWorkload, placement: PlacedRun) -> None:
    """A run that the state did not know: its workload is as it was when the run started."""
    current = transaction.state.workloads.get(tracked.workload.name)
    if current is not None and current.record.submission != tracked.record.submission:
        ended_work.keep_earlier(transaction, tracked.workload.name)
    transaction.put_workload(tracked)
    transaction.put_run(placement.run)
    transaction.put_pod(placement)
    ended_work.record_start(transaction, tracked, [placement.pod])
    _update_state(transaction, transaction.state.workloads[tracked.workload.name])


def revive(transaction: Transaction, name: str, before: Workload | None = None) -> None:
    """A workload that had ended waits again: workloads whose dependency on it had failed wait for it once more.

    `before`: the workload that had its name. Where that was a task of an array and this is not, this takes its place.
    """
    state, now = transaction.state, _awaited_as(transaction.state.workloads[name].workload)
    for awaited in dict.fromkeys([*now, *(_awaited_as(before) if before is not None else ())]):
        tasks = [state.workloads[task] for task in state.tasks_of.get(awaited, ())]
        if any(task.is_over and task.record.state is not WorkloadState.SUCCEEDED for task in tasks):
            continue  # another task of its array has failed too
        again = [awaited] if awaited in now or not all(task.is_over for task in tasks) else []
        again += [name] if awaited not in now else []
        for other in list(state.dependents.get(awaited, ())):
            tracked = state.workloads[other]
            workload = tracked.workload
            if awaited in workload.after_failed:
                failed = tuple(each for each in workload.after_failed if each != awaited)
                after = tuple(dict.fromkeys([*workload.after, *again]))
                transaction.put_workload(lifecycle.with_workload(tracked, after=after, after_failed=failed))


def _pods_to_place(
    transaction: Transaction, tracked: TrackedWorkload, starts: Iterable[Start], placed: Mapping[str, Pod]
) -> list[Pod] | Misfit:
    workload = tracked.workload
    if transaction.state.why_no_runs and tracked.record.program.command:
        return Misfit("", transaction.state.why_no_runs)
    pods: list[Pod] = []
    for start in starts:
        role = check_devices(workload, start, transaction.state.queues)
        if isinstance(role, Misfit):
            return role
        pods.append(assumed_pod(start, role.request, transaction.now_s))
    if tracked.ending or tracked.record.state is WorkloadState.STOPPING:
        return Misfit("", STILL_STOPPING)
    state = transaction.state
    owners = Owners(lambda name: found.workload if (found := state.workloads.get(name)) else None, state.queues)
    return find_misfit(workload, pods, placed.values(), state.nodes, state.ledger, owners) or pods


def _place(transaction: Transaction, tracked: TrackedWorkload, pod: Pod) -> None:
    record = tracked.record
    run = Run(transaction.state.new_run_id(), pod.workload, pod.name, record.attempt, submission=record.submission)
    if transaction.state.runs_processes and record.program.command:
        run = replace(run, is_process=True)
        placement = PlacedRun(pod, run)
        transaction.put_run(run)
        _drop_old_runs(transaction, run)
    else:
        run = lifecycle.simulated_run(record, run, transaction.now_s)
        placement = PlacedRun(replace(pod, phase=Phase.RUNNING), run)
    transaction.put_pod(placement)
    transaction.runs_to_start.append(placement)


def _drop_old_runs(transaction: Transaction, run: Run) -> None:
    runs = transaction.state.runs_of[run.workload, run.submission].values()
    mine = [other for other in runs if other.pod == run.pod]
    for old in mine[:-RUNS_KEPT]:
        transaction.drop_run(old.id)


def _stop_live_pods(transaction: Transaction, name: str) -> None:
    placed = transaction.state.pods_of.get(name, {})
    _stop(transaction, [placement for placement in placed.values() if is_up(placement.pod)])


def _stop(transaction: Transaction, placements: Iterable[PlacedRun]) -> None:
    for placement in placements:
        placement = replace(placement, pod=replace(placement.pod, phase=Phase.RELEASING))
        transaction.put_pod(placement)
        if placement.run.is_process:
            transaction.runs_to_stop.append(placement)
        else:
            transaction.drop_pod(placement.pod.workload, placement.pod.name)


def _keep_places(transaction: Transaction, tracked: TrackedWorkload) -> None:
    """A gang that will be tried again gets its places back: smaller work would be in its way for longer than its
    back-off lasts."""
    workload = tracked.workload
    if workload.pods < 2 or not tracked.wants_pods:
        return
    placed = transaction.state.pods_of.get(workload.name, {}).values()
    _put_kept_places(
        transaction, workload.name, [_place_of(each.pod, transaction.now_s) for each in placed if is_up(each.pod)]
    )


def _put_kept_places(transaction: Transaction, name: str, places: Sequence[Nomination]) -> None:
    """Keep these places instead of those that were kept before. The scheduler learns of it from the events."""
    others = [each for each in transaction.state.nominations.get(name, ()) if not each.lost_s]
    taken = {each.pod for each in others}
    fresh = [each for each in places if each.pod not in taken]
    transaction.put_nominations(name, (*others, *fresh))
    transaction.events += [NominationChanged(each) for each in fresh]


def _place_of(pod: Pod, now_s: int) -> Nomination:
    amounts = (pod.cpu_milli, pod.memory_mib, pod.extended, affinity_of_nomination(pod.neighbours), pod.beside)
    since_s = max(1, now_s)
    return Nomination(
        pod.workload, pod.name, pod.node, pod.devices, *amounts, lost_s=since_s, share_with=pod.share_with
    )


def _update_state(transaction: Transaction, tracked: TrackedWorkload) -> None:
    name = tracked.workload.name
    placed = transaction.state.pods_of.get(name, {})
    if all(placement.pod.phase is Phase.DONE for placement in placed.values()):
        is_complete = len(placed) == tracked.workload.pods
        ending = tracked.ending
        message = tracked.record.message if ending else ""
        ended_work.record_end(transaction, tracked, message, tracked.record.exit_code)
        if is_complete and ending in (Ending.NONE, Ending.EVICT):
            tracked = lifecycle.succeed(tracked, transaction.now_s)
        elif ending:
            tracked = lifecycle.end(tracked, transaction.now_s)
            if ending is Ending.FAIL and tracked.wants_pods:  # until its back-off is over, short work may use them
                kept = [each for each in transaction.state.nominations.get(name, ()) if each.lost_s]
                due_s = tracked.workload.not_before_s
                _put_kept_places(transaction, name, [replace(each, due_s=due_s) for each in kept])
        if is_complete or ending not in (Ending.NONE, Ending.EVICT):
            for pod in list(placed):
                transaction.drop_pod(name, pod)
    tracked = lifecycle.with_state(tracked, [at.pod for at in transaction.state.pods_of.get(name, {}).values()])
    if tracked != transaction.state.workloads[name]:
        transaction.put_workload(tracked)
    if tracked.is_over:
        for awaited in _awaited_as(tracked.workload):
            _release_dependents(transaction, awaited, tracked.record.state is WorkloadState.SUCCEEDED)


def _release_dependents(transaction: Transaction, awaited: str, did_succeed: bool) -> None:
    state = transaction.state
    dependents = list(state.dependents.get(awaited, ()))
    tasks = state.tasks_of.get(awaited, ()) if dependents and did_succeed else ()
    if not all(state.workloads[task].is_over for task in tasks):
        return  # an array has succeeded when its last task has; it has failed with its first
    for other in dependents:
        tracked = state.workloads[other]
        workload = tracked.workload
        if awaited not in workload.after:
            continue
        after = tuple(each for each in workload.after if each != awaited)
        failed = workload.after_failed if did_succeed else (*workload.after_failed, awaited)
        freed = lifecycle.with_workload(tracked, after=after, after_failed=failed)
        transaction.put_workload(lifecycle.begin_to_wait(freed, transaction.now_s))


def _awaited_as(workload: Workload) -> list[str]:
    """The names under which other workloads wait for it: its own, and that of its array."""
    return [name for name in (workload.name, lifecycle.array_of(workload)) if name]


def _sets_exit_code(tracked: TrackedWorkload, end: Exit) -> bool:
    """Whether the exit code of a stopped pod becomes its workload's: at the time limit, or the first when cancelled."""
    if tracked.ending is Ending.CANCEL:
        return not tracked.record.exit_code and end.reason is not ExitReason.NEVER_STARTED
    return tracked.ending is Ending.FAIL and end.reason is ExitReason.TIME_LIMIT


def _find(transaction: Transaction, run_id: str) -> PlacedRun | None:
    key = transaction.state.pod_of_run.get(run_id)
    return None if key is None else transaction.state.pods[key]
