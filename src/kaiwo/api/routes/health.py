"""Routes for probes and Prometheus: /healthz, /livez, /readyz and /metrics."""

import asyncio
import importlib
import time

from starlette.responses import PlainTextResponse, Response

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import not_ready
from kaiwo.api.presenters.fragments_view import fragments_of
from kaiwo.api.presenters.reservation_view import reservation_view
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.reservation_status import reservation_statuses
from kaiwo.topology.domain_use import DomainUse, use_of_domains

TEXT = "text/plain"
STUCK_S = 60.0


async def alive(call: EndpointCall) -> Response:
    return PlainTextResponse("ok\n", headers={"Cache-Control": "no-store"})


async def ready(call: EndpointCall) -> Response:
    """The cluster's state is loaded and cycles finish. A standby is ready too, and says that it is one."""
    problem = why_not_ready(call.context.live)
    if not problem and call.context.webhooks is not None:
        problem = call.context.webhooks.problem  # the Service then asks another replica
    if problem:
        raise not_ready(problem)
    leadership = call.context.leadership
    words = "ok" if leadership.is_held else f"ok, standby; the leader is {leadership.holder or 'not known'}"
    return PlainTextResponse(f"{words}\n", headers={"Cache-Control": "no-store"})


async def metrics(call: EndpointCall) -> Response:
    # 90 ms of import: a start need not wait for it, and the event loop must not.
    await asyncio.to_thread(importlib.import_module, "kaiwo.api.routes.metrics")
    from kaiwo.api.routes.metrics import write_metrics

    await call.context.overview.fresh_queues()
    now_s = call.context.live.cluster.now_s()
    statuses = await call.ask(lambda state: reservation_statuses(state, now_s))
    call.context.reservations = [reservation_view(each) for each in statuses]
    call.context.domain_use = await call.ask(_use_of_domains)
    call.context.fragments = await call.ask(fragments_of)
    text, kind = write_metrics(call.context)
    return Response(text, headers={"Cache-Control": "no-store", "Content-Type": kind})


def _use_of_domains(state: ClusterState) -> list[DomainUse]:
    state.refresh_tables()
    return use_of_domains(state.nodes)


def why_not_ready(live: LiveLoop) -> str:
    """Why the scheduler is not ready; empty if it is."""
    if not live.ready:
        return "Kaiwo is still reading the cluster's state"
    busy_s = 0.0 if live.busy_since is None else time.monotonic() - live.busy_since
    if busy_s > STUCK_S:
        return f"the scheduling cycle has been running for {int(busy_s)} s"
    return live.health.problem


ROUTES = (
    Route("GET", "/healthz", "The process is alive.", alive, TEXT, needs_state=False),
    Route("GET", "/livez", "The process is alive.", alive, TEXT, needs_state=False),
    Route("GET", "/readyz", "It is ready for work.", ready, TEXT, needs_state=False, errors=(503,)),
    Route("GET", "/metrics", "Prometheus metrics.", metrics, TEXT, needs_state=False),
)
