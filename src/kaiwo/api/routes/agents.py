"""Routes for node agents: their stream of reports, and a list of them.

In:    lines of JSON, in one long request.   Out: the number of lines taken; a Problem for an invalid line.
"""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import ProblemError, invalid, not_ready, quote
from kaiwo.api.presenters.measured_use import agent_view
from kaiwo.api.presenters.node_view import find_node
from kaiwo.api.views.answers import Page
from kaiwo.api.views.nodes import AgentView, TakenView
from kaiwo.devices.agent_messages import MEDIA_TYPE, Hello, Line, LineReader
from kaiwo.model.errors import ClusterError

SILENT_S = 30.0  # after this silence the agent counts as gone; a live one reports every second


async def report(call: EndpointCall) -> TakenView:
    """Take lines until the agent ends the request, which it does every minute."""
    node, agents = call.path["node"], call.context.agents
    kind = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != MEDIA_TYPE:
        raise ProblemError(415, "invalid", f"the Content-Type must be {MEDIA_TYPE}, not {quote(kind)}", "Content-Type")
    _check_leads(call)
    find_node(call.context.live.state, node)
    reader, taken = LineReader(), 0
    stream = agents.open_stream(node)
    try:
        async for data in _chunks(call.request, call.context.closing):
            _check_leads(call)
            for line in _lines(reader, data):
                _check(line, node, taken)
                await agents.receive(line, stream)
                taken += 1
                if node not in call.context.agent_nodes:  # not again for each report: they come every second
                    call.context.agent_nodes.add(node)
                    call.trail.record_now(new={"version": getattr(line, "version", "")})
    finally:
        agents.close_stream(node, stream)
    if not taken or reader.has_partial_line:
        raise invalid("the stream ended in the middle of a line; send lines of JSON, each with a newline")
    return TakenView(taken)


async def list_agents(call: EndpointCall) -> Page[AgentView]:
    agents = call.context.agents
    items = [agent_view(agents, known) for known in sorted(agents, key=lambda known: known.node)]
    return Page(items, len(items))


async def _chunks(request: Request, closing: asyncio.Event) -> AsyncIterator[bytes]:
    """Raises a Problem when Kaiwo stops or the agent falls silent."""
    stream = request.stream()
    closed = asyncio.ensure_future(closing.wait())
    try:
        while True:
            data = asyncio.ensure_future(anext(stream, None))
            await asyncio.wait({data, closed}, timeout=SILENT_S, return_when=asyncio.FIRST_COMPLETED)
            if not data.done():
                data.cancel()
                await asyncio.gather(data, return_exceptions=True)
                why = "Kaiwo is stopping" if closed.done() else f"no data arrived for {SILENT_S:g} s"
                raise not_ready(f"{why}; open the stream again")
            found = data.result()
            if found is None:
                return
            yield found
    finally:
        closed.cancel()


def _check_leads(call: EndpointCall) -> None:
    """Only the leader takes reports: a standby could not act on them."""
    if not call.context.leadership.is_held:
        raise not_ready("this replica is a standby; open the stream again until the leader answers")


def _lines(reader: LineReader, data: bytes) -> list[Line]:
    try:
        return list(reader.feed(data))
    except ClusterError as error:
        raise invalid(f"{error}; use the `kaiwo agent` of this version") from error


def _check(line: Line, node: str, taken: int) -> None:
    if line.node != node:
        raise invalid(f"a line is about node {quote(line.node)}, but this is the stream of {quote(node)}", "node")
    if not taken and not isinstance(line, Hello):
        raise invalid("the first line must be a hello with the inventory")


ROUTES = (Route("GET", "/agents", "The node agents that have reported.", list_agents, Page[AgentView]),)
REPORT_ROUTE = Route(
    "POST", "/api/agents/{node}/reports", "A node agent's stream of reports: lines of JSON.", report, TakenView,
    errors=(404, 415),
)  # fmt: skip
