"""Serve the admission webhooks over TLS, with certificates of their own.

A review of a workload makes no API call. A review of a queue, which is rare, reads the current queues, since a parent
and its child may be created right after one another.
"""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from aiohttp import web

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import ApiError, Client, ClusterAccess, UnreachableError
from kaiwo.clusters.kubernetes.client.backoff import Backoff
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import QUEUES, QueueObject
from kaiwo.clusters.kubernetes.decode.wire_objects import Wire
from kaiwo.clusters.kubernetes.webhooks.admission_review import (
    ALLOWED,
    AdmissionRequest,
    AdmissionVerdict,
    read_review,
    write_review,
)
from kaiwo.clusters.kubernetes.webhooks.certificate_secret import ROTATE_S, CertificateRotation, WebhookSite
from kaiwo.clusters.kubernetes.webhooks.certificates import LIFETIMES, Lifetimes
from kaiwo.clusters.kubernetes.webhooks.request_counts import RequestCounts
from kaiwo.clusters.kubernetes.webhooks.review_queue import read_queues, review_queue
from kaiwo.clusters.kubernetes.webhooks.review_workload import review_workload
from kaiwo.clusters.kubernetes.webhooks.submitting_user import WebhookPolicy
from kaiwo.model.queue import UNBOUNDED_DEFAULT_QUEUE

MAX_BYTES = 8 << 20  # a review carries an object twice, and one has at most 1.5 MiB
SHUTDOWN_S = 2.0
Reviewer = Callable[[AdmissionRequest], Awaitable[AdmissionVerdict]]


class _Queues(Wire):
    items: list[QueueObject]


class WebhookServer:
    def __init__(self, client: Client, cache: ClusterCache, policy: WebhookPolicy, report: Callable[..., None]) -> None:
        self._client, self._cache, self._policy, self._report = client, cache, policy, report
        self._runner: web.AppRunner | None = None
        self.port = 0
        self.counts = RequestCounts()

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        app = web.Application(client_max_size=MAX_BYTES)
        app.router.add_post("/work", self._handler("work", partial(self._review_work, is_invited=False)))
        app.router.add_post("/invited", self._handler("invited", partial(self._review_work, is_invited=True)))
        app.router.add_post("/queues", self._handler("queues", self._review_queue))
        # The API server keeps connections open: with a shorter time-out we would close one that it is about to use.
        self._runner = web.AppRunner(
            app, access_log=None, keepalive_timeout=120, shutdown_timeout=SHUTDOWN_S, handle_signals=False
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=context, backlog=512).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _handler(self, endpoint: str, review: Reviewer) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(http: web.Request) -> web.Response:
            began = time.perf_counter()
            try:
                request = read_review(await http.read())
            except msgspec.DecodeError as error:
                return web.Response(status=400, text=f"this is not an AdmissionReview ({error})\n")
            try:
                verdict = await review(request)
                answer = "refused" if verdict.refusal else "changed" if verdict.patch else "passed"
            except Exception as error:  # a bug here must not stop the cluster: count it, log it, and allow the object
                self._report("webhook-broken", level="error", kind=request.kind.kind, error=repr(error)[:500])
                verdict, answer = ALLOWED, "broken"
            self.counts.count(endpoint, answer, verdict.reason, time.perf_counter() - began)
            return web.Response(body=write_review(request.uid, verdict), content_type="application/json")

        return handle

    async def _review_work(self, request: AdmissionRequest, is_invited: bool) -> AdmissionVerdict:
        return review_workload(request, self._cache.queues, self._policy, is_invited)

    async def _review_queue(self, request: AdmissionRequest) -> AdmissionVerdict:
        async with asyncio.timeout(3):
            listed = msgspec.json.decode(await self._client.read(QUEUES, tries=1), type=_Queues)
        living = Counter(workload.queue for workload in self._cache.published.workloads.values())
        return review_queue(request, read_queues(listed.items, UNBOUNDED_DEFAULT_QUEUE), living)


class Webhooks:
    """Certificates and server of one replica. A standby answers too: the API server does not know which one leads."""

    def __init__(
        self,
        access: ClusterAccess,
        cache: ClusterCache,
        site: WebhookSite,
        policy: WebhookPolicy,
        report: Callable[..., None] = lambda *_, **__: None,
        lifetimes: Lifetimes = LIFETIMES,
        rotate_s: float = ROTATE_S,
    ) -> None:
        self.client = Client(access)  # may always write: any replica renews certificates
        self.certificates = CertificateRotation(self.client, site, report, lifetimes, rotate_s)
        self.server = WebhookServer(self.client, cache, policy, report)
        self._report = report
        self._serves = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int, within_s: float) -> None:
        """Wait until it serves, but at most for this time; after that it keeps trying in the background."""
        self._task = asyncio.create_task(self._run(host, port), name="kaiwo-webhooks")
        serves = asyncio.create_task(self._serves.wait())
        await asyncio.wait((self._task, serves), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        serves.cancel()
        if self._task.done():
            self._task.result()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.server.close()
        await self.client.close()

    async def _run(self, host: str, port: int) -> None:
        backoff = Backoff(longest_s=10)
        while self.certificates.current.server is None:
            try:
                await self.certificates.rotate()
                continue
            except (ApiError, UnreachableError) as error:
                self._report("webhooks-not-ready", level="warning", error=str(error)[:300])
            await asyncio.sleep(backoff.next_s())
        await self.server.start(host, port, self.certificates.context)
        self._serves.set()
        await self.certificates.run()
