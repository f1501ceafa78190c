"""The server itself: where it says it is, how it ends, and what it says when it cannot begin."""

import asyncio
import json
import os
import socket
import time
from pathlib import Path

import httpx
import pytest

from kaiwo.api.application import context_of, make_app
from kaiwo.api.settings import Settings
from kaiwo.app.http_server import serve
from kaiwo.model.errors import ClusterError, ConfigError
from kaiwo.runtime.loop.loop_metrics import LoopLag
from tests.api.fake_loop import FakeLoop
from tests.waiting import PATIENCE_S, run, until


def test_it_says_where_it_is_and_takes_that_back(tmp_path: Path) -> None:
    async def work() -> None:
        app = make_app(FakeLoop(), Settings(home=str(tmp_path)))
        server, url = await serve(app, "127.0.0.1", 0, str(tmp_path), context_of(app).closing.set)
        assert json.loads((tmp_path / "server.json").read_text()) == {"url": url, "pid": os.getpid()}
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.get("/healthz")).text == "ok\n"
        await server.stop()
        assert not (tmp_path / "server.json").exists()
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []

    run(work())


def test_it_leaves_the_file_of_another_alone(tmp_path: Path) -> None:
    async def work() -> None:
        app = make_app(FakeLoop(), Settings(home=str(tmp_path)))
        server, _ = await serve(app, "127.0.0.1", 0, str(tmp_path), context_of(app).closing.set)
        other = json.dumps({"url": "http://127.0.0.1:1", "pid": 1})
        (tmp_path / "server.json").write_text(other)
        await server.stop()
        assert (tmp_path / "server.json").read_text() == other

    run(work())


def test_a_taken_port_is_told_with_the_way_out(tmp_path: Path) -> None:
    async def work() -> None:
        app = make_app(FakeLoop(), Settings(home=str(tmp_path)))
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(ClusterError, match=f"port {port} on 127.0.0.1 is taken .* --port"):
                await serve(app, "127.0.0.1", port)
        with pytest.raises(ConfigError, match="--host"):
            await serve(app, "no-such-host.invalid", 0)
        with pytest.raises(ClusterError, match="no address"):
            await serve(app, "192.0.2.1", 0)

    run(work())


def test_it_ends_quickly_with_a_request_half_sent(tmp_path: Path) -> None:
    async def work() -> None:
        app = make_app(FakeLoop(), Settings(home=str(tmp_path)))
        context = context_of(app)
        server, url = await serve(app, "127.0.0.1", 0, on_stop=context.closing.set)
        port = int(url.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /api/v1/workloads HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {context.access.token}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 500\r\n\r\n{{".encode())
        await writer.drain()
        await asyncio.sleep(0.1)
        await asyncio.wait_for(server.stop(), PATIENCE_S / 3)  # the rest of the request never comes
        writer.close()

    run(work())


def test_a_body_that_never_comes_is_given_up(tmp_path: Path) -> None:
    async def work() -> None:
        app = make_app(FakeLoop(), Settings(home=str(tmp_path), body_s=0.1))
        context = context_of(app)
        server, url = await serve(app, "127.0.0.1", 0, on_stop=context.closing.set)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        head = f"POST /api/v1/workloads HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {context.access.token}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 500\r\n\r\n{{".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()
        await server.stop()

    run(work())


def test_the_page_is_served_carefully(tmp_path: Path) -> None:
    static = tmp_path / "static"
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_text("<!doctype html>the page" + " " * 5000)
    (static / "assets" / "main-abc.js").write_text("let x = 1;" * 1000)
    (tmp_path / "secret").write_text("secret")
    (static / "link").symlink_to(tmp_path / "secret")

    async def work() -> None:
        app = make_app(FakeLoop(), Settings(home=str(tmp_path / "home"), static=str(static)))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            for path in ("/nothing", "/version", "/workloads/default/x", "/favicon.ico"):
                lost = await client.get(path)
                assert (lost.status_code, lost.json()["kind"]) == (404, "not-found"), path
            for path in ("/", "/index.html"):
                page = await client.get(path)
                assert page.text.startswith("<!doctype html>the page"), path
                assert page.headers["cache-control"] == "no-cache"
                assert page.headers["content-type"].startswith("text/html")
            asset = await client.get("/assets/main-abc.js")
            assert "immutable" in asset.headers["cache-control"]
            assert asset.headers["content-encoding"] == "gzip"
            assert (await client.get("/assets/old.js")).status_code == 404
            for path in ("/..%2fsecret", "/%2e%2e/secret", "/link", "/assets/..%2f..%2fsecret", "/%00"):
                answer = await client.get(path)
                assert "secret" not in answer.text, path

    run(work())


def test_without_a_page_it_says_how_to_get_one(tmp_path: Path) -> None:
    async def work() -> None:
        app = make_app(FakeLoop(), Settings(home=str(tmp_path), static=str(tmp_path / "none")))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            answer = await client.get("/")
            assert (answer.status_code, "make ui" in answer.text) == (200, True)

    run(work())


def test_large_answers_are_zipped_and_metrics_are_text(tmp_path: Path) -> None:
    async def work() -> None:
        app = make_app(FakeLoop(nodes=40), Settings(home=str(tmp_path)))
        headers = {"Authorization": f"Bearer {context_of(app).access.token}"}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            assert (await client.get("/api/v1/nodes")).headers["content-encoding"] == "gzip"
            metrics = await client.get("/metrics")
            assert metrics.headers["content-type"].startswith("text/plain")
            assert "kaiwo_gpus 320.0" in metrics.text
            assert 'kaiwo_workloads{state="waiting"} 0.0' in metrics.text
            assert "kaiwo_cycle_seconds_bucket" in metrics.text

    run(work())


def test_the_loops_lag_is_measured() -> None:
    async def work() -> None:
        lag = LoopLag()
        task = asyncio.create_task(lag.run())
        await until(lambda: len(lag) >= 4)
        time.sleep(0.3)  # blocks the loop
        await until(lambda: len(lag) >= 6)
        task.cancel()
        assert lag.worst_s == lag.quantile(0.99) > 0.2
        assert lag.quantile(0.5) < lag.worst_s

    run(work())
