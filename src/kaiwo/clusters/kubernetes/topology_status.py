"""Write on every KaiwoTopology how it stands with the nodes that are there: `kubectl get kaiwotopologies`.

In:    the objects, and the nodes of the books.   Out: their status, by the leader, when it says something else.
Never: writes a status that is there already; an idle cluster is not even looked at.
"""

import asyncio
import datetime
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client, StandbyError, UnreachableError
from kaiwo.clusters.kubernetes.node_book import NodeBook
from kaiwo.clusters.kubernetes.topologies import PATH, TopologyObject, stand, write_status

LOOK_S = 1.0  # so late a change of the nodes may be in the status


class TopologyStatus:
    """Keeps the objects, and writes while this is the leader."""

    def __init__(self, client: Client, nodes: NodeBook, report: Callable[..., None] = lambda *_, **__: None) -> None:
        self._client, self._nodes, self._report = client, nodes, report
        self._objects: dict[str, TopologyObject] = {}
        self._changes = 0
        self._task: asyncio.Task[None] | None = None
        self.writes = 0

    def start(self) -> None:
        """Begin to look after the status."""
        self._task = asyncio.create_task(self._run(), name="kaiwo-topologies")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def put(self, item: TopologyObject) -> None:
        """It is there, or different; also when somebody else wrote its status."""
        self._objects[item.metadata.name] = item
        self._changes += 1

    def drop(self, item: TopologyObject) -> None:
        """It is gone."""
        self._objects.pop(item.metadata.name, None)

    async def _run(self) -> None:
        seen: object = None
        while True:
            await asyncio.sleep(LOOK_S)
            now = (self._changes, self._nodes.changes)
            if not self._client.may_write:
                seen = None
            elif seen != now:
                seen = now if await self._write_all() else None

    async def _write_all(self) -> bool:
        """False: some of it could not be written, and is to be tried again."""
        labels = {name: node.labels for name, node in self._nodes.plain.items()}
        all_well = True
        for _, item in sorted(self._objects.items()):
            there, now = item.status or {}, datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            status = write_status(stand(item.spec, labels), item.metadata.generation, there, now)
            if any(there.get(key) != value for key, value in status.items()):
                all_well &= await self._write(item, there | status)
        return all_well

    async def _write(self, item: TopologyObject, status: dict[str, Any]) -> bool:
        name = item.metadata.name
        try:
            body = msgspec.json.encode({"status": status})
            await self._client.patch(f"{PATH}/{quote(name)}/status", body, tries=1)
        except (ApiError, UnreachableError) as error:
            if not isinstance(error, StandbyError) and not (isinstance(error, ApiError) and error.is_not_found):
                self._report("topology-status-failed", level="warning", topology=name, error=str(error)[:300])
            return False
        item.status = status
        self.writes += 1
        return True
