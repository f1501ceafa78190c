"""How much of what it deserves a queue uses.

In:    the view with this cycle's placements.   Out: parts per million, per queue.
"""

import numpy as np

from kaiwo.snapshot.arrays import IntArray, Rows
from kaiwo.snapshot.working import Working

PPM = 1_000_000


def deserved(view: Working) -> IntArray:
    """Per queue and resource: its quota, or its weight's part of what the cluster has, whichever is more."""
    queues = view.queues
    weights = np.maximum(queues.weight, 1)
    siblings = np.zeros_like(weights)
    parents = np.array([path[1] if len(path) > 1 else -1 for path in queues.path], np.int64)
    for parent in np.unique(parents):
        children = parents == parent
        siblings[children] = weights[children].sum(axis=0)
    totals = view.nodes.totals()[None, :]
    fair = totals * weights // np.maximum(siblings, 1)
    quota = np.minimum(queues.quota, totals)
    return np.maximum(np.maximum(fair, quota), 1)


def dominant_share_ppm_of(view: Working, row: int) -> int:
    """The same for one queue, in plain integers."""
    used: list[int] = view.queue_used[row].tolist()
    due = deserved_rows(view)[row]
    return max(PPM * have // of for have, of in zip(used, due, strict=True))


def deserved_rows(view: Working) -> list[list[int]]:
    """What the queues deserve, as plain integers, worked out once a cycle."""
    if view.deserved_rows is None:
        view.deserved_rows = deserved(view).tolist()
    return view.deserved_rows


def dominant_share_ppm(view: Working, rows: Rows) -> IntArray:
    """The resource of which a queue uses the largest part of what it deserves."""
    if "deserved" not in view.derived:
        view.derived["deserved"] = deserved(view)
    shares: IntArray = (PPM * view.queue_used[rows] // view.derived["deserved"][rows]).max(axis=1)
    return shares
