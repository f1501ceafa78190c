"""Find out whether a bound on the memory of one share is all that keeps a request from the devices of its nodes."""

import numpy as np

from kaiwo.gpus.device_fit import device_need, devices_beyond_share_bound, eligible_devices, share_bound
from kaiwo.model.obstacle import Obstacle, Reason, ShareBound
from kaiwo.model.request import Request
from kaiwo.snapshot.array_types import Rows
from kaiwo.snapshot.node_table import SIZE
from kaiwo.snapshot.view import View


def over_share_bound(view: View, want: Request, rows: Rows) -> Obstacle | None:
    """The bound that it exceeds by least; None if enough devices are within their bounds, or others lack more."""
    beyond = devices_beyond_share_bound(view, want, rows)
    if beyond is None:
        return None
    within = eligible_devices(view, want, rows)
    would_serve = (within | beyond).sum(axis=1) >= want.gpus
    if not would_serve.any() or (within.sum(axis=1) >= want.gpus).any():
        return None
    need_mib = device_need(want, view.of(rows).gpus[:, SIZE])[1]
    bound_mib = share_bound(view, want, rows)
    excess = np.where(beyond & would_serve[:, None], need_mib - bound_mib[:, None], np.iinfo(np.int64).max)
    at, column = np.unravel_index(int(excess.argmin()), excess.shape)
    most_mib = int(bound_mib[at])
    queue = want.limits.queue if want.limits is not None and want.limits.max_mib == most_mib else ""
    return Obstacle(Reason.SHARE_TOO_LARGE, int(need_mib[at, column]), most_mib, "mib", "", ShareBound(queue))
