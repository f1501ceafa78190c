"""The space that reservations take, from when to when: what a planner of future starts has to leave alone.

In:    the picture, the time.   Out: spans of devices, the first to begin first.
"""

from typing import NamedTuple

from kaiwo.snapshot.arrays import Rows
from kaiwo.snapshot.picture import Picture


class Span(NamedTuple):
    """Devices that one reservation has, or will have, between two moments."""

    reservation: str
    rows: Rows  # of nodes, one entry a device
    columns: Rows  # of devices
    from_s: int
    until_s: int


def reserved_space(picture: Picture, now_s: int) -> tuple[Span, ...]:
    """Every live reservation's devices, from now or its start until its end.

    Backfill must never delay a reservation. Nothing that `decide` starts there outlives the beginning of a span unless
    it can be told to go: work that may not be preempted is kept off by `gpus.fit.eligible` when it has no time limit
    that ends before `from_s`, and whatever else runs there is evicted at `from_s`. So a planner that promises a start
    at some time only has to count the devices of a span as not there between `from_s` and `until_s`, for all who do
    not have the reservation's name among their request's `passes`.
    """
    picture.tidy()
    spans = [
        Span(claim.name, claim.rows, claim.columns, max(now_s, claim.reservation.start_s), claim.reservation.until_s)
        for claim in picture.reserved.claims(picture.nodes)
        if claim.reservation.until_s > now_s
    ]
    return tuple(sorted(spans, key=lambda span: (span.from_s, span.reservation)))
