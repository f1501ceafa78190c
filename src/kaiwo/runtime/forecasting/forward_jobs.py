"""What a worker is asked to run forward, and what it answers."""

import msgspec

from kaiwo.forecast.expected_starts import ExpectedStart
from kaiwo.forecast.recent_arrivals import SavedArrivals
from kaiwo.forecast.run_time_forecast import SavedForecast
from kaiwo.model.events import Event
from kaiwo.model.policy import Policy


class ForwardJob(msgspec.Struct, frozen=True):
    """A cluster state with what it had learned, as in the base of a journal, and how far to run it."""

    events: tuple[Event, ...]
    learned: bytes
    forecast: SavedForecast
    arrivals: SavedArrivals
    now_s: int
    policy: Policy
    cycles: int
    horizon_s: int
    changes: tuple[Event, ...] | None = None  # None: expected starts; else what would happen with these changes
    changed_policy: Policy | None = None


class ForwardQueueOutcome(msgspec.Struct, frozen=True):
    """What one queue gets, until the run ends."""

    queue: str
    waiting: int  # workloads that wait at the beginning
    started: int  # of these
    wait_s: int  # mean wait from now on, of those that start
    gpu_s: int  # GPU-seconds in use
    evictions: int  # workloads that are stopped for others


class ForwardOutcome(msgspec.Struct, frozen=True):
    queues: tuple[ForwardQueueOutcome, ...]
    gpus: int  # of the cluster
    reached_s: int
    is_whole: bool  # False: it was ended before nothing more would happen
    unknown: int = 0  # workloads whose run time nobody knows: they never end


class ForwardAnswer(msgspec.Struct, frozen=True):
    starts: dict[str, ExpectedStart] = {}
    before: ForwardOutcome | None = None
    after: ForwardOutcome | None = None
    added: dict[str, int] = {}  # workloads of the changes that start, and when
