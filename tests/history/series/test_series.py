"""Time series: what was recorded is found again, at every resolution, after restarts, kills and steps of the clock."""

import contextlib
import os
import sqlite3
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.history.record_file import set_aside
from kaiwo.history.series.integer_codec import MISSING, MOST, decode, encode
from kaiwo.history.series.measures import MEASURES, SubjectKind, measures_of
from kaiwo.history.series.resolutions import DAY_S, HOURS, MINUTES, RAW, Statistic
from kaiwo.history.series.series_file import FILE
from kaiwo.history.series.series_reader import SeriesAnswer, SeriesQuery, SeriesReader
from kaiwo.history.series.series_writer import Frame, KindFrame, SeriesWriter
from kaiwo.model.errors import ClusterError, ConfigError, DamagedFileError, NotFoundError

NOON_S = 1_800_000_000 - 1_800_000_000 % DAY_S + DAY_S // 2
GPU = SubjectKind.GPU


def power(values: Mapping[str, int]) -> Frame:
    return {GPU: KindFrame(tuple(values), {"power_w": np.array(list(values.values()), np.int64)})}


def watts(path: Path, name: str, from_s: int, to_s: int, **options: object) -> SeriesAnswer:
    reader = SeriesReader(path)
    try:
        return reader.read(SeriesQuery(GPU, "power_w", (name,), from_s, to_s, **options))  # type: ignore[arg-type]
    finally:
        reader.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE


@given(
    st.lists(st.lists(st.integers(MISSING, MOST), min_size=1, max_size=9), min_size=1, max_size=5).filter(
        lambda rows: len({len(row) for row in rows}) == 1
    )
)
def test_every_matrix_of_integers_is_decoded_as_it_was(rows: list[list[int]]) -> None:
    values = np.array(rows, np.int64)
    assert (decode(encode(values)) == values).all()


def test_larger_values_are_recorded_as_the_largest() -> None:
    assert decode(encode(np.array([[2**63 - 1, 3]], np.int64))).tolist() == [[MOST, 3]]


@given(st.binary(max_size=60))
def test_garbage_is_no_block(data: bytes) -> None:
    with contextlib.suppress(ClusterError):
        decode(data)


def test_the_last_two_hours_are_there_in_steps_of_ten_seconds(path: Path) -> None:
    writer = SeriesWriter(path)
    for at in range(0, 3600, 10):
        writer.record(NOON_S + at, power({"a/0": at, "a/1": 7}))
    answer = watts(path, "a/0", NOON_S + 1200, NOON_S + 3600, points=240)
    assert (answer.begins_s, answer.step_s) == (NOON_S + 1200, RAW.step_s)
    assert answer.values[0].tolist() == list(range(1200, 3600, 10))
    writer.close()


def test_a_minute_is_the_mean_of_its_samples_and_knows_the_most(path: Path) -> None:
    writer = SeriesWriter(path)
    for at in range(0, 7200, 10):
        writer.record(NOON_S + at, power({"a/0": 100 + at % 60}))
    mean = watts(path, "a/0", NOON_S, NOON_S + 7200, points=120)
    most = watts(path, "a/0", NOON_S, NOON_S + 7200, points=120, statistic=Statistic.MOST)
    assert mean.step_s == most.step_s == MINUTES.step_s
    assert set(mean.values[0].tolist()) == {125}
    assert set(most.values[0].tolist()) == {150}
    writer.close()


def test_the_hour_that_runs_is_in_the_answer(path: Path) -> None:
    writer = SeriesWriter(path)
    for at in range(0, 3 * 3600 + 1800, 30):
        writer.record(NOON_S + at, power({"a/0": 10 if at < 3 * 3600 else 90}))
    answer = watts(path, "a/0", NOON_S, NOON_S + 4 * 3600, points=4)
    assert answer.step_s == HOURS.step_s
    assert answer.values[0].tolist() == [10, 10, 10, 90]
    writer.close()


def test_what_nobody_measured_is_missing_and_not_zero(path: Path) -> None:
    writer = SeriesWriter(path)
    writer.record(NOON_S, power({"a/0": 0}))
    writer.record(NOON_S + 10, power({"a/0": MISSING}))
    writer.record(NOON_S + 30, power({"b/0": 5}))
    assert watts(path, "a/0", NOON_S, NOON_S + 40).values[0].tolist() == [0, MISSING, MISSING, MISSING]
    assert watts(path, "b/0", NOON_S, NOON_S + 40).values[0].tolist() == [MISSING, MISSING, MISSING, 5]
    writer.close()


def test_a_month_is_kept_by_the_hour_a_week_by_the_minute_and_two_hours_raw(path: Path) -> None:
    writer = SeriesWriter(path)
    for at in range(0, 40 * DAY_S, 1800):
        writer.record(NOON_S + at, power({"a/0": at // DAY_S}))
    end_s = NOON_S + 40 * DAY_S
    month = watts(path, "a/0", end_s - 30 * DAY_S, end_s, points=720)
    assert month.step_s == 3600
    assert (month.values[0] != MISSING).all()
    week = watts(path, "a/0", end_s - 7 * DAY_S, end_s, points=5000)
    assert week.step_s == 180
    assert int((week.values[0] != MISSING).sum()) == 7 * 48
    before = watts(path, "a/0", NOON_S, NOON_S + 5 * DAY_S, points=120)
    assert (before.values[0] == MISSING).all()
    db = sqlite3.connect(path)
    oldest_raw = db.execute("SELECT min(begins_s) FROM blocks WHERE resolution = 0").fetchone()[0]
    assert oldest_raw is None or oldest_raw >= end_s - 3 * 3600
    db.close()
    writer.close()


def test_a_restart_goes_on_where_the_last_one_was_killed(path: Path) -> None:
    for at in range(0, 3 * 3600, 10):
        if at % 700 == 0:
            writer = SeriesWriter(path)  # the one before is never closed, as after a kill
        writer.record(NOON_S + at, power({f"a/{at // 3600}": at, "a/0": 50}))
    writer.close()
    hours = watts(path, "a/0", NOON_S, NOON_S + 3 * 3600, points=3)
    assert hours.values[0].tolist()[1:] == [50, 50]
    minutes = watts(path, "a/2", NOON_S + 2 * 3600, NOON_S + 3 * 3600, points=60)
    assert minutes.values[0].tolist() == [at + 25 for at in range(7200, 10800, 60)]


@pytest.mark.parametrize("step_s", [-3600, -7 * DAY_S, 3600, 400 * DAY_S])
def test_recording_survives_steps_of_the_clock(path: Path, step_s: int) -> None:
    writer = SeriesWriter(path)
    for at in range(0, 3600, 10):
        writer.record(NOON_S + at, power({"a/0": 10}))
    begins_s = NOON_S + 3600 + step_s
    for at in range(0, 3 * 3600, 10):
        writer.record(begins_s + at, power({"a/0": 20}))
    after = watts(path, "a/0", begins_s + 3600, begins_s + 3 * 3600, points=120)
    assert set(after.values[0].tolist()) == {20}
    writer.close()


def test_when_the_clock_goes_back_nothing_that_was_stored_is_lost(path: Path) -> None:
    writer = SeriesWriter(path)
    for at in range(0, 1800, 10):
        writer.record(NOON_S + at, power({"a/0": 10}))
    for at in range(0, 1800, 20):  # the same half hour once more, with fewer samples
        writer.record(NOON_S + at, power({"a/0": 20}))
    again = watts(path, "a/0", NOON_S, NOON_S + 600, points=60).values[0].tolist()
    assert again[0::2] == [20] * 30
    assert again[1::2] == [10] * 30
    writer.close()


def test_a_forgotten_name_gives_its_position_to_a_new_one(path: Path) -> None:
    writer = SeriesWriter(path)
    writer.record(NOON_S, power({"old/0": 1, "stays/0": 2}))
    for day in range(1, 60):
        writer.record(NOON_S + day * DAY_S, power({"stays/0": 2}))
    writer.record(NOON_S + 60 * DAY_S, power({"new/0": 3, "stays/0": 2}))
    writer.close()
    reader = SeriesReader(path)
    assert reader.names(GPU) == ["new/0", "stays/0"]
    reader.close()
    end_s = NOON_S + 61 * DAY_S
    assert set(watts(path, "new/0", end_s - 29 * DAY_S, end_s, points=720).values[0].tolist()) == {MISSING, 3}
    db = sqlite3.connect(path)
    assert db.execute("SELECT max(position) FROM subjects").fetchone() == (1,)
    db.close()


def test_a_failed_write_leaves_nothing_behind(path: Path) -> None:
    writer = SeriesWriter(path)
    writer.record(NOON_S, power({"a/0": 1}))
    with pytest.raises(KeyError):
        writer.record(NOON_S + 10, {GPU: KindFrame(("b/0",), {"no-such-measure": np.array([1], np.int64)})})
    writer.record(NOON_S + 20, power({"a/0": 2, "b/0": 3}))
    assert watts(path, "b/0", NOON_S, NOON_S + 30).values[0].tolist() == [MISSING, MISSING, 3]
    assert watts(path, "a/0", NOON_S, NOON_S + 30).values[0].tolist() == [1, MISSING, 2]
    writer.close()


def test_above_the_most_bytes_the_oldest_minutes_go_first(path: Path) -> None:
    writer = SeriesWriter(path, max_bytes=400_000)
    noise = np.random.default_rng(1)
    names = tuple(f"a/{gpu}" for gpu in range(200))
    for at in range(0, 3 * DAY_S, 60):
        writer.record(NOON_S + at, {GPU: KindFrame(names, {"power_w": noise.integers(0, 500, 200)})})
    writer.close()
    assert os.stat(path).st_size < 900_000  # free pages are given back little by little
    end_s = NOON_S + 3 * DAY_S
    hours = watts(path, "a/7", NOON_S, end_s, points=72)
    assert (hours.values[0] != MISSING).all()


def test_only_its_owner_reads_the_file(path: Path) -> None:
    SeriesWriter(path).record(NOON_S, power({"a/0": 1}))
    for file in path.parent.iterdir():
        assert not stat.S_IMODE(file.stat().st_mode) & 0o077, file


def test_a_damaged_file_is_told_from_a_full_disk_and_set_aside(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to have a header" * 100)
    with pytest.raises(DamagedFileError, match=str(path)):
        SeriesWriter(path)
    kept = set_aside(path, NOON_S)
    assert kept.exists()
    SeriesWriter(path).record(NOON_S, power({"a/0": 1}))
    assert watts(path, "a/0", NOON_S, NOON_S + 10).values.tolist() == [[1]]


def test_questions_that_have_no_answer_are_refused_by_name(path: Path) -> None:
    SeriesWriter(path).record(NOON_S, power({"a/0": 1}))
    with pytest.raises(NotFoundError, match="gpu 'a/9'"):
        watts(path, "a/9", NOON_S, NOON_S + 10)
    with pytest.raises(ConfigError, match="range"):
        watts(path, "a/0", NOON_S, NOON_S)
    reader = SeriesReader(path)
    with pytest.raises(NotFoundError, match="measure 'colour' of a gpu"):
        reader.read(SeriesQuery(GPU, "colour", ("a/0",), NOON_S, NOON_S + 10))
    reader.close()


def test_every_measure_has_a_name_of_its_own_and_a_help_text() -> None:
    keys = [(each.kind, each.name) for each in MEASURES]
    assert len(set(keys)) == len(keys)
    assert all(each.help.endswith(".") for each in MEASURES)
    assert all(measures_of(kind) for kind in SubjectKind)


@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 900)), min_size=1, max_size=60),
    st.sampled_from([60, 3600]),
)
def test_points_are_the_means_of_what_was_recorded(steps: list[tuple[int, int]], step_s: int) -> None:
    """The same as a plain list of samples says, up to the rounding of each resolution."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        writer = SeriesWriter(path)
        at_s, samples = NOON_S, {}
        for pause_s, value in steps:
            at_s += pause_s
            writer.record(at_s, power({"a/0": value}))
            samples[at_s - at_s % RAW.step_s] = value
        end_s = at_s - at_s % step_s + step_s
        answer = watts(path, "a/0", NOON_S, end_s, points=max(1, (end_s - NOON_S) // step_s))
        writer.close()
    by_minute: dict[int, list[int]] = {}
    for time_s, value in samples.items():
        by_minute.setdefault(time_s - time_s % 60, []).append(value)
    minutes = {time_s: sum(values) / len(values) for time_s, values in by_minute.items()}
    for point, value in enumerate(answer.values[0].tolist()):
        begins_s = answer.begins_s + point * answer.step_s
        inside = [mean for time_s, mean in minutes.items() if begins_s <= time_s < begins_s + answer.step_s]
        if answer.step_s < 60:
            inside = [float(v) for time_s, v in samples.items() if begins_s <= time_s < begins_s + answer.step_s]
        if not inside:
            assert value == MISSING
        else:
            assert abs(value - sum(inside) / len(inside)) <= 1.01


def test_a_query_of_too_many_samples_is_refused_before_it_takes_memory(path: Path) -> None:
    SeriesWriter(path).record(NOON_S, power({"a/0": 1}))
    with pytest.raises(ConfigError, match="too many samples"):
        watts(path, "a/0", 0, 2**40, points=1)


def test_a_new_home_knows_nothing_and_that_is_no_error(tmp_path: Path) -> None:
    reader = SeriesReader(tmp_path / "series.db")
    answer = reader.read(SeriesQuery(SubjectKind.CLUSTER, "gpu_milli", ("cluster",), 0, 7_200, 240, Statistic.MEAN))
    assert answer.values.shape == (1, 240)
    assert (answer.values == MISSING).all()
