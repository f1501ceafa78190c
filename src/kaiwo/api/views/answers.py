"""What every list and write answers, and what the streams send."""

from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a listing. `next` is the cursor for `after`; empty at the end."""

    items: list[T]
    total: int
    next: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """What a write did, one line per object: `workload default/train submitted`."""

    done: list[str]
    warnings: list[str] = []
    names: list[str] = []  # workloads that it created, would create or left unchanged
    would: list[str] = []  # of a dry run: whether and when work would start, and whom it would stop


class Problem(msgspec.Struct, frozen=True):
    """A refusal: what happened, to what, and what to do. `kind`: invalid | refused | not-found | forbidden | broken."""

    kind: str
    message: str
    field: str = ""


class StreamReset(msgspec.Struct, frozen=True):
    """Data of the event `reset`: the whole page. `key`: how items are named, `name`, `node/id` or `cluster`."""

    view: str
    items: list[Any]  # of the view's own type
    total: int
    next: str
    key: str


class StreamDelta(msgspec.Struct, frozen=True):
    """Data of the event `delta`: what is different from the event before. What is unset did not change."""

    set: list[Any]  # items that are new on the page, or changed
    gone: list[str]  # keys that left the page
    total: int
    order: list[str] | UnsetType = UNSET  # every key of the page, in order
    next: str | UnsetType = UNSET


class FaultForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is wrong with a node."""

    reason: str = ""
    gpu: str = ""  # only this GPU; empty: the whole node
    unreachable: bool = False  # its pods may still run: nothing replaces them


class ReasonForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a node is cordoned or drained."""

    reason: str = ""
