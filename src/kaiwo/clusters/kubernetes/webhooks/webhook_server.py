"""Answer the API server's questions over TLS.

In:    POST of AdmissionReviews.   Out: AdmissionReviews.
Never: keeps the API server waiting for another API call, except for queues, which seldom change: there the newest word
       counts, since a parent and its child may come one right after the other.

Also: The webhooks of one process: certificates first, then the server.
"""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import Access, ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.client.backoff import Backoff
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import QUEUES
from kaiwo.clusters.kubernetes.decode.wire_objects import QueueObject, Wire
from kaiwo.clusters.kubernetes.webhooks.admission_review import (
    PASS,
    AdmissionRequest,
    Verdict,
    read_review,
    write_review,
)
from kaiwo.clusters.kubernetes.webhooks.certificate_secret import LOOK_S, Custodian, Site
from kaiwo.clusters.kubernetes.webhooks.certificates import LIVES, Lives
from kaiwo.clusters.kubernetes.webhooks.request_counts import Tally
from kaiwo.clusters.kubernetes.webhooks.review_queue import judge_queue, read_queues
from kaiwo.clusters.kubernetes.webhooks.review_workload import judge_work
from kaiwo.clusters.kubernetes.webhooks.submitting_user import House
from kaiwo.model.queue import THE_DEFAULT

MOST_BYTES = 8 << 20  # a review carries an object twice, and one has at most 1.5 MiB
GOODBYE_S = 2.0
Judge = Callable[[AdmissionRequest], Awaitable[Verdict]]


class _Queues(Wire):
    items: list[QueueObject]


class Webhooks:
    """The server. `start` it with a context; `close` it."""

    def __init__(
        self, client: Client, cache: ClusterCache, house: House, report: Callable[..., None] = lambda *_, **__: None
    ) -> None:
        self._client, self._cache, self._house, self._report = client, cache, house, report
        self._runner: web.AppRunner | None = None
        self.port = 0
        self.tally = Tally()

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        app = web.Application(client_max_size=MOST_BYTES)
        for door, judge in (
            ("work", self._judge_work),
            ("invited", self._judge_invited),
            ("queues", self._judge_queue),
        ):
            app.router.add_post(f"/{door}", self._door(door, judge))
        # The API server keeps its connections open: a pause longer than its own would cut one that it is about to use.
        self._runner = web.AppRunner(
            app, access_log=None, keepalive_timeout=120, shutdown_timeout=GOODBYE_S, handle_signals=False
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=context, backlog=512).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _door(self, door: str, judge: Judge) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(http: web.Request) -> web.Response:
            began = time.perf_counter()
            try:
                review = read_review(await http.read())
            except msgspec.DecodeError as error:
                return web.Response(status=400, text=f"this is no AdmissionReview ({error})\n")
            is_broken = False
            try:
                verdict = await judge(review)
            except Exception as error:  # our bug must not stop the cluster: it is counted and told, and work passes
                self._report("webhook-broken", level="error", kind=review.kind.kind, error=repr(error)[:500])
                verdict, is_broken = PASS, True
            word = "broken" if is_broken else _word(verdict)
            self.tally.note(door, word, verdict.reason, time.perf_counter() - began)
            return web.Response(body=write_review(review.uid, verdict), content_type="application/json")

        return answer

    async def _judge_work(self, review: AdmissionRequest) -> Verdict:
        return judge_work(review, self._cache.queues, self._house, is_invited=False)

    async def _judge_invited(self, review: AdmissionRequest) -> Verdict:
        return judge_work(review, self._cache.queues, self._house, is_invited=True)

    async def _judge_queue(self, review: AdmissionRequest) -> Verdict:
        async with asyncio.timeout(3):
            listed = msgspec.json.decode(await self._client.read(QUEUES, tries=1), type=_Queues)
        living = Counter(workload.queue for workload in self._cache.published.workloads.values())
        return judge_queue(review, read_queues(listed.items, THE_DEFAULT), living)


def _word(verdict: Verdict) -> str:
    return "refused" if verdict.refusal else "changed" if verdict.patch else "passed"


class Admission:
    """`start` it, `close` it. A standby answers too: whoever asks does not know who leads."""

    def __init__(
        self,
        access: Access,
        cache: ClusterCache,
        site: Site,
        house: House,
        report: Callable[..., None] = lambda *_, **__: None,
        lives: Lives = LIVES,
        look_s: float = LOOK_S,
    ) -> None:
        self.client = Client(access)  # not the leader's: certificates are renewed by whoever sees that it is time
        self.custodian = Custodian(self.client, site, report, lives, look_s)
        self.webhooks = Webhooks(self.client, cache, house, report)
        self._report = report
        self._serves = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int, patience_s: float) -> None:
        """Until it serves, or for so long: then it goes on trying beside the rest."""
        self._task = asyncio.create_task(self._run(host, port), name="kaiwo-webhooks")
        serves = asyncio.create_task(self._serves.wait())
        await asyncio.wait((self._task, serves), timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        serves.cancel()
        if self._task.done():
            self._task.result()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.webhooks.close()
        await self.client.close()

    async def _run(self, host: str, port: int) -> None:
        backoff = Backoff(most_s=10)
        while self.custodian.ring.server is None:
            try:
                await self.custodian.look()
                continue
            except (ApiError, UnreachableError) as error:
                self._report("webhooks-not-ready", level="warning", error=str(error)[:300])
            await asyncio.sleep(backoff.next_s())
        await self.webhooks.start(host, port, self.custodian.context)
        self._serves.set()
        await self.custodian.run()
