"""One cycle, decided again: what it saw, what it decided, and why there."""

import msgspec


class ScoreTermView(msgspec.Struct, frozen=True):
    """It counts score times weight."""

    name: str
    score: int
    weight: int


class CandidateView(msgspec.Struct, frozen=True):
    """A node that was scored."""

    node: str
    score: int
    terms: list[ScoreTermView]
    words: str  # the same as people read it


class CycleStartView(msgspec.Struct, frozen=True):
    """A pod that was started."""

    workload: str
    pod: str
    node: str
    devices: list[str]  # gpu-0, or gpu-0:500m for a share
    fits: int  # nodes on which it fitted; 0: its place was kept before, and no node was chosen in this cycle
    by_domain: bool  # the domain of the network was chosen first
    candidates: list[CandidateView]  # the chosen node, then the next best


class CycleEvictionView(msgspec.Struct, frozen=True):
    """A pod that was stopped."""

    workload: str
    pod: str
    node: str
    cause: str
    beneficiary: str  # for whom; empty: for nobody


class CycleWaitView(msgspec.Struct, frozen=True):
    """Equal work of one queue whose reasons to wait changed."""

    queue: str
    shape: str
    reasons: list[str]


class CycleDetailView(msgspec.Struct, frozen=True):
    """What a cycle saw and decided. Lists are cut at 200; the numbers of the cycle say how many there were."""

    number: int
    is_same: bool  # decided again, it gives the same plan, byte for byte
    differences: list[str]  # between the code and plugins of then and now
    nodes: int
    waiting: int
    starts: list[CycleStartView]
    evictions: list[CycleEvictionView]
    waits: list[CycleWaitView]
