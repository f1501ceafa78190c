"""Built-in protection of running work: what ends soon is not stopped for others."""

import numpy as np

from kaiwo.model.policy import Policy
from kaiwo.plugins.contract import VictimTable
from kaiwo.snapshot.array_types import BoolArray
from kaiwo.snapshot.view import View


class EndsSoon:
    """Spare work that is expected to end within the policy's `spare_ending_s`: its place comes free by itself.

    Overdue work is not spared: it was expected to end long ago, so nobody knows when it will.
    """

    name, version = "ends-soon", "1"

    def victim_filter(self, view: View, victims: VictimTable, policy: Policy) -> BoolArray:
        if not policy.spare_ending_s:
            return np.ones(len(victims), np.bool_)
        left_s = victims.ends_s - view.now_s
        may_stop: BoolArray = (victims.ends_s == 0) | (left_s <= 0) | (left_s > policy.spare_ending_s)
        return may_stop


PLUGINS = (EndsSoon,)
