"""Objects of one kind by name: the last version that could be read, and why the present one cannot.

In:    what the watch brings, read or with the fault that keeps it from being read.   Out: whether something changed.
Never: forgets a version that could be read because the next one cannot: what was in force stays in force.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kaiwo.clusters.kubernetes.decode.wire_objects import QueueMeta
from kaiwo.manifests import Parsed, parse
from kaiwo.model.errors import ConfigError

T = TypeVar("T")


class KaiwoObject(Protocol):
    """An object of a kind of ours. Its spec is read by the same code as a file's."""

    metadata: QueueMeta
    spec: dict[str, Any] | None


OwnT = TypeVar("OwnT", bound=KaiwoObject)


class ReadObject(NamedTuple, Generic[OwnT, T]):
    """An object that is there, whether or not it can be used: its people must be told."""

    item: OwnT
    value: T | None  # None: it cannot be used
    fault: str = ""  # why

    @property
    def name(self) -> str:
        return self.item.metadata.name


def read_object(item: OwnT, read: Callable[[OwnT], T | str]) -> ReadObject[OwnT, T]:
    """What `read` makes of it, or the sentence why it makes nothing."""
    what = read(item)
    return ReadObject(item, None, what) if isinstance(what, str) else ReadObject(item, what)


def parse_spec(kind: str, item: KaiwoObject) -> Parsed | str:
    """The schema lets nothing wrong in, but an older version of it may have: then a sentence."""
    metadata = {"name": item.metadata.name}
    try:
        return parse({"apiVersion": "kaiwo.ai/v1alpha2", "kind": kind, "metadata": metadata, "spec": item.spec or {}})
    except ConfigError as error:
        return str(error)


class LastReadable(Generic[T]):
    """Queues, or reservations. `look_again` is called when the faults change: workloads may wait because of one."""

    def __init__(self, look_again: Callable[[], None]) -> None:
        self.items: dict[str, T] = {}
        self.faults: dict[str, str] = {}
        self._look_again = look_again

    def upsert(self, name: str, item: T) -> bool:
        """It is there, or different. False: it was there just so."""
        self._mend(name)
        is_new = self.items.get(name) != item
        self.items[name] = item
        return is_new

    def upsert_fault(self, name: str, fault: str) -> bool:
        """It cannot be read as it is now. False: that was known."""
        is_new = self.faults.get(name) != fault
        if is_new:
            self.faults[name] = fault
            self._look_again()
        return is_new

    def delete(self, name: str) -> bool:
        """It is gone. False: no version of it was ever read."""
        self._mend(name)
        return self.items.pop(name, None) is not None

    def _mend(self, name: str) -> None:
        if self.faults.pop(name, None) is not None:
            self._look_again()
