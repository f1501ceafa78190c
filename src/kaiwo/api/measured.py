"""What is really used, beside what was granted: added to a view when somebody asks, never to a stream.

In:    views of devices, and what the node agents said last.   Out: the same views with `measured` and `grade`.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from kaiwo.api.agents import agent_view
from kaiwo.api.context import Context
from kaiwo.api.views import GpuView, MeasuredView, NodeView, TenantView
from kaiwo.clusters.happenings import request_of
from kaiwo.devices.report import GpuSample, ProcessUse
from kaiwo.gpus.isolation import grade_of


def measured_node(context: Context, view: NodeView) -> NodeView:
    """A node with its agent and the use of its devices."""
    heard = context.agents.of(view.name)
    agent = None if heard is None else agent_view(context.agents, heard)
    return replace(view, gpus=measured_gpus(context, view.gpus), agent=agent)


def measured_gpus(context: Context, views: Iterable[GpuView]) -> list[GpuView]:
    """Devices with what they do, and what each tenant does there."""
    return [_measured(context, view) for view in views]


def _measured(context: Context, view: GpuView) -> GpuView:
    heard = context.agents.of(view.node)
    sample = heard.gpu(_physical(view)) if heard is not None else None
    ago_s = 0 if heard is None else round(context.agents.age_s(heard))
    use = None if sample is None else _device_use(sample, view, ago_s)
    tenants = [_tenant(context, view, tenant, sample, use) for tenant in view.tenants]
    return replace(view, measured=use, tenants=tenants)


def _physical(view: GpuView) -> str:
    """The id of its GPU. Beside cut ones a whole GPU's id carries its UUID too."""
    return view.parent or view.id.partition("-GPU-")[0]


def _device_use(sample: GpuSample, view: GpuView, ago_s: int) -> MeasuredView:
    told = sample.telemetry
    part = next((part for part in sample.partitions if part.id == view.id), None)
    processes = len({use.pid for use in _on(sample, view)})
    if part is not None:
        return MeasuredView(part.busy_percent, part.memory_used_mib, told.power_w, told.temperature_c, processes, ago_s)
    return MeasuredView(
        told.utilisation_percent, told.memory_used_mib, told.power_w, told.temperature_c, processes, ago_s
    )


def _tenant(
    context: Context, view: GpuView, tenant: TenantView, sample: GpuSample | None, use: MeasuredView | None
) -> TenantView:
    run, grade = context.live.cluster.run_of(tenant.workload, tenant.pod)
    mine = [each for each in _on(sample, view) if run and each.owner == run] if sample else []
    found = None
    if mine:
        found = MeasuredView(_sum(mine, "busy_percent"), _sum(mine, "memory_mib"), processes=len({u.pid for u in mine}))
    elif len(view.tenants) == 1 and use is not None:
        found = replace(use, power_w=None, temperature_c=None)  # nobody else is there
    if found is not None and use is not None:
        found = replace(found, ago_s=use.ago_s)
    return replace(tenant, grade=grade or _expected(context, view, tenant), measured=found)


def _expected(context: Context, view: GpuView, tenant: TenantView) -> str:
    """The grade by the rule that placed it, where no machine told of a grant."""
    picture = context.live.picture
    workload, node = picture.workloads.get(tenant.workload), picture.node_objects.get(view.node)
    gpu = next((gpu for gpu in node.gpus if gpu.id == view.id), None) if node else None
    if workload is None or node is None or gpu is None:
        return ""
    return grade_of(request_of(workload, tenant.pod), gpu, node.labels)


def _on(sample: GpuSample, view: GpuView) -> list[ProcessUse]:
    return [use for use in sample.processes if use.device in (view.id, view.id.partition("-GPU-")[0])]


def _sum(uses: Sequence[ProcessUse], field: str) -> int | None:
    known = [value for use in uses if (value := getattr(use, field)) is not None]
    return sum(known) if known else None
