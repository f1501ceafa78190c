"""The file of the past keeps to its size, whatever tenants do, and what others did is not what pays for it."""

from pathlib import Path

from kaiwo.history.past.happenings import Begin, End, Gated, LifeKey, Up
from kaiwo.history.past.past_file import FILE
from kaiwo.history.past.past_reader import PastQuery, PastReader
from kaiwo.history.past.past_writer import PastBatch, PastWriter
from kaiwo.model.obstacle import Obstacle, Reason

MOST = 2_000_000
NOON_S = 1_700_000_000
HELD = Gated(Obstacle(Reason.HELD, 0, 0))


def test_work_that_comes_and_goes_does_not_fill_the_disk(tmp_path: Path) -> None:
    path = tmp_path / FILE
    writer = PastWriter(path, max_bytes=MOST)
    for at in range(60):
        keys = [LifeKey(f"default/short-lived-{at}-{number}", NOON_S) for number in range(1000)]
        begun, ended = [Begin(key, NOON_S) for key in keys], [End(key, NOON_S + 60 * at, "succeeded") for key in keys]
        writer.write(
            PastBatch(NOON_S + 60 * at, begun=begun, happened=[(key, NOON_S, Up()) for key in keys], ended=ended)
        )
    writer.close()
    assert path.stat().st_size < 1.5 * MOST
    assert PastReader(path).ended(PastQuery()).lives[0].key.workload.startswith("default/short-lived-59"), "the latest"


def test_work_that_is_held_and_released_all_day_does_not_fill_the_disk(tmp_path: Path) -> None:
    path = tmp_path / FILE
    writer, restless, calm = PastWriter(path, max_bytes=MOST), LifeKey("t/restless", 1), LifeKey("t/calm", 1)
    writer.write(
        PastBatch(NOON_S, begun=[Begin(restless, NOON_S), Begin(calm, NOON_S)], happened=[(calm, NOON_S, HELD)])
    )
    for at in range(100):
        writer.write(PastBatch(NOON_S + 60 * at, happened=[(restless, NOON_S + 60 * at, HELD) for _ in range(1000)]))
    writer.close()
    assert path.stat().st_size < 1.5 * MOST
    reader = PastReader(path)
    found, other = reader.life(restless), reader.life(calm)
    assert found is not None
    assert other is not None
    assert [found.moments[-1].at_s, len(other.moments)] == [NOON_S + 99 * 60, 1], (
        "the last moments, and those of others"
    )


def test_classes_of_waiting_work_that_come_and_go_do_not_fill_the_disk(tmp_path: Path) -> None:
    path = tmp_path / FILE
    writer = PastWriter(path, max_bytes=MOST)
    for at in range(60):
        waits = [("q", f"shape-{at}-{number}", NOON_S + 60 * at, HELD.obstacle) for number in range(1000)]
        writer.write(PastBatch(NOON_S + 60 * at, class_waits=waits))
    writer.close()
    assert path.stat().st_size < 1.5 * MOST
    assert PastReader(path).class_waits("q", "shape-59-999", NOON_S, NOON_S + 6000)
