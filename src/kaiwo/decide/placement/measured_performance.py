"""How well work ran on each node, as a term of the domain score: 500 is the usual speed, and what is not known.

In:    the measured speeds of nodes.   Out: one number for each node, from 0 (it stood still) to 1000 (twice as fast).
A speed counts beside the usual one of all nodes, so that a prediction that is wrong everywhere changes nothing. It
fades to 500 as it gets older.
"""

import numpy as np

from kaiwo.model.performance import HALF_LIFE_S, usual_permille
from kaiwo.queues.past_usage import DECAY_SCALE, decay_factor
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.view import View

NEUTRAL, FULL = 500, 1000


def performance_of_nodes(view: View) -> IntArray | None:
    """None: nothing is known of any node."""
    usual = usual_permille(view.node_speeds.values())
    if not usual:
        return None
    found = np.full(len(view.nodes.names), NEUTRAL, np.int64)
    for name, speed in view.node_speeds.items():
        row = view.nodes.row.get(name)
        if row is not None and speed.permille:
            measured = min(FULL, NEUTRAL * speed.permille // usual)
            kept = decay_factor(max(0, view.now_s - speed.at_s), HALF_LIFE_S)
            found[row] = NEUTRAL + (measured - NEUTRAL) * kept // DECAY_SCALE
    found.flags.writeable = False
    return found
