"""Which running workloads, stopped, could make room.

In:    a Question.   Out: the workloads worth a try, the one with the least lost work first.
A necessary condition is worked out for all of them in one sweep of arrays: with what it holds given back, do its nodes
gain the room that is missing? At 8,000 running workloads that leaves a handful for `decide`.
"""

import numpy as np

from kaiwo.decide.fit import pods_that_fit
from kaiwo.decide.gang import least_charge
from kaiwo.decide.score import allowed
from kaiwo.explain.change import Change, Kind
from kaiwo.explain.trial import Question
from kaiwo.gpus.fit import times_per_device
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod
from kaiwo.snapshot.arrays import IntArray
from kaiwo.snapshot.nodes import CPU, MEMORY, MIB, MILLI, PODS
from kaiwo.snapshot.queues import ENDLESS
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.working import Working

Pair = tuple[str, int]  # a running workload, and a row of a node on which it holds something


def stops_worth_a_try(question: Question, by: str) -> list[Change]:
    """Cheapest first: a researcher's own, or (`admin`) everybody else's."""
    picture = question.picture
    user = picture.workloads[question.name].user
    view = Working(Snapshot(picture, question.now_s))
    least = _fewest_devices(question, view)
    running: dict[str, list[Pod]] = {}
    for name, pods in picture.pods.items():
        other = picture.workloads.get(name)
        if other is None or name == question.name or (bool(user) and other.user == user) != (by == "researcher"):
            continue
        held = [pod for pod in pods.values() if pod.phase in (Phase.ASSUMED, Phase.RUNNING)]
        if held and sum(len(pod.devices) for pod in held) >= least:
            running[name] = held
    helps = _frees_the_queue(question, running) if running else set()
    helps = _makes_room(question, view, {name: running[name] for name in sorted(helps)})
    found = [Change(Kind.STOP, by, name, cost=_lost_gpu_s(running[name], question.now_s)) for name in helps]
    return sorted(found, key=lambda change: change.rank)


def _fewest_devices(question: Question, view: Working) -> int:
    """A workload that holds fewer devices than this cannot make room, whatever else it holds."""
    picture = question.picture
    ahead = picture.backlog.ahead_in_class(question.name)
    fewest = 0
    everywhere = np.arange(len(view.nodes.names))
    for shape, _, needed in picture.needs_of(picture.workloads[question.name]):
        want = picture.backlog.shapes[shape]
        if want.is_whole and len(everywhere):
            free = times_per_device(view, want, everywhere).sum(axis=1)
            missing = (ahead + 1) * max(needed, 1) - int((free // want.gpus).sum())
            fewest = max(fewest, missing * (want.gpus - int((free % want.gpus).max())))
    return fewest


def _lost_gpu_s(pods: list[Pod], now_s: int) -> int:
    """GPU-seconds of work that would be thrown away, a pod without GPUs counting its CPU a hundredth."""
    return (
        sum((now_s - pod.since_s) * (sum(s.milli for s in pod.devices) + pod.cpu_milli // 100) for pod in pods) // 1000
    )


def _makes_room(question: Question, view: Working, running: dict[str, list[Pod]]) -> set[str]:
    """Workloads whose nodes would take the missing pods, shape by shape, and those of equals who stand before it."""
    picture = question.picture
    active = question.plugins.active(question.policy)
    row_of = view.nodes.row
    pairs = sorted({(name, row_of[pod.node]) for name, pods in running.items() for pod in pods if pod.node in row_of})
    helps = set(running)
    if not pairs:
        return set()
    rows = np.array([row for _, row in pairs], np.intp)
    after = _given_back(view, running, pairs, rows)
    everywhere = np.arange(len(view.nodes.names))
    ahead = picture.backlog.ahead_in_class(question.name)
    for shape, _, needed in picture.needs_of(picture.workloads[question.name]):
        want = picture.backlog.shapes[shape]
        may = allowed(view, want, everywhere, active.static_filters)
        now = pods_that_fit(view, want, everywhere) * may
        gain = _fit_after(view, after, want, rows) * may[rows] - now[rows]
        by_name: dict[str, int] = {}
        for (name, _), more in zip(pairs, gain.tolist(), strict=True):
            by_name[name] = by_name.get(name, 0) + more
        missing = (ahead + 1) * max(needed, 1) - int(now.sum())
        helps &= {name for name in helps if by_name.get(name, 0) >= missing}
    return helps


def _given_back(
    view: Working, running: dict[str, list[Pod]], pairs: list[Pair], rows: IntArray
) -> tuple[IntArray, IntArray]:
    """`free` and `gpus` of each pair's node, as they would be without that workload."""
    free, gpus = view.free[rows], view.gpus[rows]
    at = {pair: index for index, pair in enumerate(pairs)}
    for name, pods in running.items():
        for pod in pods:
            row = view.nodes.row.get(pod.node)
            if row is None:
                continue
            index, columns = at[(name, row)], view.nodes.column[row]
            free[index, CPU] += pod.cpu_milli
            free[index, MEMORY] += pod.memory_mib
            free[index, PODS] += 1
            for share in pod.devices:
                if (column := columns.get(share.gpu)) is not None:
                    gpus[index, MILLI, column] += share.milli
                    gpus[index, MIB, column] += share.mib
    return free, gpus


def _fit_after(view: Working, after: tuple[IntArray, IntArray], want: Request, rows: IntArray) -> IntArray:
    """How many pods fit on each pair's node without that workload."""
    return pods_that_fit(view.pretending(rows, *after), want, rows)


def _frees_the_queue(question: Question, running: dict[str, list[Pod]]) -> set[str]:
    """Workloads whose going leaves every queue on the path within its limit."""
    picture = question.picture
    workload = picture.workloads[question.name]
    queues = picture.queues
    row = queues.row.get(workload.queue)
    if row is None:
        return set()
    ahead = picture.backlog.ahead_in_class(question.name)
    charge = least_charge(picture, picture.needs_of(workload), 1 + ahead)
    fits = set(running)
    for above in queues.path[row]:
        for resource, need in enumerate(charge):
            short = int(queues.used[above, resource] + need - queues.limit[above, resource])
            if queues.limit[above, resource] < ENDLESS and need and short > 0:
                fits &= {name for name in fits if _used(question, running[name], above, resource) >= short}
    return fits


def _used(question: Question, pods: list[Pod], queue: int, resource: int) -> int:
    """What these pods use of a resource in a queue and below it."""
    picture = question.picture
    own = picture.queues.row.get(picture.workloads[pods[0].workload].queue) if pods else None
    if own is None or queue not in picture.queues.path[own]:
        return 0
    return sum((sum(s.milli for s in pod.devices), pod.cpu_milli, pod.memory_mib)[resource] for pod in pods)
