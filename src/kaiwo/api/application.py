"""The HTTP API and the page, as one starlette application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.routing import Mount

from kaiwo.api.context import Context
from kaiwo.api.endpoint import Endpoint, EndpointCall, Route
from kaiwo.api.http.path_table import PathTable
from kaiwo.api.http.problems import JSON, ProblemError, respond
from kaiwo.api.openapi import make_document
from kaiwo.api.routes import (
    advising,
    agents,
    cluster,
    consoles,
    defragmentation,
    health,
    logs,
    nodes,
    partitions,
    plugins,
    policy,
    queues,
    recovery,
    reservations,
    scale,
    stream,
    submissions,
    topology,
    what_if,
    workload_changes,
    workloads,
)
from kaiwo.api.routes.past import history, report
from kaiwo.api.routes.people import audit, login, tokens
from kaiwo.api.routes.telemetry import alerts, series
from kaiwo.api.routes.web_page import WebPage
from kaiwo.api.security.request_guard import Guard
from kaiwo.api.settings import Settings
from kaiwo.runtime.loop.loop_protocol import LiveLoop

BASE = "/api/v1"
API_ROUTES: tuple[Route, ...] = (
    *cluster.ROUTES, *nodes.ROUTES, *agents.ROUTES, *partitions.ROUTES, *queues.ROUTES, *reservations.ROUTES,
    *workloads.ROUTES, *workload_changes.ROUTES, *logs.ROUTES, *consoles.ROUTES, *submissions.ROUTES, *stream.ROUTES,
    *login.ROUTES, *audit.ROUTES, *tokens.ROUTES, *topology.ROUTES, *recovery.ROUTES, *plugins.ROUTES,
    *what_if.ROUTES, *scale.ROUTES, *policy.ROUTES, *series.ROUTES, *defragmentation.ROUTES,
    *history.ROUTES, *report.ROUTES, *alerts.ROUTES, *advising.ROUTES,
)  # fmt: skip
NOT_ZIPPED = ("text/event-stream", "text/plain", "image/png", "font/woff2")  # streams compress by themselves


def make_app(live: LiveLoop, settings: Settings) -> Starlette:
    """The application, ready to be served. Streams end with its lifespan."""
    context = Context(live, settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with context.running():
            yield

    app = Starlette(
        routes=[Mount("/", _paths(context))],
        middleware=[
            Middleware(Guard, access=context.access),
            Middleware(GZipMiddleware, minimum_size=2048, compresslevel=4, exclude_content_types=NOT_ZIPPED),
        ],
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.router.default = _not_found  # an address with a line break matches no route at all
    app.state.context = context
    return app


def context_of(app: Starlette) -> Context:
    context: Context = app.state.context
    return context


def document() -> dict[str, Any]:
    return make_document(BASE, (*API_ROUTES, OPENAPI), (*health.ROUTES, agents.REPORT_ROUTE))


@cache
def _encoded_document() -> bytes:
    return msgspec.json.encode(document())


async def _openapi(call: EndpointCall) -> Response:
    return Response(_encoded_document(), headers={"Cache-Control": "no-cache"}, media_type=JSON)


OPENAPI = Route("GET", "/openapi.json", "This document.", _openapi, {"type": "object"}, needs_state=False)


def _paths(context: Context) -> PathTable:
    outside = (*health.ROUTES, agents.REPORT_ROUTE, OPENAPI)
    by_path: dict[str, list[Route]] = {}
    for prefix, routes in (("", outside), (BASE, (*API_ROUTES, OPENAPI))):
        for route in routes:
            by_path.setdefault(prefix + route.path, []).append(route)
    page = WebPage(context)

    async def otherwise(scope: Any, receive: Any, send: Any) -> None:
        is_api = scope["path"] == "/api" or scope["path"].startswith("/api/")
        await (_not_found if is_api else page)(scope, receive, send)

    return PathTable({path: Endpoint(context, each) for path, each in by_path.items()}, otherwise)


async def _not_found(scope: Any, receive: Any, send: Any) -> None:
    message = f"there is no such address; {BASE}/openapi.json lists all of them"
    await respond(ProblemError(404, "not-found", message))(scope, receive, send)
