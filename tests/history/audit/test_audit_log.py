"""The audit survives kills, power cuts, full disks, earlier versions and its own retention."""

import contextlib
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kaiwo.history.audit import AuditEntry, AuditFilter, AuditLog, read_page
from kaiwo.history.audit.audit_files import encode_head, read_head, segment_path, segments
from kaiwo.history.audit.verify_audit import Tampering, verify_audit
from kaiwo.model.errors import ClusterError
from tests.small_disk import mounted_disk

KILLS = 50


def drain(index: int) -> AuditEntry:
    return AuditEntry(action="drain", object=f"node/node-{index}", person="ada", reason="new fan")


def write(folder: Path, count: int, **options: int) -> None:
    log = AuditLog(folder, **options)
    for index in range(count):
        log.record(drain(index))
    log.close()


def actions(folder: Path) -> list[str]:
    return [each.action for each in read_page(folder, AuditFilter(), 10**6).records[::-1]]


def test_records_survive_50_kills_at_random_moments(tmp_path: Path) -> None:
    """Every record that was acknowledged is there, in one unbroken chain over many segments."""
    folder, chance = tmp_path / "audit", random.Random(7)
    acknowledged: set[str] = set()
    for kill in range(KILLS):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            _write_until_killed(folder, kill, writer)
        os.close(writer)
        wanted = chance.randrange(1, 400)
        said = b""
        while len(said) < wanted:  # the child never ends by itself
            said += os.read(reader, 4096)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while block := os.read(reader, 4096):
            said += block
        os.close(reader)
        acknowledged |= {f"node/{kill}-{index}" for index in range(said.count(b"\n"))}
        report = verify_audit(folder)
        assert report.findings == (), report
    AuditLog(folder, segment_bytes=20_000).close()
    assert verify_audit(folder).findings == ()
    assert len(segments(folder)) > 1
    found = {each.object for each in read_page(folder, AuditFilter(), 10**6).records}
    assert acknowledged <= found, sorted(acknowledged - found)[:5]


def _write_until_killed(folder: Path, kill: int, writer: int) -> None:
    try:
        log, index = AuditLog(folder, segment_bytes=20_000), 0
        while True:
            log.record(AuditEntry(action="drain", object=f"node/{kill}-{index}"))
            os.write(writer, b"\n")
            index += 1
            if index % 7 == 0:
                log.sync()
    finally:
        os._exit(1)


def test_a_kill_at_any_byte_of_a_line_leaves_a_torn_line_and_no_tampering(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    write(folder, 3)
    path, head = segment_path(folder, 1), (folder / "head").read_bytes()
    whole = path.read_bytes()
    log = AuditLog(folder)
    log.record(drain(3))
    log.close()
    line = path.read_bytes()[len(whole) :]
    for cut in range(1, len(line)):
        path.write_bytes(whole + line[:cut])
        (folder / "head").write_bytes(head)  # it is written after the line
        assert verify_audit(folder).findings == (), cut
        AuditLog(folder).close()
        report = verify_audit(folder)
        assert report.findings == (), cut
        assert "incomplete line" in report.notes[0]
        assert actions(folder)[-1] == "audit-torn-line"


def test_a_kill_between_the_line_and_the_head_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    write(folder, 3)
    head = (folder / "head").read_bytes()
    log = AuditLog(folder)
    log.record(drain(3), drain(4))
    log.close()
    (folder / "head").write_bytes(head)
    assert verify_audit(folder).findings == ()
    write(folder, 1)
    assert verify_audit(folder).findings == ()
    assert actions(folder).count("drain") == 6


def test_after_a_power_cut_the_records_that_the_disk_did_not_have_are_noted(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    write(folder, 3)
    head = read_head(folder)
    assert head is not None
    whole = segment_path(folder, 1).read_bytes()
    write(folder, 2)
    later = read_head(folder)
    assert later is not None
    segment_path(folder, 1).write_bytes(whole)
    unsynced = msgspec.structs.replace(later, synced=head.count, boot="another-boot")
    (folder / "head").write_bytes(encode_head(unsynced))
    report = verify_audit(folder)
    assert report.findings == ()
    assert "before the disk had them" in report.notes[0]
    AuditLog(folder).close()
    report = verify_audit(folder)
    assert report.findings == ()
    assert "before the disk had the last records" in report.notes[0]


def test_an_end_that_was_removed_stays_known_after_a_start(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    write(folder, 5)
    path = segment_path(folder, 1)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    assert [each.kind for each in verify_audit(folder).findings] == [Tampering.CUT_OFF]
    AuditLog(folder).close()
    report = verify_audit(folder)
    assert [each.kind for each in report.findings] == [Tampering.MISSING]
    assert "5 to 6" in report.findings[0].what
    assert "audit-end-missing" in actions(folder)


def test_the_chain_begins_with_the_hash_of_an_earlier_audit(tmp_path: Path) -> None:
    old = tmp_path / "audit.jsonl"
    old.write_text('{"at": "2026-01-01", "who": "ada", "verb": "submit", "object": "default/x"}\n')
    folder = tmp_path / "audit"
    write(folder, 2)
    assert verify_audit(folder).findings == ()
    assert old.read_text().startswith("{")
    old.write_text(old.read_text().replace("ada", "eve"))
    (finding,) = verify_audit(folder).findings
    assert (finding.kind, finding.file) == (Tampering.CHANGED, "audit.jsonl")


def test_old_segments_go_by_size_and_by_time_and_the_rest_still_verifies(tmp_path: Path) -> None:
    by_size, by_time = tmp_path / "size" / "audit", tmp_path / "time" / "audit"
    write(by_size, 200, segment_bytes=2000, max_bytes=8000)
    assert sum(segment_path(by_size, each).stat().st_size for each in segments(by_size)) < 13_000
    write(by_time, 50, segment_bytes=2000)
    for each in segments(by_time)[:3]:
        os.utime(segment_path(by_time, each), (1, 1))
    write(by_time, 20, segment_bytes=2000)
    for folder in (by_size, by_time):
        report = verify_audit(folder)
        assert report.findings == ()
        assert report.first > 1
        assert "audit-removed-old" in actions(folder)
        first = segments(folder)[0]
        segment_path(folder, first).unlink()
        assert verify_audit(folder).findings, "what retention did not remove is missed"


def test_a_clock_that_jumped_removes_one_segment_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    write(folder, 50, segment_bytes=2000)
    known = segments(folder)
    assert len(known) > 4
    for each in known:
        os.utime(segment_path(folder, each), (1, 1))
    while segments(folder)[-1] == known[-1]:
        write(folder, 1, segment_bytes=2000)
    assert segments(folder)[0] == known[1]
    assert verify_audit(folder).findings == ()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", size_mb=2) as folder:
        yield folder


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def test_on_a_full_disk_no_record_is_lost_and_further_changes_are_refused(small_disk: Path) -> None:
    folder = small_disk / "audit"
    log = AuditLog(folder)
    log.record(drain(0))
    filler = small_disk / "filler"
    fill(filler)
    for index in range(1, 3000):  # more than the room that was set aside holds
        log.record(drain(index))
    with pytest.raises(ClusterError, match=r"cannot be written \(No space left"):
        log.check_writable()
    assert verify_audit(folder).findings == ()
    filler.unlink()
    log.check_writable()
    log.record(drain(3000))
    log.close()
    assert verify_audit(folder).findings == ()
    assert actions(folder).count("drain") == 3001


def test_what_does_not_even_fit_into_memory_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kaiwo.history.audit.audit_log.MAX_WAITING", 10)
    folder = tmp_path / "audit"
    log = AuditLog(folder)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(AuditLog, "_append", full)
        disk.setattr(AuditLog, "_set_aside_room", lambda self: False)
        for index in range(25):
            log.record(drain(index))
    log.check_writable()
    log.close()
    assert actions(folder).count("drain") == 10
    report = verify_audit(folder)
    assert report.findings == ()
    assert any("records were lost (15)" in note for note in report.notes)


def test_only_the_owner_can_read_the_audit(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    write(folder, 50, segment_bytes=2000)
    assert [path.name for path in (folder, *folder.iterdir()) if path.stat().st_mode & 0o077] == []


def test_text_that_no_encoding_can_write_is_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    log = AuditLog(folder)
    log.record(AuditEntry(action="submit", object="workload/\ud800", reason="\udcff" * 5000, new={"a": "\ud800"}))
    log.close()
    assert verify_audit(folder).findings == ()
    assert actions(folder)[-1] == "submit"


def test_a_write_is_shown_as_begun_until_it_ended(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    log = AuditLog(folder, segment_bytes=400)
    first = log.record(AuditEntry(action="drain", outcome="begun"))
    log.record(AuditEntry(action="drain", of=first))
    log.record(AuditEntry(action="cordon", outcome="begun"))
    log.close()
    records = read_page(folder, AuditFilter(), 100).records
    assert [(each.action, each.outcome) for each in records[:2]] == [("cordon", "begun"), ("drain", "done")]
    assert len(read_page(folder, AuditFilter(action="drain"), 100).records) == 1
    paged = read_page(folder, AuditFilter(before=first + 1), 100).records
    assert [each.action for each in paged] == ["audit-begins"]
