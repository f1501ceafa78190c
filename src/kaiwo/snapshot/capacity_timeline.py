"""When the resources on each node come free: expected ends of running work, and spans of reservations.

In:    the cluster's state.   Out: arrays by node and release: the expected end, and what comes free then.
Results are cached and repaired for nodes that changed. Work of unknown run time never ends here.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from kaiwo.model.planned_start import PlannedPod, expected_run_s
from kaiwo.model.reservation import NEVER_S
from kaiwo.model.workload import Phase, Pod
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import CPU, EXTENDED, FREE_GPU, MEMORY, PODS, USABLE, Allocation, NodeTable

RELEASE_S = 1  # an evicted pod is expected to be gone after this
OVERDUE_S = 60  # overdue work is expected to run for this much longer, then twice this, and so on


class ReservedSpan(NamedTuple):
    reservation: str
    rows: Rows  # of nodes, one entry a device
    columns: Rows  # of devices
    from_s: int
    until_s: int


def reserved_spans(state: ClusterState, now_s: int) -> tuple[ReservedSpan, ...]:
    """Every live reservation's devices, from now or its start until its end.

    Nothing that `decide` starts on them outlives the start of a span unless it can be evicted: non-preemptible work is
    excluded unless its time limit ends before `from_s`, and everything else there is evicted at `from_s`. So a planned
    start only has to treat the devices as absent between `from_s` and `until_s`, unless its request's `passes` name the
    reservation.
    """
    state.refresh_tables()
    spans = [
        ReservedSpan(held.name, rows, columns, max(now_s, held.start_s), held.until_s)
        for held, rows, columns, _ in state.reservations.located(state.nodes)
        if held.until_s > now_s
    ]
    return tuple(sorted(spans, key=lambda span: (span.from_s, span.reservation)))


class PodRelease(NamedTuple):
    end_s: int  # the planned end; 0: it is leaving already
    pod: Pod


class CapacityTimeline(msgspec.Struct, frozen=True):
    """One row per node, one slot per release; unused slots never end and free nothing."""

    version: int
    ends: IntArray  # node, slot; 0: leaving already
    is_backfilled: BoolArray  # node, slot: it is backfilled, and evicted when its time is over
    free: IntArray  # node, slot, then the columns of a node's `free`
    gpus: IntArray  # node, slot, (MILLI, MIB), device

    @property
    def is_empty(self) -> bool:
        return not (self.ends < NEVER_S).any()

    def expected(self, now_s: int) -> IntArray:
        """The planned ends; for overdue work, the next time at which to expect it.

        The steps double, so that work that overruns for long is not looked at every second.
        """
        late = np.maximum(now_s - self.ends, 0)
        steps = np.frexp((late // OVERDUE_S).astype(np.float64))[1].astype(np.int64)
        overdue = self.ends + (OVERDUE_S << np.minimum(steps, 40))
        is_leaving = (self.ends == 0) | self.is_backfilled
        expected: IntArray = np.where(self.ends > now_s, self.ends, np.where(is_leaving, now_s + RELEASE_S, overdue))
        return expected


def timeline_of(state: ClusterState) -> CapacityTimeline:
    kept = state.caches.setdefault("timeline", {})
    found = kept.get("now") or _blank(state.nodes)
    rows = (state.nodes.changed > found.version).nonzero()[0].tolist()
    if rows:
        names = state.nodes.names
        releases = {row: _releases(state, state.allocations_on.get(names[row], {}).values()) for row in rows}
        found = kept["now"] = _with_releases(found, state.nodes, releases, int(state.nodes.changed.max()))
    return found


def timeline_with_changes(
    timeline: CapacityTimeline, state: ClusterState, removed: set[tuple[str, str]], added: dict[int, list[PodRelease]]
) -> CapacityTimeline:
    """The timeline after what a cycle has decided: some pods removed, others added (by node)."""
    rows = set(added)
    for workload, pod in removed:
        held = state.pods.get(workload, {}).get(pod)
        if held is not None and held.node in state.nodes.row:
            rows.add(state.nodes.row[held.node])
    releases = {}
    for row in sorted(rows):
        held_here = state.allocations_on.get(state.nodes.names[row], {}).values()
        staying = [held for held in held_here if not isinstance(held, Pod) or (held.workload, held.name) not in removed]
        releases[row] = _releases(state, staying) + added.get(row, [])
    return _with_releases(timeline, state.nodes, releases, timeline.version) if releases else timeline


def _releases(state: ClusterState, held: Iterable[Allocation]) -> list[PodRelease]:
    found: list[PodRelease] = []
    for pod in held:
        if not isinstance(pod, Pod) or pod.phase is Phase.STUCK:
            continue  # a nominated pod starts later
        workload = state.workloads.get(pod.workload)
        run_s = expected_run_s(workload) if workload is not None else 0
        if pod.phase is Phase.RELEASING:
            found.append(PodRelease(0, pod))
        elif run_s:
            found.append(PodRelease(max(1, pod.since_s + run_s), pod))
    return found


def _blank(nodes: NodeTable, slots: int = 8) -> CapacityTimeline:
    rows = len(nodes.names)
    return CapacityTimeline(
        -1,
        np.full((rows, slots), NEVER_S, np.int64),
        np.zeros((rows, slots), np.bool_),
        np.zeros((rows, slots, nodes.free.shape[1]), np.int64),
        np.zeros((rows, slots, 2, nodes.width), np.int64),
    )


def _with_releases(
    before: CapacityTimeline, nodes: NodeTable, releases: dict[int, list[PodRelease]], version: int
) -> CapacityTimeline:
    """New releases on some rows; the old arrays stay unchanged, since forks share them."""
    most = max(len(each) for each in releases.values())
    slots = before.ends.shape[1]
    while slots < most:
        slots *= 2
    found = _blank(nodes, slots)
    width = before.ends.shape[1]
    found.ends[:, :width], found.is_backfilled[:, :width] = before.ends, before.is_backfilled
    found.free[:, :width], found.gpus[:, :width] = before.free, before.gpus
    rows = list(releases)
    found.ends[rows], found.is_backfilled[rows], found.free[rows], found.gpus[rows] = NEVER_S, False, 0, 0
    for row, each in releases.items():
        for slot, (end_s, pod) in enumerate(each):
            found.ends[row, slot], found.is_backfilled[row, slot] = end_s, pod.until_s > 0
            add_allocation(nodes, row, pod, found.free[row, slot], found.gpus[row, slot])
    return CapacityTimeline(version, found.ends, found.is_backfilled, found.free, found.gpus)


def add_allocation(nodes: NodeTable, row: int, held: Allocation | PlannedPod, free: IntArray, gpus: IntArray) -> None:
    free[CPU] += held.cpu_milli
    free[MEMORY] += held.memory_mib
    free[PODS] += 1
    for name, amount in held.extended:
        if name in nodes.extended_names:
            free[EXTENDED + nodes.extended_names.index(name)] += amount
    column, usable = nodes.column[row], nodes.gpus[row, USABLE]
    for share in held.devices:
        at = column.get(share.gpu)
        if at is not None and usable[at]:  # a device that has failed meanwhile frees nothing
            gpus[0, at] += share.milli
            gpus[1, at] += share.mib
            free[FREE_GPU] += share.milli
