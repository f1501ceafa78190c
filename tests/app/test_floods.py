"""Floods of connections to a real server: strangers lose theirs, and the owner notices nothing.

bench/flood.py does the same in large, and measures.
"""

import asyncio
import contextlib
import json
import os
import re
import resource
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from kaiwo.api.application import context_of, make_app
from kaiwo.api.context import Context
from kaiwo.api.http.connection_counts import CloseCause
from kaiwo.api.settings import Settings
from kaiwo.app import connection_gate, http_connections
from kaiwo.app.http_server import serve
from tests.api.fake_loop import FakeLoop
from tests.waiting import PATIENCE_S, run, until, wait_until

CLI = [sys.executable, "-m", "kaiwo.cli.main"]
OPEN_FILES = 256
SOFT = 200


class Served:
    def __init__(self, context: Context, url: str) -> None:
        self.context, self.url = context, url
        self.port = int(url.rpartition(":")[2])

    async def connect(self, *lines: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write("".join(f"{line}\r\n" for line in lines).encode())
        return reader, writer

    @property
    def login(self) -> str:
        return f"Authorization: Bearer {self.context.access.token}"

    async def closes(self, cause: CloseCause) -> None:
        await until(lambda: self.context.connections.closed[cause], f"a connection to be closed as {cause}")


@contextlib.asynccontextmanager
async def served(home: Path) -> AsyncIterator[Served]:
    app = make_app(FakeLoop(nodes=300), Settings(home=str(home)))
    context = context_of(app)
    server, url = await serve(app, "127.0.0.1", 0, str(home), context.closing.set, counts=context.connections)
    try:
        yield Served(context, url)
    finally:
        await server.stop()


@pytest.mark.parametrize("head", [(), ("GET / HTTP/1.1", "Host: localhost")])
def test_silence_and_half_a_head_are_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: tuple[str, ...]
) -> None:
    monkeypatch.setattr(connection_gate, "HEAD_S", 0.5)

    async def work() -> None:
        async with served(tmp_path) as server:
            reader, writer = await server.connect(*head)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            assert server.context.connections.closed[CloseCause.SILENT] == 1
            writer.close()

    run(work())


def test_a_kept_connection_serves_many_requests_and_a_half_sent_one_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_gate, "HEAD_S", 1.0)

    async def work() -> None:
        async with served(tmp_path) as server:
            reader, writer = await server.connect(*("GET /healthz HTTP/1.1", "Host: localhost", "") * 40)  # pipelined
            for _ in range(40):
                assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200")
            writer.write(b"GET /healthz")
            await server.closes(CloseCause.SILENT)
            writer.close()

    run(work())


def test_the_rest_of_a_refused_request_is_not_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "REST_S", 0.5)

    async def work() -> None:
        async with served(tmp_path) as server:
            head = ("POST /api/v1/workloads HTTP/1.1", "Host: localhost", "Content-Length: 9000", "")
            reader, writer = await server.connect(*head)
            assert b"401" in await reader.readline()
            await server.closes(CloseCause.SLOW_SENDER)
            writer.close()

    run(work())


def test_who_sends_too_much_reads_why_and_who_never_stops_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with served(tmp_path) as server:
            headers = {"Authorization": server.login.partition(" ")[2], "Content-Type": "application/json"}
            async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=PATIENCE_S) as client:
                for token in (headers["Authorization"], "Bearer wrong"):
                    answer = await client.post(
                        "/api/v1/workloads", content=b"x" * 7_000_000, headers={"Authorization": token}
                    )
                    assert answer.status_code == (413 if token != "Bearer wrong" else 401)
            monkeypatch.setattr(http_connections, "REST_BYTES", 1_000_000)
            _, writer = await server.connect(
                "POST /api/v1/workloads HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked", ""
            )
            with contextlib.suppress(ConnectionError):
                while not server.context.connections.closed[CloseCause.SLOW_SENDER]:
                    writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
                    await writer.drain()
            await server.closes(CloseCause.SLOW_SENDER)
            writer.close()

    run(work())


def test_a_slow_reader_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_gate, "UNREAD_S", 0.5)

    async def work() -> None:
        async with served(tmp_path) as server:
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", server.port))
            request = f"GET /api/v1/nodes?limit=300 HTTP/1.1\r\nHost: localhost\r\n{server.login}\r\n\r\n"
            await asyncio.get_running_loop().sock_sendall(connection, request.encode() * 60)
            await server.closes(CloseCause.SLOW_READER)
            connection.close()

    run(work())


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A real `kaiwo up` with few file descriptors: its home and its port."""
    home, log = tmp_path / "home", tmp_path / "log"
    command = [*CLI, "up", "--port", "0", "--nodes", "1"]
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, OPEN_FILES))  # noqa: E731
    with log.open("w") as stderr:
        process = subprocess.Popen(
            command, env=_env(home), stdout=subprocess.PIPE, stderr=stderr, text=True, preexec_fn=limit
        )
    assert process.stdout is not None
    try:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert found, log.read_text()
        yield home, int(found[1])
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def _env(home: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("KAIWO_")}, "KAIWO_HOME": str(home),
    }  # fmt: skip


def test_more_silent_connections_than_descriptors_do_not_reach_the_owner(small: tuple[Path, int]) -> None:
    home, port = small

    def kaiwo(*words: str) -> str:
        done = subprocess.run(
            [*CLI, *words], env=_env(home), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def connect() -> socket.socket:
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", port))
        return connection

    strangers = [connect() for _ in range(3 * OPEN_FILES)]
    try:
        assert "GPU" in kaiwo("status")
        kaiwo("submit", "job", "--gpus", "1", "--wait", "--", "sh", "-c", "ulimit -Sn")
        assert kaiwo("logs", "job").strip() == str(SOFT), "a command has the limit that Kaiwo was started with"

        def closed() -> float:
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(home / "api.sock"))) as client:
                token = (home / "token").read_text().strip()
                text = client.get("http://localhost/metrics", headers={"Authorization": f"Bearer {token}"}).text
            return sum(float(n) for n in re.findall(r"^kaiwo_connections_closed_total\{.*\} (\S+)$", text, re.M))

        wait_until(lambda: closed() > OPEN_FILES / 2, "strangers to be closed")
        lines = home.with_name("log").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        assert {event["event"] for event in events} == {"connection-closed"}
        assert len(events) < 50
    finally:
        for connection in strangers:
            connection.close()
