"""A reader of server-sent events that keeps the page as a browser would."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec


class Event(msgspec.Struct):
    """One event as it came."""

    kind: str
    id: str
    data: dict[str, Any]


class Reader:
    """Follows one stream and applies what it says."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.items: dict[str, Any] = {}
        self.total = -1
        self.last_id = ""
        self._lines = response.aiter_lines()

    async def next(self, timeout_s: float = 10.0) -> Event:
        """The next event; comments are skipped."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(timeout_s):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if line and name:
                    fields[name] = value
                elif "data" in fields:
                    return self._apply(Event(fields["event"], fields["id"], msgspec.json.decode(fields["data"])))
                elif not line:
                    fields = {}
        raise EOFError("the stream ended")

    def _apply(self, event: Event) -> Event:
        self.last_id, data = event.id, event.data
        if event.kind == "reset":
            self.items = {key_of(item): item for item in data["items"]}
        else:
            assert event.kind == "delta"
            for key in data["gone"]:
                del self.items[key]
            self.items |= {key_of(item): item for item in data["set"]}
            if "order" in data:
                assert set(data["order"]) == set(self.items)
                self.items = {key: self.items[key] for key in data["order"]}
        self.total = data["total"]
        return event

    async def until_names(self, names: list[str]) -> None:
        """Read on until the page shows exactly these, in this order."""
        while list(self.items) != names:
            await self.next()


def key_of(item: dict[str, Any]) -> str:
    if "id" in item:
        return f"{item['node']}/{item['id']}"
    return item.get("name", "cluster")


@asynccontextmanager
async def following(
    client: httpx.AsyncClient, query: str, last_id: str = "", kept: dict[str, Any] | None = None
) -> AsyncIterator[Reader]:
    """Open a stream, and close it; whoever comes back still has what they `kept`."""
    headers = {"Last-Event-ID": last_id} if last_id else {}
    async with client.stream("GET", f"/api/v1/stream?{query}", headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        reader = Reader(response)
        reader.items = dict(kept or {})
        yield reader
