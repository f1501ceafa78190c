"""What is really used, beside what was granted: added to a view when somebody asks, never to a stream.

In:    views of devices, and what the node agents said last.   Out: the same views with `measured` and `grade`.

Also: Routes about nodes and their devices.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from kaiwo.api.context import Context, settle
from kaiwo.api.endpoint import Call, Route
from kaiwo.api.http.problems import JSON, did_you_mean, invalid, quote
from kaiwo.api.http.request_body import Body, read_object
from kaiwo.api.presenters.list_pages import GPU_PARAMS, LISTINGS, NODE_PARAMS
from kaiwo.api.presenters.node_view import find_node
from kaiwo.api.routes.agents import agent_view
from kaiwo.api.views import GpuView, MeasuredView, NodeView, Outcome, Page, ReasonForm, TenantView
from kaiwo.clusters.embedded.transitions import request_of
from kaiwo.devices.agent_messages import GpuSample, ProcessUse
from kaiwo.gpus.isolation_grades import grade_of


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
    state = context.live.state
    workload, node = state.workloads.get(tenant.workload), state.node_objects.get(view.node)
    gpu = next((gpu for gpu in node.gpus if gpu.id == view.id), None) if node else None
    if workload is None or node is None or gpu is None:
        return ""
    return grade_of(request_of(workload, tenant.pod), gpu, node.labels)


def _on(sample: GpuSample, view: GpuView) -> list[ProcessUse]:
    return [use for use in sample.processes if use.device in (view.id, view.id.partition("-GPU-")[0])]


def _sum(uses: Sequence[ProcessUse], field: str) -> int | None:
    known = [value for use in uses if (value := getattr(use, field)) is not None]
    return sum(known) if known else None


REASON = Body((JSON,), ReasonForm, required=False)
REASON_MAX = 500


async def list_nodes(call: Call) -> Page[NodeView]:
    """Nodes by name."""
    listing = LISTINGS["nodes"]
    await call.context.board.fresh()
    return listing.page(call.context.board, listing.pick(call.query))


async def list_gpus(call: Call) -> Page[GpuView]:
    """Devices by node."""
    listing = LISTINGS["gpus"]
    await call.context.board.fresh()
    page = listing.page(call.context.board, listing.pick(call.query))
    return msgspec.structs.replace(page, items=measured_gpus(call.context, page.items))


async def get_node(call: Call) -> NodeView:
    """One node."""
    return measured_node(call.context, find_node(call.context.live.state, call.path["name"]))


async def cordon(call: Call) -> Outcome:
    """No new pods there."""
    name = call.path["name"]
    await _work(call).cordon(name, True, _reason(call), who=call.person)
    await _seen(call, True)
    return Outcome([f"node {name} cordoned"])


async def uncordon(call: Call) -> Outcome:
    """Pods may come again."""
    name = call.path["name"]
    _reason(call)
    await _work(call).cordon(name, False, who=call.person)
    await _seen(call, False)
    return Outcome([f"node {name} uncordoned"])


async def drain(call: Call) -> Outcome:
    """No new pods, and those there must go."""
    name = call.path["name"]
    gone = await _work(call).drain(name, _reason(call), who=call.person)
    await _seen(call, True)
    return Outcome([f"node {name} drained", *(f"workload {workload} waits again" for workload in gone)], [], list(gone))


def _work(call: Call) -> Any:
    """The cluster, for a node that exists: its own sentence would not know what was nearly meant."""
    find_node(call.context.live.state, call.path["name"])
    return call.context.live.cluster


async def _seen(call: Call, cordoned: bool) -> None:
    """Whoever looks next sees it."""
    nodes, name = call.context.live.state.node_objects, call.path["name"]
    await settle(call.context.live, lambda: name not in nodes or nodes[name].cordoned == cordoned)


def _reason(call: Call) -> str:
    if not call.body:
        return ""
    fields = read_object(call.body)
    for field in fields:
        if field != "reason":
            raise invalid(f"there is no field {quote(field)}{did_you_mean(field, ['reason'])}", field[:100])
    reason = fields.get("reason", "")
    if not isinstance(reason, str) or len(reason) > REASON_MAX or not reason.isprintable():
        raise invalid(f"reason must be one line of text with at most {REASON_MAX} signs", "reason")
    return reason


ROUTES = (
    Route("GET", "/nodes", "List nodes.", list_nodes, Page[NodeView], params=NODE_PARAMS),
    Route("GET", "/nodes/{name}", "One node with its devices.", get_node, NodeView, may=(404,)),
    Route("POST", "/nodes/{name}/cordon", "Place no new pods on it.", cordon, Outcome, body=REASON, may=(404,)),
    Route("POST", "/nodes/{name}/uncordon", "Place pods on it again.", uncordon, Outcome, body=REASON, may=(404,)),
    Route("POST", "/nodes/{name}/drain", "Cordon it and move its pods away.", drain, Outcome, body=REASON, may=(404,)),
    Route("GET", "/gpus", "List GPU devices and who is on them.", list_gpus, Page[GpuView], params=GPU_PARAMS),
)  # fmt: skip
