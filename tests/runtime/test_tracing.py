"""A real OTLP receiver, with OpenTelemetry's own protocol buffers, gets the traces of a running Kaiwo."""

import asyncio
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kaiwo.model.errors import ConfigError
from kaiwo.runtime.tracing import open_traces
from tests.api.world import world
from tests.waiting import run, until

trace_service = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="the extra kaiwo[otel] is not installed"
)
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Receiver:
    """What an OpenTelemetry collector does with a request: decode it, and answer in the same format."""

    def __init__(self) -> None:
        self.spans: list[object] = []
        self.resources: list[dict[str, str]] = []
        mine = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                request = trace_service.ExportTraceServiceRequest.FromString(body)
                for each in request.resource_spans:
                    mine.resources.append({one.key: one.value.string_value for one in each.resource.attributes})
                    mine.spans += [span for scope in each.scope_spans for span in scope.spans]
                answer = trace_service.ExportTraceServiceResponse().SerializeToString()
                self.send_response(200 if self.path == "/v1/traces" else 404)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def named(self, name: str) -> list[object]:
        return [span for span in self.spans if span.name == name]  # type: ignore[attr-defined]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.server.shutdown()
    found.server.server_close()


def attributes(span: object) -> dict[str, object]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}  # type: ignore[attr-defined]


def test_cycles_with_their_phases_and_requests_arrive(tmp_path: Path, receiver: Receiver) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            it.context.use_traces(receiver.url)
            await it.submit("train", gpus=2, simulate="1h")
            await it.until_state("train", "running")
            await it.client.get("/api/v1/workloads/default/train", headers={"traceparent": PARENT})
            await until(lambda: receiver.named("GET /workloads/{namespace}/{name}"), "the request")
            await until(lambda: any(attributes(each)["kaiwo.starts"] for each in receiver.named("cycle")), "the cycle")

    run(story())
    assert receiver.resources[0]["service.name"] == "kaiwo"
    (cycle,) = [each for each in receiver.named("cycle") if attributes(each)["kaiwo.starts"]]
    inside = [each for each in receiver.spans if each.parent_span_id == cycle.span_id]  # type: ignore[attr-defined]
    assert [each.name for each in inside] == ["events", "prepare", "decide", "assume", "apply"]  # type: ignore[attr-defined]
    assert all(each.trace_id == cycle.trace_id for each in inside)  # type: ignore[attr-defined]
    assert cycle.start_time_unix_nano <= inside[0].start_time_unix_nano  # type: ignore[attr-defined]
    assert cycle.end_time_unix_nano >= inside[-1].end_time_unix_nano  # type: ignore[attr-defined]
    (asked,) = receiver.named("GET /workloads/{namespace}/{name}")
    assert asked.trace_id.hex() == PARENT.split("-")[1]  # type: ignore[attr-defined]
    assert attributes(asked)["http.response.status_code"] == 200


def test_an_endpoint_that_is_away_holds_nothing_up_and_is_told_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            it.context.use_traces("http://127.0.0.1:9")
            await it.submit("train", gpus=2, simulate="1h")
            await it.until_state("train", "running")
            await asyncio.to_thread(it.context.traces.close)  # type: ignore[union-attr]
            it.context.traces = None

    run(story())
    lines = capsys.readouterr().err.splitlines()
    assert any('"event": "library"' in line and '"logger": "opentelemetry' in line for line in lines)
    assert all(line.startswith("{") for line in lines if line), lines


def test_a_wrong_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not an address of OTLP"):
        open_traces("collector:4317")
