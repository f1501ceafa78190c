"""Plans of moves, and the run that carries one out."""

import msgspec

from kaiwo.api.views.fragments import KindRoomView


class DefragmentationForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the moves are for. Name at most one of `workload`, `free_nodes` and `balance`; none: all waiting work."""

    workload: str = ""  # make room for it
    free_nodes: int = 0  # this many nodes without work, with those that have none already
    balance: bool = False  # even out the load of the nodes
    most_moves: int = 0  # 0: at most 8 % of the running pods
    plan: str = ""  # to run exactly this plan; then name nothing else


class MoveView(msgspec.Struct, frozen=True):
    """One running pod that changes its place, and how far that is."""

    workload: str
    pod: str
    source: str  # the node that it leaves
    node: str
    gpus: list[str]
    lost_gpu_hours: float  # work since its last checkpoint, of its whole gang if that cannot go on without it
    state: str = ""  # waiting | moving | moved | ended | unplaced | kept
    since_s: int = 0
    until_s: int = 0


class MovePlaceView(msgspec.Struct, frozen=True):
    """The place of a waiting pod."""

    workload: str
    pod: str
    node: str
    gpus: list[str]


class MoveStepView(msgspec.Struct, frozen=True):
    """Moves that belong together, and what they are for."""

    number: int
    moves: list[MoveView]
    starts: list[MovePlaceView]  # the waiting pods that get room
    gained_gpu_milli: int
    frees: str  # the node that has no work afterwards
    reason: str = ""  # why it, or what is left of it, was not made


class KeptWorkView(msgspec.Struct, frozen=True):
    """Running work that is not moved, and why."""

    workload: str
    gpu_milli: int
    reason: str  # a code
    sentence: str


class MoveLimitsView(msgspec.Struct, frozen=True):
    """The policy's limits for a run."""

    hours: list[str]  # UTC; none: at any time
    at_once: int
    per_hour: int


class MovePlanView(msgspec.Struct, frozen=True):
    """What moves would bring, and what they cost. Nothing was changed."""

    name: str
    as_of_s: int
    goal: str
    moves: int
    moved_percent: float  # of the running pods
    lost_gpu_hours: float
    least_s: int  # the limits let the run take no less
    gpu_milli: int  # of all usable GPUs
    used_before_milli: int
    used_after_milli: int
    running: int  # pods
    movable: int  # of these
    waiting: int  # pods or workloads that were looked at
    is_smallest: bool  # no fewer moves would do: every smaller set was tried
    is_cut_short: bool  # the search ended before everything was tried
    free_nodes: list[str]  # without work now
    load_gap: list[float]  # the highest load of a node less the mean, before and after; empty: not asked for
    steps: list[MoveStepView]
    kept: list[KeptWorkView]  # running work that does not move, the largest first
    kinds: list[KindRoomView]  # requests that cannot use what is free
    limits: MoveLimitsView
    message: str


class MoveRunView(msgspec.Struct, frozen=True):
    """A plan that is or was carried out."""

    name: str
    goal: str
    state: str  # running | aborting | done | aborted
    by: str
    begun_s: int
    ended_s: int
    moves: int
    moved: int
    moving: int
    waiting: int
    not_moved: int
    steps: list[MoveStepView]


class DefragmentationView(msgspec.Struct, frozen=True):
    """The last run of moves, and the limits of runs."""

    as_of_s: int
    run: MoveRunView | None  # the last one; None: nothing has run yet
    limits: MoveLimitsView
    message: str
