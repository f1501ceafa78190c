"""The tables of state.db: their SQL, the values that they hold, and how a row is read."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.embedded.lifecycle import PlacedRun, Run, TrackedWorkload
from kaiwo.model.defragmentation import DefragmentationRun, StepProgress
from kaiwo.model.errors import KaiwoError
from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.queue import Queue
from kaiwo.model.recovery import Recovery
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload_record import AttemptRecord

# The values are msgpack; the other columns are for people who look inside with sqlite3.
TABLES_SQL = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS nodes (name TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS queues (name TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS workloads (
    name TEXT PRIMARY KEY, state TEXT NOT NULL, queue TEXT NOT NULL, data BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS earlier (
    name TEXT NOT NULL, submission INTEGER NOT NULL, state TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (name, submission)
);
CREATE TABLE IF NOT EXISTS attempts (
    workload TEXT NOT NULL, submission INTEGER NOT NULL, attempt INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (workload, submission, attempt)
);
CREATE TABLE IF NOT EXISTS pods (
    workload TEXT NOT NULL, name TEXT NOT NULL, node TEXT NOT NULL, phase TEXT NOT NULL, run TEXT NOT NULL,
    data BLOB NOT NULL, PRIMARY KEY (workload, name)
);
CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, workload TEXT NOT NULL, pod TEXT NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS kept (workload TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS promises (workload TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS recoveries (workload TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS reservations (name TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS defragmentation (name TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS move_steps (
    run TEXT NOT NULL, step INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (run, step)
);
CREATE TABLE IF NOT EXISTS set_aside (at TEXT, source TEXT, name TEXT, why TEXT, data BLOB);
"""
encode = msgspec.msgpack.Encoder().encode


class StoredTable(NamedTuple):
    name: str
    type: Any
    keys: tuple[str, ...] = ("name",)
    columns: tuple[str, ...] = ()  # besides the keys and `data`, for people
    values: Callable[[Any], tuple[str, ...]] = lambda value: ()  # of those columns
    key_of: Callable[[Any], Any] | None = None  # what the value itself says; None: it does not say

    @property
    def select(self) -> str:
        return f"SELECT {', '.join(self.keys)}, data FROM {self.name} ORDER BY rowid"

    @property
    def upsert(self) -> str:
        marks = ", ".join("?" * (len(self.keys) + len(self.columns) + 1))
        updates = ", ".join(f"{column} = excluded.{column}" for column in (*self.columns, "data"))
        return f"INSERT INTO {self.name} VALUES ({marks}) ON CONFLICT DO UPDATE SET {updates}"

    @property
    def delete(self) -> str:
        return f"DELETE FROM {self.name} WHERE {' AND '.join(f'{key} = ?' for key in self.keys)}"


STORED = {  # by the state's own name of the table
    "nodes": StoredTable("nodes", Node, key_of=lambda node: node.name),
    "queues": StoredTable("queues", Queue, key_of=lambda queue: queue.name),
    "workloads": StoredTable(
        "workloads",
        TrackedWorkload,
        columns=("state", "queue"),
        values=lambda tracked: (str(tracked.record.state), tracked.workload.queue),
        key_of=lambda tracked: tracked.workload.name,
    ),
    "earlier": StoredTable(
        "earlier",
        TrackedWorkload,
        keys=("name", "submission"),
        columns=("state",),
        values=lambda tracked: (str(tracked.record.state),),
    ),
    "attempts": StoredTable("attempts", AttemptRecord, ("workload", "submission", "attempt")),
    "pods": StoredTable(
        "pods",
        PlacedRun,
        keys=("workload", "name"),
        columns=("node", "phase", "run"),
        values=lambda placement: (placement.pod.node, str(placement.pod.phase), placement.run.id),
        key_of=lambda placement: (placement.pod.workload, placement.pod.name),
    ),
    "runs": StoredTable(
        "runs", Run, ("id",), ("workload", "pod"), lambda run: (run.workload, run.pod), lambda run: run.id
    ),
    "nominations": StoredTable("kept", tuple[Nomination, ...], ("workload",)),
    "planned_starts": StoredTable("promises", PlannedStart, ("workload",)),
    "recoveries": StoredTable("recoveries", Recovery, ("workload",), key_of=lambda recovery: recovery.workload),
    "reservations": StoredTable("reservations", Reservation),
    "defragmentation": StoredTable("defragmentation", DefragmentationRun),
    "move_steps": StoredTable("move_steps", StepProgress, ("run", "step")),
}


class BadRow(NamedTuple):
    why: str
    value: Any = None  # it can be read, but says that it belongs elsewhere; None: it cannot be read


def decode_rows(table: StoredTable, rows: Iterable[Sequence[Any]]) -> tuple[dict[Any, Any], dict[Any, BadRow]]:
    """The values by key, and the rows that cannot be used."""
    decode, key_of = msgspec.msgpack.Decoder(table.type).decode, table.key_of
    found: dict[Any, Any] = {}
    bad: dict[Any, BadRow] = {}
    for *keys, data in rows:
        key = keys[0] if len(keys) == 1 else tuple(keys)
        try:
            value = decode(data)
        except (msgspec.MsgspecError, TypeError, ValueError, KaiwoError) as error:
            bad[key] = BadRow(str(error))
            continue
        if key_of is None or key_of(value) == key:
            found[key] = value
        else:
            bad[key] = BadRow("its value belongs to another row", value)
    return found, bad
