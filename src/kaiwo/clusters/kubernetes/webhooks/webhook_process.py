"""The webhooks' own process: `kaiwo scheduler` starts it, tells it what reviews need, and restarts it.

Whatever strangers send to the port costs this process time, never the scheduler's event loop or its interpreter lock.
It ends when the socket to the scheduler ends, so none outlives a scheduler that was killed.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping

from kaiwo.clusters.kubernetes.client import Client, find_access
from kaiwo.clusters.kubernetes.webhooks.process_messages import (
    AskLiving,
    KnownQueues,
    LivingWork,
    ProcessSettings,
    Reported,
    ServedCertificate,
    Serving,
    ToScheduler,
    read_message,
    read_to_process,
    write_message,
)
from kaiwo.clusters.kubernetes.webhooks.request_counts import RequestCounts
from kaiwo.clusters.kubernetes.webhooks.submitting_user import WebhookPolicy
from kaiwo.clusters.kubernetes.webhooks.tls_context import make_context
from kaiwo.clusters.kubernetes.webhooks.webhook_server import WebhookServer
from kaiwo.model.queue import Queue

COUNT_S = 1.0
LIVING_S = 0.2  # the scheduler counts its work at most this often, however many ask
ANSWER_S = 1.0
NICE = 5  # where processors are scarce, the scheduler goes first
PR_SET_PDEATHSIG = 1


class FedState:
    """What the scheduler has said so far."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.queues: Mapping[str, Queue] = {}
        self._writer = writer
        self._living: Mapping[str, int] = {}
        self._asked_at = float("-inf")
        self._answered = asyncio.Event()

    async def living(self) -> Mapping[str, int]:
        """As last heard if the scheduler takes too long: a review is worth more in time than exact."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._asked_at >= LIVING_S:
            self._asked_at = now_s
            self._answered.clear()
            write_message(self._writer, AskLiving())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await self._answered.wait()
        return self._living

    def set_living(self, counts: Mapping[str, int]) -> None:
        self._living = counts
        self._answered.set()


class WebhookProcess:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener: socket.socket) -> None:
        self._reader, self._writer, self._listener = reader, writer, listener
        self._state = FedState(writer)
        self._settings: ProcessSettings | None = None
        self._server: WebhookServer | None = None
        self._client: Client | None = None

    async def run(self) -> None:
        """Until the scheduler ends the socket."""
        counting = asyncio.create_task(self._count())
        try:
            while True:
                self._hear(await read_message(self._reader))
        except (EOFError, ConnectionError):
            pass
        finally:
            counting.cancel()
            if self._server is not None:
                await self._server.close()
            if self._client is not None:
                await self._client.close()

    def _hear(self, body: bytes) -> None:
        message = read_to_process(body)
        match message:
            case ProcessSettings():
                self._settings = message
                self._client = Client(find_access(message.kubeconfig, message.context))
                policy = WebhookPolicy(
                    message.scheduler, frozenset(message.may_name_users), frozenset(message.trusted_controllers)
                )
                self._server = WebhookServer(self._client, self._state, policy, self._report)
            case ServedCertificate():
                self._serve(message)
            case KnownQueues():
                self._state.queues = {queue.name: queue for queue in message.queues}
            case LivingWork():
                self._state.set_living(message.counts)

    def _serve(self, pair: ServedCertificate) -> None:
        assert self._settings is not None
        assert self._server is not None
        context = make_context(pair, self._settings.client_ca)
        if self._server.http.is_serving:
            self._server.http.context = context  # for new connections; open ones continue with the former
            return
        self._server.start(self._listener, context, frozenset(self._settings.client_names))
        self._say(Serving())

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(COUNT_S)
            if self._server is None:
                continue
            http, counted = self._server.http, self._server.counts.as_message()
            counted.dropped, counted.connections = dict(http.dropped), len(http.slots)
            self._server.counts = RequestCounts()
            http.dropped.clear()
            self._say(counted)

    def _report(self, event: str, level: str = "info", **fields: object) -> None:
        self._say(Reported(event, level, {key: str(value) for key, value in fields.items()}))

    def _say(self, message: ToScheduler) -> None:
        if not self._writer.is_closing():
            write_message(self._writer, message)


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process with its parent, for the case that the event loop is busy then."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


async def _main(control: int, listener: int) -> None:
    own = socket.socket(fileno=control)
    reader, writer = await asyncio.open_unix_connection(sock=own)
    served = socket.socket(fileno=listener)
    served.setblocking(False)
    running = asyncio.create_task(WebhookProcess(reader, writer, served).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running
    writer.close()


def main() -> None:
    parent, control, listener = map(int, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal: the scheduler ends this process
    die_with(parent)
    os.nice(NICE)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns once for each stranger who leaves early
    asyncio.run(_main(control, listener))


if __name__ == "__main__":
    main()
