"""A workload with requests that fit what its earlier runs used, for the cluster that it is in.

In:    a workload, what its kind used, the cluster state.   Out: the smaller workload with its reasons, or None.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.advise.right_size import Resized, SizeRule, right_size
from kaiwo.advise.run_uses import RunUse
from kaiwo.model.gpus.gpu import TIME_SLICING, vendor_of
from kaiwo.model.queue import thread_bound
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.snapshot.cluster_state import ClusterState


class _GpuKind(NamedTuple):
    model: str
    memory_mib: int
    vendor: str
    is_whole: bool  # no partition of one


class ResizedWorkload(NamedTuple):
    workload: Workload
    reasons: tuple[Resized, ...]


def resized_workload(
    state: ClusterState, workload: Workload, runs: Sequence[RunUse], rule: SizeRule, resizes_gpus: bool = True
) -> ResizedWorkload | None:
    """Work with several roles stays as it is: what was measured does not say which role needed it."""
    if len(workload.roles) != 1:
        return None
    (role,) = workload.roles
    rule = rule._replace(may_burst=may_burst(state, workload))
    found = right_size(role.request, runs, rule, device_mib(state, role.request), resizes_gpus and workload.pods == 1)
    if found is None:
        return None
    return ResizedWorkload(replace(workload, roles=(replace(role, request=found.request),)), found.reasons)


def device_mib(state: ClusterState, request: Request) -> int:
    """Of the only GPU model that it may run on; 0: there are several, and what is enough on one says little of others.

    A vendor that the request names counts, other rules about nodes do not: they may change.
    """
    sizes = {
        (kind.model, kind.memory_mib)
        for kind in _gpu_kinds(state)
        if (not request.gpu_models or kind.model in request.gpu_models)
        and (not request.vendor or kind.vendor in ("", request.vendor))
        and kind.is_whole
    }
    return next(iter(sizes))[1] if request.gpus and len(sizes) == 1 else 0


def may_burst(state: ClusterState, workload: Workload) -> bool:
    """Whether a share of it may use what others leave of the GPU: by its queue's bound, or because it takes turns."""
    (request,) = (role.request for role in workload.roles[:1])
    if request.isolation == TIME_SLICING:
        return True
    vendors = {kind.vendor for kind in _gpu_kinds(state)}
    asked = replace(request, threads_milli=request.gpu_milli, gpu_milli=1)
    capped = thread_bound(state.queue_objects, workload.queue).capped(asked)
    return vendors == {"nvidia"} and capped >= request.gpu_milli


def _gpu_kinds(state: ClusterState) -> frozenset[_GpuKind]:
    """Looked up once until a node changes: every submission asks, and 10,000 GPUs take milliseconds."""

    def found() -> frozenset[_GpuKind]:
        return frozenset(
            _GpuKind(gpu.model, gpu.memory_mib, vendor_of(gpu), not gpu.parent)
            for node in tuple(state.nodes.nodes)  # another thread may replace one
            for gpu in node.gpus
        )

    return state.nodes.once("gpu-kinds", found)
