"""Read time series: the values of some subjects over any range of time, at the resolution that suits it.

In:    names, one measure, a range, and how many points are wanted.   Out: one row of points for each name.
How: long ranges come from hours, short ones from raw samples. What a coarser resolution does not have yet, because its
hour or minute still runs, comes from the finer one.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kaiwo.history.record_file import RecordReader
from kaiwo.history.series.integer_codec import MISSING, Matrix, readable_block, readable_frame
from kaiwo.history.series.measures import SubjectKind
from kaiwo.history.series.resolutions import HOURS, RAW, RESOLUTIONS, Resolution, Statistic, statistics_of
from kaiwo.history.series.series_file import PART, SERIES_FILE
from kaiwo.history.series.series_writer import combine
from kaiwo.model.errors import ConfigError, NotFoundError

MAX_BLOCKS = 800  # read for one query; beyond it a coarser resolution is read
MAX_POINTS = 5000
MAX_SAMPLES = 20_000_000  # of all names of one query: 160 MB


class SeriesQuery(NamedTuple):
    kind: SubjectKind
    measure: str
    names: Sequence[str]
    from_s: int
    to_s: int  # not included
    points: int = 300  # at most
    statistic: Statistic = Statistic.MEAN


class SeriesAnswer(NamedTuple):
    begins_s: int  # of the first point
    step_s: int
    values: Matrix  # one row for each name, one column for each point; MISSING where nobody knows


class SeriesReader(RecordReader):
    """A file that is not there yet knows nobody."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, SERIES_FILE)

    def names(self, kind: SubjectKind) -> list[str]:
        with self.connection() as db:
            if db is None:
                return []
            found = db.execute("SELECT name FROM subjects WHERE kind = ? ORDER BY name", (kind.value,))
            return [name for (name,) in found]

    def read(self, query: SeriesQuery) -> SeriesAnswer:
        """NotFoundError for a name of which nothing was ever recorded."""
        if query.to_s <= query.from_s or not 1 <= query.points <= MAX_POINTS:
            raise ConfigError(f"the range must end after it begins, and have 1 to {MAX_POINTS} points")
        with self.connection() as db:
            if db is None or db.execute("SELECT 1 FROM subjects LIMIT 1").fetchone() is None:
                return _unknown(query)
            number = _measure_number(db, query)
            places = _places(db, query)
            resolution = _resolution_for(query, len({place // PART for place in places}), _newest_s(db, query.to_s))
            begins_s, step_s = _points(query, resolution)
            if len(places) * ((query.to_s - begins_s) // resolution.step_s) > MAX_SAMPLES:
                raise ConfigError("these are too many samples for one answer; ask for a shorter range or fewer names")
            samples = _samples(db, resolution, number, query.statistic, places, (begins_s, query.to_s))
        per_point = step_s // resolution.step_s
        points = -(-samples.shape[1] // per_point)
        samples = np.pad(samples, ((0, 0), (0, points * per_point - samples.shape[1])), constant_values=MISSING)
        by_point = samples.reshape(-1, per_point)
        return SeriesAnswer(begins_s, step_s, combine(by_point.T, query.statistic).reshape(len(places), points))


def _unknown(query: SeriesQuery) -> SeriesAnswer:
    """In the first seconds of a new home nothing is recorded of anybody: that is no error."""
    step_s = max(1, (query.to_s - query.from_s) // query.points)
    points = max(1, (query.to_s - query.from_s) // step_s)
    return SeriesAnswer(query.from_s, step_s, np.full((len(query.names), points), MISSING, np.int64))


def _measure_number(db: sqlite3.Connection, query: SeriesQuery) -> int:
    key = (query.kind.value, query.measure)
    found = db.execute("SELECT number FROM measures WHERE kind = ? AND name = ?", key).fetchone()
    if found is None:
        raise NotFoundError(f"there is no measure '{query.measure}' of a {query.kind.value}")
    return int(found[0])


def _places(db: sqlite3.Connection, query: SeriesQuery) -> list[int]:
    places = []
    for name in query.names:
        found = db.execute(
            "SELECT position FROM subjects WHERE kind = ? AND name = ?", (query.kind.value, name)
        ).fetchone()
        if found is None:
            raise NotFoundError(f"nothing is recorded of {query.kind.value} '{name}'")
        places.append(int(found[0]))
    return places


def _newest_s(db: sqlite3.Connection, to_s: int) -> int:
    """About the time of the last sample: what is kept depends on it."""
    newest = db.execute("SELECT max(until_s) FROM rolled_up").fetchone()[0]
    return to_s if newest is None else int(newest)


def _resolution_for(query: SeriesQuery, parts: int, now_s: int) -> Resolution:
    """The coarsest one that is fine enough; of those that still have the beginning and are not too much to read."""
    wanted_s = max(1, (query.to_s - query.from_s) // query.points)
    kept = [resolution for resolution in RESOLUTIONS if query.from_s >= now_s - resolution.keep_s] or [HOURS]
    blocks = {resolution: parts * (1 + (query.to_s - query.from_s) // resolution.block_s) for resolution in kept}
    cheap = [resolution for resolution in kept if blocks[resolution] <= MAX_BLOCKS] or kept[-1:]
    fine = [resolution for resolution in cheap if resolution.step_s <= wanted_s]
    return fine[-1] if fine else cheap[0]


def _points(query: SeriesQuery, resolution: Resolution) -> tuple[int, int]:
    """Where the first point begins, and the step: both fit the resolution, and no more points than wanted."""
    begins_s = query.from_s - query.from_s % resolution.step_s
    return begins_s, -(-(query.to_s - begins_s) // (query.points * resolution.step_s)) * resolution.step_s


def _samples(
    db: sqlite3.Connection,
    resolution: Resolution,
    number: int,
    statistic: Statistic,
    places: Sequence[int],
    span: tuple[int, int],
) -> Matrix:
    """One column for each step of the resolution from the beginning of the span, which is one of its steps."""
    begins_s, end_s = span
    samples = np.full((len(places), -(-(end_s - begins_s) // resolution.step_s)), MISSING, np.int64)
    stored = statistic if statistic in statistics_of(resolution) else Statistic.MEAN
    key = (resolution.number, int(stored), number)
    rows_of: dict[int, list[int]] = {}
    for row, place in enumerate(places):
        rows_of.setdefault(place // PART, []).append(row)
    for part, rows in rows_of.items():
        blocks = db.execute(
            "SELECT begins_s, data FROM blocks WHERE resolution = ? AND statistic = ? AND measure = ? AND part = ? "
            "AND begins_s > ? AND begins_s < ?",
            (*key, part, begins_s - resolution.block_s, end_s),
        )
        for block_s, data in blocks:
            block = readable_block(data, resolution.samples)
            if block is None:
                continue
            present = [row for row in rows if places[row] % PART < len(block)]
            at = (block_s - begins_s) // resolution.step_s
            first, last = max(0, at), min(samples.shape[1], at + block.shape[1])
            samples[present, first:last] = block[[places[row] % PART for row in present], first - at : last - at]
    frames = db.execute(
        "SELECT time_s, data FROM frames WHERE resolution = ? AND statistic = ? AND measure = ? "
        "AND time_s >= ? AND time_s < ?",
        (*key, begins_s, end_s),
    )
    for time_s, data in frames:
        vector = readable_frame(data)
        if vector is None:
            continue
        present = [row for row, place in enumerate(places) if place < len(vector)]
        samples[present, (time_s - begins_s) // resolution.step_s] = vector[[places[row] for row in present]]
    if resolution is not RAW:
        _add_running_step(db, resolution, number, statistic, places, samples, span)
    return samples


def _add_running_step(
    db: sqlite3.Connection,
    resolution: Resolution,
    number: int,
    statistic: Statistic,
    places: Sequence[int],
    samples: Matrix,
    span: tuple[int, int],
) -> None:
    """The minute or hour that is not over yet, from the finer one."""
    rolled = db.execute("SELECT until_s FROM rolled_up WHERE resolution = ?", (resolution.number,)).fetchone()
    running_s = int(rolled[0]) if rolled else span[0]
    at = (running_s - span[0]) // resolution.step_s
    if not 0 <= at < samples.shape[1]:
        return
    finer = RESOLUTIONS[RESOLUTIONS.index(resolution) - 1]
    until_s = min(span[1], running_s + resolution.step_s)
    found = _samples(db, finer, number, statistic, places, (running_s, until_s))
    samples[:, at] = combine(found.T, statistic)
