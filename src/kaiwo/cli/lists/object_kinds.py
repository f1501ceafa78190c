"""The kinds of objects that can be listed: path, columns, sort keys and filters of each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kaiwo.api.views import CycleView, GpuView, NodeView, QueueView, ReservationView, WorkloadView
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
    filters: frozenset[str] = frozenset()  # of label, state and queue: those it supports
    sorts: Mapping[str, SortKey] = {}  # sorted here; empty: the server sorts
    server_sorts: Mapping[str, str] = {}
    is_streamed: bool = True

    @property
    def noun(self) -> str:
        return "GPUs" if self.plural == "gpus" else self.plural

    @property
    def path(self) -> str:
        return f"/{self.plural}"


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
    sorts={
        "name": lambda n: n.name,
        "state": lambda n: n.state,
        "gpus": lambda n: n.gpu_milli.used,
        "cpu": lambda n: n.cpu_milli.used,
        "memory": lambda n: n.memory_mib.used,
        "pods": lambda n: n.pods.used,
    },
)  # fmt: skip
QUEUES = ObjectKind(
    "queue", "queues", QueueView, columns.QUEUE, lambda q: q.name, 0,
    filters=frozenset({"queue"}),
    sorts={
        "name": lambda q: q.name,
        "used": lambda q: q.gpu_milli.used,
        "share": lambda q: q.gpu_milli.share,
        "quota": lambda q: q.gpu_milli.quota,
        "asked": lambda q: q.gpu_milli.waiting,
        "running": lambda q: q.running,
        "waiting": lambda q: q.waiting,
        "priority": lambda q: q.priority,
    },
)  # fmt: skip
GPUS = ObjectKind(
    "gpu", "gpus", GpuView, columns.GPU, lambda g: f"{g.node}/{g.id}", 1000,
    filters=frozenset({"state"}),
    sorts={
        "node": lambda g: (g.node, g.index),
        "model": lambda g: g.model,
        "state": columns.gpu_state,
        "free": lambda g: g.free_milli,
        "memory": lambda g: g.free_mib,
    },
)  # fmt: skip
CYCLES = ObjectKind(
    "cycle", "cycles", CycleView, columns.CYCLE, lambda c: str(c.number), 500,
    sorts={
        "cycle": lambda c: c.number,
        "took": lambda c: c.took_ms,
        "started": lambda c: c.starts,
        "evicted": lambda c: c.evictions,
        "waits": lambda c: c.waits,
    },
    is_streamed=False,
)  # fmt: skip
RESERVATIONS = ObjectKind(
    "reservation", "reservations", ReservationView, columns.RESERVATION, lambda r: r.name, 0,
    filters=frozenset({"state"}),
    sorts={
        "name": lambda r: r.name,
        "state": lambda r: r.phase,
        "gpus": lambda r: r.gpus,
        "used": lambda r: r.used_milli,
        "start": lambda r: r.start_s or r.created_s,
        "end": lambda r: r.end_s or 1 << 60,
    },
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
