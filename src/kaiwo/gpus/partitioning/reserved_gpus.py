"""Find the GPUs that reservations keep from waiting workloads, so that they are not repartitioned for them.

A reservation is of physical GPUs: it stays the same when a GPU is repartitioned.
"""

from collections.abc import Sequence

from kaiwo.gpus.partitioning.planner_types import GpuKey, NodeState
from kaiwo.model.request import Request
from kaiwo.snapshot.reserved_devices import DeviceReservation, ReservedDevices


class ReservedGpus:
    """Cached by what decides it: the reservation, passes and hold time of a request."""

    def __init__(self, reserved: ReservedDevices | None, nodes: Sequence[NodeState]) -> None:
        self._reserved = reserved
        self._of_node = {node.name: [(node.name, gpu.id) for gpu in node.gpus] for node in nodes}
        self._known: dict[tuple[str, tuple[str, ...], int], frozenset[GpuKey]] = {}

    def reserved_from(self, want: Request) -> frozenset[GpuKey]:
        """GPUs that are reserved for others; for a request that names a reservation, all GPUs outside it."""
        if self._reserved is None and not want.reservation:
            return frozenset()
        key = (want.reservation, want.passes, want.holds_s)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = frozenset(self._closed(want) | self._outside(want))
        return found

    def _closed(self, want: Request) -> set[GpuKey]:
        closed: set[GpuKey] = set()
        if self._reserved is None:
            return closed
        claims = self._reserved.reservations
        for claim in reversed(claims):  # of two active ones the stronger decides
            if self._reserved.is_active(claim):
                closed = closed - self._gpus(claim) if claim.name in want.passes else closed | self._gpus(claim)
        for claim in claims:
            if not self._reserved.is_active(claim) and self._reserved.closes(claim, want.passes, want.holds_s):
                closed |= self._gpus(claim)
        return closed

    def _outside(self, want: Request) -> set[GpuKey]:
        if not want.reservation:
            return set()
        claim = self._reserved.find(want.reservation) if self._reserved is not None else None
        own = self._gpus(claim) if claim is not None and want.reservation in want.passes else set()
        return {key for keys in self._of_node.values() for key in keys} - own

    def _gpus(self, claim: DeviceReservation) -> set[GpuKey]:
        whole = {key for name in claim.reservation.nodes for key in self._of_node.get(name, ())}
        return whole | {(device.node, device.gpu) for device in claim.reservation.kept}
