"""What a worker is asked about advice and capacity, and what it answers."""

import msgspec

from kaiwo.advise.advice import AdviceAnswer
from kaiwo.advise.capacity_plan import CapacityAnswer, CapacityChoice
from kaiwo.advise.run_uses import KindUse
from kaiwo.forecast.recent_arrivals import SavedArrivals
from kaiwo.forecast.run_time_forecast import SavedForecast
from kaiwo.model.events import Event
from kaiwo.model.policy import Policy


class AdvisingJob(msgspec.Struct, frozen=True):
    """A cluster state with what it had learned, as in the base of a journal."""

    events: tuple[Event, ...]
    learned: bytes
    forecast: SavedForecast
    arrivals: SavedArrivals
    uses: tuple[KindUse, ...]
    now_s: int
    policy: Policy
    choices: tuple[CapacityChoice, ...] | None = None  # None: advice; else a capacity plan
    growth_percent: int = 0


class AdvisingAnswer(msgspec.Struct, frozen=True):
    advice: AdviceAnswer | None = None
    capacity: CapacityAnswer | None = None
