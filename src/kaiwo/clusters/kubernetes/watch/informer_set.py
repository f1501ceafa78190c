"""Run a set of informers, one for each kind of object, and tell when all of them have synced.

Never: reports a sync before every kind was listed completely. No decision may be based on half of the objects.
"""

import asyncio
from collections.abc import Callable, Collection

from kaiwo.clusters.kubernetes.client import Client, Informer
from kaiwo.clusters.kubernetes.client.informer import ObjectHandler

POLL_S = 0.01


class InformerSet:
    """Informers that start and end together. `on_change` is called after each change of what the handlers keep."""

    def __init__(
        self, client: Client, on_change: Callable[[], None], report: Callable[..., None] = lambda *_, **__: None
    ) -> None:
        self.informers: list[Informer] = []
        self._client, self._on_change, self._report = client, on_change, report
        self._handlers: list[ObjectHandler] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by path
        self._is_complete = False  # every kind has its informer
        self._synced = asyncio.Event()

    def add(
        self, handler: ObjectHandler, is_optional: bool = False, on_not_found: Callable[[], None] = lambda: None
    ) -> Informer:
        handler.resource.report = self._report
        informer = Informer(
            self._client,
            handler,
            on_change=self._handler_changed,
            report=self._report,
            is_optional=is_optional,
            on_not_found=on_not_found,
        )
        self._handlers.append(handler)
        self.informers.append(informer)
        self._run(informer)
        return informer

    def complete(self) -> None:
        """Every kind that the cluster has is being watched."""
        self._is_complete = True
        self._check_synced()

    async def wait_for_sync(self) -> None:
        await self._synced.wait()

    @property
    def has_synced(self) -> bool:
        return self._synced.is_set()

    @property
    def left_out(self) -> int:
        """Objects that could not be used, since the start."""
        return sum(handler.resource.unreadable for handler in self._handlers)

    async def relist(self, paths: Collection[str]) -> None:
        """List these kinds again, and wait until the cache has the result: a watch may lag unnoticed."""
        await asyncio.gather(*(self._relist(each) for each in self.informers if each.resource.path in paths))

    async def relist_at(self, informer: Informer, path: str) -> None:
        """List the objects again, at this path. The handler still knows the old ones, and deletes what is gone."""
        task = self._tasks.pop(informer.resource.path)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        informer.resource.path, informer.version = path, ""
        self._run(informer)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _relist(self, informer: Informer) -> None:
        lists = informer.lists
        if not lists:
            return  # a kind that the cluster does not have
        await self.relist_at(informer, informer.resource.path)
        while informer.lists == lists:
            await asyncio.sleep(POLL_S)

    def _run(self, informer: Informer) -> None:
        path = informer.resource.path
        self._tasks[path] = asyncio.create_task(informer.run(), name=f"kaiwo-watch {path}")

    def _handler_changed(self) -> None:
        self._check_synced()
        self._on_change()

    def _check_synced(self) -> None:
        if not self.has_synced and self._is_complete and all(handler.is_listed for handler in self._handlers):
            self._synced.set()
