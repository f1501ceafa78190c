"""Bounds of GPU models that leave too little, for work that could use several models.

In:    the view, a queue, what a workload needs.   Out: obstacles, one a bound of a model that it could have taken.
Work that can use one model alone is told by what it pays of it: see `limits.least_by_model`.
"""

from collections.abc import Sequence

from kaiwo.gpus.fit import eligible
from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.reason import Obstacle, Reason
from kaiwo.model.request import Request
from kaiwo.snapshot.arrays import Rows
from kaiwo.snapshot.nodes import SIZE
from kaiwo.snapshot.queues import RESOURCES
from kaiwo.snapshot.working import Working

Wants = Sequence[tuple[Request, int, Rows]]  # a kind of pod, how many of it must start, and nodes with room for one


def short_models(view: Working, row: int, is_fixed: bool, wants: Wants) -> list[Obstacle]:
    """The limits first; then, for work that may not be preempted, the quotas."""
    queues = view.queues
    kept = [(Reason.QUEUE_LIMIT, "limit", queues.limits[row], view.all_used)]
    if is_fixed:
        kept.append((Reason.QUEUE_QUOTA, "quota", queues.quotas[row], view.all_fixed))
    found = []
    for reason, word, bounds, used in kept:
        for above, column, most in bounds:
            if column < len(RESOURCES):
                continue
            model, left = queues.models[column - len(RESOURCES)], most - int(used[above, column])
            need = sum(max(1, needed) * _milli_of(view, want, model, rows) for want, needed, rows in wants)
            if need > left:
                detail = f"{most} is the {word} of {model}"
                found.append(Obstacle(reason, need, max(0, left), "milli-gpu", queues.names[above], detail))
    return found


def _milli_of(view: Working, want: Request, model: str, rows: Rows) -> int:
    """What one pod takes of a model; 0 when it cannot use that one."""
    if not want.gpus or model not in view.nodes.models:
        return 0
    usable = eligible(view, want, rows) & (view.nodes.gpu_model[rows] == view.nodes.models.index(model))
    if not usable.any():
        return 0
    if want.is_memory:
        return int(want.gpus * (want.gpu_mib * WHOLE_MILLI // view.of(rows)[1][:, SIZE][usable].max()))
    if want.is_partition:
        return int(want.gpus * view.nodes.gpu_part[rows][usable].max())
    return want.charge_milli
