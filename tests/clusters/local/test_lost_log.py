"""The log of state.db was cut, or only the log is left: no start goes on from an older state in silence."""

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from kaiwo.clusters.local import LocalCluster, sqlite_store
from kaiwo.clusters.local.state_file import MODULUS, back_up, back_up_in, check_not_rolled_back, restore
from kaiwo.model.errors import ClusterError
from kaiwo.model.workload_record import Program
from tests.clusters.kinds import some_nodes, work
from tests.waiting import run

NAMES = ("first", "second", "third")


async def killed(home: Path, has_backup: bool = False) -> int:
    """What `kill -9` leaves of a Kaiwo with three workloads. Returns the size of the log when it had only the first."""
    original = home.with_name("original")
    cluster = LocalCluster(original, some_nodes(1))
    log, early = original / "state.db-wal", 0
    for name in NAMES:
        await cluster.work.submit([(work(name), Program(command=("true",)))])
        early = early or log.stat().st_size
    if has_backup:
        back_up_in(original)
    mark = (original / "state.mark").read_bytes()
    shutil.copytree(original, home, ignore=shutil.ignore_patterns("*.sock", "lock"))
    await cluster.close()
    (home / "state.mark").write_bytes(mark)  # as it was before the copy was made
    return early


def open_again(home: Path) -> list[str]:
    """The names of the workloads that it has; raises ClusterError if it refuses."""
    cluster = LocalCluster(home, some_nodes(1))
    names = sorted(name.removeprefix("default/") for name in cluster.state.workloads)
    cluster._store.close()
    cluster.home.close()
    return names


def cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def test_after_a_kill_everything_is_there(tmp_path: Path) -> None:
    run(killed(tmp_path / "home"))
    assert open_again(tmp_path / "home") == sorted(NAMES)
    assert open_again(tmp_path / "home") == sorted(NAMES), "and again"


def test_a_log_that_was_cut_is_refused_with_the_file_and_the_way_out(tmp_path: Path) -> None:
    home = tmp_path / "home"
    early = run(killed(home, has_backup=True))
    cut(home / "state.db-wal", early)  # a moment ago it was longer
    with pytest.raises(ClusterError, match=r"state\.db has lost its last changes.*kaiwo restore.*remove .*state\.mark"):
        open_again(home)
    with pytest.raises(ClusterError, match="has lost its last changes"):
        open_again(home)  # it does not start the second time, either
    restore(home)
    assert open_again(home) == sorted(NAMES), "the backup is newer than what was left, and wins"


def test_who_puts_an_older_file_back_on_purpose_removes_the_mark(tmp_path: Path) -> None:
    home = tmp_path / "home"
    early = run(killed(home))
    cut(home / "state.db-wal", early)
    (home / "state.mark").unlink()
    assert open_again(home) == ["first"]


@pytest.mark.parametrize("is_missing", [True, False])
@pytest.mark.parametrize("has_backup", [True, False])
def test_where_only_the_log_is_left_it_is_not_thrown_away(tmp_path: Path, is_missing: bool, has_backup: bool) -> None:
    home = tmp_path / "home"
    run(killed(home, has_backup))
    if is_missing:
        (home / "state.db").unlink()
    else:
        cut(home / "state.db", 0)
    with pytest.raises(ClusterError, match=r"state\.db is (missing|empty), but its log .*state\.db-wal.*kaiwo restore"):
        open_again(home)
    assert (home / "state.db-wal").stat().st_size > 0
    restore(home)
    assert open_again(home) == sorted(NAMES)


def test_the_loss_of_the_last_change_alone_is_noticed(tmp_path: Path) -> None:
    """Also in the first second of a new home: what was acknowledged is marked before anybody is told."""

    async def submit_two(original: Path, home: Path) -> None:
        cluster = LocalCluster(original, some_nodes(1))
        await cluster.work.submit([(work("first"), Program(command=("true",)))])
        size = (original / "state.db-wal").stat().st_size
        await cluster.work.submit([(work("last"), Program(command=("true",)))])
        mark = (original / "state.mark").read_bytes()
        shutil.copytree(original, home, ignore=shutil.ignore_patterns("*.sock", "lock"))
        await cluster.close()
        (home / "state.mark").write_bytes(mark)
        cut(home / "state.db-wal", size)

    home = tmp_path / "home"
    run(submit_two(tmp_path / "original", home))
    with pytest.raises(ClusterError, match=r"state\.db has lost its last changes \(\d+ of them\).*kaiwo restore"):
        open_again(home)


def test_a_flipped_bit_in_the_log_is_noticed(tmp_path: Path) -> None:
    """SQLite reads a log up to the first frame whose checksum is wrong, without a word."""
    home = tmp_path / "home"
    early = run(killed(home))
    with (home / "state.db-wal").open("r+b") as file:
        file.seek(early + 100)
        byte = file.read(1)
        file.seek(early + 100)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(ClusterError, match=r"has lost its last changes.*kaiwo restore"):
        open_again(home)


def test_an_older_copy_of_the_file_is_noticed_and_one_that_others_folded_is_not(tmp_path: Path) -> None:
    home = tmp_path / "home"
    run(killed(home))
    older = tmp_path / "older.db"
    back_up(home / "state.db", older)
    with contextlib.closing(sqlite3.connect(home / "state.db")) as db:  # somebody looks with another program
        assert db.execute("SELECT count(*) FROM workloads").fetchone() == (3,)
    assert open_again(home) == sorted(NAMES)

    async def one_more() -> None:
        cluster = LocalCluster(home, some_nodes(1))
        await cluster.work.submit([(work("fourth"), Program(command=("true",)))])
        await cluster.close()

    run(one_more())
    shutil.copy(older, home / "state.db")
    with pytest.raises(ClusterError, match="has lost its last changes"):
        open_again(home)


def test_the_mark_of_an_earlier_version_counts_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    run(killed(home))
    (home / "state.mark").write_text("4102444800000")  # until when the file was flushed, by its own clock
    with pytest.raises(ClusterError, match=r"it ends at .*, and was stored until 2100-01-01"):
        open_again(home)
    (home / "state.mark").write_text("1000000000000")
    assert open_again(home) == sorted(NAMES)


def test_counts_of_changes_begin_again_after_the_largest(tmp_path: Path) -> None:
    home = tmp_path / "home"
    run(killed(home))
    with contextlib.closing(sqlite3.connect(home / "state.db")) as db:
        db.execute(f"PRAGMA user_version = {MODULUS - 1}")
    (home / "state.mark").unlink()

    async def one_more() -> str:
        cluster = LocalCluster(home, some_nodes(1))
        await cluster.work.submit([(work("fourth"), Program(command=("true",)))])
        mark = (home / "state.mark").read_text()
        await cluster.close()
        return mark

    assert int(run(one_more()).split()[1]) < 100
    assert open_again(home) == sorted((*NAMES, "fourth"))


def test_a_mark_is_never_ahead_of_what_was_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    original, written = os.fdatasync, sqlite_store.write_mark
    monkeypatch.setattr(os, "fdatasync", lambda fd: (flushed.append(1), original(fd))[1])

    def checked(mark: int, changes: int) -> None:
        assert flushed
        flushed.clear()
        written(mark, changes)
        check_not_rolled_back(tmp_path / "state.db")

    monkeypatch.setattr(sqlite_store, "write_mark", checked)

    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1))
        await cluster.start()
        for name in NAMES:
            before = (tmp_path / "state.mark").read_bytes()
            await cluster.work.submit([(work(name), Program(command=("true",)))])
            assert (tmp_path / "state.mark").read_bytes() != before, "marked before anybody is told"
        assert cluster.faults == 0
        await cluster.close()
        check_not_rolled_back(tmp_path / "state.db")

    run(test())


@pytest.mark.parametrize(
    "content", ["", "soon", "-1", "99999999999999999999999999", "changes ", "changes 1e9", "changes 2147483648"]
)
def test_a_damaged_mark_stops_no_start_or_says_how_to_go_on(tmp_path: Path, content: str) -> None:
    home = tmp_path / "home"
    run(killed(home))
    (home / "state.mark").write_text(content)
    with contextlib.suppress(ClusterError):
        assert open_again(home) == sorted(NAMES)
        return
    (home / "state.mark").unlink()
    assert open_again(home) == sorted(NAMES)
