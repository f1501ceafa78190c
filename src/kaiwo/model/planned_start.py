"""A planned start: when and where a large workload that waits will begin, and what that rests on.

A promise is kept in front of everything that comes later in the order. It moves earlier whenever it can; it moves
later only for a cause that is not backfill, and then it names the cause.
"""

import enum

import msgspec

from kaiwo.model.gpu import Share
from kaiwo.model.workload import Workload


class DelayCause(enum.StrEnum):
    """Why a planned start is later than it was. The codes are API: never renamed, never reused."""

    OVERRAN = "overran"  # work that ran before the promise outlives the time it was said to take
    NODE = "node"  # a node or a device of the place is gone, closed or broken
    OUTRANKED = "outranked"  # more important work of the same queue, or a promise before it, has the place
    TAKEN = "taken"  # reclaim, a reservation or people gave the place to somebody else


class PlannedPod(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Where one pod will be, with all that it takes there."""

    pod: str
    node: str
    devices: tuple[Share, ...] = ()
    cpu_milli: int = 0
    memory_mib: int = 0
    extended: tuple[tuple[str, int], ...] = ()


class PlannedStart(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """The planned start of one waiting workload."""

    workload: str
    start_s: int
    places: tuple[PlannedPod, ...]
    run_s: int = 0  # how long it will run; 0: nobody said
    made_s: int = 0  # when it first had a planned start: of two, the older goes first
    after: tuple[str, ...] = ()  # whose end it waits for: those who leave its place last
    delay: DelayCause | None = None  # of the last time that it became later
    delayed_by: str = ""  # the workload or node that is to blame

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the place, each once."""
        return tuple(sorted({place.node for place in self.places}))


def expected_run_s(workload: Workload) -> int:
    """How long a run takes, as far as anybody knows: its owner's estimate, else what runs like it took, cut at the time
    limit. 0: nobody does."""
    expected_s = workload.estimate_s or workload.learned_s
    return min((time_s for time_s in (expected_s, workload.time_limit_s) if time_s), default=0)


def bounded_run_s(workload: Workload) -> int:
    """After how long it surely makes room, if it has to. 0: perhaps never.

    Work that may be stopped goes at its expected end; of any other only a time limit that is enforced is believed.
    """
    return expected_run_s(workload) if workload.preemptible else workload.time_limit_s
