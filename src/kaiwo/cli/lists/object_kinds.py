"""The kinds of objects that can be listed: path, columns, sort keys and filters of each."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from kaiwo.api.views.cluster import CycleView
from kaiwo.api.views.nodes import GpuView, NodeView
from kaiwo.api.views.queues import QueueView
from kaiwo.api.views.reservations import ReservationView
from kaiwo.api.views.workloads import WorkloadView
from kaiwo.cli.lists import columns
from kaiwo.cli.output.table_layout import Column
from kaiwo.model.errors import ConfigError

SortKey = Callable[[Any], Any]


class ObjectKind(msgspec.Struct, frozen=True, eq=False):
    """A kind of object, such as workloads or nodes."""

    singular: str
    plural: str
    view: type[Any]
    columns: Sequence[Column]
    key: Callable[[Any], str]  # its name in the stream and with `-o name`
    page_limit: int  # the largest page that the server returns; 0: not paged
    filters: frozenset[str] = frozenset()  # which of label, state and queue it supports
    sorts: Mapping[str, SortKey] = {}  # sorted here; empty: the server sorts
    server_sorts: Mapping[str, str] = {}
    is_streamed: bool = True

    @property
    def noun(self) -> str:
        return "GPUs" if self.plural == "gpus" else self.plural

    @property
    def path(self) -> str:
        return f"/{self.plural}"


def _sort_keys(**keys: str | SortKey) -> dict[str, SortKey]:
    """The columns for --sort-by, each with the attribute that it sorts by, or a function."""
    return {name: attrgetter(key) if isinstance(key, str) else key for name, key in keys.items()}


WORKLOADS = ObjectKind(
    "workload", "workloads", WorkloadView, columns.WORKLOAD, lambda w: w.name, 500,
    filters=frozenset({"label", "state", "queue"}),
    server_sorts={
        "name": "name", "queue": "queue", "state": "state", "priority": "priority", "gpus": "gpus",
        "submitted": "submitted", "started": "started", "ended": "ended", "age": "-submitted",
    },
)  # fmt: skip
NODES = ObjectKind(
    "node", "nodes", NodeView, columns.NODE, lambda n: n.name, 500,
    filters=frozenset({"label", "state"}),
    sorts=_sort_keys(name="name", state="state", gpus="gpu_milli.used", cpu="cpu_milli.used",
                     memory="memory_mib.used", pods="pods.used"),
)  # fmt: skip
QUEUES = ObjectKind(
    "queue", "queues", QueueView, columns.QUEUE, lambda q: q.name, 0,
    filters=frozenset({"queue"}),
    sorts=_sort_keys(name="name", used="gpu_milli.used", share="gpu_milli.share", quota="gpu_milli.quota",
                     asked="gpu_milli.waiting", running="running", waiting="waiting", priority="priority"),
)  # fmt: skip
GPUS = ObjectKind(
    "gpu", "gpus", GpuView, columns.GPU, lambda g: f"{g.node}/{g.id}", 1000,
    filters=frozenset({"state"}),
    sorts=_sort_keys(node=lambda g: (g.node, g.index), model="model", state=columns.gpu_state, free="free_milli",
                     memory="free_mib"),
)  # fmt: skip
CYCLES = ObjectKind(
    "cycle", "cycles", CycleView, columns.CYCLE, lambda c: str(c.number), 500,
    sorts=_sort_keys(cycle="number", took="took_ms", started="starts", evicted="evictions", waits="waits"),
    is_streamed=False,
)  # fmt: skip
RESERVATIONS = ObjectKind(
    "reservation", "reservations", ReservationView, columns.RESERVATION, lambda r: r.name, 0,
    filters=frozenset({"state"}),
    sorts=_sort_keys(name="name", state="phase", gpus="gpus", used="used_milli",
                     start=lambda r: r.start_s or r.created_s, end=lambda r: r.end_s or 1 << 60),
    is_streamed=False,
)  # fmt: skip
KINDS = (WORKLOADS, NODES, QUEUES, GPUS, CYCLES, RESERVATIONS)
_ALIASES = {"w": WORKLOADS, "job": WORKLOADS, "jobs": WORKLOADS, "n": NODES, "q": QUEUES, "g": GPUS, "c": CYCLES}
_BY_NAME = {name: kind for kind in KINDS for name in (kind.singular, kind.plural)} | _ALIASES


def find_kind(name: str) -> ObjectKind | None:
    return _BY_NAME.get(name.lower())


def require_kind(name: str) -> ObjectKind:
    kind = find_kind(name)
    if kind is None:
        raise ConfigError(f"unknown kind '{name}'; choose from {', '.join(k.plural for k in KINDS)}")
    return kind
