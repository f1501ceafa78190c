"""Routes about the network: domains, links, their load and who uses them."""

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.presenters.topology_view import topology_view
from kaiwo.api.views.topology import TopologyView


async def get_topology(call: EndpointCall) -> TopologyView:
    faults, now_s = dict(call.context.topology.faults), call.context.live.cluster.now_s()
    return await call.ask(lambda state: topology_view(state, faults, now_s))


ROUTES = (
    Route("GET", "/topology", "The network: domains, links, who uses them, and contradictions.", get_topology,
          TopologyView),
)  # fmt: skip
