"""Write the status of custom resources where it changed, and make the conditions and times in it."""

import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.writers.coalescing_writer import CoalescingWriter, WriteError

Status = dict[str, Any]


class StatusWriter(CoalescingWriter[Status]):
    """Writes the status of the objects of one kind, and remembers what it wrote."""

    def __init__(self, client: Client, path: str, failed: Callable[[str, Status, WriteError], None]) -> None:
        super().__init__(client, self._patch, failed)
        self._path = path
        self.written: dict[str, Status] = {}  # the status as the server has it

    def put_changed(self, name: str, status: Status) -> None:
        """Write these fields unless the server has them already."""
        before = self.written.get(name, {})
        if any(before.get(field) != value for field, value in status.items()):
            self.put(name, status)

    def drop(self, key: str) -> None:
        super().drop(key)
        self.written.pop(key, None)

    async def _patch(self, name: str, status: Status) -> None:
        body = msgspec.json.encode({"status": status})
        await self._client.patch(f"{self._path}/{quote(name)}/status", body, tries=1, reason="its status changed")
        self.written[name] = self.written.get(name, {}) | status


def condition(
    kind: str, reasons: tuple[str, str], problem: str, before: Iterable[Mapping[str, Any]], now: str
) -> dict[str, Any]:
    """A condition that is True if there is no problem, with the time of its last change. `reasons`: for True, False."""
    status, reason = ("False", reasons[1]) if problem else ("True", reasons[0])
    same = (each for each in before if (each.get("type"), each.get("status")) == (kind, status))
    since = next((each.get("lastTransitionTime") for each in same), None) or now
    return {"type": kind, "status": status, "reason": reason, "message": problem, "lastTransitionTime": str(since)}


def still_in_force(fault: str) -> str:
    """The message on an object of which an older version is in force."""
    return f"{fault} (until then the last version that could be read stays in force, while this scheduler runs)"


def utc_now() -> str:
    """In whole seconds: `2026-01-31T12:00:00Z`."""
    return utc_now_micros()[:19] + "Z"


def utc_now_micros() -> str:
    """With microseconds, for Events and Leases."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
