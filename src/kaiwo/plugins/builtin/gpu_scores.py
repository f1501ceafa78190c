"""Built-in preferences for the devices of a node."""

import numpy as np

from kaiwo.model.request import Request
from kaiwo.plugins.contract import TOP_SCORE
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.view import View

LAST_TURN = 2  # see `ReservedDevices.device_rank`


class ReservedDevicesFirst:
    """Take the work's own reserved devices first, and last those that are soon reserved for others."""

    name, version, weight = "reserved-devices-first", "1", 100

    def gpu_applies(self, view: View, want: Request) -> bool:
        return view.reservations is not None

    def gpu_score(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        if view.reservations is None:
            return np.zeros(len(columns), np.int64)
        turn = view.reservations.device_rank(want.passes)[node, columns]
        score: IntArray = TOP_SCORE - TOP_SCORE * turn // LAST_TURN
        return score


PLUGINS = (ReservedDevicesFirst,)
