"""A resource: one kind of API object, the path where it is served, and how its lists and watch lines are decoded.

Never: lets one object that cannot be read affect the others. It is left out and counted.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from kaiwo.clusters.kubernetes.client.errors import Status

T = TypeVar("T")

MAX_REPORTED = 1000  # objects of a kind that are named in the log; the others are only counted


class ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")  # where the next page begins; empty: none


class ListPage(msgspec.Struct, Generic[T], gc=False):
    metadata: ListMeta
    items: list[T] | None = None


class Line(msgspec.Struct, Generic[T], gc=False):
    type: str
    object: T


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Named(msgspec.Struct):
    metadata: _Meta


class Resource(Generic[T]):
    """A kind that can be listed and watched. `T` needs `metadata.resource_version`, or is a plain dictionary."""

    def __init__(self, path: str, type: type[T]) -> None:
        self.path = path  # "/api/v1/pods", "/apis/kaiwo.ai/v1alpha2/kaiwoqueues"
        self.unreadable = 0  # objects left out; the log names them
        self.report: Callable[..., None] = lambda *_, **__: None
        self._reported: dict[str, str] = {}  # by object: why it was left out
        kind: Any = type
        self._page = msgspec.json.Decoder(ListPage[kind])
        self._line = msgspec.json.Decoder(Line[kind])
        self._item = msgspec.json.Decoder(kind)
        self._raw_page = msgspec.json.Decoder(ListPage[msgspec.Raw])
        self._raw_line = msgspec.json.Decoder(Line[msgspec.Raw])

    def version(self, item: T) -> str:
        """The position of this object in the server's history."""
        found: Any = item
        return str(found["metadata"]["resourceVersion"] if isinstance(item, dict) else found.metadata.resource_version)

    def read_page(self, body: bytes) -> ListPage[T]:
        try:
            return self._page.decode(body)
        except msgspec.ValidationError:
            return self._read_one_by_one(body)

    def read_line(self, line: bytes) -> Line[Any] | None:
        """One line of a watch. An ERROR has a Status, a BOOKMARK only the version; None: the object was left out."""
        fault: Exception | None = None
        try:
            found = self._line.decode(line)
            if found.type in ("ADDED", "MODIFIED", "DELETED"):
                return found
        except msgspec.ValidationError as error:
            fault = error
        raw = self._raw_line.decode(line)
        if raw.type == "ERROR":
            return Line("ERROR", msgspec.json.decode(raw.object, type=Status))
        if raw.type == "BOOKMARK":
            return Line("BOOKMARK", msgspec.json.decode(raw.object, type=_Named).metadata.resource_version)
        self.leave_out(_name_in(raw.object), fault or ValueError(f"an unknown kind of line, {raw.type}"))
        return None

    def leave_out(self, name: str, error: Exception) -> None:
        """Count an object that cannot be used, and report it unless it was reported before for the same reason."""
        self.unreadable += 1
        reason = f"{type(error).__name__}: {error}"[:300]
        if self._reported.get(name) != reason and (name in self._reported or len(self._reported) < MAX_REPORTED):
            self._reported[name] = reason
            self.report("object-left-out", level="warning", kind=self.path, object=name, error=reason)

    def _read_one_by_one(self, body: bytes) -> ListPage[T]:
        page = self._raw_page.decode(body)
        found: list[T] = []
        for raw in page.items or ():
            try:
                found.append(self._item.decode(raw))
            except msgspec.ValidationError as error:
                self.leave_out(_name_in(raw), error)
        return ListPage(page.metadata, found)


def name_of(item: Any) -> str:
    """The name of an object for the log; empty where it has none."""
    meta = item.get("metadata") if isinstance(item, dict) else getattr(item, "metadata", None)
    read = meta.get if isinstance(meta, dict) else lambda key, default: getattr(meta, key, default)
    return "/".join(filter(None, (read("namespace", ""), read("name", ""))))


def _name_in(raw: msgspec.Raw) -> str:
    try:
        return name_of(msgspec.json.decode(raw, type=_Named))
    except msgspec.DecodeError:
        return ""
