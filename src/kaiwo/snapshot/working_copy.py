"""This cycle's working copy: place pods on it, and undo what did not work out.

In:    one Snapshot.   Out: the same arrays with this cycle's placements taken off.
Never: changes the snapshot. Leaving a trial without keep() puts every amount back exactly.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from kaiwo.model.gpu import DEMANDS, LIMITED, SMALL_MILLI, TURNS, WHOLE_MILLI, Share
from kaiwo.model.plan import Nomination
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod
from kaiwo.snapshot.array_types import IntArray, Rows, freeze, read_only
from kaiwo.snapshot.node_table import CPU, EXTENDED, FREE_GPU, MEMORY, MIB, MILLI, PODS, SIZE, USABLE
from kaiwo.snapshot.pod_affinity_counts import WorkingAffinityCounts
from kaiwo.snapshot.queue_table import RESOURCES, ResourceVector
from kaiwo.snapshot.snapshot import Snapshot

# node row, pods, request, device columns, milli and MiB taken of each
_Taken = tuple[int, int, Request, Rows, IntArray, IntArray]


class WorkingCopy:
    """Free amounts by node and device, and used amounts by queue; also what plugins see.

    They only read: the arrays that can be reached from here cannot be written, save by the methods below.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        state = snapshot.read()
        nodes, queues = state.nodes, state.queues
        self.now_s = snapshot.now_s
        self.nodes, self.queues = nodes.read_only(), queues
        self._set_amounts(nodes.free.copy(), nodes.gpus.copy(), nodes.changed.copy())
        self.affinity_counts = WorkingAffinityCounts(state.affinity_counts, nodes)  # for rules between pods
        self.tenants = nodes.tenants.copy()  # for shares that demand to be kept apart
        self._set_charges(queues.all_used.copy(), queues.all_non_preemptible.copy())
        self.reservations = state.reservations.view(snapshot.now_s, nodes)  # None: nothing is reserved
        self.queue_demand = state.backlog.queue_demand()  # by leaf: what its waiting work asks for, and could have
        self.past_usage = state.past_usage
        self._state = state
        self.cache: dict[str, Any] = {}  # what is worked out once a cycle
        self.clock = state.version
        self._releasing = [state.pods[workload][pod] for workload, pod in sorted(state.releasing)]
        self._gathered: tuple[Rows, int, IntArray, IntArray] | None = None
        self.last_times: tuple[Request, Rows, int, IntArray] | None = None  # see gpus.fit.times_per_device
        self._taken: list[_Taken] = []
        self._charged: list[tuple[int, ResourceVector, bool]] = []

    def _set_amounts(self, free: IntArray, gpus: IntArray, changed: IntArray) -> None:
        self._free, self._gpus, self._changed = free, gpus, changed
        self.free: IntArray = read_only(free)  # by node: columns CPU, MEMORY, PODS, GPU_LEFT, then extended ones
        self.gpus: IntArray = read_only(gpus)  # by node, column (MILLI, MIB, SIZE, USABLE) and device
        self.changed: IntArray = read_only(changed)

    def _set_charges(self, used: IntArray, fixed: IntArray) -> None:
        self._used, self._non_preemptible = used, fixed
        self.all_used: IntArray = read_only(used)
        self.all_non_preemptible: IntArray = read_only(fixed)  # the part that may not be preempted

    @property
    def queue_used(self) -> IntArray:
        """By queue: GPU, CPU and memory; in `all_used` bounded GPU models, too."""
        return self.all_used[:, : len(RESOURCES)]

    @property
    def queue_non_preemptible(self) -> IntArray:
        """The part of it that may not be preempted."""
        return self.all_non_preemptible[:, : len(RESOURCES)]

    def milli_by_model(self, node: str, devices: Sequence[Share]) -> tuple[int, ...]:
        """What devices of a node are of each GPU model that some queue bounds; nothing where none is bounded."""
        models = self.queues.models
        row = self.nodes.row.get(node) if models else None
        if row is None:
            return ()
        column, known = self.nodes.column[row], self.nodes.models
        found = dict.fromkeys(models, 0)
        for share in devices:
            at = column.get(share.gpu)
            model = known[self.nodes.gpu_model[row, at]] if at is not None else ""
            if model in found:
                found[model] += share.milli
        return tuple(found.values())

    def waiting_requests(self, queue: str) -> Iterator[tuple[Request, int]]:
        """What the work that stands in a queue's lines asks for: a request, and how many pods of it."""
        backlog = self._state.backlog
        for found in backlog.by_queue.get(queue, {}).values():
            if (
                found.key not in backlog.impossible and not found.signature.nominated_for
            ):  # space that is kept for it is paid for already
                for shape, missing, _ in found.needs:
                    yield backlog.shapes[shape], missing * len(found.waiters)

    def oldest_submission_s(self) -> IntArray:
        """By queue: when the oldest work there or below was submitted, running or first in a line; far off if none.

        Running work counts, too: else whoever is stopped would be the oldest to wait, and take its place back.
        """
        oldest = np.full(len(self.queues.names), np.iinfo(np.int64).max // 4, np.int64)
        state = self._state
        backlog = state.backlog
        first = [found.waiters.at(0)[1] for key, found in backlog.by_key.items() if key not in backlog.impossible]
        for workload in map(state.workloads.get, (*first, *state.pods)):
            row = self.queues.row.get(workload.queue) if workload is not None else None
            if workload is None or row is None:
                continue
            for above in self.queues.path[row]:
                oldest[above] = min(oldest[above], workload.submitted_s)
        return oldest

    def mark_changed(self, rows: Rows) -> None:
        """What these nodes offer is another thing now, though nothing was placed on them."""
        self.clock += 1
        self._changed[rows] = self.clock

    def of(self, nodes: Rows) -> tuple[IntArray, IntArray]:
        """`free` and `gpus` of these nodes. Everybody who is asked about the same nodes shares one gathering."""
        last = self._gathered
        if last is None or last[0] is not nodes or last[1] != self.clock:
            last = self._gathered = (nodes, self.clock, self._free[nodes], self._gpus[nodes])
            freeze(last[2])
            freeze(last[3])
        return last[2], last[3]

    def with_amounts(self, nodes: Rows, free: IntArray, gpus: IntArray) -> "WorkingCopy":
        """A view in which these nodes look like that; the same node may stand in several rows."""
        other = object.__new__(WorkingCopy)
        other.__dict__.update(self.__dict__)
        other.last_times, other._gathered = None, (nodes, self.clock, read_only(free), read_only(gpus))
        return other

    def as_of(self, at_s: int, free: IntArray, gpus: IntArray) -> "WorkingCopy":
        """A copy of its own in which it is another time, all nodes look like that, and nothing is reserved."""
        other = object.__new__(WorkingCopy)
        other.__dict__.update(self.__dict__)
        other.now_s, other.reservations = at_s, None
        other._set_amounts(free, gpus, self.changed.copy())
        other._set_charges(self.all_used.copy(), self.all_non_preemptible.copy())
        other.last_times, other._gathered, other.cache = None, None, {}
        other._releasing, other._taken, other._charged = [], [], []
        other.tenants = self.tenants.copy()
        return other

    def take(self, row: int, pods: int, ask: Request, columns: Rows, milli: IntArray, mib: IntArray) -> None:
        """Put `pods` equal pods on a node; the columns are those of all of them together, each at most once."""
        self._apply((row, pods, ask, columns, milli, mib), -1)
        self._taken.append((row, pods, ask, columns, milli, mib))

    def release(self, kept: Pod | Nomination, queue: int, is_non_preemptible: bool) -> None:
        """Free, inside a trial, what a pod holds or what is kept for one; its queue pays for it no longer."""
        milli = sum(share.milli for share in kept.devices)
        charge: ResourceVector = (-milli, -kept.cpu_milli, -kept.memory_mib)
        if self.queues.models:
            charge += tuple(-each for each in self.milli_by_model(kept.node, kept.devices))
        self.charge(queue, charge, is_non_preemptible)
        self.release_uncharged(kept)

    def release_uncharged(self, kept: Pod | Nomination) -> None:
        """Free, inside a trial, space that no queue pays for: of a pod that is leaving already."""
        row = self.nodes.row.get(kept.node)
        if row is None:
            return
        column = self.nodes.column[row]
        usable = self.gpus[row, USABLE]
        # A device that failed meanwhile has nothing to give.
        shares = [share for share in kept.devices if share.gpu in column and usable[column[share.gpu]]]
        columns = np.array([column[share.gpu] for share in shares], np.intp)
        milli = np.array([-share.milli for share in shares], np.int64)
        mib = np.array([-share.mib for share in shares], np.int64)
        self.take(row, -1, _request_of(kept), columns, milli, mib)

    @property
    def has_releasing_pods(self) -> bool:
        """Some space comes free soon."""
        return bool(self._releasing)

    def count_releasing(self, sign: int) -> None:
        """From here on (+1) the space of those who leave counts as free, or (-1) no longer. Trials do not undo it."""
        found = self.cache.get("leaving")
        if found is None:
            found = self.cache["leaving"] = self._releasing_amounts()
        rows, free, gpus = found
        self.clock += 1
        self._free[rows] += sign * free
        self._gpus[rows, : MIB + 1] += sign * gpus
        self._changed[rows] = self.clock
        for pod in self._releasing:
            row = self.nodes.row.get(pod.node)
            if row is None:
                continue
            if pod.neighbours is not None:
                self.affinity_counts.change(row, pod.neighbours, -sign)
            for share in pod.devices:
                if share.gpu in self.nodes.column[row]:
                    self.tenants.change(row, self.nodes.column[row][share.gpu], pod.beside, share.milli, -sign)

    def _releasing_amounts(self) -> tuple[Rows, IntArray, IntArray]:
        before = self.free.copy(), self.gpus.copy()
        mark = self.savepoint()
        for pod in self._releasing:
            self.release_uncharged(pod)
        rows = np.array(
            sorted({self.nodes.row[pod.node] for pod in self._releasing if pod.node in self.nodes.row}), np.intp
        )
        free, gpus = (self.free - before[0])[rows], (self.gpus - before[1])[rows, : MIB + 1]
        self.rollback(mark)
        return rows, free, gpus

    def restore(self, pod: Pod, queue: int) -> bool:
        """Let a pod have again what `give_back` freed, if all of it is still free."""
        row = self.nodes.row.get(pod.node)
        if row is None:
            return False
        column = self.nodes.column[row]
        if any(share.gpu not in column for share in pod.devices):
            return False
        columns = np.array([column[share.gpu] for share in pod.devices], np.intp)
        milli = np.array([share.milli for share in pod.devices], np.int64)
        mib = np.array([share.mib for share in pod.devices], np.int64)
        free, gpus = self.free[row], self.gpus[row]
        has_room = free[PODS] >= 1 and free[CPU] >= pod.cpu_milli and free[MEMORY] >= pod.memory_mib
        known = self.nodes.extended_names
        held = [(EXTENDED + known.index(name), amount) for name, amount in pod.extended if name in known]
        has_room = has_room and all(free[at] >= amount for at, amount in held)
        if not has_room or (gpus[MILLI, columns] < milli).any() or (gpus[MIB, columns] < mib).any():
            return False
        self.take(row, 1, _request_of(pod), columns, milli, mib)
        charge: ResourceVector = (int(milli.sum()), pod.cpu_milli, pod.memory_mib)
        if self.queues.models:
            charge += self.milli_by_model(pod.node, pod.devices)
        self.charge(queue, charge)
        return True

    def charge(self, queue: int, charge: ResourceVector, is_non_preemptible: bool = False) -> None:
        """Charge a queue and all above it; `is_fixed` for work that may not be preempted."""
        self._charge(queue, charge, is_non_preemptible, +1)
        self._charged.append((queue, charge, is_non_preemptible))

    def trial(self) -> "Trial":
        """Try something: `with working.trial() as attempt: ...; attempt.keep()`."""
        return Trial(self)

    def savepoint(self) -> tuple[int, int]:
        """Where we are, for `back_to`."""
        return len(self._taken), len(self._charged)

    def rollback(self, mark: tuple[int, int]) -> None:
        """Undo everything since the mark, last first."""
        taken, charged = mark
        while len(self._taken) > taken:
            self._apply(self._taken.pop(), +1)
        while len(self._charged) > charged:
            queue, charge, is_fixed = self._charged.pop()
            self._charge(queue, charge, is_fixed, -1)

    def _apply(self, taken: _Taken, sign: int) -> None:
        row, pods, ask, columns, milli, mib = taken
        self.clock += 1
        self._changed[row] = self.clock
        free, gpus = self._free[row], self._gpus[row]
        free[PODS] += sign * pods
        if ask.neighbours is not None:
            self.affinity_counts.change(row, ask.neighbours, -sign * pods)
        if ask.cpu_milli:
            free[CPU] += sign * pods * ask.cpu_milli
        if ask.memory_mib:
            free[MEMORY] += sign * pods * ask.memory_mib
        for name, amount in ask.extended:
            if name in self.nodes.extended_names:  # kept space may name a resource that no node has any more
                free[EXTENDED + self.nodes.extended_names.index(name)] += sign * pods * amount
        if len(columns) == 1:  # indexing by one number is four times as quick as by an array of one
            column = columns[0]
            gpus[MILLI, column] += sign * milli[0]
            gpus[MIB, column] += sign * mib[0]
            free[FREE_GPU] += sign * milli[0]
        elif len(columns):
            gpus[MILLI, columns] += sign * milli
            gpus[MIB, columns] += sign * mib
            free[FREE_GPU] += sign * milli.sum()
        if ask.gpus and (ask.gpu_milli < SMALL_MILLI or ask.gpu_mib or ask.least_grade or ask.isolation):
            self._count_tenants(row, ask, columns, -sign if pods > 0 else sign)

    def _count_tenants(self, row: int, ask: Request, columns: Rows, sign: int) -> None:
        """Tell the devices' other tenants of one that has no limits, or demands that they have."""
        for column in columns.tolist():
            milli = ask.gpu_mib * WHOLE_MILLI // max(1, int(self.gpus[row, SIZE, column]))
            self.tenants.change(row, column, ask.beside, milli if ask.gpu_mib else ask.gpu_milli, sign)

    def _charge(self, queue: int, charge: ResourceVector, is_fixed: bool, sign: int) -> None:
        for amounts in (self._used, self._non_preemptible) if is_fixed else (self._used,):
            for above in self.queues.path[queue]:
                used = amounts[above]
                used[0] += sign * charge[0]
                used[1] += sign * charge[1]
                used[2] += sign * charge[2]
                if len(charge) > len(RESOURCES):
                    used[len(RESOURCES) :] += sign * np.array(charge[len(RESOURCES) :], np.int64)


def _request_of(held: Pod | Nomination) -> Request:
    """What a pod holds, or what is kept for one, as far as its node and its neighbours there mind."""
    amounts = Request(held.cpu_milli, held.memory_mib, extended=held.extended, neighbours=held.neighbours)
    milli = min((share.milli for share in held.devices), default=WHOLE_MILLI)
    if not held.beside and milli >= SMALL_MILLI:
        return amounts
    method, grade = "time-slicing" if held.beside == TURNS else "", LIMITED if held.beside == DEMANDS else ""
    return replace(amounts, gpus=len(held.devices), gpu_milli=milli, isolation=method, least_grade=grade)


class Trial:
    """Everything placed inside is undone at the end, unless it is kept."""

    __slots__ = ("_kept", "_mark", "_working")

    def __init__(self, working: WorkingCopy) -> None:
        self._working = working
        self._mark = working.savepoint()
        self._kept = False

    def keep(self) -> None:
        """Let what was placed stand."""
        self._kept = True

    def __enter__(self) -> "Trial":
        return self

    def __exit__(self, *_: object) -> None:
        if not self._kept:
            self._working.rollback(self._mark)
