"""What happened to a workload, as values that are stored.

Tags and field names are in files on disk: they stay as they are.
"""

import msgspec

from kaiwo.model.obstacle import Obstacle
from kaiwo.model.plan import EvictionCause
from kaiwo.model.planned_start import DelayCause
from kaiwo.model.workload_record import PodPlacement


class WaitsInClass(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="queued"):
    """It waits in a class of equal work: what is in the way of the class is in its way."""

    queue: str
    shape: str


class Gated(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="gated"):
    """It may not be tried at all: it is held, waits for others, or backs off."""

    obstacle: Obstacle


class Up(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="up"):
    """It does not wait any more."""


class Planned(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="planned"):
    """It got a planned start, or another one."""

    start_s: int  # 0: it lost its planned start
    nodes: tuple[str, ...] = ()
    after: tuple[str, ...] = ()  # the workloads that it waits for
    delay: DelayCause | None = None  # why it became later
    delayed_by: str = ""


class Evicted(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="evicted"):
    """The scheduler stopped some of its pods."""

    cause: EvictionCause
    pods: int
    beneficiary: str = ""  # for which workload; of a reservation: its name
    user: str = ""  # of the beneficiary
    queue: str = ""
    lost_gpu_s: int = 0  # work that was not saved
    nodes: tuple[str, ...] = ()


class PodsPlaced(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="placed"):
    """Pods run. Stored where the cluster itself keeps no attempts."""

    pods: tuple[PodPlacement, ...]


class Stopped(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="stopped"):
    """Its last pod is gone. Stored where the cluster itself keeps no attempts."""


Happening = WaitsInClass | Gated | Up | Planned | Evicted | PodsPlaced | Stopped
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Happening).decode
decode_obstacle = msgspec.msgpack.Decoder(Obstacle).decode


class LifeKey(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One submission of a name. `number`: its submission, or its time of submission where names are not numbered."""

    workload: str
    number: int


class Begin(msgspec.Struct, frozen=True, gc=False):
    """A submission of a workload, as it began. It has not ended."""

    key: LifeKey
    submitted_s: int
    queue: str = ""
    user: str = ""
    gpu_milli: int = 0  # that it asks for


class End(msgspec.Struct, frozen=True, gc=False):
    """How it ended."""

    key: LifeKey
    ended_s: int
    state: str = ""  # empty: nobody knows how
    exit_code: int = 0
    message: str = ""
    started_s: int = 0
    attempts: int = 0
    held_milli_s: int = 0


class Life(msgspec.Struct, frozen=True, gc=False):
    """What is kept of one submission of a workload."""

    key: LifeKey
    submitted_s: int
    queue: str = ""
    user: str = ""
    gpu_milli: int = 0  # that it asked for
    started_s: int = 0  # the last time; 0: never, or not known
    ended_s: int = 0  # 0: it has not ended
    state: str = ""  # how it ended; empty: it has not, or nobody knows how
    attempts: int = 0
    exit_code: int = 0
    message: str = ""  # why it ended
    evictions: int = 0
    held_milli_s: int = 0  # thousandths of a GPU times seconds that it held
    known_milli_s: int = 0  # of these, with a measured use
    used_milli_s: int = 0  # what it used in them


class Moment(msgspec.Struct, frozen=True, gc=False):
    """Something that happened at a time."""

    at_s: int
    what: Happening


class ClassWait(msgspec.Struct, frozen=True, gc=False):
    """Since when this was the first thing in the way of a class; None: nothing was."""

    at_s: int
    obstacle: Obstacle | None
