"""Begin and end reservations: pick their GPUs, clear them for their owners, and end allocations that expire.

Good devices stay. A device is replaced as soon as there is a better one if it is gone, broken, on a closed node, named
by a reservation of exact devices, or held by work that cannot be stopped. Whole nodes are filled first. A GPU that is
set aside for another partition mode, or is changing to it, is not broken: it stays, but is seldom picked.
A reservation that asks for more GPUs than there are is probably a mistake: it gets what is free, and stops nobody.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.cycle_state import CycleInput, CycleState, PodKey, earliest_s
from kaiwo.gpus.partitioning.pending_mode_change import pending_change
from kaiwo.model.node import Node
from kaiwo.model.plan import Eviction, EvictionCause
from kaiwo.model.reservation import NEVER_S, PhysicalDevice, PickedDevices, Reservation, ReservationPhase
from kaiwo.model.workload import ACTIVE_PHASES, Pod, Workload, has_required_pods, lost_gpu_s
from kaiwo.snapshot.array_types import Rows
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import Allocation
from kaiwo.snapshot.reserved_devices import DeviceReservation, ReservedDevices, locate_reservation
from kaiwo.snapshot.timed_changes import expired_workloads, next_timed_change_s

MAX_SEARCHES = 16  # in one cycle: each examines every GPU of the cluster
DEVICES_PER_STEP = 32  # examining this many costs about as much as placing a pod
FREE, OCCUPIED, HELD, CLOSED = range(4)  # how good a device is: the lower the better


class ReservationChanges(NamedTuple):
    """What reservations and the passing of time change before any waiting workload is tried."""

    picked: tuple[PickedDevices, ...]
    expired: tuple[str, ...]  # workloads whose allocation ends now
    evictions: tuple[Eviction, ...]
    given_up: tuple[PodKey, ...]  # nominations on devices that are reserved for others now
    look_again_s: int


def apply_reservations(cycle: CycleInput, cycle_state: CycleState) -> ReservationChanges:
    return _ReservationStep(cycle, cycle_state).run()


class _ReservationStep:
    def __init__(self, cycle: CycleInput, cycle_state: CycleState) -> None:
        self._cycle, self._cycle_state, self._state = cycle, cycle_state, cycle.state
        self._picked: list[PickedDevices] = []
        self._evictions: list[Eviction] = []
        self._evicted: set[PodKey] = set()
        self._given_up: list[PodKey] = []
        self._look_again_s = 0

    def run(self) -> ReservationChanges:
        view = self._cycle_state.working.reservations
        if view is not None:
            view = self._pick_places(view)
            for reserved in view.reservations:
                if view.is_active(reserved) and not _exceeds_cluster(self._state, reserved.reservation):
                    self._clear(view, reserved)
        for reservation in self._state.reservations.evicting:
            self._end(reservation)
        expired = tuple(expired_workloads(self._state, self._cycle.now_s))
        for name in expired:
            for pod in self._active_pods(name):
                self._evict(Eviction(name, pod.name, EvictionCause.EXPIRED))
        look_again_s = earliest_s(self._look_again_s, next_timed_change_s(self._state, self._cycle.now_s))
        picked, evictions, given_up = tuple(self._picked), tuple(self._evictions), tuple(self._given_up)
        return ReservationChanges(picked, expired, evictions, given_up, look_again_s)

    def _pick_places(self, view: ReservedDevices) -> ReservedDevices:
        """Choose devices where only a number was given; the rest of the cycle uses the new ones."""
        working, all_reserved = self._cycle_state.working, list(view.reservations)
        fleet = Fleet(self._cycle, (reserved.reservation for reserved in all_reserved))
        moved: list[Rows] = []
        for at in self._searches(fleet, all_reserved):
            reserved = all_reserved[at]
            found = pick(fleet, reserved.reservation)
            self._cycle_state.budget.used += found.steps
            if found.devices != reserved.reservation.picked:
                self._picked.append(PickedDevices(reserved.name, found.devices))
                after = replace(reserved.reservation, picked=found.devices)
                all_reserved[at] = locate_reservation(after, working.nodes)
                fleet.moved(reserved.reservation, after)
                moved.append(np.union1d(reserved.rows, all_reserved[at].rows))
        if not self._picked:
            return view
        fresh = view.with_reservations(tuple(all_reserved))
        working.use_reservations(fresh, moved)
        return fresh

    def _searches(self, fleet: "Fleet", all_reserved: list[DeviceReservation]) -> list[int]:
        """The reservations that need a place, the strongest first. Where there are many, they take turns."""
        wanted = [(at, reserved.reservation) for at, reserved in enumerate(all_reserved) if reserved.reservation.gpus]
        short = [at for at, reservation in wanted if not is_well_placed(fleet, reservation)]
        if len(short) <= MAX_SEARCHES:
            return short
        self._look_again_s = self._cycle.now_s + 1
        first = self._cycle.now_s * MAX_SEARCHES % len(short)
        return (short[first:] + short[:first])[:MAX_SEARCHES]

    def _clear(self, view: ReservedDevices, reserved: DeviceReservation) -> None:
        """Evict from the devices of an active reservation the work of others that may be preempted."""
        state, nodes = self._state, self._cycle_state.working.nodes
        places = set(zip(reserved.rows.tolist(), reserved.columns.tolist(), strict=True))
        whole = set(reserved.whole.tolist())
        affected: dict[str, set[str]] = {}
        for row in sorted({row for row, _ in places} | whole):
            for kind, name, pod in sorted(state.allocations_on.get(nodes.names[row], {})):
                held = state.allocations_on[nodes.names[row]][kind, name, pod]
                workload = state.workloads.get(name)
                columns = [nodes.column[row].get(share.gpu) for share in held.devices]
                is_here = row in whole or any((row, column) in places for column in columns)
                if workload is None or not is_here or not _is_kept_out(state, view, workload, row, columns):
                    continue
                if not isinstance(held, Pod):
                    self._given_up.append((name, pod))
                elif held.phase in ACTIVE_PHASES and workload.preemptible:
                    affected.setdefault(name, set()).add(pod)
        for name in sorted(affected):
            self._evict_pods(state.workloads[name], affected[name], reserved.name)

    def _end(self, reservation: Reservation) -> None:
        """The owner's work that began before the end stops with the reservation, preemptible or not."""
        state, nodes = self._state, self._cycle_state.working.nodes
        reserved = locate_reservation(reservation, nodes)
        for row in sorted(set(reserved.rows.tolist())):
            columns = set(reserved.columns[reserved.rows == row].tolist())
            known = nodes.column[row]
            affected: dict[str, set[str]] = {}
            for held in state.allocations_on.get(nodes.names[row], {}).values():
                workload = state.workloads.get(held.workload)
                if workload is None or not isinstance(held, Pod) or held.phase not in ACTIVE_PHASES:
                    continue
                if held.since_s >= reservation.end_s or not any(known.get(s.gpu) in columns for s in held.devices):
                    continue
                if state.reservations.admits(reservation, workload, state.queue_objects):
                    affected.setdefault(held.workload, set()).add(held.name)
            for name in sorted(affected):
                self._evict_pods(state.workloads[name], affected[name], reservation.name)

    def _evict_pods(self, workload: Workload, pods: Iterable[str], reservation: str) -> None:
        """These pods, or all of them if the workload cannot run without these."""
        up = [pod for pod in self._active_pods(workload.name) if (workload.name, pod.name) not in self._evicted]
        staying = {pod.name for pod in up if pod.name not in pods}
        if not has_required_pods(workload, staying):
            staying = set()
        leaving = [pod for pod in up if pod.name not in staying]
        lost = lost_gpu_s(workload, leaving, self._cycle.now_s, self._cycle.policy.max_restart_cost_s)
        for pod in leaving:
            self._evict(Eviction(workload.name, pod.name, EvictionCause.RESERVATION, reservation, lost))
            lost = 0  # counted once

    def _evict(self, eviction: Eviction) -> None:
        key = (eviction.workload, eviction.pod)
        if key not in self._evicted:
            self._evictions.append(eviction)
            self._evicted.add(key)

    def _active_pods(self, name: str) -> list[Pod]:
        pods = self._state.pods.get(name, {})
        return [pods[pod] for pod in sorted(pods) if pods[pod].phase in ACTIVE_PHASES]


def _exceeds_cluster(state: ClusterState, reservation: Reservation) -> bool:
    is_short = len(reservation.picked) < reservation.gpus
    return is_short and matching_gpus(state.node_objects, reservation) < reservation.gpus


def matching_gpus(nodes: Mapping[str, Node], reservation: Reservation) -> int:
    """The physical GPUs that the reservation could ever have, even if they are broken, closed or reserved now."""
    found = 0
    for node in nodes.values():
        if all(node.labels.get(key) == value for key, value in reservation.node_selector):
            models: dict[str, set[str]] = {}
            for gpu in node.gpus:
                models.setdefault(gpu.parent or gpu.id, set()).add(gpu.model)
            allowed = set(reservation.gpu_models)
            found += sum(1 for each in models.values() if not allowed or each <= allowed)
    return found


def _is_kept_out(
    state: ClusterState, view: ReservedDevices, workload: Workload, row: int, columns: list[int | None]
) -> bool:
    passes = state.reservations.access_of(workload, state.queue_objects).passes
    closed = view.closed(passes, 0)
    is_device_closed = any(column is not None and closed[row, column] for column in columns)
    return is_device_closed or bool(view.closed_nodes(passes, 0)[row])


class Candidate(NamedTuple):
    """A healthy physical GPU; its partitions count as one."""

    device: PhysicalDevice
    at: int  # its position on the node
    models: frozenset[str]
    tenants: tuple[Allocation, ...]
    is_closed: bool  # its node takes no work
    is_changing: bool  # it is set aside for another partition mode


class Fleet:
    """The GPUs of all nodes, and the live reservations that have them; updated while places are picked."""

    def __init__(self, cycle: CycleInput, reservations: Iterable[Reservation]) -> None:
        self.state, self.now_s = cycle.state, cycle.now_s
        self.nodes = cycle.state.node_objects
        self.candidates_on = cache(self._candidates_on)  # by node; for this cycle only
        self._holders: dict[PhysicalDevice, list[Reservation]] = {}
        for each in reservations:
            for device in self._devices(each):
                self._holders.setdefault(device, []).append(each)

    def moved(self, before: Reservation, after: Reservation) -> None:
        for device in self._devices(before):
            self._holders[device].remove(before)
        for device in self._devices(after):
            self._holders.setdefault(device, []).append(after)

    def is_taken(self, device: PhysicalDevice, wanted: Reservation) -> bool:
        """Another reservation has it at the same time."""
        return any(other is not wanted and wanted.overlaps(other) for other in self._holders.get(device, ()))

    def _candidates_on(self, name: str) -> list[Candidate]:
        node = self.nodes[name]
        tenants: dict[str, list[Allocation]] = {}
        for held in self.state.allocations_on.get(name, {}).values():
            for share in held.devices:
                tenants.setdefault(share.gpu, []).append(held)
        is_closed = node.cordoned or not node.ready
        found = []
        for name, columns in _working(node):
            gpus = [node.gpus[at] for at in columns]
            here = tuple(each for gpu in gpus for each in tenants.get(gpu.id, ()))
            models, is_changing = frozenset(gpu.model for gpu in gpus), not all(gpu.healthy for gpu in gpus)
            device = PhysicalDevice(node.name, name)
            found.append(Candidate(device, columns[0], models, here, is_closed, is_changing))
        return found

    def _devices(self, reservation: Reservation) -> Iterator[PhysicalDevice]:
        yield from reservation.kept
        for name in reservation.nodes:
            node = self.nodes.get(name)
            yield from dict.fromkeys(PhysicalDevice(name, gpu.parent or gpu.id) for gpu in (node.gpus if node else ()))


def is_well_placed(fleet: Fleet, reservation: Reservation) -> bool:
    """All the GPUs that it asks for are picked, and still good."""
    return len(reservation.picked) == reservation.gpus == len(_good_devices(fleet, reservation)[0])


class DeviceChoice(NamedTuple):
    """The devices of a reservation, sorted; fewer than it asks for when there are no more."""

    devices: tuple[PhysicalDevice, ...]
    steps: int  # that the search took


def pick(fleet: Fleet, reservation: Reservation) -> DeviceChoice:
    """Keep what is good of its place, and choose the best available for the rest."""
    good, before = _good_devices(fleet, reservation)
    if len(good) >= reservation.gpus:
        return DeviceChoice(_sorted(good[: reservation.gpus]), 0)
    found = [each for each in _usable(fleet, reservation, sorted(fleet.nodes)) if each[0].device not in good]
    devices = _sorted([*good, *_fill(found, before, reservation.gpus - len(good))])
    return DeviceChoice(devices, 1 + len(found) // DEVICES_PER_STEP)


def _good_devices(fleet: Fleet, reservation: Reservation) -> tuple[list[PhysicalDevice], set[PhysicalDevice]]:
    """The picked devices that will be free in time, and all of them that could still be used."""
    places = sorted({device.node for device in reservation.picked} & fleet.nodes.keys())
    usable = _usable(fleet, reservation, places)
    before = {each.device: quality for each, quality in usable if each.device in reservation.picked}
    return [device for device, quality in before.items() if quality <= OCCUPIED], set(before)


def _fill(found: list[tuple[Candidate, int]], before: set[PhysicalDevice], missing: int) -> Iterator[PhysicalDevice]:
    """By quality; of equal ones those picked before, then as few nodes as possible."""
    for quality in (FREE, OCCUPIED, HELD, CLOSED):
        left = [each for each, found_quality in found if found_quality == quality] if missing else []
        by_node: dict[str, list[PhysicalDevice]] = {}
        for each in sorted(left, key=lambda each: (each.device not in before, each.at)):
            by_node.setdefault(each.device.node, []).append(each.device)
        while missing and by_node:
            node = min(by_node, key=lambda name: _node_rank(by_node[name], missing, before, name))
            chosen = by_node.pop(node)[:missing]
            missing -= len(chosen)
            yield from chosen


def _node_rank(
    devices: list[PhysicalDevice], missing: int, before: set[PhysicalDevice], name: str
) -> tuple[bool, bool, int, str]:
    """First nodes picked before; then the smallest node that has all missing devices; then the largest."""
    has_all = len(devices) >= missing
    return (devices[0] not in before, not has_all, len(devices) if has_all else -len(devices), name)


def _usable(fleet: Fleet, wanted: Reservation, nodes: list[str]) -> Iterator[tuple[Candidate, int]]:
    """The devices that the reservation could have, and how good each is for it."""
    is_active = wanted.phase(fleet.now_s) is ReservationPhase.ACTIVE
    for name in nodes:
        labels = fleet.nodes[name].labels
        if any(labels.get(key) != value for key, value in wanted.node_selector):
            continue
        for each in fleet.candidates_on(name):
            if wanted.gpu_models and not each.models <= set(wanted.gpu_models):
                continue
            if fleet.is_taken(each.device, wanted):
                continue
            quality = CLOSED if each.is_closed else _quality(fleet.state, wanted, each.tenants, is_active)
            # A device that it already has may be changing for its owner; any other is changing for other work.
            yield each, max(quality, HELD) if each.is_changing and each.device not in wanted.picked else quality


def _quality(state: ClusterState, wanted: Reservation, tenants: tuple[Allocation, ...], is_active: bool) -> int:
    """Whether its tenants are gone by the start, can be stopped, or stay."""
    worst = FREE
    for held in tenants:
        workload = state.workloads.get(held.workload)
        if workload is not None and state.reservations.admits(wanted, workload, state.queue_objects):
            continue
        stays = isinstance(held, Pod)
        if isinstance(held, Pod) and workload is not None:
            ends_s = held.since_s + workload.time_limit_s if workload.time_limit_s else NEVER_S
            stays = not workload.preemptible and ends_s > wanted.start_s
        # Before the start, tenants that can be stopped do not matter; once it is active, an empty device is better.
        worst = max(worst, HELD if stays else OCCUPIED if is_active else FREE)
    return worst


def _working(node: Node) -> Iterator[tuple[str, list[int]]]:
    """The physical GPUs of a node whose parts all work, with the positions of those parts."""
    parts: dict[str, list[int]] = {}
    for at, gpu in enumerate(node.gpus):
        parts.setdefault(gpu.parent or gpu.id, []).append(at)
    for name, columns in parts.items():
        if all(node.gpus[at].healthy or pending_change(node.gpus[at]) is not None for at in columns):
            yield name, columns


def _sorted(devices: list[PhysicalDevice]) -> tuple[PhysicalDevice, ...]:
    return tuple(sorted(devices, key=lambda device: (device.node, device.gpu)))
