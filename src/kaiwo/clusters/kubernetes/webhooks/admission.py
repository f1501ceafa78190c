"""The webhooks of one process: certificates first, then the server.

In:    who we are, what is known of the cluster.   Out: a server that answers, and stays trusted.
Never: keeps the scheduler from starting: trouble here is told and tried again.
"""

import asyncio
from collections.abc import Callable

from kaiwo.clusters.kubernetes.books import Books
from kaiwo.clusters.kubernetes.client import Access, ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.client.backoff import Backoff
from kaiwo.clusters.kubernetes.webhooks.custody import LOOK_S, Custodian, Site
from kaiwo.clusters.kubernetes.webhooks.keyring import LIVES, Lives
from kaiwo.clusters.kubernetes.webhooks.persons import House
from kaiwo.clusters.kubernetes.webhooks.server import Webhooks


class Admission:
    """`start` it, `close` it. A standby answers too: whoever asks does not know who leads."""

    def __init__(
        self,
        access: Access,
        books: Books,
        site: Site,
        house: House,
        report: Callable[..., None] = lambda *_, **__: None,
        lives: Lives = LIVES,
        look_s: float = LOOK_S,
    ) -> None:
        self.client = Client(access)  # not the leader's: certificates are renewed by whoever sees that it is time
        self.custodian = Custodian(self.client, site, report, lives, look_s)
        self.webhooks = Webhooks(self.client, books, house, report)
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
