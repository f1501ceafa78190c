"""Routes about nodes and their GPUs."""

import msgspec

from kaiwo.api.context import wait_until_visible
from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import JSON, invalid
from kaiwo.api.http.request_body import Body, read_fields
from kaiwo.api.presenters.list_pages import GPU_PARAMS, NODE_PARAMS, list_page
from kaiwo.api.presenters.measured_use import with_gpu_use, with_node_use
from kaiwo.api.presenters.node_view import find_node
from kaiwo.api.views import GpuView, NodeView, Outcome, Page, ReasonForm
from kaiwo.clusters.protocol import NodeControl

REASON = Body((JSON,), ReasonForm, required=False)
REASON_MAX = 500


async def list_nodes(call: EndpointCall) -> Page[NodeView]:
    return await list_page(call.context.overview, "nodes", call.query)


async def list_gpus(call: EndpointCall) -> Page[GpuView]:
    page = await list_page(call.context.overview, "gpus", call.query)
    return msgspec.structs.replace(page, items=with_gpu_use(call.context.agents, call.context.live, page.items))


async def get_node(call: EndpointCall) -> NodeView:
    agents, live = call.context.agents, call.context.live
    return with_node_use(agents, live, find_node(live.state, call.path["name"]))


async def cordon(call: EndpointCall) -> Outcome:
    name, before = call.path["name"], _cordoned(call)
    await _control(call).cordon(name, True, _reason(call), who=call.user)
    await _wait_until_seen(call, True)
    call.trail.changed(f"node/{name}", before, {"cordoned": True})
    return Outcome([f"node {name} cordoned"])


async def uncordon(call: EndpointCall) -> Outcome:
    name, before = call.path["name"], _cordoned(call)
    _reason(call)
    await _control(call).cordon(name, False, who=call.user)
    await _wait_until_seen(call, False)
    call.trail.changed(f"node/{name}", before, {"cordoned": False})
    return Outcome([f"node {name} uncordoned"])


async def drain(call: EndpointCall) -> Outcome:
    name, before = call.path["name"], _cordoned(call)
    gone = await _control(call).drain(name, _reason(call), who=call.user)
    await _wait_until_seen(call, True)
    call.trail.changed(f"node/{name}", before, {"cordoned": True, "evicted": list(gone)})
    return Outcome([f"node {name} drained", *(f"workload {workload} waits again" for workload in gone)], [], list(gone))


def _control(call: EndpointCall) -> NodeControl:
    """The cluster's node actions, once the node exists: the cluster's own error would not suggest similar names."""
    find_node(call.context.live.state, call.path["name"])
    return call.context.live.cluster.abilities.nodes


async def _wait_until_seen(call: EndpointCall, cordoned: bool) -> None:
    nodes, name = call.context.live.state.node_objects, call.path["name"]
    await wait_until_visible(call.context.live, lambda: name not in nodes or nodes[name].cordoned == cordoned)


def _cordoned(call: EndpointCall) -> dict[str, bool]:
    node = call.context.live.state.node_objects.get(call.path["name"])
    return {"cordoned": node is not None and node.cordoned}


def _reason(call: EndpointCall) -> str:
    """In the body, or as the query parameter that every change takes."""
    reason = read_fields(call.body, "reason").get("reason", call.query["reason"])
    if not isinstance(reason, str) or len(reason) > REASON_MAX or not reason.isprintable():
        raise invalid(f"reason must be one line of text with at most {REASON_MAX} characters", "reason")
    call.trail.reason = reason
    return reason


ROUTES = (
    Route("GET", "/nodes", "List nodes.", list_nodes, Page[NodeView], params=NODE_PARAMS),
    Route("GET", "/nodes/{name}", "One node with its devices.", get_node, NodeView, errors=(404,)),
    Route("POST", "/nodes/{name}/cordon", "Place no new pods on it.", cordon, Outcome, body=REASON, errors=(404,)),
    Route("POST", "/nodes/{name}/uncordon", "Place pods on it again.", uncordon, Outcome, body=REASON, errors=(404,)),
    Route("POST", "/nodes/{name}/drain", "Cordon it and evict its pods.", drain, Outcome, body=REASON, errors=(404,)),
    Route("GET", "/gpus", "List GPU devices and the workloads on them.", list_gpus, Page[GpuView], params=GPU_PARAMS),
)  # fmt: skip
