"""Which resources are short on the nodes that a pod may use.

In:    the view, a request, rows of nodes.   Out: obstacles with what is needed and the best that any node has.
"""

from kaiwo.decide.fit import extended_free
from kaiwo.decide.offers import Offer
from kaiwo.model.reason import Obstacle, Reason
from kaiwo.model.request import Request
from kaiwo.snapshot.arrays import BoolArray, Rows
from kaiwo.snapshot.nodes import CPU, MEMORY, PODS
from kaiwo.snapshot.working import Working


def short_of(view: Working, want: Request, rows: Rows, offer: Offer) -> list[Obstacle]:
    """Resources of which no node that may be used has enough, or that are short where the others would do."""
    fits: list[tuple[BoolArray, Obstacle]] = []
    if want.gpus:
        fits.append(_gpus(want, rows, offer))
    free_all, _ = view.of(rows)
    for reason, unit, need, free in (
        (Reason.NOT_ENOUGH_CPU, "milli-cpu", want.cpu_milli, free_all[:, CPU]),
        (Reason.NOT_ENOUGH_MEMORY, "mib", want.memory_mib, free_all[:, MEMORY]),
        (Reason.NOT_ENOUGH_PODS, "pods", 1, free_all[:, PODS]),
    ):
        if need:
            fits.append((free >= need, Obstacle(reason, need, max(0, int(free.max())), unit)))
    for name, need in want.extended:
        free = extended_free(view, name, rows)
        obstacle = Obstacle(Reason.NOT_ENOUGH_EXTENDED, need, max(0, int(free.max())), "", name)
        fits.append((free >= need, obstacle))
    everywhere = [obstacle for mask, obstacle in fits if not mask.any()]
    return everywhere or [obstacle for mask, obstacle in fits if not mask.all()]


def no_such_device(view: Working, want: Request) -> Obstacle:
    """No working device of a wanted model anywhere."""
    if want.gpu_models:
        there = sorted({gpu.model for node in view.nodes.nodes for gpu in node.gpus})
        if not set(there) & set(want.gpu_models):
            detail = f"the cluster has {', '.join(there) or 'no GPUs'}"
            return Obstacle(Reason.GPU_MODEL, want.gpus, 0, "gpus", " or ".join(want.gpu_models), detail)
    broken = sum(1 for node in view.nodes.nodes for gpu in node.gpus if not gpu.healthy)
    reason = Reason.GPU_UNHEALTHY if broken else Reason.NOT_ENOUGH_GPUS
    return Obstacle(reason, want.gpus, 0, "gpus")


def _gpus(want: Request, rows: Rows, offer: Offer) -> tuple[BoolArray, Obstacle]:
    """Where enough devices are free, and the best that any node can offer."""
    now = offer.now[rows]
    need = want.gpus if want.is_whole else want.gpu_mib or want.gpu_milli
    enough = now >= need
    if want.is_memory and (largest := int(offer.largest_mib[rows].max())) < want.gpu_mib:
        return enough, Obstacle(Reason.NOT_ENOUGH_GPU_MEMORY, want.gpu_mib, largest, "mib")
    if (devices := int(offer.devices[rows].max())) < want.gpus:
        return enough, Obstacle(Reason.NOT_ENOUGH_GPUS, want.gpus, devices, "gpus")
    have = int(now.max())
    if want.is_whole:
        return enough, Obstacle(Reason.NOT_ENOUGH_FREE_GPUS, need, have, "gpus")
    several = f"{want.gpus} devices" if want.gpus > 1 else ""
    if want.is_memory:
        return enough, Obstacle(Reason.NOT_ENOUGH_FREE_GPU_MEMORY, need, have, "mib", several)
    return enough, Obstacle(Reason.NOT_ENOUGH_FREE_GPU_SHARE, need, have, "milli-gpu", several)
