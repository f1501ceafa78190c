"""What queues may still use: their own limits and those of every queue above them.

In:    the working copy, a queue, a charge.   Out: whether it fits, or how often.
"""

from collections.abc import Callable

from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from kaiwo.queues.resource_division import MOST_AMOUNT
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.backlog import RoleNeeds
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.gpu_model_usage import only_model
from kaiwo.snapshot.queue_table import ENDLESS, GPU, RESOURCES, PathBound, ResourceVector
from kaiwo.snapshot.working_copy import WorkingCopy


def charge_of(want: Request, pods: int = 1, device_mib: int = 0) -> ResourceVector:
    """What a queue pays for such pods on devices of this size; the size matters to memory requests only."""
    milli = want.charge_milli
    if want.is_memory and device_mib:
        milli = want.gpus * (want.gpu_mib * WHOLE_MILLI // device_mib)
    return milli * pods, want.cpu_milli * pods, want.memory_mib * pods


def least_charge(state: ClusterState, needs: RoleNeeds, largest_mib: Callable[[int], int]) -> ResourceVector:
    """The least a queue pays before such work has started: for what it needs, or for any one pod.

    The larger a device, the fewer milli of it the same memory is; `largest_mib` says how large it may be for a shape.
    """
    must_start = any(needed for _, _, needed in needs)
    each = [
        charge_of(state.backlog.shapes[shape], needed if must_start else 1, largest_mib(shape))
        for shape, _, needed in needs
    ]
    together = sum if must_start else min
    milli, cpu, memory = each[0] if len(each) == 1 else (together(column) for column in zip(*each, strict=True))
    return min(milli, MOST_AMOUNT), min(cpu, MOST_AMOUNT), min(memory, MOST_AMOUNT)


def within_limits(working: WorkingCopy, queue: int, charge: ResourceVector, is_non_preemptible: bool = False) -> bool:
    """The queue and all above it stay within their limits; work that may not be preempted also within their quotas."""
    if is_non_preemptible and _is_over(working.all_non_preemptible, working.queues.quotas[queue], charge):
        return False
    return not _is_over(working.all_used, working.queues.limits[queue], charge)


def _is_over(used: IntArray, bounds: tuple[PathBound, ...], charge: ResourceVector) -> bool:
    for above, column, most in bounds:
        if column < len(charge) and charge[column] and used[above, column] + charge[column] > most:
            return True
    return False


def models_with_room(working: WorkingCopy, queue: int, is_non_preemptible: bool, milli: int) -> list[str]:
    """The GPU models of which the queue may still use this much."""
    queues = working.queues
    kept = [(working.all_used, queues.limits[queue])]
    if is_non_preemptible:
        kept.append((working.all_non_preemptible, queues.quotas[queue]))
    short = {
        queues.models[column - len(RESOURCES)]
        for used, bounds in kept
        for above, column, most in bounds
        if column >= len(RESOURCES) and used[above, column] + milli > most
    }
    return [model for model in sorted(working.nodes.models) if model not in short]


def least_by_model(state: ClusterState, needs: RoleNeeds) -> tuple[int, ...]:
    """Beside the least charge: what it needs of each bounded GPU model, if it can use no other model."""
    wants = [(state.backlog.shapes[shape], needed) for shape, _, needed in needs]
    return tuple(
        sum(want.charge_milli * needed for want, needed in wants if only_model(want, state.nodes.models) == model)
        for model in state.queues.models
    )


def times_within_limits(
    working: WorkingCopy, queue: int, charge: ResourceVector, most: int, is_non_preemptible: bool = False
) -> int:
    """How often a charge fits under the limits, up to `most`."""
    for resource, each in enumerate(charge):
        if each:
            most = min(most, max(0, headroom(working, queue, resource)) // each)
    if is_non_preemptible:
        path = list(working.queues.path[queue])
        left = (working.queues.quota[path] - working.view.queue_non_preemptible[path]).min(axis=0)
        most = min([most, *(max(0, int(left[resource])) // each for resource, each in enumerate(charge) if each)])
    return most


def headroom(working: WorkingCopy, queue: int, resource: int = GPU) -> int:
    """What the queue and all above it may still use of a resource; below 0 when one is over its limit."""
    if not working.queues.is_bounded[queue]:
        return ENDLESS
    path = list(working.queues.path[queue])
    left = working.queues.limit[path, resource] - working.view.queue_used[path, resource]
    return int(left.min())
