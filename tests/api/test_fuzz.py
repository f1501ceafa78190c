"""The API fuzzed from its own document: never a 5xx, never an answer that the document does not name."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import (
    content_type_conformance,
    negative_data_rejection,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from kaiwo.api.application import document
from tests.api.world import World, world
from tests.conftest import SIZE
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.slow]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
QUIET = [
    HealthCheck.too_slow,
    HealthCheck.filter_too_much,
    HealthCheck.function_scoped_fixture,
    HealthCheck.data_too_large,
]
CHANNEL = "channels: [{name: nobody, type: webhook, url: 'http://127.0.0.1:9'}]\n"  # where nobody answers
fuzzed = settings(max_examples=25 * SIZE, deadline=None, suppress_health_check=QUIET)


class Running:
    """A Kaiwo in its own thread, since the fuzzer does not speak asyncio."""

    def __init__(self, home: Path) -> None:
        self._up, self._down = threading.Event(), asyncio.Event()
        self.kaiwo: World
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(home)), daemon=True)
        self._thread.start()
        assert self._up.wait(30)

    async def _run(self, home: Path) -> None:
        self._loop = asyncio.get_running_loop()
        async with world(home, settings={"writes_per_s": 1e6, "writes_burst": 1e6}) as self.kaiwo:
            (home / "alerts.yaml").write_text(CHANNEL)
            self.kaiwo.context.alerts.use_file(str(home / "alerts.yaml"))
            await self.kaiwo.submit("held", hold=True)
            await self.kaiwo.submit("ended", simulate="1s")
            await self.kaiwo.submit("runs", gpus=1, simulate="10h")
            await self.kaiwo.post("/reservations", {"name": "night", "gpus": 1})
            await self.kaiwo.until_state("ended", "succeeded")
            self._up.set()
            await self._down.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._down.set)
        self._thread.join(30)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("home"))
    yield found
    found.stop()


DOCUMENT = msgspec.json.decode(msgspec.json.encode(document()))
schema = schemathesis.openapi.from_dict(DOCUMENT)
CUTTING = ("transfer-encoding", "content-length", "connection", "upgrade", "expect", "te")


@schema.exclude(path_regex="/stream$").parametrize()
@fuzzed
def test_no_request_breaks_anything(case: Any, running: Running) -> None:
    # Headers by which HTTP itself cuts requests apart never reach the API: the server answers them in its own words.
    for name in [name for name in case.headers or {} if name.lower() in CUTTING]:
        del case.headers[name]
    query = case.query if isinstance(case.query, dict) else {}
    if query.get("follow") in (True, "true"):
        query["follow"] = False  # following work that waits goes on for ever, as it should
    case.call_and_validate(running.kaiwo.url, headers=running.kaiwo.bearer, checks=CHECKS, timeout=PATIENCE_S)


@schema.include(path_regex="/stream$").parametrize()
@fuzzed
def test_no_stream_breaks_anything(case: Any, running: Running) -> None:
    known = set(DOCUMENT["paths"]["/api/v1/stream"]["get"]["responses"])
    request = case.as_transport_kwargs()
    with httpx.stream(
        "GET", f"{running.kaiwo.url}/api/v1/stream", params=request.get("params"), timeout=PATIENCE_S
    ) as answer:
        assert str(answer.status_code) in known
        if answer.status_code == 200:
            assert next(answer.iter_text()).startswith("retry:")


@schema.include(path_regex="{name}").parametrize()
@fuzzed
def test_nothing_breaks_on_things_that_exist(case: Any, running: Running) -> None:
    names = {"/workloads/": "held", "/nodes/": "node-0", "/queues/": "default", "/shares/": "default"}
    names |= {"/reservations/": "night", "/plugins/": "pack", "/channels/": "nobody"}
    name = next(name for part, name in names.items() if part in case.path)
    case.path_parameters = {"name": name} | ({"namespace": "default"} if "{namespace}" in case.path else {})
    query = case.query if isinstance(case.query, dict) else {}
    if "follow" in query:
        query["follow"] = False
    case.call_and_validate(
        running.kaiwo.url,
        headers=running.kaiwo.bearer,
        checks=[not_a_server_error, status_code_conformance, response_schema_conformance],
        timeout=PATIENCE_S,
    )


def test_nothing_broke_inside(running: Running) -> None:
    assert running.kaiwo.context.bugs == 0, (Path(running.kaiwo.context.settings.home) / "api.log").read_text()[-5000:]
