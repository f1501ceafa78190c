"""Following a page: what a reader sees is always what a plain look shows, through breaks and slowness."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from kaiwo.api.application import context_of, make_app
from kaiwo.api.context import Context
from kaiwo.api.http.problems import ProblemError
from kaiwo.api.http.streaming_response import OpenStreams
from kaiwo.api.presenters import live_pages
from kaiwo.api.settings import Settings
from kaiwo.app.http_server import serve
from kaiwo.model.events import NodeChanged
from kaiwo.model.workload_record import WorkloadState
from tests.api.fake_loop import FakeLoop, record
from tests.api.sse_reader import Reader, following
from tests.api.world import node
from tests.waiting import PATIENCE_S, is_in_time, run, until


@asynccontextmanager
async def serving(home: Path, loop: FakeLoop, **settings: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Context]]:
    app = make_app(loop, Settings(home=str(home), **settings))
    context = context_of(app)
    server, url = await serve(app, "127.0.0.1", 0, on_stop=context.closing.set)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, headers=bearer(context)) as client:
        try:
            yield client, context
        finally:
            await server.stop()


def bearer(context: Context) -> dict[str, str]:
    return {"Authorization": f"Bearer {context.access.token}"}


async def shows_what_a_look_shows(client: httpx.AsyncClient, reader: Reader, path: str) -> None:
    looked = (await client.get(f"/api/v1{path}")).json()
    while list(reader.items.values()) != looked["items"] or reader.total != looked["total"]:
        await reader.next()


def test_a_page_is_followed_with_deltas(tmp_path: Path) -> None:
    async def work() -> None:
        loop = FakeLoop()
        loop.put(*(record(f"w{number}", submitted_s=number) for number in range(5)))
        async with (
            serving(tmp_path, loop) as (client, _),
            following(client, "view=workloads&sort=-submitted&limit=3") as reader,
        ):
            first = await reader.next()
            assert first.kind == "reset"
            assert (first.data["view"], first.data["key"]) == ("workloads", "name")
            assert list(reader.items) == ["default/w4", "default/w3", "default/w2"]
            assert (reader.total, bool(first.data["next"])) == (5, True)
            loop.put(record("w3", WorkloadState.RUNNING, submitted_s=3))
            changed = await reader.next()
            assert [item["name"] for item in changed.data["set"]] == ["default/w3"]
            assert "order" not in changed.data
            assert changed.data["gone"] == []
            loop.put(record("w9", submitted_s=9))
            pushed = await reader.next()
            assert pushed.data["order"] == ["default/w9", "default/w4", "default/w3"]
            assert (pushed.data["gone"], pushed.data["total"]) == (["default/w2"], 6)
            loop.put(record("w0", WorkloadState.RUNNING, submitted_s=0))  # not on this page
            loop.drop("default/w4")
            await reader.until_names(["default/w9", "default/w3", "default/w2"])
            await shows_what_a_look_shows(client, reader, "/workloads?sort=-submitted&limit=3")

    run(work())


@pytest.mark.parametrize("view", ["status", "nodes", "gpus", "queues"])
def test_every_view_can_be_followed(tmp_path: Path, view: str) -> None:
    async def work() -> None:
        loop = FakeLoop(nodes=2)
        async with serving(tmp_path, loop) as (client, _), following(client, f"view={view}") as reader:
            await reader.next()
            loop.patch([NodeChanged(node("n-00000", gpus=4, cordoned=True)), NodeChanged(node("n-00009"))])
            loop.put(record("new"))
            await reader.next()
            if view == "status":
                assert reader.items["cluster"]["nodes_out"] == 1
            else:
                await shows_what_a_look_shows(client, reader, f"/{view}")

    run(work())


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("view=gpus&limit=1000", 200),
        ("view=gpus&limit=1001", 400),
        ("view=nodes&limit=2000", 200),
        ("view=nodes&limit=2001", 400),
        ("view=workloads&limit=501", 400),
    ],
)
def test_a_stream_takes_what_its_view_takes(tmp_path: Path, query: str, status: int) -> None:
    async def work() -> None:
        async with serving(tmp_path, FakeLoop(nodes=150)) as (client, _):
            if status == 200:
                async with following(client, query) as reader:
                    assert len((await reader.next()).data["items"]) == reader.total or reader.total > 500
                return
            refused = await client.get(f"/api/v1/stream?{query}")
            assert (refused.status_code, refused.json()["field"]) == (status, "limit")

    run(work())


def test_a_reader_who_comes_back_gets_what_was_missed(tmp_path: Path) -> None:
    async def work() -> None:
        loop = FakeLoop()
        loop.put(record("a"))
        async with serving(tmp_path, loop) as (client, _):
            query = "view=workloads&sort=name"
            async with following(client, query) as other:  # somebody stays, so the page is kept up to date
                await other.next()
                async with following(client, query) as reader:
                    await reader.next()
                    seen = reader.last_id
                for name in ("b", "c"):
                    loop.put(record(name))
                    await other.next()
                async with following(client, query, seen, reader.items) as back:
                    events = [await back.next(), await back.next()]
                    assert [event.kind for event in events] == ["delta", "delta"]
                    assert [event.data["set"][0]["name"] for event in events] == ["default/b", "default/c"]
                    assert events[-1].id == other.last_id

    run(work())


def test_a_reader_who_comes_back_alone_gets_a_delta_too(tmp_path: Path) -> None:
    async def work() -> None:
        loop = FakeLoop()
        loop.put(record("a"))
        async with serving(tmp_path, loop) as (client, context):
            async with following(client, "view=workloads") as reader:
                await reader.next()
            await until(lambda: context.streams.count == 0, "the stream to end")
            loop.put(record("b"))
            await asyncio.sleep(live_pages.PERIOD_S * 1.2)  # a page younger than this is not computed again
            async with following(client, "view=workloads", reader.last_id, reader.items) as back:
                event = await back.next()
                assert event.kind == "delta"
                assert [item["name"] for item in event.data["set"]] == ["default/b"]

    run(work())


def test_who_comes_back_at_once_sees_what_happened_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_pages, "PERIOD_S", 60.0)  # nothing but the change itself makes a page be computed again

    async def work() -> None:
        loop = FakeLoop()
        async with (
            serving(tmp_path, loop) as (client, context),
            following(client, "view=workloads&limit=3") as other,  # keeps the task of the streams awake
        ):
            await other.next()
            async with following(client, "view=workloads&state=held") as reader:
                await reader.next()
            await until(lambda: context.streams.count == 1, "the stream to end")
            loop.put(record("new", WorkloadState.HELD))
            async with following(client, "view=workloads&state=held") as back:
                assert (await back.next()).data["total"] == 1

    run(work())


@pytest.mark.parametrize("last_id", ["nonsense", "0123456789ab-7", "-1", "x" * 5000])
def test_what_the_server_cannot_know_begins_anew(tmp_path: Path, last_id: str) -> None:
    async def work() -> None:
        async with (
            serving(tmp_path, FakeLoop()) as (client, _),
            following(client, "view=queues", last_id) as reader,
        ):
            assert (await reader.next()).kind == "reset"

    run(work())


def test_after_a_gap_too_long_it_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_pages, "PERIOD_S", 0.01)

    async def work() -> None:
        loop = FakeLoop()
        async with serving(tmp_path, loop) as (client, _), following(client, "view=workloads&sort=name") as other:
            await other.next()
            async with following(client, "view=workloads&sort=name") as reader:
                await reader.next()
                seen, future = reader.last_id, reader.last_id.replace("-", "-9")
            for number in range(live_pages.RING_EVENTS + 5):
                loop.put(record(f"w{number:03d}"))
                await other.next()
            for last_id in (seen, future):
                async with following(client, "view=workloads&sort=name", last_id) as back:
                    assert (await back.next()).kind == "reset"
                    assert back.total == live_pages.RING_EVENTS + 5

    run(work())


def test_changes_are_gathered_to_four_a_second(tmp_path: Path) -> None:
    async def work() -> None:
        loop = FakeLoop()
        async with serving(tmp_path, loop) as (client, _), following(client, "view=workloads") as reader:
            await reader.next()
            began, events = time.monotonic(), 0
            writer = asyncio.create_task(_keep_changing(loop, 1.5))
            while "default/last" not in reader.items:
                await reader.next()
                events += 1
            await writer
            assert events <= 4 * (time.monotonic() - began) + 2
            assert events >= 3

    run(work())


async def _keep_changing(loop: FakeLoop, seconds: float) -> None:
    until_s, number = time.monotonic() + seconds, 0
    while time.monotonic() < until_s:
        loop.put(record(f"w{number:05d}"))
        number += 1
        await asyncio.sleep(0.005)
    loop.put(record("last", submitted_s=1))  # the newest, so the first on the page


def test_readers_of_one_page_share_its_computation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    plain = live_pages.LivePage.update
    monkeypatch.setattr(live_pages.LivePage, "update", lambda live, page: (shown.append(live), plain(live, page)))

    async def work() -> None:
        loop = FakeLoop()
        async with serving(tmp_path, loop) as (client, context), asyncio.TaskGroup() as group:
            ready, go = asyncio.Semaphore(0), asyncio.Event()

            async def read() -> None:
                async with following(client, "view=workloads&limit=7") as reader:
                    await reader.next()
                    ready.release()
                    await go.wait()
                    while reader.total != 1:
                        await reader.next()

            for _ in range(12):
                group.create_task(read())
            for _ in range(12):
                await ready.acquire()
            shown.clear()
            loop.put(record("new"))
            await until(lambda: shown, "the page to be computed")
            go.set()
            assert len(context.live_pages._pages) == 1
            assert len(shown) <= 2

    run(work())


def test_one_stream_too_many_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, FakeLoop(), streams_of_person=2) as (client, context):
            async with following(client, "view=status") as first, following(client, "view=nodes") as second:
                await first.next()
                await second.next()
                refused = await client.get("/api/v1/stream?view=gpus")
                assert refused.status_code == 429
                assert "2 streams of" in refused.json()["message"]
            await until(lambda: context.streams.count == 0, "the streams to end")
            async with following(client, "view=gpus") as third:
                await third.next()

    run(work())


def test_the_streams_of_others_never_keep_an_admin_out() -> None:
    streams = OpenStreams(limit=3, limit_of_person=2, report=lambda error, where: None)
    for person in ("ann", "ann", "ben"):
        streams.check_limit(person)
        streams.opened(person)
    with pytest.raises(ProblemError, match="3 streams are open"):
        streams.check_limit("cem")
    with pytest.raises(ProblemError, match="2 streams of ann"):
        streams.check_limit("ann", has_reserve=True)
    streams.check_limit("cem", has_reserve=True)
    streams.ended("ben")
    streams.check_limit("cem")


def test_a_client_that_does_not_read_blocks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_pages, "PERIOD_S", 0.02)

    async def work() -> None:
        loop = FakeLoop(nodes=200)
        async with serving(tmp_path, loop) as (client, context):
            host, port = client.base_url.host, client.base_url.port
            _, stuck = await asyncio.open_connection(host, port, limit=1024)
            login = f"Authorization: {bearer(context)['Authorization']}\r\n"
            head = f"GET /api/v1/stream?view=nodes&limit=200 HTTP/1.1\r\nHost: localhost:{port}\r\n{login}\r\n"
            stuck.write(head.encode())
            await stuck.drain()
            await until(lambda: context.streams.count == 1, "the stream to open")
            async with following(client, "view=nodes&limit=200") as reader:
                await reader.next()
                for turn in range(60):  # far more than sockets and the ring hold together
                    cordoned = turn % 2 == 0
                    loop.patch([NodeChanged(node(f"n-{at:05d}", cordoned=cordoned)) for at in range(200)])
                    began = time.monotonic()
                    await reader.next()
                    assert is_in_time(time.monotonic() - began, 8)  # a stuck client is dropped much later
            feed = next(iter(context.live_pages._pages.values()))
            assert sum(len(event) for _, event in feed._ring) <= live_pages.RING_BYTES
            stuck.close()
            await until(lambda: context.streams.count == 0, "the stuck stream to end")

    run(work())


def test_a_page_that_cannot_be_made_does_not_stop_the_others(tmp_path: Path) -> None:
    async def work() -> None:
        loop = FakeLoop(nodes=1)
        async with (
            serving(tmp_path, loop) as (client, context),
            following(client, "view=queues") as broken,
            following(client, "view=workloads") as well,
        ):
            await broken.next()
            await well.next()
            context.overview.sum_queues = None  # type: ignore[assignment,method-assign]
            loop.put(record("new"))
            await well.until_names(["default/new"])
            assert context.bugs >= 1

    run(work())


def test_open_streams_end_with_the_server(tmp_path: Path) -> None:
    async def work() -> None:
        app = make_app(FakeLoop(), Settings(home=str(tmp_path)))
        headers = bearer(context_of(app))
        server, url = await serve(app, "127.0.0.1", 0, on_stop=context_of(app).closing.set)
        async with (
            httpx.AsyncClient(base_url=url, headers=headers) as client,
            following(client, "view=status") as reader,
        ):
            await reader.next()
            await asyncio.wait_for(server.stop(), PATIENCE_S / 3)
            with pytest.raises((EOFError, httpx.HTTPError)):
                await reader.next()

    run(work())


def test_a_quiet_stream_says_that_it_is_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kaiwo.api.routes.stream.HEARTBEAT_S", 0.05)

    async def work() -> None:
        async with serving(tmp_path, FakeLoop()) as (client, _), following(client, "view=queues") as reader:
            async for line in reader.response.aiter_lines():
                if line == ": still here":
                    return

    run(work())
