"""Routes about nodes and their GPUs."""

import msgspec

from kaiwo.api.context import wait_until_visible
from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import JSON, invalid
from kaiwo.api.http.request_body import Body, read_fields
from kaiwo.api.presenters.fragments_view import fragments_view
from kaiwo.api.presenters.list_pages import GPU_PARAMS, NODE_PARAMS, list_page
from kaiwo.api.presenters.measured_use import gpu_use, with_gpu_use, with_node_use
from kaiwo.api.presenters.node_view import find_node
from kaiwo.api.views.answers import FaultForm, Outcome, Page, ReasonForm
from kaiwo.api.views.fragments import FragmentsView
from kaiwo.api.views.nodes import GpuUseView, GpuView, NodeView
from kaiwo.clusters.protocol import NodeControl, NodeFault
from kaiwo.model.amounts import duration

REASON = Body((JSON,), ReasonForm, required=False)
FAULT = Body((JSON,), FaultForm, required=False)
REASON_MAX = 500


async def list_nodes(call: EndpointCall) -> Page[NodeView]:
    return await list_page(call.context.overview, "nodes", call.query)


async def list_gpus(call: EndpointCall) -> Page[GpuView]:
    page = await list_page(call.context.overview, "gpus", call.query)
    return msgspec.structs.replace(page, items=with_gpu_use(call.context.agents, call.context.live, page.items))


async def get_fragments(call: EndpointCall) -> FragmentsView:
    now_s = call.context.live.cluster.now_s()
    return await call.ask(lambda state: fragments_view(state, now_s))


async def get_use(call: EndpointCall) -> GpuUseView:
    return gpu_use(call.context.agents, call.context.live)


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


async def fail(call: EndpointCall) -> Outcome:
    name, body = call.path["name"], read_fields(call.body, "reason", "gpu", "unreachable")
    gpu, is_unreachable = body.get("gpu", ""), body.get("unreachable", False)
    if not isinstance(gpu, str) or not isinstance(is_unreachable, bool):
        raise invalid("gpu must be the name of a GPU, and unreachable true or false", "gpu")
    if gpu and is_unreachable:
        raise invalid("a GPU cannot be unreachable while its node is not; leave out gpu or unreachable", "unreachable")
    fault = NodeFault(_text(call, body.get("reason", call.query["reason"])), gpu, is_unreachable)
    await _control(call).fail(name, fault, who=call.user)
    state = call.context.live.state
    await wait_until_visible(call.context.live, lambda: name in state.failures.nodes)
    what = f"{gpu} of node {name}" if gpu else f"node {name}"
    call.trail.changed(f"node/{name}", {"failed": False}, {"failed": True, "gpu": gpu, "unreachable": is_unreachable})
    return Outcome([f"{what} counts as {'unreachable' if is_unreachable else 'failed'}"])


async def restore(call: EndpointCall) -> Outcome:
    name = call.path["name"]
    _reason(call)
    await _control(call).restore(name, who=call.user)
    state = call.context.live.state
    await wait_until_visible(call.context.live, lambda: name not in state.failures.nodes)
    call.trail.changed(f"node/{name}", {"failed": True}, {"failed": False})
    left_s = state.failures.resting.get(name, 0) - call.context.live.cluster.now_s()
    rest = f"; it came and went, so it takes work in {duration(left_s)}" if left_s > 0 else ""
    return Outcome([f"node {name} works again{rest}"])


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
    return _text(call, read_fields(call.body, "reason").get("reason", call.query["reason"]))


def _text(call: EndpointCall, reason: object) -> str:
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
    Route("POST", "/nodes/{name}/fail", "Treat it, or one of its GPUs, as failed: its work recovers elsewhere.", fail,
          Outcome, body=FAULT, errors=(404,)),
    Route("POST", "/nodes/{name}/restore", "It works again after a failure.", restore, Outcome, body=REASON,
          errors=(404,)),
    Route("GET", "/gpus", "List GPU devices and the workloads on them.", list_gpus, Page[GpuView], params=GPU_PARAMS),
    Route("GET", "/gpus/use", "How busy all GPUs are, where an agent measures.", get_use, GpuUseView),
    Route("GET", "/gpus/fragments", "Free GPU amounts that the mix of requests cannot use, and why.", get_fragments,
          FragmentsView),
)  # fmt: skip
