"""Traces by OpenTelemetry: one for each scheduling cycle with its phases, and a span for each request of the API.

In:    cycles and requests, after they ended.   Out: spans in batches to an OTLP endpoint, on a thread of the library.
Never: holds up a cycle or a request; when the endpoint is away, spans are dropped and the log says so. The library is
       imported only where traces are wanted: it costs 20 MB and 0.3 s.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from kaiwo import __version__
from kaiwo.model.errors import ConfigError
from kaiwo.runtime.log import JsonHandler
from kaiwo.runtime.loop.cycle_phases import PhaseSpan
from kaiwo.runtime.loop.cycle_runner import CycleSummary

QUEUED, BATCH, EVERY_MS = 4096, 512, 2000
PATH = "/v1/traces"


class RequestFacts(NamedTuple):
    method: str
    route: str  # with the names of its parameters, not their values
    status: int
    began_ns: int
    ended_ns: int
    headers: Mapping[str, str]  # a caller's trace goes on: `traceparent`


class Traces(Protocol):
    def cycle(self, summary: CycleSummary, phases: Sequence[PhaseSpan]) -> None: ...

    def request(self, facts: RequestFacts) -> None: ...

    def close(self) -> None:
        """Send what is left. It may take some seconds."""


def open_traces(url: str, node: str = "") -> Traces:
    """ConfigError where the address is wrong or the library is missing."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"'{url}' is not an address of OTLP over HTTP; write it like http://collector:4318", "--traces"
        )
    try:
        return OtlpTraces(url if parts.path.strip("/") else url.rstrip("/") + PATH, node)
    except ImportError as error:
        raise ConfigError("--traces needs OpenTelemetry; install kaiwo[otel]", "--traces") from error


class OtlpTraces:
    def __init__(self, url: str, node: str) -> None:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        # The library logs what it could not send; it must not write plain text between our lines.
        logger = logging.getLogger("opentelemetry")
        logger.propagate, logger.handlers = False, [JsonHandler()]
        resource = Resource.create(
            {
                "service.name": "kaiwo",
                "service.version": __version__,
                "service.instance.id": node or os.uname().nodename,
            }
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=url, timeout=5)
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, QUEUED, EVERY_MS, BATCH, export_timeout_millis=5000)
        )
        self._tracer = self._provider.get_tracer("kaiwo", __version__)
        self._trace, self._propagator = trace, TraceContextTextMapPropagator()

    def cycle(self, summary: CycleSummary, phases: Sequence[PhaseSpan]) -> None:
        if not phases:
            return
        facts = {
            "kaiwo.cycle": summary.number, "kaiwo.starts": summary.starts, "kaiwo.evictions": summary.evictions,
            "kaiwo.waits": summary.waits, "kaiwo.steps": summary.steps, "kaiwo.decide_us": summary.took_us,
        }  # fmt: skip
        root = self._tracer.start_span("cycle", attributes=facts, start_time=phases[0].began_ns)
        inside = self._trace.set_span_in_context(root)
        for each in phases:
            span = self._tracer.start_span(each.phase, context=inside, start_time=each.began_ns)
            span.end(each.began_ns + each.took_ns)
        for note in summary.notes:
            root.add_event(note.code, {"subject": note.subject})
        root.end(max(each.began_ns + each.took_ns for each in phases))

    def request(self, facts: RequestFacts) -> None:
        attributes: dict[str, str | int] = {
            "http.request.method": facts.method, "http.route": facts.route, "http.response.status_code": facts.status,
        }  # fmt: skip
        span = self._tracer.start_span(
            f"{facts.method} {facts.route}", self._propagator.extract(facts.headers), self._trace.SpanKind.SERVER,
            attributes, start_time=facts.began_ns,
        )  # fmt: skip
        if facts.status >= 500:
            span.set_status(self._trace.StatusCode.ERROR)
        span.end(facts.ended_ns)

    def close(self) -> None:
        self._provider.shutdown()
