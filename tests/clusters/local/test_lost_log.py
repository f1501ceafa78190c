"""The log of state.db was cut, or only the log is left: no start goes on from an older state in silence."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from kaiwo.clusters.local import LocalCluster
from kaiwo.clusters.local import cluster as cluster_module
from kaiwo.clusters.local.state_file import back_up_in, check_not_rolled_back, restore, write_mark
from kaiwo.model.errors import ClusterError
from kaiwo.model.workload_record import Program
from tests.clusters.kinds import some_nodes, work
from tests.waiting import run, until

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
    await until(lambda: (original / "state.mark").exists())
    mark = int((original / "state.mark").read_text())
    shutil.copytree(original, home, ignore=shutil.ignore_patterns("*.sock", "lock"))
    await cluster.close()
    write_mark(home / "state.db", mark)
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


@pytest.fixture(autouse=True)
def quick_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "HEARTBEAT_S", 0.02)
    monkeypatch.setattr(cluster_module, "MARK_EVERY_S", 0.05)


def test_after_a_kill_everything_is_there(tmp_path: Path) -> None:
    run(killed(tmp_path / "home"))
    assert open_again(tmp_path / "home") == sorted(NAMES)
    assert open_again(tmp_path / "home") == sorted(NAMES), "and again"


def test_a_log_that_was_cut_is_refused_with_the_file_and_the_way_out(tmp_path: Path) -> None:
    home = tmp_path / "home"
    early = run(killed(home, has_backup=True))
    (home / "state.mark").write_text("4102444800000")  # the cut took more than the last moments
    cut(home / "state.db-wal", early)
    with pytest.raises(ClusterError, match=r"state\.db has lost its last changes.*kaiwo restore.*remove .*state\.mark"):
        open_again(home)
    with pytest.raises(ClusterError, match="has lost its last changes"):
        open_again(home)  # it does not start the second time, either
    restore(home)
    assert open_again(home) == sorted(NAMES), "the backup is newer than what was left, and wins"


def test_who_puts_an_older_file_back_on_purpose_removes_the_mark(tmp_path: Path) -> None:
    home = tmp_path / "home"
    early = run(killed(home))
    (home / "state.mark").write_text("4102444800000")
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


def test_a_mark_is_never_ahead_of_what_was_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    original, written = os.fdatasync, cluster_module.write_mark
    monkeypatch.setattr(os, "fdatasync", lambda fd: (flushed.append(1), original(fd))[1])

    def checked(path: Path, clock_ms: int) -> None:
        assert flushed
        flushed.clear()
        written(path, clock_ms)
        check_not_rolled_back(path)

    monkeypatch.setattr(cluster_module, "write_mark", checked)

    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1))
        await cluster.start()
        await until(lambda: (tmp_path / "state.mark").exists())
        before = (tmp_path / "state.mark").read_text()
        await until(lambda: (tmp_path / "state.mark").read_text() != before)
        assert cluster.faults == 0
        await cluster.close()
        check_not_rolled_back(tmp_path / "state.db")

    run(test())


@pytest.mark.parametrize("content", ["", "soon", "-1", "99999999999999999999999999"])
def test_a_damaged_mark_stops_no_start_or_says_how_to_go_on(tmp_path: Path, content: str) -> None:
    home = tmp_path / "home"
    run(killed(home))
    (home / "state.mark").write_text(content)
    with contextlib.suppress(ClusterError):
        assert open_again(home) == sorted(NAMES)
        return
    (home / "state.mark").unlink()
    assert open_again(home) == sorted(NAMES)
