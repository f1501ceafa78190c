"""The endpoint that answers the requests of one path, and the routes that describe it.

In:    a request.   Out: the endpoint's answer as JSON, or a Problem.
Never: lets an exception out, or answers with a status code that the table does not name.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from kaiwo.api.context import Context
from kaiwo.api.http.problems import JSON, ProblemError, not_ready, respond, translate
from kaiwo.api.http.query_params import Param, read_query
from kaiwo.api.http.request_body import Body, read_body
from kaiwo.api.security.access import SAFE_METHODS
from kaiwo.api.security.roles import NOBODY, Identity, Right
from kaiwo.api.security.route_rights import right_needed
from kaiwo.api.write_trail import REASON, WriteTrail
from kaiwo.model.errors import KaiwoError
from kaiwo.runtime.tracing import RequestFacts
from kaiwo.snapshot.cluster_state import ClusterState

T = TypeVar("T")


class EndpointCall(NamedTuple):
    request: Request
    context: Context
    query: dict[str, Any]
    path: dict[str, str]
    body: bytes
    person: Identity
    trail: WriteTrail  # takes what a write changes, for the audit

    @property
    def user(self) -> str:
        """Who owns what this call submits, and is named in the audit."""
        return self.person.name

    async def ask(self, question: Callable[[ClusterState], T]) -> T:
        """Ask the scheduler's thread, when it is this person's turn."""
        async with self.context.turns.of(self.person):
            return await self.context.live.ask(question)

    async def until_over(self) -> None:
        """Wait until the credential of this call is worth nothing any more; its streams end then."""
        await self.context.access.until_over(self.person, self.request)


class Route(msgspec.Struct, frozen=True):
    """One method of one path. `answer`: its type, or a media type for text."""

    method: str
    path: str
    summary: str
    endpoint: Callable[[EndpointCall], Awaitable[Any]]
    answer: Any
    status: int = 200
    params: tuple[Param, ...] = ()
    body: Body | None = None
    errors: tuple[int, ...] = ()  # further status codes that it answers with a Problem
    needs_state: bool = True  # answers 503 until the first state has arrived

    @property
    def right(self) -> Right:
        """What the client must have."""
        return right_needed(self.method, self.path)

    @property
    def is_write(self) -> bool:
        return self.method not in SAFE_METHODS

    @property
    def all_params(self) -> tuple[Param, ...]:
        """People can give a reason for every change."""
        return (*self.params, REASON) if self.is_write and self.right is not Right.REPORT else self.params

    def statuses(self) -> list[int]:
        """Every code that it can answer with, apart from success."""
        codes = {400, 401, 403, 421, 429, *self.errors}
        if self.needs_state:
            codes.add(503)
        if self.is_write:
            codes |= {409}
        if self.body is not None:
            codes |= {408, 413, 415}
        return sorted(codes)


class Endpoint:
    """All methods of one path: an ASGI application for starlette's router."""

    def __init__(self, context: Context, routes: Sequence[Route]) -> None:
        self._context = context
        self._routes = {route.method: route for route in routes}
        if "GET" in self._routes:
            self._routes["HEAD"] = self._routes["GET"]
        self._allow = ", ".join(sorted({*self._routes, "OPTIONS"}))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": self._allow})
        route = self._routes.get(request.method)
        if route is None:
            message = f"{request.url.path} does not take {request.method}; it takes {self._allow}"
            return respond(ProblemError(405, "invalid", message, headers={"Allow": self._allow}))
        return await answer_request(request, self._context, route)


async def answer_request(request: Request, context: Context, route: Route) -> Response:
    """Run an endpoint and turn whatever happens into an answer; writes go to the audit and the log."""
    began, began_ns = time.perf_counter(), time.time_ns()
    person, problem = NOBODY, ""
    trail = WriteTrail(context, route.method, route.path, request.path_params)
    is_report = route.right is Right.REPORT
    try:
        if is_report:
            person = await context.access.check_agent(request)
        else:
            person = await context.access.check(request, route.right)
            if route.is_write:
                context.access.check_write_rate(person)
        trail.person = person
        response = await _run(request, context, route, trail)
    except ProblemError as error:
        response, problem = respond(error), str(error)
        trail.person = getattr(request.state, "person", person)
    except KaiwoError as error:
        response, problem = respond(translate(error)), str(error)
    except ClientDisconnect:
        response, problem = Response(status_code=400), "the client closed the connection"
    # The edge of the API: a bug is answered as a Problem, and the log says where it is.
    except Exception as error:
        context.report(error, f"{request.method} {route.path}")
        broken = "this request failed because of a bug in Kaiwo; KAIWO_HOME/api.log has the details"
        response, problem = respond(ProblemError(500, "broken", broken)), broken
    if context.traces is not None:
        times = began_ns, began_ns + round((time.perf_counter() - began) * 1e9)
        context.traces.request(RequestFacts(request.method, route.path, response.status_code, *times, request.headers))
    if route.is_write:
        await trail.end(response.status_code, problem)
    if route.is_write and not is_report:
        context.overview.mark_changed()
        ms = round((time.perf_counter() - began) * 1000, 1)
        path = request.url.path[:500]
        who = person.credential
        context.log.emit("write", who=who, method=request.method, path=path, status=response.status_code, ms=ms)
    return response


async def _run(request: Request, context: Context, route: Route, trail: WriteTrail) -> Response:
    query = read_query(request.query_params, route.all_params)
    if route.needs_state and not context.live.ready:
        raise not_ready("Kaiwo is still reading the cluster's state; try again in a moment")
    body = b"" if route.body is None else await read_body(request, route.body, context.settings)
    if route.is_write and route.right is not Right.REPORT and not query.get("dry_run"):
        trail.begin(query["reason"])
    answer = await route.endpoint(EndpointCall(request, context, query, request.path_params, body, trail.person, trail))
    if isinstance(answer, Response):
        return answer
    return Response(msgspec.json.encode(answer), route.status, {"Cache-Control": "no-store"}, media_type=JSON)
