"""What happens to pods and workloads, as changes of the world: the rules that local and simulated share.

In:    a Change and one happening.   Out: lives, pods and events in the Change; runs to begin and to stop.
Never: starts a process or a timer. A workload's pods start together or not at all.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from kaiwo.clusters.embedded import lifecycle
from kaiwo.clusters.embedded.lifecycle import Ending, Exit, ExitReason, Life, Placement, Run
from kaiwo.clusters.embedded.state import Transaction
from kaiwo.clusters.ledger import Misfit
from kaiwo.clusters.plan_checks import (
    STILL_STOPPING,
    check_devices,
    check_evictions,
    check_starts,
    find_misfit,
    is_up,
    role_of,
)
from kaiwo.model.events import PodGone
from kaiwo.model.plan import Nomination, Plan, Start
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod, Role, Workload, pod_name
from kaiwo.model.workload_record import WorkloadState

RUNS_KEPT = 3  # folders of earlier runs of one pod


def start(change: Transaction, name: str, starts: Sequence[Start]) -> list[str]:
    """Give the pods of one workload their places: all of them, or none. Returns the names of the pods begun."""
    world = change.world
    life = world.lives.get(name)
    placed = {pod: placement.pod for pod, placement in world.pods_of.get(name, {}).items()}
    checked = check_starts(name, life is not None and life.wants_pods, starts, placed)
    change.events += checked.events
    if life is None or not checked.starts:
        return []
    pods = _pods_to_place(change, life, checked.starts, placed)
    if isinstance(pods, Misfit):
        change.events += [PodGone(name, start.pod) for start in checked.starts]
        change.put_life(lifecycle.refuse(life, change.now_s, pods.why))
        return []
    if all(pod.phase is Phase.DONE for pod in placed.values()):
        life = lifecycle.begin_attempt(life, change.now_s)
    for pod in pods:
        _place(change, life, pod)
    _settle(change, life)
    return [pod.name for pod in pods]


def evict(change: Transaction, name: str, pods: Sequence[str], message: str) -> list[str]:
    """Stop these pods, or the whole workload when it cannot go on without them. They wait again; it is no failure."""
    life = change.world.lives.get(name)
    placed = change.world.pods_of.get(name, {})
    checked = check_evictions(
        name, life.workload if life else None, pods, {pod: placement.pod for pod, placement in placed.items()}
    )
    change.events += checked.events
    if life is None or not checked.pods:
        return []
    if checked.is_whole:
        life = lifecycle.stop_all(life, Ending.EVICT, change.now_s, message)
    _stop(change, [placed[pod] for pod in checked.pods])
    _settle(change, life)
    return list(checked.pods)


def keep_space(change: Transaction, plan: Plan) -> None:
    """Remember the space that the plan keeps for waiting pods. It ends when its pod starts or the plan gives it up."""
    kept = change.world.kept
    fresh: dict[str, list[Nomination]] = {}
    for nomination in plan.nominations:
        fresh.setdefault(nomination.workload, []).append(nomination)
    over = {(start.workload, start.pod) for start in plan.starts} | set(plan.given_up)
    over |= {(nomination.workload, nomination.pod) for nomination in plan.nominations}
    for name in sorted({name for name, _ in over if name in kept} | set(fresh)):
        life = change.world.lives.get(name)
        if life is not None and life.wants_pods:
            before = [each for each in kept.get(name, ()) if (name, each.pod) not in over]
            change.put_kept(name, (*before, *fresh.get(name, ())))


def keep_promises(change: Transaction, plan: Plan) -> None:
    """Remember the planned starts, so that the next who decides keeps them too."""
    for name in plan.unpromised:
        change.put_promise(name, None)
    for promise in plan.promises:
        life = change.world.lives.get(promise.workload)
        if life is not None and life.wants_pods:
            change.put_promise(promise.workload, promise)


def stop_workload(change: Transaction, life: Life, ending: Ending, message: str = "") -> None:
    """Stop all its pods because somebody wants so; with none left it ends at once."""
    life = lifecycle.stop_all(life, ending, change.now_s, message)
    placed = change.world.pods_of.get(life.workload.name, {})
    _stop(change, [placement for placement in placed.values() if _is_up(placement)])
    _settle(change, life)


def run_started(change: Transaction, run_id: str) -> None:
    """The run's process is there."""
    placement = _find(change, run_id)
    if placement is None or placement.pod.phase is not Phase.ASSUMED:
        return
    change.put_pod(replace(placement, pod=replace(placement.pod, phase=Phase.RUNNING)))
    _settle(change, change.world.lives[placement.pod.workload])


def run_refused(change: Transaction, run_id: str, why: str) -> None:
    """The run could not be begun: its workload waits again, a little longer each time."""
    placement = _find(change, run_id)
    if placement is None:
        return
    life = change.world.lives[placement.pod.workload]
    change.drop_pod(placement.pod.workload, placement.pod.name)
    stop_workload(change, life, Ending.REFUSE, why)


def run_overdue(change: Transaction, run_id: str) -> None:
    """The run's time is up and it is being stopped: the attempt has failed, and ends when its pods are gone."""
    placement = _find(change, run_id)
    if placement is None or not _is_up(placement):
        return
    pod = placement.pod
    life = lifecycle.fail(change.world.lives[pod.workload], lifecycle.OUT_OF_TIME, pod.name, change.now_s)
    _stop(change, [other for other in change.world.pods_of[pod.workload].values() if _is_up(other)])
    _settle(change, life)


def run_ended(change: Transaction, run_id: str, end: Exit) -> None:
    """The run is over: its pod is done, or gone, or takes the whole attempt with it."""
    placement = _find(change, run_id)
    if placement is None:
        return
    pod = placement.pod
    life = change.world.lives[pod.workload]
    # A pod that finished before the word to stop reached it has done its work.
    if end.is_success and life.ending in (Ending.NONE, Ending.EVICT):
        change.put_pod(replace(placement, pod=replace(pod, phase=Phase.DONE)))
    elif pod.phase is Phase.RELEASING:
        change.drop_pod(pod.workload, pod.name)
        if _tells_code(life, end):
            life = replace(life, record=replace(life.record, exit_code=end.code))
    else:
        life = lifecycle.fail(life, end, pod.name, change.now_s)
        change.drop_pod(pod.workload, pod.name)
        _stop(change, [other for other in change.world.pods_of.get(pod.workload, {}).values() if _is_up(other)])
    _settle(change, life)


def revive(change: Transaction, name: str, before: Workload | None = None) -> None:
    """A workload that had ended lives again: whoever waited for it in vain waits for it once more.

    `before`: who had its name. Where that was a task of an array and this is not, this takes its place.
    """
    world, now = change.world, _awaited_as(change.world.lives[name].workload)
    for awaited in dict.fromkeys([*now, *(_awaited_as(before) if before is not None else ())]):
        tasks = [world.lives[task] for task in world.tasks_of.get(awaited, ())]
        if any(_has_failed(task) for task in tasks):
            continue  # another task of its array has failed too
        again = [awaited] if awaited in now or not all(task.is_over for task in tasks) else []
        again += [name] if awaited not in now else []
        for other in list(world.dependents.get(awaited, ())):
            life = world.lives[other]
            workload = life.workload
            if awaited in workload.after_failed:
                failed = tuple(each for each in workload.after_failed if each != awaited)
                after = tuple(dict.fromkeys([*workload.after, *again]))
                change.put_life(lifecycle.with_workload(life, after=after, after_failed=failed))


def trim(change: Transaction, kept: int) -> None:
    """Forget the workloads that ended first, beyond so many."""
    surplus = len(change.world.ended) - kept
    if surplus > 0:
        forget(change, list(islice(change.world.ended, surplus)))


def forget(change: Transaction, names: Iterable[str]) -> None:
    """Drop ended workloads, with the runs they left behind."""
    for name in names:
        for run_id in list(change.world.runs_of.get(name, ())):
            change.drop_run(run_id)
        change.drop_life(name)


def ordered_pods(workload: Workload) -> list[tuple[str, Role]]:
    """Its pods' names in order, each with its role."""
    return [(pod_name(role, index), role) for role in workload.roles for index in range(role.count)]


def request_of(workload: Workload, pod: str) -> Request:
    """What one of its pods asks for."""
    return next((role.request for name, role in ordered_pods(workload) if name == pod), Request())


def _pods_to_place(
    change: Transaction, life: Life, starts: Iterable[Start], placed: Mapping[str, Pod]
) -> list[Pod] | Misfit:
    workload = life.workload
    pods: list[Pod] = []
    for start in starts:
        role = role_of(workload, start)
        if misfit := check_devices(role, start):
            return misfit
        assert role is not None
        pods.append(_assumed(workload.name, start, role.request, change.now_s))
    if life.ending or life.record.state is WorkloadState.STOPPING:
        return Misfit("", STILL_STOPPING)
    world = change.world
    return find_misfit(workload, pods, placed.values(), world.nodes, world.ledger) or pods


def _assumed(workload: str, start: Start, request: Request, now_s: int) -> Pod:
    return Pod(
        workload=workload,
        name=start.pod,
        node=start.node,
        until_s=start.until_s,
        phase=Phase.ASSUMED,
        devices=start.devices,
        cpu_milli=request.cpu_milli,
        memory_mib=request.memory_mib,
        extended=request.extended,
        neighbours=request.neighbours,
        beside=request.beside,
        since_s=now_s,
    )


def _place(change: Transaction, life: Life, pod: Pod) -> None:
    record = life.record
    run = Run(change.world.new_run_id(), pod.workload, pod.name, record.attempt)
    if change.world.runs_processes and record.program.command:
        run = replace(run, is_process=True)
        placement = Placement(pod, run)
        change.put_run(run)
        _drop_old_runs(change, run)
    else:
        placement = Placement(replace(pod, phase=Phase.RUNNING), lifecycle.simulated_run(record, run, change.now_s))
    change.put_pod(placement)
    change.begins.append(placement)


def _drop_old_runs(change: Transaction, run: Run) -> None:
    mine = [other for other in change.world.runs_of[run.workload].values() if other.pod == run.pod]
    for old in mine[:-RUNS_KEPT]:
        change.drop_run(old.id)


def _stop(change: Transaction, placements: Iterable[Placement]) -> None:
    for placement in placements:
        placement = replace(placement, pod=replace(placement.pod, phase=Phase.RELEASING))
        change.put_pod(placement)
        if placement.run.is_process:
            change.stops.append(placement)
        else:
            change.drop_pod(placement.pod.workload, placement.pod.name)


def _settle(change: Transaction, life: Life) -> None:
    """Keep the life that follows from what is left of the pods."""
    name = life.workload.name
    placed = change.world.pods_of.get(name, {})
    if all(placement.pod.phase is Phase.DONE for placement in placed.values()):
        is_complete = len(placed) == life.workload.pods
        ending = life.ending
        if is_complete and ending in (Ending.NONE, Ending.EVICT):
            life = lifecycle.succeed(life, change.now_s)
        elif ending:
            life = lifecycle.end(life, change.now_s)
        if is_complete or ending not in (Ending.NONE, Ending.EVICT):
            for pod in list(placed):
                change.drop_pod(name, pod)
    life = lifecycle.with_state(life, [at.pod for at in change.world.pods_of.get(name, {}).values()])
    if life != change.world.lives[name]:
        change.put_life(life)
    if life.is_over:
        for awaited in _awaited_as(life.workload):
            _tell_dependents(change, awaited, life.record.state is WorkloadState.SUCCEEDED)


def _tell_dependents(change: Transaction, awaited: str, did_succeed: bool) -> None:
    world = change.world
    dependents = list(world.dependents.get(awaited, ()))
    if dependents and did_succeed and any(not world.lives[task].is_over for task in world.tasks_of.get(awaited, ())):
        return  # an array has succeeded when its last task has; it has failed with its first
    for other in dependents:
        life = world.lives[other]
        workload = life.workload
        if awaited not in workload.after:
            continue
        after = tuple(each for each in workload.after if each != awaited)
        failed = workload.after_failed if did_succeed else (*workload.after_failed, awaited)
        change.put_life(lifecycle.with_workload(life, after=after, after_failed=failed))


def _awaited_as(workload: Workload) -> list[str]:
    """The names under which others wait for it: its own, and that of its array."""
    return [name for name in (workload.name, lifecycle.array_of(workload)) if name]


def _tells_code(life: Life, end: Exit) -> bool:
    """How a pod ended that was told to go is how its workload did: at its time limit, or first of those cancelled."""
    if life.ending is Ending.CANCEL:
        return not life.record.exit_code and end.reason is not ExitReason.NEVER_STARTED
    return life.ending is Ending.FAIL and end.reason is ExitReason.TIME_LIMIT


def _has_failed(life: Life) -> bool:
    return life.is_over and life.record.state is not WorkloadState.SUCCEEDED


def _find(change: Transaction, run_id: str) -> Placement | None:
    key = change.world.pod_of_run.get(run_id)
    return None if key is None else change.world.pods[key]


def _is_up(placement: Placement) -> bool:
    return is_up(placement.pod)
