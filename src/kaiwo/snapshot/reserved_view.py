"""Which devices reservations close to whom, at one moment.

In:    the live reservations with their places, the time.   Out: per device whether a request may use it.
"""

from typing import NamedTuple

import numpy as np

from kaiwo.model.reservation import Device, Reservation, ReservationPhase
from kaiwo.snapshot.arrays import BoolArray, IntArray, Rows, freeze
from kaiwo.snapshot.nodes import NodeTable

Badge = tuple[tuple[str, ...], int]  # the reservations that work may use, and how long it holds its devices


class Claim(NamedTuple):
    """Where a reservation is: devices by row and column, and the rows of nodes that it has whole."""

    reservation: Reservation
    rows: Rows
    columns: Rows
    whole: Rows

    @property
    def name(self) -> str:
        """Of the reservation."""
        return self.reservation.name


class ReservedView:
    """The devices at one moment, as requests see them. What is worked out for equal passes is kept."""

    def __init__(self, claims: tuple[Claim, ...], now_s: int, shape: tuple[int, int]) -> None:
        self.claims, self.now_s, self._shape = claims, now_s, shape  # the strongest claim first
        self._closed: dict[Badge, tuple[BoolArray, BoolArray]] = {}
        self._turns: dict[tuple[str, ...], IntArray] = {}

    def with_claims(self, claims: tuple[Claim, ...]) -> "ReservedView":
        """The same moment with other places."""
        return ReservedView(claims, self.now_s, self._shape)

    def closed(self, passes: tuple[str, ...], holds_s: int) -> BoolArray:
        """Per device: reserved for others now, or before this work would have gone."""
        return self._masks(passes, holds_s)[0]

    def closed_nodes(self, passes: tuple[str, ...], holds_s: int) -> BoolArray:
        """Per node: reserved whole for others."""
        return self._masks(passes, holds_s)[1]

    def of(self, name: str) -> BoolArray:
        """The devices that an active reservation has."""
        return self.own((name,))

    def own(self, passes: tuple[str, ...]) -> BoolArray:
        """The devices of the active reservations that work with these passes may use."""
        found = np.zeros(self._shape, np.bool_)
        for claim in self.claims:
            if claim.name in passes and self.is_active(claim):
                found[claim.rows, claim.columns] = True
        return found & ~self.closed(passes, 0)

    def turns(self, passes: tuple[str, ...]) -> IntArray:
        """Per device, in which turn to take it: 0 reserved for the work, 1 free for all, 2 soon for others."""
        found = self._turns.get(passes)
        if found is None:
            found = np.ones(self._shape, np.int64)
            for claim in self.claims:
                if claim.name not in passes and claim.reservation.start_s > self.now_s:
                    found[claim.rows, claim.columns] = 2
            found[self.own(passes)] = 0
            freeze(found)
            self._turns[passes] = found
        return found

    def is_active(self, claim: Claim) -> bool:
        """It has begun, and is not over."""
        return claim.reservation.phase(self.now_s) is ReservationPhase.ACTIVE

    def claim(self, name: str) -> Claim | None:
        """The one of that name."""
        return next((claim for claim in self.claims if claim.name == name), None)

    def closes(self, claim: Claim, passes: tuple[str, ...], holds_s: int) -> bool:
        """The claim keeps such work off its devices."""
        if claim.name in passes:
            return False
        phase = claim.reservation.phase(self.now_s)
        is_coming = phase is ReservationPhase.PENDING and self.now_s + holds_s > claim.reservation.start_s
        return phase is ReservationPhase.ACTIVE or is_coming

    def _masks(self, passes: tuple[str, ...], holds_s: int) -> tuple[BoolArray, BoolArray]:
        found = self._closed.get((passes, holds_s))
        if found is None:
            devices, nodes = np.zeros(self._shape, np.bool_), np.zeros(self._shape[0], np.bool_)
            for claim in reversed(self.claims):  # of two active ones the stronger has the last word
                if self.is_active(claim):
                    devices[claim.rows, claim.columns] = nodes[claim.whole] = claim.name not in passes
            for claim in self.claims:
                if not self.is_active(claim) and self.closes(claim, passes, holds_s):
                    devices[claim.rows, claim.columns] = nodes[claim.whole] = True
            freeze(devices)
            freeze(nodes)
            found = self._closed[passes, holds_s] = (devices, nodes)
        return found


def claim_of(reservation: Reservation, nodes: NodeTable) -> Claim:
    """The devices of a reservation that are there, by row and column."""
    rows: list[int] = []
    columns: list[int] = []
    whole = [nodes.row[name] for name in reservation.nodes if name in nodes.row]
    for row in whole:
        rows += [row] * len(nodes.nodes[row].gpus)
        columns += range(len(nodes.nodes[row].gpus))
    for device in reservation.kept:
        for column in columns_of(device, nodes):
            rows.append(nodes.row[device.node])
            columns.append(column)
    return Claim(reservation, np.array(rows, np.intp), np.array(columns, np.intp), np.array(whole, np.intp))


def columns_of(device: Device, nodes: NodeTable) -> list[int]:
    """The columns of a physical GPU: its own, or those of its partitions; none when it is not there."""
    row = nodes.row.get(device.node)
    if row is None:
        return []
    if (column := nodes.column[row].get(device.gpu)) is not None:
        return [column]
    return [column for column, gpu in enumerate(nodes.nodes[row].gpus) if gpu.parent == device.gpu]
