"""Turn the lists and watch events of one kind into `upsert` and `delete`.

In:    pages and changes from an Informer.   Out: `upsert` for what exists, `delete` for what is gone.
Never: lets one object that cannot be used stop the others: it is left out, counted and logged.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from kaiwo.clusters.kubernetes.client import Change, Resource
from kaiwo.clusters.kubernetes.client.resource import name_of

T = TypeVar("T")
V = TypeVar("V")


class KindHandler(Generic[T, V]):
    """Keeps what `read` makes of each object, so that what vanished between two lists can be deleted."""

    def __init__(
        self,
        resource: Resource[T],
        read: Callable[[T], V | None],
        upsert: Callable[[V], None],
        delete: Callable[[V], None],
    ) -> None:
        self.resource, self._read, self._upsert, self._delete = resource, read, upsert, delete
        self._known: dict[str, V] = {}
        self._listed: dict[str, V] = {}
        self.is_listed = False

    def on_list_start(self) -> None:
        self._listed = {}

    def on_page(self, items: Sequence[T]) -> None:
        for item in items:
            with leaving_out(self.resource, item):
                if (value := self._read(item)) is not None:
                    self._listed[name_of(item)] = value
                    self._upsert(value)

    def on_list_end(self, version: str) -> None:
        """Delete what is not in the list."""
        before, self._known, self._listed = self._known, self._listed, {}
        for name, value in before.items():
            if name not in self._known:
                self._delete(value)
        self.is_listed = True

    def on_changes(self, changes: Sequence[Change[T]]) -> None:
        for item, is_gone in changes:
            with leaving_out(self.resource, item):
                self._change(item, is_gone)

    def _change(self, item: T, is_gone: bool) -> None:
        value = self._read(item)
        if value is None:
            return
        if is_gone:
            self._known.pop(name_of(item), None)
            self._delete(value)
        else:
            self._known[name_of(item)] = value
            self._upsert(value)


def as_is(item: T) -> T:
    """The reader of objects that are used as they come."""
    return item


@contextmanager
def leaving_out(resource: Resource[Any], item: Any) -> Iterator[None]:
    """While one object is handled: if that fails, what was known of it before stays."""
    try:
        yield
    except Exception as error:  # an error that ended the watch would silently stop the whole kind
        resource.leave_out(name_of(item), error)
