"""This cycle's working copy: place pods on it, and undo what did not work out.

In:    one Snapshot.   Out: the same arrays, less this cycle's placements.
Never: changes the snapshot. Leaving a trial without keep() restores every amount exactly.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from msgspec.structs import replace

from kaiwo.model.gpus.gpu import DEMANDS_LIMITS, MIN_LIMITED_GRADE, SMALL_MILLI, TAKES_TURNS, WHOLE_MILLI
from kaiwo.model.plan import Nomination
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod
from kaiwo.snapshot.array_types import IntArray, Rows, read_only
from kaiwo.snapshot.node_table import CPU, EXTENDED, FREE_GPU, MEMORY, MIB, MILLI, PODS, SIZE, USABLE, DeviceTenants
from kaiwo.snapshot.pod_affinity_counts import WorkingAffinityCounts
from kaiwo.snapshot.queue_table import RESOURCES, ResourceVector
from kaiwo.snapshot.reserved_devices import ReservedDevices
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.view import View, tenant_counts

# node row, pods, request, device columns, milli and MiB taken of each
_Taken = tuple[int, int, Request, Rows, IntArray, IntArray]


class PodMove(NamedTuple):
    """Pods of a workload of several pods that were placed (+1) or released (-1), by the rows of their nodes."""

    workload: str
    rows: tuple[int, ...]
    sign: int


# How long the logs of taken, charged and moved were. A plain tuple: every turn of a single pod makes one.
Savepoint: TypeAlias = tuple[int, int, int]


class WorkingCopy:
    """The cycle's own amounts. `view` shows them read-only; the methods here change them."""

    def __init__(self, snapshot: Snapshot) -> None:
        state = snapshot.read()
        nodes, queues = state.nodes, state.queues
        self.affinity_counts = WorkingAffinityCounts(state.affinity_counts, nodes)
        self._releasing = [state.pods[workload][pod] for workload, pod in sorted(state.releasing)]
        amounts = (nodes.free.copy(), nodes.gpus.copy(), nodes.changed.copy())
        self._begin(
            _fixed(snapshot), amounts, (queues.all_used.copy(), queues.all_non_preemptible.copy()), nodes.tenants.copy()
        )

    def _begin(
        self,
        fixed: dict[str, Any],
        amounts: tuple[IntArray, IntArray, IntArray],
        charges: tuple[IntArray, IntArray],
        tenants: DeviceTenants,
    ) -> None:
        self._free, self._gpus, self._changed = amounts
        self._used, self._non_preemptible = charges
        self._tenants = tenants  # for shares that demand isolation
        self.free, self.gpus = read_only(self._free), read_only(self._gpus)
        self.all_used, self.all_non_preemptible = read_only(self._used), read_only(self._non_preemptible)
        shown = {
            "free": self.free,
            "gpus": self.gpus,
            "changed": read_only(self._changed),
            "all_used": self.all_used,
            "all_non_preemptible": self.all_non_preemptible,
            "tenants": tenant_counts(tenants),
        }
        self.view = View(fixed | shown)
        self._shown = vars(self.view)  # a view cannot be written through its attributes
        self.nodes, self.queues, self.now_s = self.view.nodes, self.view.queues, self.view.now_s
        self._taken: list[_Taken] = []
        self._charged: list[tuple[int, ResourceVector, bool]] = []
        self._releasing_amounts: tuple[Rows, IntArray, IntArray] | None = None
        self.moves: list[PodMove] = []  # in the order of placement; kept only where there is a topology
        self.follows_moves = bool(self.nodes.topologies.by_name)

    @property
    def reservations(self) -> ReservedDevices | None:
        """None: nothing is reserved."""
        return self.view.reservations

    def use_reservations(self, reservations: ReservedDevices, moved: Sequence[Rows]) -> None:
        """Continue with other reserved devices; the nodes of each moved reservation have changed."""
        self._shown["reservations"] = reservations
        for rows in moved:
            self._mark_changed(rows)

    def _mark_changed(self, rows: Rows) -> None:
        clock = self._shown["clock"] = self._shown["clock"] + 1
        self._changed[rows] = clock

    def as_of(self, at_s: int, free: IntArray, gpus: IntArray) -> "WorkingCopy":
        """A copy at another time, with these amounts on the nodes and nothing reserved."""
        other = object.__new__(WorkingCopy)
        other.affinity_counts, other._releasing = self.affinity_counts, []
        fixed = self._shown | {"now_s": at_s, "reservations": None, "_derived": {}}
        charges = (self._used.copy(), self._non_preemptible.copy())
        other._begin(fixed, (free, gpus, self._changed.copy()), charges, self._tenants.copy())
        other.moves = list(self.moves)
        return other

    def take(self, row: int, pods: int, want: Request, columns: Rows, milli: IntArray, mib: IntArray) -> None:
        """Place `pods` equal pods on a node; the columns are those of all of them together, each at most once."""
        self._apply((row, pods, want, columns, milli, mib), -1)
        self._taken.append((row, pods, want, columns, milli, mib))

    def release(self, held: Pod | Nomination, queue: int, is_non_preemptible: bool) -> None:
        """Free, inside a trial, what a pod or nomination holds; its queue is no longer charged."""
        milli = sum(share.charge_milli for share in held.devices)
        charge: ResourceVector = (-milli, -held.cpu_milli, -held.memory_mib)
        if self.queues.models:
            charge += tuple(-each for each in self.view.milli_by_model(held.node, held.devices))
        self.charge(queue, charge, is_non_preemptible)
        self.release_uncharged(held)

    def move(self, workload: str, rows: Sequence[int], sign: int) -> None:
        """Record that pods of a workload come to these nodes or leave them: their traffic does, too."""
        if self.follows_moves and rows:
            self.moves.append(PodMove(workload, tuple(rows), sign))

    def release_uncharged(self, held: Pod | Nomination) -> None:
        """Free, inside a trial, what a pod holds that is leaving already: no queue is charged for it."""
        row = self.nodes.row.get(held.node)
        if row is None:
            return
        self.move(held.workload, (row,), -1)
        column = self.nodes.column[row]
        usable = self.gpus[row, USABLE]
        # A device that has failed meanwhile frees nothing.
        shares = [share for share in held.devices if share.gpu in column and usable[column[share.gpu]]]
        columns = np.array([column[share.gpu] for share in shares], np.intp)
        milli = np.array([-share.milli for share in shares], np.int64)
        mib = np.array([-share.mib for share in shares], np.int64)
        self.take(row, -1, self._request_of(held), columns, milli, mib)

    def hold(self, kept: Nomination) -> None:
        """Take what `release_uncharged` freed of a nomination, even where other pods use it by now."""
        row = self.nodes.row.get(kept.node)
        if row is None:
            return
        column, usable = self.nodes.column[row], self.gpus[row, USABLE]
        shares = [share for share in kept.devices if share.gpu in column and usable[column[share.gpu]]]
        columns = np.array([column[share.gpu] for share in shares], np.intp)
        milli = np.array([share.milli for share in shares], np.int64)
        self.move(kept.workload, (row,), +1)
        self.take(row, 1, self._request_of(kept), columns, milli, np.array([share.mib for share in shares], np.int64))

    @property
    def has_releasing_pods(self) -> bool:
        return bool(self._releasing)

    def count_releasing(self, sign: int) -> None:
        """From now on the space of leaving pods counts as free (+1), or no longer (-1). Trials do not undo it."""
        if self._releasing_amounts is None:
            self._releasing_amounts = self._sum_releasing()
        rows, free, gpus = self._releasing_amounts
        self._free[rows] += sign * free
        self._gpus[rows, : MIB + 1] += sign * gpus
        self._mark_changed(rows)
        for pod in self._releasing:
            row = self.nodes.row.get(pod.node)
            if row is None:
                continue
            self.move(pod.workload, (row,), -sign)
            if pod.neighbours is not None:
                self.affinity_counts.change(row, pod.neighbours, -sign)
            tenant = self.view.tenant_of(pod)
            for share in pod.devices:
                if share.gpu in self.nodes.column[row]:
                    column = self.nodes.column[row][share.gpu]
                    self._tenants.change(row, column, pod.beside, share.milli, -sign)
                    if tenant is not None and self._tenants.shared is not None:
                        self._tenants.shared.change(row, column, tenant, -sign)

    def _sum_releasing(self) -> tuple[Rows, IntArray, IntArray]:
        before = self.free.copy(), self.gpus.copy()
        savepoint = self.savepoint()
        for pod in self._releasing:
            self.release_uncharged(pod)
        nodes = {pod.node for pod in self._releasing}
        rows = np.array(sorted(self.nodes.row[node] for node in nodes if node in self.nodes.row), np.intp)
        free, gpus = (self.free - before[0])[rows], (self.gpus - before[1])[rows, : MIB + 1]
        self.rollback(savepoint)
        return rows, free, gpus

    def restore(self, pod: Pod, queue: int) -> bool:
        """Give a pod what `release` took from it, if all of that is still free."""
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
        self.move(pod.workload, (row,), +1)
        self.take(row, 1, self._request_of(pod), columns, milli, mib)
        charged = sum(share.charge_milli for share in pod.devices)
        charge: ResourceVector = (charged, pod.cpu_milli, pod.memory_mib)
        if self.queues.models:
            charge += self.view.milli_by_model(pod.node, pod.devices)
        self.charge(queue, charge)
        return True

    def charge(self, queue: int, charge: ResourceVector, is_non_preemptible: bool = False) -> None:
        self._charge(queue, charge, is_non_preemptible, +1)
        self._charged.append((queue, charge, is_non_preemptible))

    def trial(self) -> "Trial":
        """`with working.trial() as attempt: ...; attempt.keep()`."""
        return Trial(self)

    def savepoint(self) -> Savepoint:
        return len(self._taken), len(self._charged), len(self.moves)

    def rollback(self, savepoint: Savepoint) -> None:
        """Undo everything since the savepoint, last first."""
        taken, charged, moved = savepoint
        del self.moves[moved:]
        while len(self._taken) > taken:
            self._apply(self._taken.pop(), +1)
        while len(self._charged) > charged:
            queue, charge, is_non_preemptible = self._charged.pop()
            self._charge(queue, charge, is_non_preemptible, -1)

    def _apply(self, taken: _Taken, sign: int) -> None:
        row, pods, want, columns, milli, mib = taken
        shown = self._shown
        clock = shown["clock"] = shown["clock"] + 1
        self._changed[row] = clock
        free, gpus = self._free[row], self._gpus[row]
        free[PODS] += sign * pods
        if want.neighbours is not None:
            self.affinity_counts.change(row, want.neighbours, -sign * pods)
        if want.cpu_milli:
            free[CPU] += sign * pods * want.cpu_milli
        if want.memory_mib:
            free[MEMORY] += sign * pods * want.memory_mib
        for name, amount in want.extended:
            if name in self.nodes.extended_names:  # a nomination may name a resource that no node has any more
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
        if want.gpus and (
            want.gpu_milli < SMALL_MILLI or want.gpu_mib or want.least_grade or want.isolation or want.tenant
        ):
            self._count_tenants(row, want, columns, -sign if pods > 0 else sign)

    def _count_tenants(self, row: int, want: Request, columns: Rows, sign: int) -> None:
        """Count tenants that have no limits, demand that others have them, or have rules about sharing."""
        for column in columns.tolist():
            milli = want.milli_on(int(self.gpus[row, SIZE, column])) if want.gpu_mib else want.gpu_milli
            self._tenants.change(row, column, want.beside, milli, sign)
            if want.tenant is not None and self._tenants.shared is not None:
                self._tenants.shared.change(row, column, want.tenant, sign)

    def _request_of(self, held: Pod | Nomination) -> Request:
        """What a pod or nomination holds, as far as its node and its neighbours are concerned."""
        amounts = Request(held.cpu_milli, held.memory_mib, extended=held.extended, neighbours=held.neighbours)
        milli = min((share.milli for share in held.devices), default=WHOLE_MILLI)
        tenant = self.view.tenant_of(held)
        if not held.beside and milli >= SMALL_MILLI and tenant is None:
            return amounts
        method = "time-slicing" if held.beside == TAKES_TURNS else ""
        grade = MIN_LIMITED_GRADE if held.beside == DEMANDS_LIMITS else ""
        shares = replace(amounts, gpus=len(held.devices), gpu_milli=milli, isolation=method, least_grade=grade)
        return shares if tenant is None else replace(shares, tenant=tenant)

    def _charge(self, queue: int, charge: ResourceVector, is_non_preemptible: bool, sign: int) -> None:
        for amounts in (self._used, self._non_preemptible) if is_non_preemptible else (self._used,):
            for above in self.queues.path[queue]:
                used = amounts[above]
                used[0] += sign * charge[0]
                used[1] += sign * charge[1]
                used[2] += sign * charge[2]
                if len(charge) > len(RESOURCES):
                    used[len(RESOURCES) :] += sign * np.array(charge[len(RESOURCES) :], np.int64)


def start_view(snapshot: Snapshot) -> View:
    """What a cycle begins with. It shares the arrays of the state, which nobody changes while a cycle decides."""
    fixed, tenants = _fixed(snapshot), snapshot.read().nodes.tenants
    nodes, queues = fixed["nodes"], fixed["queues"]
    shown = {"free": nodes.free, "gpus": nodes.gpus, "changed": nodes.changed, "tenants": tenant_counts(tenants)}
    used = {"all_used": queues.all_used, "all_non_preemptible": queues.all_non_preemptible}
    return View(fixed | shown | used | {"is_start": True})


def _fixed(snapshot: Snapshot) -> dict[str, Any]:
    """What a view shows and no placement changes."""
    state = snapshot.read()
    return {
        "nodes": state.nodes.read_only(),
        "queues": state.queues.read_only(),
        "queue_demand": MappingProxyType(state.backlog.queue_demand()),
        "past_usage": state.past_usage,
        "prices": state.prices,
        "node_failures": MappingProxyType(state.node_failures.weights),
        "node_speeds": MappingProxyType(state.speeds.nodes),
        "measured_ports": MappingProxyType(state.ports),
        "gpu_loads": MappingProxyType(state.gpu_loads),
        "pools": MappingProxyType(state.pools),
        "_state": state,
        "_derived": {},
        "clock": state.version,
        "now_s": snapshot.now_s,
        "reservations": state.reservations.view(snapshot.now_s, state.nodes),
    }


class Trial:
    """Everything placed inside is undone at the end, unless it is kept."""

    __slots__ = ("_kept", "_savepoint", "_working")

    def __init__(self, working: WorkingCopy) -> None:
        self._working = working
        self._savepoint = working.savepoint()
        self._kept = False

    def keep(self) -> None:
        self._kept = True

    def __enter__(self) -> "Trial":
        return self

    def __exit__(self, *_: object) -> None:
        if not self._kept:
            self._working.rollback(self._savepoint)
