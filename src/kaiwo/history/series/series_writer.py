"""Record frames, roll them up into minutes and hours, store complete blocks, and forget what is too old.

In:    the values of all subjects at one time.   Out: rows of series.db.
Never: loses what was recorded when the process is killed; a power cut may cost the last samples.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kaiwo.history.series.integer_codec import MISSING, Matrix, encode, readable_block, readable_frame
from kaiwo.history.series.measures import MEASURES, SubjectKind
from kaiwo.history.series.resolutions import (
    DAY_S,
    HOURS,
    MINUTES,
    RAW,
    RESOLUTIONS,
    Resolution,
    Statistic,
    statistics_of,
)
from kaiwo.history.series.series_file import PART, SERIES_FILE

Vector = npt.NDArray[np.int64]
MAX_BYTES = 2 * 10**9
MAX_SUBJECTS = 2_000_000  # of one kind; a larger position is damage
FREED_PAGES = 2000  # given back to the disk at once
_FORGET_S = (
    max(resolution.keep_s for resolution in RESOLUTIONS) + 3 * DAY_S
)  # of subjects: nothing of them is stored any more


class KindFrame(NamedTuple):
    """The values of all subjects of one kind. The same list of names again costs less than an equal one."""

    names: Sequence[str]
    values: Mapping[str, Vector]  # by measure, in the order of the names; MISSING where nobody knows


Frame = Mapping[SubjectKind, KindFrame]


class Positions:
    """The positions of the names of one kind. Those of forgotten names are given again."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        self.size = 0
        self._free: set[int] = set()

    def put(self, name: str, position: int) -> None:
        self._free.update(range(self.size, position))
        self._free.discard(position)
        self.of[name], self.size = position, max(self.size, position + 1)

    def add(self, name: str) -> int:
        self.put(name, min(self._free) if self._free else self.size)
        return self.of[name]


class SeriesWriter:
    """The only writer of a file. One thread at a time."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._db = SERIES_FILE.open_for_writing(path)
        with SERIES_FILE.problems(path):
            self._numbers = self._load_measures()
            self._load()

    def close(self) -> None:
        self._db.close()

    def record(self, time_s: int, frame: Frame) -> None:
        """Add one sample of everything. A second one within the same step replaces the first."""
        at_s = time_s - time_s % RAW.step_s
        with SERIES_FILE.problems(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                for kind, each in frame.items():
                    self._add_frame(kind, each, at_s)
                self._roll_up(MINUTES, RAW, at_s)
                self._roll_up(HOURS, MINUTES, at_s)
                closed = [resolution for resolution in RESOLUTIONS if self._store_blocks(resolution, at_s)]
                if closed:
                    self._forget(at_s)
                if HOURS in closed:
                    self._forget_subjects(frame, at_s)
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                self._load()
                raise
            if MINUTES in closed:
                self._keep_small()

    def _load(self) -> None:
        """What the file has."""
        self._subjects = {kind: Positions() for kind in SubjectKind}
        for kind, position, name in self._db.execute("SELECT kind, position, name FROM subjects"):
            if kind in self._subjects:
                if not 0 <= position < MAX_SUBJECTS:
                    raise ValueError(f"{kind} {name} has position {position}")
                self._subjects[SubjectKind(kind)].put(name, position)
        rolled = self._db.execute("SELECT resolution, until_s FROM rolled_up").fetchall()
        self._rolled = {resolution: int(until_s) for resolution, until_s in rolled}
        self._known_names: dict[SubjectKind, tuple[Sequence[str], Vector]] = {}

    # -- frames

    def _add_frame(self, kind: SubjectKind, frame: KindFrame, at_s: int) -> None:
        if not frame.names:
            return
        places = self._places(kind, frame.names, at_s)
        size = self._subjects[kind].size
        rows = []
        for name, values in frame.values.items():
            vector = np.full((1, size), MISSING, np.int64)
            vector[0, places] = values
            rows.append((RAW.number, int(Statistic.MEAN), self._numbers[kind, name], at_s, encode(vector)))
        self._add_rows(rows)

    def _add_rows(self, rows: Sequence[tuple[int, int, int, int, bytes]]) -> None:
        self._db.executemany("INSERT OR REPLACE INTO frames VALUES (?, ?, ?, ?, ?)", rows)

    def _places(self, kind: SubjectKind, names: Sequence[str], at_s: int) -> Vector:
        known = self._known_names.get(kind)
        if known is not None and known[0] is names:
            return known[1]
        subjects = self._subjects[kind]
        fresh = [(kind.value, subjects.add(name), name, at_s) for name in names if name not in subjects.of]
        self._db.executemany("INSERT INTO subjects VALUES (?, ?, ?, ?)", fresh)
        places = np.array([subjects.of[name] for name in names], np.int64)
        self._known_names[kind] = names, places
        return places

    # -- coarser resolutions

    def _roll_up(self, resolution: Resolution, finer: Resolution, at_s: int) -> None:
        """Every step of the resolution that ended, and has samples of the finer one."""
        end_s = at_s - at_s % resolution.step_s
        begin_s = self._rolled.get(resolution.number, 0)
        if begin_s == end_s:
            return
        if begin_s > end_s + resolution.step_s:  # the clock was ahead
            begin_s = end_s - resolution.step_s
        for statistic in statistics_of(resolution):
            below = statistic if statistic in statistics_of(finer) else Statistic.MEAN
            found = self._db.execute(
                "SELECT measure, time_s, data FROM frames WHERE resolution = ? AND statistic = ? "
                "AND time_s >= ? AND time_s < ? ORDER BY measure, time_s",
                (finer.number, int(below), begin_s, end_s),
            )
            samples: dict[tuple[int, int], list[Vector]] = {}
            for measure, time_s, data in found:
                if (vector := readable_frame(data)) is not None:
                    samples.setdefault((measure, time_s - time_s % resolution.step_s), []).append(vector)
            self._add_rows(
                [
                    (
                        resolution.number,
                        int(statistic),
                        measure,
                        time_s,
                        encode(combine(stacked(vectors), statistic)[None]),
                    )
                    for (measure, time_s), vectors in samples.items()
                ]
            )
        self._rolled[resolution.number] = end_s
        self._db.execute("INSERT OR REPLACE INTO rolled_up VALUES (?, ?)", (resolution.number, end_s))

    # -- blocks

    def _store_blocks(self, resolution: Resolution, at_s: int) -> bool:
        """Store blocks whose time is over, and remove their frames. Returns whether there were any."""
        begins_now_s = at_s - at_s % resolution.block_s
        over = self._db.execute(
            "SELECT DISTINCT statistic, measure, time_s - time_s % ? FROM frames WHERE resolution = ? AND time_s < ?",
            (resolution.block_s, resolution.number, begins_now_s),
        ).fetchall()
        for statistic, measure, begins_s in over:
            key = (resolution.number, statistic, measure)
            span = (begins_s, begins_s + resolution.block_s)
            frames = self._db.execute(
                "SELECT time_s, data FROM frames WHERE resolution = ? AND statistic = ? AND measure = ? "
                "AND time_s >= ? AND time_s < ?",
                (*key, *span),
            ).fetchall()
            readable = [(time_s, vector) for time_s, data in frames if (vector := readable_frame(data)) is not None]
            if readable:
                vectors = stacked([vector for _, vector in readable])
                block = np.full((vectors.shape[1], resolution.samples), MISSING, np.int64)
                block[:, [(time_s - begins_s) // resolution.step_s for time_s, _ in readable]] = vectors.T
                for part in range(0, len(block), PART):
                    self._store_part((*key, part // PART, begins_s), block[part : part + PART])
            self._db.execute(
                "DELETE FROM frames WHERE resolution = ? AND statistic = ? AND measure = ? "
                "AND time_s >= ? AND time_s < ?",
                (*key, *span),
            )
        return bool(over)

    def _store_part(self, key: tuple[int, int, int, int, int], block: Matrix) -> None:
        where = "resolution = ? AND statistic = ? AND measure = ? AND part = ? AND begins_s = ?"
        stored = self._db.execute(f"SELECT data FROM blocks WHERE {where}", key).fetchone()  # after a step of the clock
        before = readable_block(stored[0], block.shape[1]) if stored is not None else None
        if before is not None:
            if len(before) > len(block):
                block = np.pad(block, ((0, len(before) - len(block)), (0, 0)), constant_values=MISSING)
            held = block[: len(before)]
            held[held == MISSING] = before[held == MISSING]
        if (block != MISSING).any():
            self._db.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?, ?)", (*key, encode(block)))

    # -- what is forgotten

    def _forget(self, at_s: int) -> None:
        for resolution in RESOLUTIONS:
            over_s = at_s - resolution.keep_s - resolution.block_s
            self._db.execute("DELETE FROM blocks WHERE resolution = ? AND begins_s < ?", (resolution.number, over_s))
            self._db.execute("DELETE FROM frames WHERE resolution = ? AND time_s < ?", (resolution.number, over_s))

    def _forget_subjects(self, frame: Frame, at_s: int) -> None:
        """Once a day: note who is still there, and give the positions of the others to new ones."""
        for kind, each in frame.items():
            rows = [(at_s, kind.value, name) for name in each.names]
            self._db.executemany("UPDATE subjects SET seen_s = ? WHERE kind = ? AND name = ?", rows)
        over_s = at_s - _FORGET_S
        if self._db.execute("DELETE FROM subjects WHERE seen_s < ?", (over_s,)).rowcount:
            self._load()

    def _keep_small(self) -> None:
        """Give free pages back to the disk; above the most bytes, forget the oldest minutes and then hours."""
        for resolution in (MINUTES, HOURS):
            while self._used_bytes() > self._max_bytes:
                oldest = self._db.execute(
                    "SELECT min(begins_s) FROM blocks WHERE resolution = ?", (resolution.number,)
                ).fetchone()[0]
                if oldest is None:
                    break
                self._db.execute(
                    "DELETE FROM blocks WHERE resolution = ? AND begins_s < ?", (resolution.number, oldest + DAY_S)
                )
        self._db.execute(f"PRAGMA incremental_vacuum({FREED_PAGES})").fetchall()

    def _used_bytes(self) -> int:
        pages, free, size = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def _load_measures(self) -> dict[tuple[SubjectKind, str], int]:
        rows = [(each.kind.value, each.name) for each in MEASURES]
        self._db.executemany("INSERT OR IGNORE INTO measures (kind, name) VALUES (?, ?)", rows)
        found = self._db.execute("SELECT number, kind, name FROM measures").fetchall()
        return {(SubjectKind(kind), name): number for number, kind, name in found if kind in set(SubjectKind)}


def stacked(vectors: Sequence[Vector]) -> Matrix:
    """As rows of one matrix; subjects that came later are missing in the earlier ones."""
    width = max(map(len, vectors))
    matrix = np.full((len(vectors), width), MISSING, np.int64)
    for row, vector in zip(matrix, vectors, strict=True):
        row[: len(vector)] = vector
    return matrix


def combine(samples: Matrix, statistic: Statistic) -> Vector:
    """One value a column from the known values of all rows; means are rounded to the nearest integer."""
    if statistic is Statistic.MOST:
        most: Vector = samples.max(axis=0)
        return most
    known = samples != MISSING
    counts = known.sum(axis=0)
    sums = np.where(known, samples, 0).sum(axis=0)
    return np.where(counts > 0, (2 * sums + counts) // np.maximum(1, 2 * counts), MISSING)
