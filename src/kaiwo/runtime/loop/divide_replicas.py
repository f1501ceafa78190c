"""Divide GPUs that a workload asks for in total over its pods, as the live cluster has room for them.

In:    a workload whose roles divide them in some way, and the state.   Out: the same workload with other roles.
GPUs given always equal GPUs asked: see `plugins.replica_division`.
"""

from collections.abc import Callable

from msgspec.structs import replace

from kaiwo.manifests.kinds.kaiwojob import CPU_MILLI_PER_GPU, MEMORY_PER_GPU, divided_roles
from kaiwo.manifests.kinds.object_metadata import GpuTotal
from kaiwo.manifests.values.quantities import to_mib
from kaiwo.model.gpus.gpu_models import VENDOR_MODELS
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.plugins.contract import ReplicaNeed
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.plugins.registry import Registry
from kaiwo.plugins.replica_division import replicas_of
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import USABLE
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.working_copy import WorkingCopy

GPUS_PER_NODE = 8  # while no node is known


def divided(
    workload: Workload,
    total: GpuTotal,
    state: ClusterState,
    policy: Policy,
    plugins: Registry,
    now_s: int,
    report: Callable[[PluginFaultError], None] = lambda fault: None,
) -> Workload:
    state.refresh_tables()
    view = WorkingCopy(Snapshot(state, now_s)).view
    request = workload.roles[0].request
    largest = int((view.gpus[:, USABLE] > 0).sum(axis=1).max(initial=0)) if len(view.nodes.names) else 0
    need = ReplicaNeed(
        total.gpus,
        min(total.gpus, largest or GPUS_PER_NODE),
        workload.priority,
        workload.queue,
        request.gpu_models or VENDOR_MODELS.get(request.vendor, ()),
        CPU_MILLI_PER_GPU if total.is_by_gpu else 0,
        to_mib(MEMORY_PER_GPU) if total.is_by_gpu else 0,
    )
    shares = replicas_of(plugins.active(policy), view, need, report)
    return replace(workload, roles=divided_roles(request, shares, total.is_by_gpu))


def is_same_total(there: Workload, given: Workload, total: GpuTotal) -> bool:
    """Whether a workload that exists asks for the same in another division: then it need not be divided again."""
    return sum(role.request.gpus * role.count for role in there.roles) == total.gpus and (
        _without_size(there.roles[0].request, total) == _without_size(given.roles[0].request, total)
    )


def _without_size(request: Request, total: GpuTotal) -> Request:
    by_gpu = {"cpu_milli": 0, "memory_mib": 0} if total.is_by_gpu else {}
    return replace(request, gpus=1, **by_gpu)
