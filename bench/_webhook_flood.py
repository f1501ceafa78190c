"""Attack the port of the webhooks, as any pod of a cluster can.

In:  PORT, SECONDS, the address that it comes from, and one of `connections` and `requests`.
Connections that come and go (some with a TLS handshake), connections that stay and say nothing, bodies of 7.8 MB with
and without a length, large valid reviews, senders of one byte at a time, and readers who never read.
Out: what was done, as JSON.
"""

import asyncio
import contextlib
import json
import logging
import resource
import ssl
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable

CONNECTIONS_A_SECOND = 170  # 10,000 a minute
HALF_OPEN = 2_000
BODY_BYTES = 7_800_000
SENDERS = 6  # of each kind of body, at once
SLOW = 100
REVIEW = {"uid": "1", "kind": {"kind": "Pod"}, "namespace": "default", "userInfo": {"username": "mallory"}}
Step = Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[None]]


class Flood:
    def __init__(self, port: int, seconds: float, source: str) -> None:
        self._port, self._source = port, source
        self._until = time.monotonic() + seconds
        self.done: Counter[str] = Counter()
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, kind: str) -> None:
        work = [self._come_and_go()] if kind == "connections" else []
        if kind == "connections":
            work += [self._again(self._stay, b"", "half-open", 2.0) for _ in range(HALF_OPEN)]
        else:
            large = _review(BODY_BYTES)
            bodies = [(_request(large, False), "body-7.8MB"), (_request(large, True), "chunked-7.8MB")]
            bodies.append((_request(_review(2_900_000), False), "body-2.9MB"))
            work += [self._again(self._send, body, name, 0.2) for body, name in bodies for _ in range(SENDERS)]
            work += [self._again(self._trickle, b"", "trickle", 0.2) for _ in range(SLOW)]
            work += [
                self._again(self._never_read, _request(_review(100), False), "never-read", 0.2) for _ in range(SLOW)
            ]
        tasks = [asyncio.create_task(each) for each in work]
        await asyncio.sleep(self._until - time.monotonic())
        for task in (*tasks, *self._tasks):
            task.cancel()
        await asyncio.gather(*tasks, *self._tasks, return_exceptions=True)

    async def _come_and_go(self) -> None:
        while True:
            began = time.monotonic()
            for number in range(CONNECTIONS_A_SECOND // 10):
                task = asyncio.create_task(self._once(self._touch, b"", number % 2 == 0))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            self.done["connections"] += CONNECTIONS_A_SECOND // 10
            await asyncio.sleep(max(0.0, 0.1 - (time.monotonic() - began)))

    async def _again(self, how: Step, body: bytes, name: str, pause_s: float) -> None:
        while True:
            await self._once(how, body, name != "half-open")
            self.done[name] += 1
            await asyncio.sleep(pause_s)

    async def _once(self, how: Step, body: bytes, is_tls: bool) -> None:
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(30):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self._port, ssl=self._tls if is_tls else None, local_addr=(self._source, 0)
                )
                try:
                    await how(reader, writer, body)
                finally:
                    writer.transport.abort()

    async def _touch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: bytes) -> None:
        await asyncio.sleep(1)

    async def _stay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: bytes) -> None:
        await reader.read()  # until the other end has had enough

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
        writer.write(body)
        await writer.drain()
        self.done[f"answered {(await reader.readline()).decode()[9:12]}"] += 1

    async def _trickle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: bytes) -> None:
        writer.write(b"POST /work HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        while not reader.at_eof():
            writer.write(b"{")
            await writer.drain()
            await asyncio.sleep(0.5)

    async def _never_read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        while True:
            writer.write(body * 20)
            await writer.drain()
            await asyncio.sleep(0.1)


def _review(size: int) -> bytes:
    meta = {"name": "p", "annotations": {"kaiwo.ai/gpu-fraction": "0.5", "x": "y" * size}}
    spec = {"schedulerName": "kaiwo-scheduler", "containers": [{"name": "c"}]}
    return json.dumps({"request": REVIEW | {"object": {"metadata": meta, "spec": spec}}}).encode()


def _request(body: bytes, is_chunked: bool) -> bytes:
    head = b"POST /work HTTP/1.1\r\nHost: x\r\n"
    if is_chunked:
        pieces = (body[start : start + 65536] for start in range(0, len(body), 65536))
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536), most))
    flood = Flood(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
    asyncio.run(flood.run(sys.argv[4]))
    print(json.dumps(dict(flood.done)))


if __name__ == "__main__":
    main()
