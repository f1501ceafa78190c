"""Routes for node agents: their stream of reports, and a list of them.

In:    lines of JSON, in one long request.   Out: the number of lines taken; a Problem for an invalid line.
"""

import asyncio

from starlette.requests import Request

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import ProblemError, invalid, not_ready, quote
from kaiwo.api.presenters.measured_use import agent_view
from kaiwo.api.presenters.node_view import find_node
from kaiwo.api.views.answers import Page
from kaiwo.api.views.nodes import AgentView, TakenView
from kaiwo.devices.agent_messages import MEDIA_TYPE, Hello, Line, LineReader
from kaiwo.model.errors import ClusterError

SILENT_S = 30.0  # after this silence the stream is closed; a live agent reports every ten seconds


async def report(call: EndpointCall) -> TakenView:
    """Take lines until the agent ends the request, which it does every minute."""
    node, agents = call.path["node"], call.context.agents
    kind = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != MEDIA_TYPE:
        raise ProblemError(415, "invalid", f"the Content-Type must be {MEDIA_TYPE}, not {quote(kind)}", "Content-Type")
    _check_leads(call)
    find_node(call.context.live.state, node)
    reader, taken = LineReader(), 0
    stream, chunks = agents.open_stream(node), _Chunks(call.request, call.context.closing)
    try:
        async for data in chunks:
            _check_leads(call)
            for line in _lines(reader, data):
                _check(line, node, taken)
                await agents.receive(line, stream)
                taken += 1
                if node not in call.context.agent_nodes:  # not again for each report: they come every ten seconds
                    call.context.agent_nodes.add(node)
                    call.trail.record_now(new={"version": getattr(line, "version", "")})
    finally:
        chunks.close()
        agents.close_stream(node, stream)
    if not taken or reader.has_partial_line:
        raise invalid("the stream ended in the middle of a line; send lines of JSON, each with a newline")
    return TakenView(taken)


async def list_agents(call: EndpointCall) -> Page[AgentView]:
    agents = call.context.agents
    items = [agent_view(agents, known) for known in sorted(agents, key=lambda known: known.node)]
    return Page(items, len(items))


class _Chunks:
    """The pieces of a request. Raises a Problem when Kaiwo stops or the agent falls silent.

    One timer for each piece, and one task for the stream: a task and a wait for each piece took most of the time that a
    line costs, and there are a thousand agents.
    """

    def __init__(self, request: Request, closing: asyncio.Event) -> None:
        self._pieces = request.stream()
        self._silence: asyncio.Timeout | None = None  # while it waits for a piece
        self._closed = asyncio.ensure_future(closing.wait())
        self._closed.add_done_callback(self._end)

    def __aiter__(self) -> "_Chunks":
        return self

    async def __anext__(self) -> bytes:
        if self._closed.done():
            raise self._problem()
        try:
            async with asyncio.timeout(SILENT_S) as self._silence:
                return await anext(self._pieces)
        except TimeoutError as error:
            raise self._problem() from error
        finally:
            self._silence = None

    def close(self) -> None:
        self._closed.cancel()

    def _end(self, _: object) -> None:
        if self._silence is not None:
            self._silence.reschedule(asyncio.get_running_loop().time())

    def _problem(self) -> ProblemError:
        why = "Kaiwo is stopping" if self._closed.done() else f"no data arrived for {SILENT_S:g} s"
        return not_ready(f"{why}; open the stream again")


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
