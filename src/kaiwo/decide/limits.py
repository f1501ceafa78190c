"""What queues may still take: their own limits and those of every queue above them.

In:    the working copy, a queue, a charge.   Out: whether it fits, or how often.
"""

from collections.abc import Callable

from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from kaiwo.snapshot.backlog import Needs
from kaiwo.snapshot.picture import Picture
from kaiwo.snapshot.queues import ENDLESS, GPU, Charge
from kaiwo.snapshot.working import Working


def charge_of(want: Request, pods: int = 1, device_mib: int = 0) -> Charge:
    """What a queue pays for such pods on devices of this size; the size matters to memory requests only."""
    milli = want.charge_milli
    if want.is_memory and device_mib:
        milli = want.gpus * (want.gpu_mib * WHOLE_MILLI // device_mib)
    return milli * pods, want.cpu_milli * pods, want.memory_mib * pods


def least_charge(picture: Picture, needs: Needs, largest_mib: Callable[[int], int]) -> Charge:
    """The least a queue pays before such work has started: for what it needs, or for any one pod.

    The larger a device, the fewer milli of it the same memory is; `largest_mib` says how large it may be for a shape.
    """
    must_start = any(needed for _, _, needed in needs)
    each = [
        charge_of(picture.backlog.shapes[shape], needed if must_start else 1, largest_mib(shape))
        for shape, _, needed in needs
    ]
    if len(each) == 1:
        return each[0]
    milli, cpu, memory = zip(*each, strict=True)
    return (sum(milli), sum(cpu), sum(memory)) if must_start else (min(milli), min(cpu), min(memory))


def within_limits(working: Working, queue: int, charge: Charge, is_fixed: bool = False) -> bool:
    """The queue and all above it stay within their limits; work that may not be preempted also within their quotas."""
    if is_fixed and not _within_quotas(working, queue, charge):
        return False
    if not working.queues.is_bounded[queue]:
        return True
    limit, used = working.queues.limit, working.queue_used
    for above in working.queues.path[queue]:
        for resource in range(3):
            bound = limit[above, resource]
            if bound < ENDLESS and charge[resource] and used[above, resource] + charge[resource] > bound:
                return False
    return True


def _within_quotas(working: Working, queue: int, charge: Charge) -> bool:
    quota, fixed = working.queues.quota, working.queue_fixed
    return not any(
        amount and fixed[above, resource] + amount > quota[above, resource]
        for above in working.queues.path[queue]
        for resource, amount in enumerate(charge)
    )


def times_within_limits(working: Working, queue: int, charge: Charge, most: int, is_fixed: bool = False) -> int:
    """How often a charge fits under the limits, up to `most`."""
    for resource, each in enumerate(charge):
        if each:
            most = min(most, max(0, headroom(working, queue, resource)) // each)
    if is_fixed:
        path = list(working.queues.path[queue])
        left = (working.queues.quota[path] - working.queue_fixed[path]).min(axis=0)
        most = min([most, *(max(0, int(left[resource])) // each for resource, each in enumerate(charge) if each)])
    return most


def headroom(working: Working, queue: int, resource: int = GPU) -> int:
    """What the queue and all above it may still take of a resource; below 0 when one is over its limit."""
    if not working.queues.is_bounded[queue]:
        return ENDLESS
    path = list(working.queues.path[queue])
    left = working.queues.limit[path, resource] - working.queue_used[path, resource]
    return int(left.min())
