"""When what is held on each node comes free, as far as somebody said how long it runs.

In:    the picture.   Out: arrays by node and release: the planned end, and what comes free then.
What is worked out is kept and repaired for the nodes that changed. Work of unknown run time never ends here.

Also: The space that reservations take, from when to when: what a planner of future starts has to leave alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kaiwo.model.planned_start import PlannedPod, expected_run_s
from kaiwo.model.workload import Phase, Pod
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import CPU, EXTENDED, FREE_GPU, MEMORY, PODS, USABLE, Allocation, NodeTable


class ReservedSpan(NamedTuple):
    """Devices that one reservation has, or will have, between two moments."""

    reservation: str
    rows: Rows  # of nodes, one entry a device
    columns: Rows  # of devices
    from_s: int
    until_s: int


def reserved_spans(state: ClusterState, now_s: int) -> tuple[ReservedSpan, ...]:
    """Every live reservation's devices, from now or its start until its end.

    Backfill must never delay a reservation. Nothing that `decide` starts there outlives the beginning of a span unless
    it can be told to go: work that may not be preempted is kept off by `gpus.fit.eligible` when it has no time limit
    that ends before `from_s`, and whatever else runs there is evicted at `from_s`. So a planner that promises a start
    at some time only has to count the devices of a span as not there between `from_s` and `until_s`, for all who do
    not have the reservation's name among their request's `passes`.
    """
    state.refresh_tables()
    spans = [
        ReservedSpan(
            claim.name, claim.rows, claim.columns, max(now_s, claim.reservation.start_s), claim.reservation.until_s
        )
        for claim in state.reservations.located(state.nodes)
        if claim.reservation.until_s > now_s
    ]
    return tuple(sorted(spans, key=lambda span: (span.from_s, span.reservation)))


NEVER = 1 << 50  # later than any clock
RELEASE_S = 1  # who was told to go is expected to be gone at the next look
OVERDUE_S = 60  # who outlives the planned end is expected to go on for this, then twice this, and so on

PodRelease = tuple[int, Pod]  # the planned end (0: it is leaving already), and who leaves


@dataclass(frozen=True, slots=True)
class CapacityTimeline:
    """One row a node, one slot a release; unused slots never end and free nothing."""

    version: int
    ends: IntArray  # node, slot: 0 for who is leaving already
    yields: BoolArray  # node, slot: it fills a gap, and goes when its time is over
    free: IntArray  # node, slot, then the columns of a node's `free`
    gpus: IntArray  # node, slot, (MILLI, MIB), device

    @property
    def is_empty(self) -> bool:
        """Nobody said when anything ends."""
        return not (self.ends < NEVER).any()

    def expected(self, now_s: int) -> IntArray:
        """The planned ends; of those that are over, the next moment at which they are expected.

        The steps double, so that work that outlives its time is looked at seldom and not every second.
        """
        late = np.maximum(now_s - self.ends, 0)
        steps = np.frexp((late // OVERDUE_S).astype(np.float64))[1].astype(np.int64)
        overdue = self.ends + (OVERDUE_S << np.minimum(steps, 40))
        is_going = (self.ends == 0) | self.yields
        expected: IntArray = np.where(self.ends > now_s, self.ends, np.where(is_going, now_s + RELEASE_S, overdue))
        return expected


def timeline_of(state: ClusterState) -> CapacityTimeline:
    """The timeline of a picture whose tables are tidy."""
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
    """The timeline with some pods gone, and others come (by node): what a cycle decided so far."""
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
            continue  # who comes to kept space stays for a time that begins later
        workload = state.workloads.get(pod.workload)
        run_s = expected_run_s(workload) if workload is not None else 0
        if pod.phase is Phase.RELEASING:
            found.append((0, pod))
        elif run_s:
            found.append((max(1, pod.since_s + run_s), pod))
    return found


def _blank(nodes: NodeTable, slots: int = 8) -> CapacityTimeline:
    rows = len(nodes.names)
    return CapacityTimeline(
        -1,
        np.full((rows, slots), NEVER, np.int64),
        np.zeros((rows, slots), np.bool_),
        np.zeros((rows, slots, nodes.free.shape[1]), np.int64),
        np.zeros((rows, slots, 2, nodes.width), np.int64),
    )


def _with_releases(
    before: CapacityTimeline, nodes: NodeTable, releases: dict[int, list[PodRelease]], version: int
) -> CapacityTimeline:
    """Other releases on some rows; the arrays before stay as they are, since forks share them."""
    most = max(len(each) for each in releases.values())
    slots = before.ends.shape[1]
    while slots < most:
        slots *= 2
    found = _blank(nodes, slots)
    width = before.ends.shape[1]
    found.ends[:, :width], found.yields[:, :width] = before.ends, before.yields
    found.free[:, :width], found.gpus[:, :width] = before.free, before.gpus
    rows = list(releases)
    found.ends[rows], found.yields[rows], found.free[rows], found.gpus[rows] = NEVER, False, 0, 0
    for row, each in releases.items():
        for slot, (end_s, pod) in enumerate(each):
            found.ends[row, slot], found.yields[row, slot] = end_s, pod.until_s > 0
            add_allocation(nodes, row, pod, found.free[row, slot], found.gpus[row, slot])
    return CapacityTimeline(version, found.ends, found.yields, found.free, found.gpus)


def add_allocation(nodes: NodeTable, row: int, held: Allocation | PlannedPod, free: IntArray, gpus: IntArray) -> None:
    """Add what a pod holds on a node to amounts in the node's own columns."""
    free[CPU] += held.cpu_milli
    free[MEMORY] += held.memory_mib
    free[PODS] += 1
    for name, amount in held.extended:
        if name in nodes.extended_names:
            free[EXTENDED + nodes.extended_names.index(name)] += amount
    column, usable = nodes.column[row], nodes.gpus[row, USABLE]
    for share in held.devices:
        at = column.get(share.gpu)
        if at is not None and usable[at]:  # a device that failed meanwhile has nothing to give
            gpus[0, at] += share.milli
            gpus[1, at] += share.mib
            free[FREE_GPU] += share.milli
