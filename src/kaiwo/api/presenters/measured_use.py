"""Add what node agents measured to the views of nodes and GPUs.

In:    views, and the last report of each node agent.   Out: the same views with `measured`, `grade` and `agent`.
Streams leave these out: they would change every second.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from kaiwo.api.views.nodes import AgentView, GpuUseView, GpuView, MeasuredView, NodeView, TenantView
from kaiwo.devices.agent_messages import GpuSample, ProcessUse
from kaiwo.gpus.isolation_grades import grade_of
from kaiwo.model.gpus.gpu import Gpu, without_uuid
from kaiwo.model.workload import request_of
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.nodes.agent_registry import AgentRegistry, KnownAgent, printable


def with_node_use(agents: AgentRegistry, live: LiveLoop, view: NodeView) -> NodeView:
    known = agents.of(view.name)
    agent = None if known is None else agent_view(agents, known)
    return replace(view, gpus=with_gpu_use(agents, live, view.gpus), agent=agent)


def with_gpu_use(agents: AgentRegistry, live: LiveLoop, views: Iterable[GpuView]) -> list[GpuView]:
    return [_measured(agents, live, view) for view in views]


def _measured(agents: AgentRegistry, live: LiveLoop, view: GpuView) -> GpuView:
    known = agents.of(view.node)
    sample = known.gpu(_physical(view)) if known is not None else None
    ago_s = 0 if known is None else round(agents.age_s(known))
    use = None if sample is None else _device_use(sample, view, ago_s)
    tenants = [_tenant(live, view, tenant, sample, use) for tenant in view.tenants]
    return replace(view, measured=use, tenants=tenants)


def gpu_use(agents: AgentRegistry, live: LiveLoop) -> GpuUseView:
    """Of all GPUs at once, and therefore only one number each: the map colours them by it."""
    found: dict[str, list[int | None]] = {}
    for name, node in live.state.node_objects.items():
        known = agents.of(name)
        if known is not None:
            found[name] = [_busy_percent(known, gpu) for gpu in node.gpus]
    return GpuUseView(found)


def _busy_percent(known: KnownAgent, gpu: Gpu) -> int | None:
    sample = known.gpu(_physical(gpu))
    if sample is None:
        return None
    part = next((part for part in sample.partitions if part.id == gpu.id), None)
    return sample.telemetry.utilisation_percent if part is None else part.busy_percent


def _physical(view: GpuView | Gpu) -> str:
    """The id of its GPU. Beside partitioned ones a whole GPU's id has its UUID, too."""
    return view.parent or without_uuid(view.id)


def _device_use(sample: GpuSample, view: GpuView, ago_s: int) -> MeasuredView:
    whole = sample.telemetry
    part = next((part for part in sample.partitions if part.id == view.id), None)
    busy_percent = whole.utilisation_percent if part is None else part.busy_percent
    memory_mib = (whole if part is None else part).memory_used_mib
    processes = len({use.pid for use in _processes_on(sample, view)})
    return MeasuredView(busy_percent, memory_mib, whole.power_w, whole.temperature_c, processes, ago_s)


def _tenant(
    live: LiveLoop, view: GpuView, tenant: TenantView, sample: GpuSample | None, use: MeasuredView | None
) -> TenantView:
    run, grade = live.cluster.abilities.devices.run_of(tenant.workload, tenant.pod)
    mine = [each for each in _processes_on(sample, view) if run and each.owner == run] if sample else []
    found = None
    if mine:
        found = MeasuredView(_sum(mine, "busy_percent"), _sum(mine, "memory_mib"), processes=len({u.pid for u in mine}))
    elif len(view.tenants) == 1 and use is not None:
        found = replace(use, power_w=None, temperature_c=None)  # it is alone there
    if found is not None and use is not None:
        found = replace(found, ago_s=use.ago_s)
    return replace(tenant, grade=grade or _expected_grade(live, view, tenant), measured=found)


def _expected_grade(live: LiveLoop, view: GpuView, tenant: TenantView) -> str:
    """The grade by the rule that placed it, where no machine reported a grant."""
    state = live.state
    workload, node = state.workloads.get(tenant.workload), state.node_objects.get(view.node)
    gpu = next((gpu for gpu in node.gpus if gpu.id == view.id), None) if node else None
    if workload is None or node is None or gpu is None:
        return ""
    return grade_of(request_of(workload, tenant.pod), gpu, node.labels)


def _processes_on(sample: GpuSample, view: GpuView) -> list[ProcessUse]:
    return [use for use in sample.processes if use.device in (view.id, without_uuid(view.id))]


def _sum(uses: Sequence[ProcessUse], field: str) -> int | None:
    known = [value for use in uses if (value := getattr(use, field)) is not None]
    return sum(known) if known else None


def agent_view(agents: AgentRegistry, known: KnownAgent) -> AgentView:
    streams = agents.open_streams(known.node)
    two = [f"{streams} agents report for this node, and only the latest one counts; stop the others"]
    return AgentView(
        node=known.node,
        state="lost" if known.is_lost else "live",
        version=known.version,
        heard_ago_s=round(agents.age_s(known)),
        gpus=len(known.inventory.gpus),
        notes=[
            *(two if streams > 1 else ()),
            *(printable(note) for note in (*known.notes, *(known.sample.notes if known.sample else ()))),
        ],
    )
