"""The webhooks' port is open to strangers: what each of them can take is bounded, and others are still answered."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.client.credentials import ClusterAccess, Credential, FixedCredential, Trust
from kaiwo.clusters.kubernetes.webhooks.connection_limits import BodyMemory, ConnectionSlots, ServerLimits, WorkBudget
from kaiwo.clusters.kubernetes.webhooks.http_server import listen
from kaiwo.clusters.kubernetes.webhooks.submitting_user import WebhookPolicy
from kaiwo.clusters.kubernetes.webhooks.webhook_server import LIMITS, WebhookServer
from tests.clusters.kubernetes.known_state import KnownState
from tests.waiting import run, until

HURRIED = LIMITS._replace(head_s=0.3, body_s=0.3, write_s=0.3, idle_s=0.3, work_burst_s=1e9)


class Port(NamedTuple):
    server: WebhookServer
    number: int

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.number)

    async def send(self, raw: bytes, is_all: bool = True) -> bytes:
        """Everything that comes back until the connection is closed. `is_all`: there is no more to come."""
        reader, writer = await self.connect()
        writer.write(raw)
        if is_all:
            writer.write_eof()
        try:
            return await reader.read()
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def served(limits: ServerLimits = LIMITS) -> AsyncIterator[Port]:
    client = Client(ClusterAccess("http://127.0.0.1:9", Trust(), FixedCredential(Credential())))
    server = WebhookServer(client, KnownState(), WebhookPolicy("kaiwo-scheduler"), lambda *_, **__: None, limits)
    listener = listen("127.0.0.1", 0)
    server.start(listener, None)
    try:
        yield Port(server, listener.getsockname()[1])
    finally:
        await server.close()
        await client.close()


def review(kind: str = "Pod", **document: Any) -> bytes:
    spec = {"schedulerName": "kaiwo-scheduler", "containers": [{"name": "c"}]}
    request = {"uid": "u", "kind": {"kind": kind}, "object": {"metadata": {"name": "p"}, "spec": spec} | document}
    return json.dumps({"request": request}).encode()


def post(body: bytes, *fields: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = (b"POST /work HTTP/1.1", b"Host: x", b"Content-Length: %d" % size, b"Connection: close", *fields)
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def chunked(*pieces: bytes) -> bytes:
    head = b"POST /work HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (*pieces, b""))


def test_a_body_above_3_mib_is_refused_before_it_is_read() -> None:
    async def test() -> None:
        async with served() as port:
            assert b" 413 " in await port.send(
                post(b"", length=LIMITS.body_bytes + 1), is_all=False
            )  # not one byte of it came
            assert b" 400 " in await port.send(post(b" " * LIMITS.body_bytes))  # as large as it may be
            assert b" 413 " in await port.send(chunked(*[b" " * 65536] * 60))
            assert b" 413 " in await port.send(b"POST /work HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n")
            assert b'"allowed":true' in await port.send(chunked(review()[:9], review()[9:]))
            assert b'"allowed":true' in await port.send(post(review(), b"Expect: 100-continue"))

    run(test())


def test_what_is_no_request_of_an_api_server_is_refused() -> None:
    async def test() -> None:
        async with served() as port:
            for raw, status in (
                (b"GET /work HTTP/1.1\r\nHost: x\r\n\r\n", 405),
                (b"POST /elsewhere HTTP/1.1\r\nHost: x\r\n\r\n", 404),
                (b"\x16\x03\x01 this is TLS, or something else\r\n\r\n", 400),
                (b"POST /work HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
                (b"POST /work HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
                (b"POST /work HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
                (b"POST /work HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
                (b"POST /work HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
                (b"POST /work HTTP/1.1\r\nX: " + b"y" * 40_000, 431),
                (post(b"[" * 100_000), 400),
                (post(b'{"request":{"uid":"u","kind":{"kind":"Job"},"object":' + b'{"a":' * 9000), 400),
            ):
                answer = await port.send(raw)
                assert answer.startswith(b"HTTP/1.1 %d " % status), (raw[:60], answer[:90])

    run(test())


def test_who_is_slow_is_cut_off() -> None:
    """Nothing at all, half a head, half a body: none of them keeps its connection."""

    async def test() -> None:
        async with served(HURRIED) as port:
            for raw in (b"", b"POST /work HT", post(b"{", length=1000)):
                await port.send(raw, is_all=False)
            assert port.server.http.dropped["too-slow"] == 2
            assert port.server.http.dropped["idle"] == 1

    run(test())


def test_who_never_reads_is_cut_off() -> None:
    async def test() -> None:
        async with served(HURRIED) as port:
            own = socket.socket()
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            own.connect(("127.0.0.1", port.number))
            _, writer = await asyncio.open_connection(sock=own)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            one = post(review()).replace(b"Connection: close\r\n", b"")
            with contextlib.suppress(ConnectionError):
                while not port.server.http.dropped["too-slow"]:
                    writer.write(one * 50)
                    await writer.drain()
                    await asyncio.sleep(0)
            await until(lambda: not port.server.http.slots.all(), "its connection to end")
            writer.transport.abort()

    run(test())


def test_silent_connections_make_room_for_one_that_asks() -> None:
    async def test() -> None:
        limits = LIMITS._replace(connections_of_address=20, replacements_a_second=1e9)
        async with served(limits) as port:
            silent = [await port.connect() for _ in range(60)]
            assert b'"allowed":true' in await port.send(post(review()))
            assert len(port.server.http.slots) <= 20
            for _, writer in silent:
                writer.close()

    run(test())


def test_a_proven_connection_is_not_replaced_by_a_flood() -> None:
    async def test() -> None:
        limits = LIMITS._replace(connections_of_address=5, replacements_a_second=1e9)
        async with served(limits) as port:
            reader, writer = await port.connect()
            one = post(review()).replace(b"Connection: close\r\n", b"")
            for _ in range(3):
                writer.write(one)
                assert b" 200 " in await reader.readline()
                await reader.readuntil(b"\r\n\r\n")
                await reader.readuntil(b"}}")
                silent = [await port.connect() for _ in range(30)]
                await until(lambda: len(port.server.http.slots) == 5, "the flood to be there")
                for _, other in silent:
                    other.close()
            writer.close()

    run(test())


def test_no_address_takes_all_connections_memory_or_time() -> None:
    limits = ServerLimits(connections=4, connections_of_address=2, replacements_a_second=1e9)
    slots = ConnectionSlots(limits)
    first = [slots.open("a") for _ in range(2)]
    for slot in filter(None, first):
        slot.is_proven = True
    assert slots.open("a") is None
    others = [slots.open("b") for _ in range(5)]
    assert all(others)  # the later ones replaced earlier ones of the same address
    assert len(slots) == 4
    memory = BodyMemory(LIMITS)
    taken = 0
    while memory.take("a", taken, 65536):
        taken += 65536
    assert LIMITS.large_bodies_bytes // 2 <= taken <= LIMITS.large_bodies_bytes // 2 + LIMITS.free_body_bytes
    assert memory.take("b", 0, 65536)
    assert memory.take("a", 0, 65536)  # a small review of the same address
    memory.give_back("a", taken)
    assert memory.take("a", 65536, 65536)
    work = WorkBudget(LIMITS)
    work.charge("a", 10.0)
    assert work.wait_s("a") > 10.0
    assert work.wait_s("b") == 0.0


def test_an_object_with_very_many_templates_is_refused_at_once() -> None:
    """Every check is made for each template: 100,000 of them stopped the process for more than ten minutes."""
    templates = [{"spec": {"containers": []}}] * 100_000
    body = review("JobSet", metadata={"name": "p", "annotations": {"kaiwo.ai/queue": "x"}}, spec={"a": templates})
    assert len(body) < LIMITS.body_bytes

    async def test() -> None:
        async with served() as port:
            answer = await port.send(post(body))
            said = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])["response"]
            assert said["allowed"] is False
            assert "has more than 200 pod templates; divide it into several objects" in said["status"]["message"]

    run(test())


def test_reviews_share_one_read_of_the_queues() -> None:
    """An unanswered read takes 3 s: a flood of reviews of queues must not make as many reads."""
    reads = 0

    class Counting(Client):
        async def read(self, *_: Any, **__: Any) -> bytes:
            nonlocal reads
            reads += 1
            await asyncio.sleep(0.01)
            return b'{"items": []}'

    async def test() -> None:
        client = Counting(ClusterAccess("http://127.0.0.1:9", Trust(), FixedCredential(Credential())))
        server = WebhookServer(client, KnownState(), WebhookPolicy("kaiwo-scheduler"), lambda *_, **__: None)
        await asyncio.gather(*(server.read_queues() for _ in range(500)))
        await client.close()

    run(test())
    assert reads <= 2
