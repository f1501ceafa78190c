"""Attack a port for a while, as one process: python -m bench._flood_attacker KIND PORT SECONDS TOKEN.

Prints how often it tried. Needs no login except for streams, where a user of Kaiwo turns against it.
"""

import asyncio
import contextlib
import resource
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable

PER_S = 10_000 / 60
HELD = 2000  # connections that one attack keeps open
BODY = b"x" * 65_536
BODY_BYTES = 7_800_000
STREAMS = 1000
counts: Counter[str] = Counter()
Attempt = Callable[[int, str], Awaitable[None]]


async def silent(port: int, token: str) -> None:
    """Say nothing, also where the server expects a TLS handshake, until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.read(1)
    writer.close()


async def request(port: int, token: str) -> None:
    """Ask without a token, with a head that arrives at once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /api/v1/workloads HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readline()
    writer.close()


async def body(port: int, token: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /api/v1/workloads HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\n{token}\r\n".encode())
    for _ in range(0, BODY_BYTES, len(BODY)):
        writer.write(BODY)
        await writer.drain()
    await reader.readline()
    writer.close()


async def slow_reader(port: int, token: str) -> None:
    """Ask for the page again and again, and read a byte a second."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n" + token.encode() + b"\r\n")
    with contextlib.suppress(OSError):
        while not writer.is_closing():
            await asyncio.sleep(1)
            writer.transport.get_extra_info("socket")._sock.recv(1)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")


async def stream(port: int, token: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /api/v1/stream?view=status HTTP/1.1\r\nHost: localhost\r\n{token}\r\n".encode())
    counts[(await reader.readline()).decode().strip()] += 1
    while await reader.read(65_536):
        pass
    writer.close()


KINDS: dict[str, tuple[Attempt, int]] = {
    "silent": (silent, HELD),
    "half-open-tls": (silent, HELD),
    "requests": (request, 200),
    "bodies": (body, 16),
    "bodies-with-token": (body, 16),
    "slow-readers": (slow_reader, HELD),
    "streams": (stream, STREAMS),
}


async def attack(kind: str, port: int, seconds: float, token: str) -> None:
    attempt, at_once = KINDS[kind]
    room = asyncio.Semaphore(at_once)
    header = f"Authorization: Bearer {token}\r\n" if token else ""
    tasks: set[asyncio.Task[None]] = set()

    async def once() -> None:
        try:
            await attempt(port, header)
            counts["ended"] += 1
        except OSError:
            counts["failed"] += 1
        finally:
            room.release()

    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        if counts["tried"] > passed * PER_S:
            await asyncio.sleep(0.005)
            continue
        await room.acquire()
        counts["tried"] += 1
        task = asyncio.create_task(once())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(attack(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]))
    print(dict(counts))
