"""Find running workloads that would make room if they were stopped, the one with the least lost work first.

One pass over arrays checks a necessary condition for each: if what it holds were given back, would its nodes gain the
missing room, and its queues the missing headroom? Of 8,000 running workloads a handful is left for `decide`.
"""

from collections.abc import Hashable, Iterator
from functools import cached_property
from heapq import merge
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from kaiwo.decide.obstacles.shortages import largest_device_mib
from kaiwo.decide.placement.node_fit import pods_that_fit
from kaiwo.decide.placement.queue_limits import charge_of, least_charge
from kaiwo.decide.placement.shape_scores import allowed
from kaiwo.explain.possible_changes import ChangeKind, PossibleChange
from kaiwo.explain.trials.earlier_turns import PodCount, started_earlier
from kaiwo.explain.trials.equal_stops import EqualStops
from kaiwo.explain.trials.room_after_stops import RoomAfterStops
from kaiwo.explain.verify_change import WhatIf
from kaiwo.gpus.device_fit import pods_per_device
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from kaiwo.model.workload import ACTIVE_PHASES, Pod, Workload, lost_s
from kaiwo.snapshot.array_types import BoolArray, IntArray
from kaiwo.snapshot.backlog import RoleNeeds, needs_of_each_choice
from kaiwo.snapshot.node_table import Allocation
from kaiwo.snapshot.queue_table import INFINITE, ResourceVector
from kaiwo.snapshot.view import View

FIRST_BATCH = 64  # of running workloads that are examined together; the next batches are larger
MANY = 1 << 40


class RunningWorkload(NamedTuple):
    cost: int  # of stopping it
    name: str
    held: list[Allocation]  # with what is kept for it


class _Shortage(NamedTuple):
    """How much of a limit or quota must come free."""

    queue: int
    resource: int
    amount: int
    is_quota: bool


class StopCandidates:
    """All running workloads, examined once for its owner and for an admin."""

    def __init__(self, what_if: WhatIf) -> None:
        found = what_if.state.backlog.class_of(what_if.name)
        ways = needs_of_each_choice(found) or [found.needs]
        self._variants = [_StartVariant(what_if, needs) for needs in ways]
        # Where nodes alone are short, stops in fifty queues are seldom equal, and finding out costs as much as trials.
        is_queue_short = all(variant.is_queue_short for variant in self._variants)
        self._equal, self._refused = EqualStops(what_if) if is_queue_short else None, set[Hashable]()

    def cheapest_first(self, by: str) -> Iterator[PossibleChange]:
        """A researcher's own workloads, or (`admin`) all others; each once.

        A caller that asks for the next change was refused this one: those that free the same are left out.
        """
        seen = set[object]()
        changes = [variant.cheapest_first(by) for variant in self._variants]
        for change in merge(*changes, key=attrgetter("cost", "subject")):
            if change.subject in seen:
                continue
            seen.add(change.subject)
            key = self._equal.key_of(str(change.subject)) if self._equal is not None else None
            if key is None or key not in self._refused:
                yield change
                if key is not None:
                    self._refused.add(key)


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
        self._shortages = self._queue_shortages((gpu, cpu, memory))

    @property
    def is_queue_short(self) -> bool:
        """A limit or quota leaves too little for it."""
        return bool(self._shortages)

    def cheapest_first(self, by: str) -> Iterator[PossibleChange]:
        """More are examined only as more are asked for."""
        left = self._running[by == "researcher"]
        size = FIRST_BATCH
        while left:
            now, left = left[:size], left[size:]
            size *= 8
            stops = RoomAfterStops(self._view, {name: held for _, name, held in now if self._frees_queues(name, held)})
            helps = self._make_room(stops)
            yield from (PossibleChange(ChangeKind.STOP, by, name, cost=cost) for cost, name, _ in now if name in helps)

    @cached_property
    def _running(self) -> tuple[list[RunningWorkload], list[RunningWorkload]]:
        """Running work of others, and of its own user, that holds enough devices; the cheapest to stop first."""
        state, user, now_s = self._what_if.state, self._what_if.workload.user, self._what_if.now_s
        max_restart_s = self._what_if.policy.max_restart_cost_s
        needed_pods = self._needed_pods if self._must_start or len(self._needed_pods) == 1 else []
        least, gaps = _fewest_devices(self._view, needed_pods), _gaps(self._view, needed_pods)
        queues = self._queues_that_matter
        theirs: list[RunningWorkload] = []
        own: list[RunningWorkload] = []
        for name, pods in state.pods.items():
            other = state.workloads.get(name)
            if other is None or name == self._what_if.name or (queues is not None and other.queue not in queues):
                continue
            if (least or gaps) and name not in state.nominations:
                devices = sum([len(pod.devices) for pod in pods.values()])
                if devices < least or (gaps and devices < min([gaps.get(pod.node, MANY) for pod in pods.values()])):
                    continue
            held = [pod for pod in pods.values() if pod.phase in ACTIVE_PHASES]
            if held:
                mine = own if user and other.user == user else theirs
                kept = state.nominations.get(name, {}).values()
                mine.append(RunningWorkload(_lost_gpu_s(other, held, now_s, max_restart_s), name, [*held, *kept]))
        for group in (theirs, own):
            group.sort(key=attrgetter("cost", "name"))
        return theirs, own

    @cached_property
    def _queues_that_matter(self) -> set[str] | None:
        """The queues whose work counts against every bound that leaves too little; None: nodes alone are short."""
        if not self._shortages:
            return None
        short, queues = {each.queue for each in self._shortages}, self._view.queues
        return {name for name, row in queues.row.items() if short.issubset(queues.path[row])}

    def _queue_shortages(self, charge: ResourceVector) -> list[_Shortage]:
        """The limits of every queue on the path, and for non-preemptible work the quotas, that the charge exceeds."""
        view, row = self._view, self._view.queues.row.get(self._what_if.workload.queue)
        bounds = [(view.queue_used, view.queues.limit, False)]
        if not self._what_if.workload.preemptible:
            bounds.append((view.queue_non_preemptible, view.queues.quota, True))
        found = []
        for above in view.queues.path[row] if row is not None else ():
            for resource, need in enumerate(charge):
                for used, bound, is_quota in bounds:
                    amount = int(used[above, resource] + need - bound[above, resource])
                    if bound[above, resource] < INFINITE and need and amount > 0:
                        found.append(_Shortage(above, resource, amount, is_quota))
        return found

    def _frees_queues(self, name: str, held: list[Allocation]) -> bool:
        """Without it no limit or quota is short."""
        if self._what_if.workload.queue not in self._view.queues.row:
            return False
        if not self._shortages:
            return True
        used, counts_for_quotas = _charge_of_held(held), not self._what_if.state.workloads[name].preemptible
        return all(
            used[each.resource] >= each.amount and (counts_for_quotas or not each.is_quota) for each in self._shortages
        )

    def _make_room(self, stops: RoomAfterStops) -> set[str]:
        """The workloads whose nodes would fit the needed pods without them."""
        enough = []
        for want, pods in self._needed_pods:
            may, now = self._fits_now(want)
            enough.append(stops.more_pods(want, may, now) >= pods - int(now.sum()))
        helps = np.all(enough, axis=0) if self._must_start else np.any(enough, axis=0)
        if self._earlier:
            helps &= stops.milli >= self._milli_needed_there
        return {name for name, does in zip(stops.names, helps.tolist(), strict=True) if does}

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


def _charge_of_held(held: list[Allocation]) -> ResourceVector:
    gpu = sum([share.charge_milli for each in held for share in each.devices])
    return gpu, sum([each.cpu_milli for each in held]), sum([each.memory_mib for each in held])
