"""An order of queues that depends on the time of day: batch queues first at night."""

import msgspec
import numpy as np

from kaiwo.plugins import IntArray, Rows, View

DAY_S, HOUR_S = 86_400, 3_600


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hours are UTC. The night may pass midnight."""

    queues: tuple[str, ...] = ()  # served first at night
    begins_at: int = 20
    ends_at: int = 6


class NightShift:
    """0 for a queue of the night shift at night, 1 for all others: those keep the order of fair shares."""

    name, version = "night-shift", "1.0.0"
    Config = Config

    def __init__(self, config: Config = Config()) -> None:  # noqa: B008
        self.config = config

    def queue_order(self, view: View, queues: Rows, next_need: IntArray, next_since_s: IntArray) -> IntArray:
        if not self._is_night(view.now_s):
            return np.ones(len(queues), np.int64)
        first = set(self.config.queues)
        return np.array([0 if view.queues.names[row] in first else 1 for row in queues], np.int64)

    def _is_night(self, now_s: int) -> bool:
        hour, begins, ends = now_s % DAY_S // HOUR_S, self.config.begins_at, self.config.ends_at
        return begins <= hour < ends if begins <= ends else hour >= begins or hour < ends
