"""Built-in strategies that divide the GPUs of a workload over pods."""

import numpy as np

from kaiwo.plugins.contract import ReplicaNeed
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.view import View


class FewestPods:
    """The fewest pods that may have that many GPUs, as equal as possible."""

    name, version = "fewest-pods", "1"

    def replica_strategy(self, view: View, need: ReplicaNeed) -> IntArray:
        pods = -(-need.gpus // need.largest)
        shares: IntArray = np.full(pods, need.gpus // pods, np.int64)
        shares[: need.gpus % pods] += 1
        return shares


PLUGINS = (FewestPods,)
