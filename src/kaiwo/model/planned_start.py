"""A planned start: when and where a large waiting workload will start, and what that depends on.

A planned start has precedence over everything later in the order. It moves earlier whenever possible; it moves later
only for a cause other than backfill, which it then names.
"""

import enum

import msgspec

from kaiwo.model.gpus.gpu import Share
from kaiwo.model.workload import Workload


class DelayCause(enum.StrEnum):
    """Why a planned start is later than it was. The codes are API: never renamed, never reused."""

    OVERRAN = "overran"  # work that was already running takes longer than expected
    NODE = "node"  # a node or device of the place is gone, closed or broken
    OUTRANKED = "outranked"  # more important work of its queue, or an earlier planned start, has the place
    TAKEN = "taken"  # reclaim, a reservation or a person gave the place to other work


class PlannedPod(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    pod: str
    node: str
    devices: tuple[Share, ...] = ()
    cpu_milli: int = 0
    memory_mib: int = 0
    extended: tuple[tuple[str, int], ...] = ()


class PlannedStart(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    workload: str
    start_s: int
    places: tuple[PlannedPod, ...]
    run_s: int = 0  # expected run time; 0: unknown
    made_s: int = 0  # when it first had a planned start: the older one has precedence
    after: tuple[str, ...] = ()  # the workloads it waits for: the last to leave its place
    delay: DelayCause | None = None  # why it last became later
    delayed_by: str = ""  # the workload or node that caused it
    is_overdue: bool = False  # it waited too long: no other work starts on its place, however important

    @property
    def is_time_known(self) -> bool:
        """Overdue work may wait on its place for work of unknown run time."""
        return not self.is_overdue or self.start_s > self.made_s

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(sorted({place.node for place in self.places}))


def expected_run_s(workload: Workload) -> int:
    """The expected run time: the owner's estimate, else what similar runs took, cut at the time limit. 0: unknown."""
    expected_s = workload.estimate_s or workload.learned_s
    return min((time_s for time_s in (expected_s, workload.time_limit_s) if time_s), default=0)


def bounded_run_s(workload: Workload) -> int:
    """After how long it surely makes room for others. 0: perhaps never.

    Preemptible work can be stopped at its expected end; for other work only an enforced time limit counts.
    """
    return expected_run_s(workload) if workload.preemptible else workload.time_limit_s
