"""Pick the GPUs of a reservation that gives only a number, and keep the place.

In:    the desk, a reservation, what the other live ones have.   Out: its devices, sorted; fewer when there are no more.
A place that is good stays. A device that is gone, broken, on a closed node, named by a reservation of exact devices, or
held by somebody who cannot be told to go, is exchanged as soon as a better one is there. Whole nodes are filled first.
A GPU that is closed for another partition mode, or changes to it, is not broken: it stays, and is hardly picked anew.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from kaiwo.decide.desk import Desk
from kaiwo.gpus.closing import change_of
from kaiwo.model.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.reservation import ENDLESS_S, Device, Reservation, ReservationPhase
from kaiwo.model.workload import Pod, Workload
from kaiwo.snapshot.nodes import Held

FREE, OCCUPIED, HELD, CLOSED = range(4)  # how good a device is: the lower the better
DEVICES_A_STEP = 32  # looking at so many costs about as much as placing a pod


class Candidate(NamedTuple):
    """A physical GPU that works, with its partitions as one."""

    device: Device
    at: int  # its position on the node
    models: frozenset[str]
    tenants: tuple[Held, ...]
    is_closed: bool  # its node takes no work
    is_changing: bool  # it is set aside for another partition mode


class Fleet:
    """The GPUs of all nodes, and which live reservations have them: kept along while places are picked."""

    def __init__(self, desk: Desk, reservations: Iterable[Reservation]) -> None:
        self.desk = desk
        self.nodes = desk.picture.node_objects
        self.on = cache(self._on)  # by node; for this cycle only
        self._holders: dict[Device, list[Reservation]] = {}
        for each in reservations:
            for device in self._devices(each):
                self._holders.setdefault(device, []).append(each)

    def moved(self, before: Reservation, after: Reservation) -> None:
        """A reservation has other devices now."""
        for device in self._devices(before):
            self._holders[device].remove(before)
        for device in self._devices(after):
            self._holders.setdefault(device, []).append(after)

    def is_taken(self, device: Device, wanted: Reservation) -> bool:
        """Another one has it at the same time."""
        return any(other is not wanted and wanted.overlaps(other) for other in self._holders.get(device, ()))

    def _on(self, name: str) -> list[Candidate]:
        node = self.nodes[name]
        tenants: dict[str, list[Held]] = {}
        for held in self.desk.picture.held_on.get(name, {}).values():
            for share in held.devices:
                tenants.setdefault(share.gpu, []).append(held)
        is_closed = node.cordoned or not node.ready
        return [_candidate(node, gpu, columns, tenants, is_closed) for gpu, columns in _working(node)]

    def _devices(self, reservation: Reservation) -> Iterator[Device]:
        yield from reservation.kept
        for name in reservation.nodes:
            node = self.nodes.get(name)
            yield from dict.fromkeys(Device(name, gpu.parent or gpu.id) for gpu in (node.gpus if node else ()))


def is_well_placed(fleet: Fleet, reservation: Reservation) -> bool:
    """All that it asks for was picked, and is as good as it was."""
    return len(reservation.picked) == reservation.gpus == len(_good(fleet, reservation)[0])


def pick(fleet: Fleet, reservation: Reservation) -> tuple[Device, ...]:
    """What is good of the place that it has, and the best that there is for the rest."""
    good, before = _good(fleet, reservation)
    if len(good) >= reservation.gpus:
        return _sorted(good[: reservation.gpus])
    found = [each for each in _usable(fleet, reservation, sorted(fleet.nodes)) if each[0].device not in good]
    fleet.desk.steps += 1 + len(found) // DEVICES_A_STEP
    return _sorted([*good, *_fill(found, before, reservation.gpus - len(good))])


def _good(fleet: Fleet, reservation: Reservation) -> tuple[list[Device], set[Device]]:
    """Of the devices that were picked: those that nobody is in the way of, and all that could still be had."""
    places = sorted({device.node for device in reservation.picked} & fleet.nodes.keys())
    before = {
        each.device: quality
        for each, quality in _usable(fleet, reservation, places)
        if each.device in reservation.picked
    }
    return [device for device, quality in before.items() if quality <= OCCUPIED], set(before)


def _fill(found: list[tuple[Candidate, int]], before: set[Device], missing: int) -> Iterator[Device]:
    """By quality; of equal ones what was picked before, then as few nodes as will do."""
    for quality in (FREE, OCCUPIED, HELD, CLOSED):
        left = [each for each, its in found if its == quality] if missing else []
        by_node: dict[str, list[Device]] = {}
        for each in sorted(left, key=lambda each: (each.device not in before, each.at)):
            by_node.setdefault(each.device.node, []).append(each.device)
        while missing and by_node:
            node = min(by_node, key=lambda name: _suits(by_node[name], missing, before, name))
            chosen = by_node.pop(node)[:missing]
            missing -= len(chosen)
            yield from chosen


def _suits(devices: list[Device], missing: int, before: set[Device], name: str) -> tuple[bool, bool, int, str]:
    """Where it was before; else the smallest node that has them all, else the largest."""
    has_all = len(devices) >= missing
    return (devices[0] not in before, not has_all, len(devices) if has_all else -len(devices), name)


def _usable(fleet: Fleet, wanted: Reservation, nodes: list[str]) -> Iterator[tuple[Candidate, int]]:
    """The devices that the reservation could have, and how good each is for it."""
    is_active = wanted.phase(fleet.desk.working.now_s) is ReservationPhase.ACTIVE
    for name in nodes:
        labels = fleet.nodes[name].labels
        if any(labels.get(key) != value for key, value in wanted.node_selector):
            continue
        for each in fleet.on(name):
            if wanted.gpu_models and not each.models <= set(wanted.gpu_models):
                continue
            if fleet.is_taken(each.device, wanted):
                continue
            quality = CLOSED if each.is_closed else _quality(fleet.desk, wanted, each.tenants, is_active)
            # One that it has already may well change for its owner; one that it has not changes for somebody else.
            yield each, max(quality, HELD) if each.is_changing and each.device not in wanted.picked else quality


def _quality(desk: Desk, wanted: Reservation, tenants: tuple[Held, ...], is_active: bool) -> int:
    """Whether its tenants are gone by the start, can be told to go, or stay."""
    worst = FREE
    for held in tenants:
        workload = desk.picture.workloads.get(held.workload)
        if workload is not None and desk.picture.reserved.is_owners(wanted, workload, desk.picture.queue_objects):
            continue
        stays = workload is None or (not workload.preemptible and _ends_s(held, workload) > wanted.start_s)
        # Who runs where long before the start says nothing; at the start fewer have to go from an empty device.
        worst = max(worst, HELD if stays and isinstance(held, Pod) else OCCUPIED if is_active else FREE)
    return worst


def _ends_s(pod: Held, workload: Workload) -> int:
    if not isinstance(pod, Pod) or not workload.time_limit_s:
        return ENDLESS_S
    return pod.since_s + workload.time_limit_s


def _working(node: Node) -> Iterator[tuple[str, list[int]]]:
    """The physical GPUs of a node of which every part works, with the positions of their parts."""
    parts: dict[str, list[int]] = {}
    for at, gpu in enumerate(node.gpus):
        parts.setdefault(gpu.parent or gpu.id, []).append(at)
    return ((name, columns) for name, columns in parts.items() if all(_works(node.gpus[at]) for at in columns))


def _works(gpu: Gpu) -> bool:
    return gpu.healthy or bool(change_of(gpu))


def _candidate(node: Node, name: str, columns: list[int], tenants: dict[str, list[Held]], is_closed: bool) -> Candidate:
    gpus = [node.gpus[at] for at in columns]
    held = tuple(each for gpu in gpus for each in tenants.get(gpu.id, ()))
    models, is_changing = frozenset(gpu.model for gpu in gpus), not all(gpu.healthy for gpu in gpus)
    return Candidate(Device(node.name, name), columns[0], models, held, is_closed, is_changing)


def _sorted(devices: list[Device]) -> tuple[Device, ...]:
    return tuple(sorted(devices, key=lambda device: (device.node, device.gpu)))
