"""One kind of object as a reader of lists and watches keeps it.

In:    pages and changes of a Mirror.   Out: `put` for what is there, `drop` for what is gone, also when nobody said so.
Never: lets one object that cannot be used keep the others from being read: it is left out, counted and told.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from kaiwo.clusters.kubernetes.client import Change, Resource
from kaiwo.clusters.kubernetes.client.resource import name_of

T = TypeVar("T")
V = TypeVar("V")


class ObjectHandler(Protocol):
    """What a Mirror feeds."""

    resource: Resource[Any]
    is_listed: bool

    def on_list_start(self) -> None: ...

    def on_page(self, items: Sequence[Any]) -> None: ...

    def on_list_end(self, version: str) -> None: ...

    def on_changes(self, changes: Sequence[Change[Any]]) -> None: ...


class KindHandler(Generic[T, V]):
    """Keeps what `read` makes of each object, so that what vanished between two lists can be dropped."""

    def __init__(
        self,
        resource: Resource[T],
        read: Callable[[T], V | None],
        key: Callable[[V], Any],
        put: Callable[[V], None],
        drop: Callable[[V], None],
    ) -> None:
        self.resource, self._read, self._key, self._put, self._drop = resource, read, key, put, drop
        self._there: dict[Any, V] = {}
        self._coming: dict[Any, V] = {}
        self.is_listed = False

    def on_list_start(self) -> None:
        """What a list that broke off had brought does not count."""
        self._coming = {}

    def on_page(self, items: Sequence[T]) -> None:
        """Part of a list."""
        for item in items:
            with leaving_out(self.resource, item):
                value = self._read(item)
                if value is not None:
                    self._coming[self._key(value)] = value
                    self._put(value)

    def on_list_end(self, version: str) -> None:
        """Whatever was there before and is not in the list has gone meanwhile."""
        before, self._there, self._coming = self._there, self._coming, {}
        for key, value in before.items():
            if key not in self._there:
                self._drop(value)
        self.is_listed = True

    def on_changes(self, changes: Sequence[Change[T]]) -> None:
        """What a watch brought."""
        for item, is_gone in changes:
            with leaving_out(self.resource, item):
                self._change(item, is_gone)

    def _change(self, item: T, is_gone: bool) -> None:
        value = self._read(item)
        if value is None:
            return
        if is_gone:
            self._there.pop(self._key(value), None)
            self._drop(value)
        else:
            self._there[self._key(value)] = value
            self._put(value)


@contextmanager
def leaving_out(resource: Resource[Any], item: Any) -> Iterator[None]:
    """What is done with one object. What was known of it before stays known."""
    try:
        yield
    except Exception as error:  # a watch that ends takes the whole kind with it, and nobody would hear of it
        resource.leave_out(name_of(item), error)
