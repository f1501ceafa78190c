"""The process that scrapes exporters: `python -m kaiwo.telemetry.exporters.scrape`.

In:    one line of JSON on standard input with the targets; it ends when that is closed.
Out:   one line of JSON on standard output for each scrape: the readings of a node, or why there are none.
Never: follows a redirect, reads more than 8 MiB, waits longer than its time-out, sends a token in the clear to another
       machine, or shows one.
"""

import contextlib
import http.client
import ipaddress
import os
import random
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import msgspec

from kaiwo.telemetry.exporters.gpu_readings import GpuReading, read_gpus

MAX_BYTES = 8 << 20
MAX_PROBLEM = 300
THREADS = 16  # for those that answered last, and as many for those that did not
LONGEST_PAUSE_S = 60.0  # of a target that does not answer; it doubles from `every_s` on


class ScrapeTarget(msgspec.Struct, frozen=True):
    node: str
    url: str
    token_file: str = ""
    ca_file: str = ""


class ScrapeJob(msgspec.Struct, frozen=True):
    targets: tuple[ScrapeTarget, ...]
    every_s: float
    timeout_s: float


class NodeReading(msgspec.Struct, frozen=True, omit_defaults=True):
    node: str
    gpus: tuple[GpuReading, ...] = ()
    problem: str = ""


def scrape(target: ScrapeTarget, timeout_s: float) -> NodeReading:
    try:
        gpus, problem = read_gpus(_get(target, timeout_s))
    except (OSError, http.client.HTTPException, ValueError) as error:
        return NodeReading(target.node, problem=f"{target.url}: {error or type(error).__name__}"[:MAX_PROBLEM])
    return NodeReading(target.node, tuple(gpus), f"{target.url}: {problem}"[:MAX_PROBLEM] if problem else "")


def sends_in_the_clear(url: str) -> bool:
    """Whether others could read a token on the way."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.hostname != "localhost"


def _get(target: ScrapeTarget, timeout_s: float) -> str:
    deadline = time.monotonic() + timeout_s
    parts = urlsplit(target.url)
    host, path = parts.hostname or "", parts.path + (f"?{parts.query}" if parts.query else "")
    if parts.scheme == "https":
        trust = ssl.create_default_context(cafile=target.ca_file or None)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, parts.port, timeout=timeout_s, context=trust
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    headers = {"Accept": "text/plain;version=0.0.4", "User-Agent": "kaiwo"}
    if target.token_file:
        if sends_in_the_clear(target.url):
            raise OSError("a token is only sent over https:// or to this machine")
        headers["Authorization"] = f"Bearer {_token(target.token_file)}"
    try:
        connection.connect()
        # A time-out of a socket bounds each wait for a byte: an endpoint that drips its head, or says "100 Continue"
        # for ever, reaches none.
        cut = threading.Timer(timeout_s, _hang_up, (connection.sock,))
        cut.daemon = True
        cut.start()
        try:
            return _read(connection, path or "/metrics", headers, deadline)
        finally:
            cut.cancel()
    except (OSError, http.client.HTTPException, ValueError) as error:
        if time.monotonic() > deadline:
            raise OSError(f"it takes longer than {timeout_s:g} s") from error
        raise
    finally:
        connection.close()


def _read(connection: http.client.HTTPConnection, path: str, headers: dict[str, str], deadline: float) -> str:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    if answer.status != http.HTTPStatus.OK:
        raise OSError(f"it answers {answer.status} {answer.reason}"[:MAX_PROBLEM])
    data = b""
    while piece := answer.read1(65_536):
        data += piece
        if len(data) > MAX_BYTES:
            raise OSError(f"it sends more than {MAX_BYTES >> 20} MiB")
    if time.monotonic() > deadline:  # the end of what came may be that it was cut
        raise OSError("its answer is not whole")
    return data.decode("utf-8", "replace")


def _hang_up(connected: socket.socket) -> None:
    """Whoever waits for its bytes sees the end, also behind TLS."""
    with contextlib.suppress(OSError):  # it is closed by now
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


def _token(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        token = file.read(65_536).strip()
    if not (token.isascii() and token.isprintable()):  # an HTTP client would repeat a wrong header in its message
        raise OSError("the file of its token is not one line of ASCII text")
    return token


def run(job: ScrapeJob, write: Callable[[NodeReading], None], stop: threading.Event) -> None:
    """Scrape each target now and then until stopped.

    One that did not answer is asked less often, and apart from the others: none waits for many that are silent.
    """
    busy: set[str] = set()
    failures: dict[str, int] = {}  # in a row, by node

    def once(target: ScrapeTarget) -> None:
        try:
            found = scrape(target, job.timeout_s)
            failures[target.node] = 0 if found.gpus else failures.get(target.node, 0) + 1
            write(found)
        finally:
            busy.discard(target.node)

    threads = min(THREADS, max(1, len(job.targets)))
    with ThreadPoolExecutor(threads, "scrape") as pool, ThreadPoolExecutor(threads, "scrape-silent") as silent:
        due = {target: time.monotonic() + random.uniform(0, min(1.0, job.every_s)) for target in job.targets}
        while not stop.wait(max(0.0, min(due.values(), default=time.monotonic() + 1.0) - time.monotonic())):
            now = time.monotonic()
            for target in [target for target, at in due.items() if at <= now]:
                failed = failures.get(target.node, 0)
                due[target] = now + pause_s(job.every_s, failed)
                if target.node not in busy:
                    busy.add(target.node)
                    (silent if failed else pool).submit(once, target)
        for each in (pool, silent):
            each.shutdown(wait=False, cancel_futures=True)


def pause_s(every_s: float, failures: int) -> float:
    """How long until a target is asked again that did not answer so many times in a row."""
    return every_s if failures < 2 else max(every_s, min(every_s * 2 ** min(failures - 1, 16), LONGEST_PAUSE_S))


def main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=ScrapeJob)
    stop, lock = threading.Event(), threading.Lock()

    def write(reading: NodeReading) -> None:
        data = msgspec.json.encode(reading) + b"\n"
        with lock:
            try:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            except OSError:  # nobody reads any more
                stop.set()

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    run(job, write, stop)


if __name__ == "__main__":
    main()
