"""Find running workloads that would make room if they were stopped, the one with the least lost work first.

One pass over arrays checks a necessary condition for each: if what it holds were given back, would its nodes gain the
missing room, and its queues the missing headroom? Of 8,000 running workloads a handful is left for `decide`.
"""

from collections.abc import Iterator
from functools import cached_property
from heapq import merge
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.obstacles.shortages import largest_device_mib
from kaiwo.decide.placement.node_fit import pods_that_fit
from kaiwo.decide.placement.queue_limits import charge_of, least_charge
from kaiwo.decide.placement.shape_scores import allowed
from kaiwo.explain.possible_changes import ChangeKind, PossibleChange
from kaiwo.explain.verify_change import WhatIf
from kaiwo.gpus.device_fit import pods_per_device
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from kaiwo.model.workload import ACTIVE_PHASES, Pod, Workload, lost_s
from kaiwo.snapshot.array_types import BoolArray, IntArray
from kaiwo.snapshot.backlog import RoleNeeds, WaitingClass, needs_of_each_choice
from kaiwo.snapshot.node_table import CPU, EXTENDED, MEMORY, MIB, MILLI, PODS, Allocation
from kaiwo.snapshot.queue_table import INFINITE, ResourceVector
from kaiwo.snapshot.view import NO_TENANTS, View

MAX_KINDS = 16  # each is fitted on all nodes, which takes a tenth of a millisecond
FIRST_BATCH = 64  # of running workloads that are examined together; the next batches are larger
MANY = 1 << 40

WorkloadOnNode = tuple[str, int]  # a running workload, and a row of a node on which it holds something


class PodCount(NamedTuple):
    """Pods of one kind that must fit, or that start before."""

    want: Request
    pods: int


def started_earlier(what_if: WhatIf) -> list[PodCount]:
    """Pods of its queue that start before the workload and ask for no more; empty: unknown."""
    state, backlog, view = what_if.state, what_if.state.backlog, what_if.view
    mine, place = backlog.class_of(what_if.name), backlog.trial_position(what_if.name)
    row = view.queues.row.get(mine.queue)
    is_in_order = not (state.releasing or state.planned_starts or backlog.resumed or what_if.active.free_filters)
    if row is None or view.queues.is_model_bounded[row] or not is_in_order or not _is_plain(mine):
        return []
    (shape, _, pods), found = mine.needs[0], []
    for other in backlog.by_queue[mine.queue].values():
        if other is mine or not _is_plain(other) or other.signature.is_preemptible != mine.signature.is_preemptible:
            continue
        want, needed = backlog.shapes[other.needs[0].shape], other.needs[0].needed
        if needed <= pods and _asks_no_more(want, backlog.shapes[shape]):
            ahead = other.waiters.ahead_of(place)
            found += [PodCount(want, needed * ahead)] if ahead else []
    return sorted(found, key=lambda each: -each.want.least_milli * each.pods)[:MAX_KINDS]


def _is_plain(waiting_class: WaitingClass) -> bool:
    """Equal pods that must start together and have no nominations."""
    is_equal = len(waiting_class.needs) == 1 and waiting_class.choices is None
    return is_equal and waiting_class.needs[0].needed > 0 and not waiting_class.signature.nominated_for


def _asks_no_more(one: Request, other: Request) -> bool:
    """A node that fits a pod of the other also fits one of this, and pods can simply be counted."""
    is_counted = not one.charge_depends_on_device and (one.is_exclusive or one.gpus <= 1) and one.neighbours is None
    return (
        is_counted
        and one.cpu_milli <= other.cpu_milli
        and one.memory_mib <= other.memory_mib
        and one.gpus <= other.gpus
        and one.gpu_milli <= other.gpu_milli
        and _kind(one) == _kind(other)
    )


def _kind(want: Request) -> Request:
    """All but the amounts."""
    return replace(want, cpu_milli=0, memory_mib=0, gpus=min(want.gpus, 1), gpu_milli=1000 if want.is_whole else 500)


class RunningWorkload(NamedTuple):
    cost: int  # of stopping it
    name: str
    held: list[Allocation]  # with what is kept for it


class StopCandidates:
    """All running workloads, examined once for its owner and for an admin."""

    def __init__(self, what_if: WhatIf) -> None:
        found = what_if.state.backlog.class_of(what_if.name)
        self._variants = [_StartVariant(what_if, needs) for needs in needs_of_each_choice(found) or [found.needs]]

    def cheapest_first(self, by: str) -> Iterator[PossibleChange]:
        """A researcher's own workloads, or (`admin`) all others; each once."""
        seen = set[object]()
        changes = [variant.cheapest_first(by) for variant in self._variants]
        for change in merge(*changes, key=attrgetter("cost", "subject")):
            if change.subject not in seen:
                seen.add(change.subject)
                yield change


class _StartVariant:
    """One way in which the workload could start; with sub-groups there may be several."""

    def __init__(self, what_if: WhatIf, needs: RoleNeeds) -> None:
        self._what_if, self._view = what_if, what_if.view
        self._fits: dict[Request, tuple[BoolArray, IntArray]] = {}
        backlog = what_if.state.backlog
        # Workloads ahead of it that ask for exactly the same start first, or none of them does.
        turns = 1 if what_if.state.releasing else 1 + backlog.ahead_in_class(what_if.name)
        self._must_start = any(needed for _, _, needed in needs)
        self._needed_pods = [PodCount(backlog.shapes[shape], turns * needed) for shape, _, needed in needs if needed]
        if not self._must_start:
            pods = turns if len(needs) == 1 else 1
            self._needed_pods = [PodCount(backlog.shapes[shape], pods) for shape, _, _ in needs]
        each = least_charge(what_if.state, needs, lambda shape: largest_device_mib(self._view, backlog.shapes[shape]))
        self._earlier = started_earlier(what_if)
        first = [charge_of(want, pods) for want, pods in self._earlier]
        gpu, cpu, memory = (turns * mine + sum(column) for mine, *column in zip(each, *first, strict=True))
        self._charge: ResourceVector = (gpu, cpu, memory)

    def cheapest_first(self, by: str) -> Iterator[PossibleChange]:
        """More are examined only as more are asked for."""
        left = self._running[by == "researcher"]
        size = FIRST_BATCH
        while left:
            now, left = left[:size], left[size:]
            size *= 8
            running = {name: held for _, name, held in now if self._frees_the_queue(name, held)}
            helps = self._make_room(running)
            yield from (PossibleChange(ChangeKind.STOP, by, name, cost=cost) for cost, name, _ in now if name in helps)

    @cached_property
    def _running(self) -> tuple[list[RunningWorkload], list[RunningWorkload]]:
        """Running work of others, and of its own user, that holds enough devices; the cheapest to stop first."""
        state, user, now_s = self._what_if.state, self._what_if.workload.user, self._what_if.now_s
        max_restart_s = self._what_if.policy.max_restart_cost_s
        needed_pods = self._needed_pods if self._must_start or len(self._needed_pods) == 1 else []
        least, gaps = _fewest_devices(self._view, needed_pods), _gaps(self._view, needed_pods)
        theirs: list[RunningWorkload] = []
        own: list[RunningWorkload] = []
        for name, pods in state.pods.items():
            if (least or gaps) and name not in state.nominations:
                devices = sum([len(pod.devices) for pod in pods.values()])
                if devices < least or (gaps and devices < min([gaps.get(pod.node, MANY) for pod in pods.values()])):
                    continue
            other = state.workloads.get(name)
            held = [pod for pod in pods.values() if pod.phase in ACTIVE_PHASES]
            if held and other is not None and name != self._what_if.name:
                mine = own if user and other.user == user else theirs
                kept = state.nominations.get(name, {}).values()
                mine.append(RunningWorkload(_lost_gpu_s(other, held, now_s, max_restart_s), name, [*held, *kept]))
        for group in (theirs, own):
            group.sort(key=attrgetter("cost", "name"))
        return theirs, own

    def _frees_the_queue(self, name: str, held: list[Allocation]) -> bool:
        """Without it every queue on the path stays within its limit, and non-preemptible work within the quota."""
        what_if, view = self._what_if, self._view
        workloads, queues = what_if.state.workloads, view.queues
        row, own = queues.row.get(what_if.workload.queue), queues.row.get(workloads[name].queue)
        if row is None:
            return False
        bounds = [(view.queue_used, queues.limit, True)]
        if not what_if.workload.preemptible:
            bounds.append((view.queue_non_preemptible, queues.quota, not workloads[name].preemptible))
        for above in queues.path[row]:
            pays_here = own is not None and above in queues.path[own]
            for resource, need in enumerate(self._charge):
                for used, bound, counts in bounds:
                    short = int(used[above, resource] + need - bound[above, resource])
                    is_short = bound[above, resource] < INFINITE and need and short > 0
                    if is_short and not (pays_here and counts and _uses(held, resource) >= short):
                        return False
        return True

    def _make_room(self, running: dict[str, list[Allocation]]) -> set[str]:
        """The workloads whose nodes would fit the needed pods without them."""
        view = self._view
        row_of = view.nodes.row
        places = {(name, each.node) for name, held in running.items() for each in held}
        pairs = sorted((name, row_of[node]) for name, node in places if node in row_of)
        rows = np.array([row for _, row in pairs], np.intp)
        free, gpus = _given_back(view, running, pairs, rows)
        # A tenant that excludes others from its device may be gone by then.
        after = view.with_amounts(rows, free, gpus, NO_TENANTS)
        names = sorted(running)
        at = {name: index for index, name in enumerate(names)}
        owner = np.array([at[name] for name, _ in pairs], np.intp)
        enough = []
        for want, pods in self._needed_pods:
            may, now = self._fits_now(want)
            gain = pods_that_fit(after, want, rows) * may[rows] - now[rows]
            enough.append(np.bincount(owner, gain, len(names)) >= pods - int(now.sum()))
        helps = np.all(enough, axis=0) if self._must_start else np.any(enough, axis=0)
        if self._earlier:
            helps &= np.bincount(owner, gpus[:, MILLI].clip(0).sum(axis=1), len(names)) >= self._milli_needed_there
        return {name for name, does in zip(names, helps.tolist(), strict=True) if does}

    @cached_property
    def _milli_needed_there(self) -> int:
        """What it and the earlier pods need beyond the room elsewhere."""
        every = (*self._needed_pods, *self._earlier)
        return sum(max(0, pods - int(self._fits_now(want)[1].sum())) * want.least_milli for want, pods in every)

    def _fits_now(self, want: Request) -> tuple[BoolArray, IntArray]:
        """The nodes that it may use, and how many pods each of them fits now."""
        known = self._fits.get(want)
        if known is None:
            everywhere = np.arange(len(self._view.nodes.names))
            may = allowed(self._view, want, everywhere, self._what_if.active.static_filters)
            known = self._fits[want] = may, pods_that_fit(self._view, want, everywhere) * may
        return known


def _fewest_devices(view: View, needed_pods: list[PodCount]) -> int:
    """A workload that holds fewer devices than this cannot make room, whatever else it holds."""
    everywhere = np.arange(len(view.nodes.names))
    fewest = 0
    for want, pods in needed_pods:
        if not want.gpus or not len(everywhere):
            continue
        times = pods_per_device(view, want, everywhere)
        if want.is_whole:
            free = times.sum(axis=1)
            missing = pods - int((free // want.gpus).sum())
            fewest = max(fewest, missing * (want.gpus - int((free % want.gpus).max())))
        else:
            most = WHOLE_MILLI // want.gpu_milli or 1
            if want.is_memory:
                by_mib = largest_device_mib(view, want) // want.gpu_mib
                most = min(by_mib, most) if want.fraction_milli else by_mib
            parts = pods * want.gpus - int(times.sum())
            fewest = max(fewest, -(-parts // max(1, most)))
    return fewest


def _gaps(view: View, needed_pods: list[PodCount]) -> dict[str, int]:
    """By node: how many devices must come free on it before one more pod fits; empty when there is room elsewhere."""
    everywhere = np.arange(len(view.nodes.names))
    for want, pods in needed_pods:
        if want.is_whole and len(everywhere):
            free = pods_per_device(view, want, everywhere).sum(axis=1)
            if int((free // want.gpus).sum()) < pods:
                return dict(zip(view.nodes.names, (want.gpus - free % want.gpus).tolist(), strict=True))
    return {}


def _lost_gpu_s(workload: Workload, pods: list[Pod], now_s: int, max_restart_s: int) -> int:
    """GPU-seconds of work that would be lost; CPU counts a hundredth."""
    lost = 0
    for pod in pods:
        milli = sum([share.milli for share in pod.devices]) + pod.cpu_milli // 100
        lost += lost_s(workload, pod.since_s, now_s, max_restart_s) * milli
    return lost // 1000


def _uses(held: list[Allocation], resource: int) -> int:
    return sum((sum(s.charge_milli for s in each.devices), each.cpu_milli, each.memory_mib)[resource] for each in held)


def _given_back(
    view: View, running: dict[str, list[Allocation]], pairs: list[WorkloadOnNode], rows: IntArray
) -> tuple[IntArray, IntArray]:
    """`free` and `gpus` of each pair's node, as they would be without that workload."""
    free, gpus = view.free[rows], view.gpus[rows]
    at = {pair: index for index, pair in enumerate(pairs)}
    extended = {name: EXTENDED + index for index, name in enumerate(view.nodes.extended_names)}
    for name, held in running.items():
        for each in held:
            row = view.nodes.row.get(each.node)
            if row is None:
                continue
            index, columns = at[(name, row)], view.nodes.column[row]
            free[index, CPU] += each.cpu_milli
            free[index, MEMORY] += each.memory_mib
            free[index, PODS] += 1
            for resource, amount in each.extended:
                if resource in extended:
                    free[index, extended[resource]] += amount
            for share in each.devices:
                if (column := columns.get(share.gpu)) is not None:
                    gpus[index, MILLI, column] += share.milli
                    gpus[index, MIB, column] += share.mib
    return free, gpus
