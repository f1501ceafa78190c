"""Run the webhooks in a process of their own: start it, tell it what reviews need, watch it, and restart it.

In:    the cache, and the certificates that are kept in a Secret.   Out: reviews that are answered; counts for metrics.
Never: reads a byte that a stranger sent. A standby answers too: the API server does not know which replica leads.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import ApiError, Client, ClusterAccess, UnreachableError
from kaiwo.clusters.kubernetes.client.backoff import Backoff
from kaiwo.clusters.kubernetes.webhooks import process_messages as messages
from kaiwo.clusters.kubernetes.webhooks.certificate_secret import ROTATE_S, CertificateRotation, WebhookSite
from kaiwo.clusters.kubernetes.webhooks.certificates import LIFETIMES, KeyPair, Lifetimes
from kaiwo.clusters.kubernetes.webhooks.http_server import listen
from kaiwo.clusters.kubernetes.webhooks.process_status import WebhookStatus

PROGRAM = ("-P", "-m", "kaiwo.clusters.kubernetes.webhooks.webhook_process")
SILENT_S, SILENCES = 5.0, 3  # several short waits: one long one would also end while this process itself is paused
ENDING_S = 4.0  # longer than requests in progress have
LONGEST_BACKOFF_S = 30.0
STABLE_S = 60.0  # a process that lived this long begins a new row of restarts
REFUSE_AFTER = 3  # ends in a row, after which the port refuses connections instead of letting them wait


class ProcessOptions(NamedTuple):
    """What the process is told at its start."""

    kubeconfig: str
    context: str
    scheduler: str
    may_name_users: tuple[str, ...] = ()
    trusted_controllers: tuple[str, ...] = ()
    client_ca: str = ""
    client_names: tuple[str, ...] = ()


class WebhookSupervisor:
    def __init__(
        self,
        access: ClusterAccess,
        cache: ClusterCache,
        site: WebhookSite,
        options: ProcessOptions,
        report: Callable[..., None] = lambda *_, **__: None,
        lifetimes: Lifetimes = LIFETIMES,
        rotate_s: float = ROTATE_S,
    ) -> None:
        self.client = Client(access)  # may always write: any replica renews certificates
        self.certificates = CertificateRotation(self.client, site, report, lifetimes, rotate_s)
        self.status = WebhookStatus()
        self.port = 0
        self._cache, self._options, self._report = cache, options, report
        self._listener: socket.socket | None = None
        self._host = ""
        self._writer: asyncio.StreamWriter | None = None  # to the process that runs now
        self._serves = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int, within_s: float) -> None:
        """Wait until it serves, but at most for this time; after that it keeps trying in the background."""
        self._listener, self._host = listen(host, port), host
        self.port = self._listener.getsockname()[1]
        self.certificates.on_change = self._certificate_changed
        self._cache.queue_cache.on_change = self._queues_changed
        self._task = asyncio.create_task(self._run(), name="kaiwo-webhooks")
        serves = asyncio.create_task(self._serves.wait())
        await asyncio.wait((self._task, serves), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        serves.cancel()
        if self._task.done():
            self._task.result()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._close_listener()
        await self.client.close()

    async def _run(self) -> None:
        backoff = Backoff(longest_s=10)
        while self.certificates.current.server is None:
            try:
                await self.certificates.rotate()
                continue
            except (ApiError, UnreachableError) as error:
                self._report("webhooks-not-ready", level="warning", error=str(error)[:300])
            await asyncio.sleep(backoff.next_s())
        rotating = asyncio.create_task(self.certificates.run(), name="kaiwo-webhook-certificates")
        try:
            await self._supervise()
        finally:
            rotating.cancel()
            await asyncio.gather(rotating, return_exceptions=True)

    async def _supervise(self) -> None:
        backoff, ends = Backoff(longest_s=LONGEST_BACKOFF_S), 0
        while True:
            began_s = time.monotonic()
            try:
                if self._listener is None:
                    self._listener = listen(self._host, self.port)
                cause = await self._run_process(self._listener)
            except OSError as error:  # no memory for a process, or another program has the port by now
                cause = str(error)
            if time.monotonic() - began_s > STABLE_S:
                backoff.reset()
                ends = 0
            ends += 1
            self.status.ended(cause)
            if ends >= REFUSE_AFTER:
                self._close_listener()
            pause_s = backoff.next_s() if ends > 1 else 0.0
            self._report("webhooks-ended", level="error", cause=cause, again_in_s=round(pause_s, 1))
            await asyncio.sleep(pause_s)

    async def _run_process(self, listener: socket.socket) -> str:
        """Run one process to its end. Returns why it ended."""
        ours, its = socket.socketpair()
        with its:
            command = (*PROGRAM, str(os.getpid()), str(its.fileno()), str(listener.fileno()))
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, stdin=asyncio.subprocess.DEVNULL, pass_fds=(its.fileno(), listener.fileno())
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            self._writer = writer
            self._tell_all()
            cause = await self._hear(reader)
        finally:
            self._writer = None
            writer.close()  # which ends the process
            await _end(process)
        return cause or _ending(process.returncode)

    async def _hear(self, reader: asyncio.StreamReader) -> str:
        """Listen to the process until it is gone, or has been silent for too long."""
        silences = 0
        while silences < SILENCES:
            try:
                async with asyncio.timeout(SILENT_S):
                    message = messages.read_to_scheduler(await messages.read_message(reader))
            except TimeoutError:
                silences += 1
                continue
            except (EOFError, ConnectionError):
                return ""
            silences = 0
            self._handle(message)
        return f"it did not answer for {SILENT_S * SILENCES:g} s"

    def _handle(self, message: messages.ToScheduler) -> None:
        match message:
            case messages.Serving():
                self.status.serves()
                self._serves.set()
            case messages.Counted():
                self.status.add(message)
            case messages.Reported():
                self._report(message.event, level=message.level, **message.fields)
            case messages.AskLiving():
                workloads = self._cache.published.workloads.values()
                self._tell(messages.LivingWork(dict(Counter(workload.queue for workload in workloads))))

    def _tell_all(self) -> None:
        options = self._options
        self._tell(
            messages.ProcessSettings(
                options.kubeconfig,
                options.context,
                options.scheduler,
                list(options.may_name_users),
                list(options.trusted_controllers),
                options.client_ca,
                list(options.client_names),
            )
        )
        self._queues_changed()
        assert self.certificates.current.server is not None
        self._certificate_changed(self.certificates.current.server)

    def _queues_changed(self) -> None:
        self._tell(messages.KnownQueues(list(self._cache.queues.values())))

    def _certificate_changed(self, pair: KeyPair) -> None:
        self._tell(messages.ServedCertificate(pair.certificate, pair.key))

    def _tell(self, message: messages.ToProcess) -> None:
        if self._writer is not None and not self._writer.is_closing():
            messages.write_message(self._writer, message)

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None


async def _end(process: asyncio.subprocess.Process) -> None:
    """It ends by itself when its socket does; one that hangs is killed. It is always waited for."""
    try:
        async with asyncio.timeout(ENDING_S):
            await process.wait()
    except (TimeoutError, asyncio.CancelledError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _ending(code: int | None) -> str:
    if code is None or code >= 0:
        return f"it ended with code {code}"
    return f"it was ended by {signal.Signals(-code).name}"
