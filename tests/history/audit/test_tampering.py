"""Whatever is done to the audit's records afterwards is found, and named at the right place."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.history.audit import AuditEntry, AuditLog
from kaiwo.history.audit.audit_files import read_head, segment_path, segments
from kaiwo.history.audit.audit_record import encode_line, utc_now
from kaiwo.history.audit.verify_audit import AuditReport, Tampering, verify_audit

RECORDS = 24
Place = tuple[str, int]  # file and line


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of an audit of 25 records in several segments."""
    folder = tmp_path_factory.mktemp("home") / "audit"
    log = AuditLog(folder, segment_bytes=1200)
    for index in range(RECORDS):
        log.record(AuditEntry(action="drain", object=f"node/node-{index}", person="ada", old=False, new=True))
    log.close()
    assert len(segments(folder)) > 3
    assert verify_audit(folder).findings == ()
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _segments(written: dict[str, bytes]) -> list[str]:
    return sorted(name for name in written if name.endswith(".jsonl"))


def _places(written: dict[str, bytes]) -> list[Place]:
    return [(name, line) for name in _segments(written) for line in range(1, written[name].count(b"\n") + 1)]


def _check(files: dict[str, bytes], tmp_path: Path) -> AuditReport:
    home = tmp_path / "copy" / "audit"
    home.mkdir(parents=True, exist_ok=True)
    for old in home.iterdir():
        old.unlink()
    for name, content in files.items():
        (home / name).write_bytes(content)
    return verify_audit(home)


def _found(report: AuditReport) -> set[tuple[str, str, int]]:
    return {(each.kind.value, each.file, each.line) for each in report.findings}


def _edit(written: dict[str, bytes], name: str, lines: list[bytes]) -> dict[str, bytes]:
    return {**written, name: b"".join(lines)}


@given(data=st.data())
def test_any_change_of_any_byte_is_found_in_its_line(
    data: st.DataObject, written: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = data.draw(st.sampled_from(_segments(written)))
    content = written[name]
    at = data.draw(st.integers(0, len(content) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda each: each != content[at]))
    report = _check({**written, name: content[:at] + bytes([byte]) + content[at + 1 :]}, tmp_path_factory.mktemp("a"))
    line = content[:at].count(b"\n") + 1
    assert (name, line) in {(each.file, each.line) for each in report.findings}, report


@given(data=st.data())
def test_a_removed_record_is_missing_before_the_next_line(
    data: st.DataObject, written: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    places = _places(written)
    at = data.draw(st.integers(0, len(places) - 1))
    name, line = places[at]
    lines = written[name].splitlines(keepends=True)
    report = _check(_edit(written, name, lines[: line - 1] + lines[line:]), tmp_path_factory.mktemp("a"))
    if at == len(places) - 1:
        assert [each.kind for each in report.findings] == [Tampering.CUT_OFF]
        return
    following = (places[at + 1][0], places[at + 1][1] - (places[at + 1][0] == name))
    assert _found(report) == {("missing", *following)}


@given(data=st.data())
def test_swapped_records_are_reordered(
    data: st.DataObject, written: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    places = _places(written)
    first, second = sorted(data.draw(st.sets(st.sampled_from(range(len(places))), min_size=2, max_size=2)))
    files = {name: written[name].splitlines(keepends=True) for name in _segments(written)}
    (a, i), (b, j) = places[first], places[second]
    files[a][i - 1], files[b][j - 1] = files[b][j - 1], files[a][i - 1]
    report = _check(
        {**written, **{name: b"".join(lines) for name, lines in files.items()}}, tmp_path_factory.mktemp("a")
    )
    assert {each.kind for each in report.findings} == {Tampering.REORDERED}
    assert ("reordered", b, j) in _found(report)


@given(data=st.data())
def test_an_inserted_line_is_named(
    data: st.DataObject, written: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    places = _places(written)
    at = data.draw(st.integers(0, len(places) - 1))
    name, line = places[at]
    lines = written[name].splitlines(keepends=True)
    copied = data.draw(st.integers(0, len(places) - 1))
    number = data.draw(st.sampled_from([at, at + 1]))
    forged, _ = encode_line(AuditEntry(action="drain"), number, "0" * 64, utc_now())
    copy = written[places[copied][0]].splitlines(keepends=True)[places[copied][1] - 1]
    extra = data.draw(st.sampled_from([b"{}\n", b"\n", copy, forged + b"\n"]))
    report = _check(_edit(written, name, [*lines[: line - 1], extra, *lines[line - 1 :]]), tmp_path_factory.mktemp("a"))
    assert {each.kind for each in report.findings} == {Tampering.INSERTED}
    where = {(each.file, each.line) for each in report.findings}
    if extra == copy:  # which of two equal lines is the copy, nobody can tell
        own = (places[copied][0], places[copied][1] + (places[copied][0] == name and places[copied][1] >= line))
        assert where <= {(name, line), own}
    else:
        assert where == {(name, line)}


@given(data=st.data())
def test_a_cut_end_is_found_wherever_it_is_cut(
    data: st.DataObject, written: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = _segments(written)[-1]
    keep = data.draw(st.integers(0, len(written[name]) - 1))
    report = _check({**written, name: written[name][:keep]}, tmp_path_factory.mktemp("a"))
    assert [each.kind for each in report.findings] == [Tampering.CUT_OFF]


def test_a_removed_segment_is_found(written: dict[str, bytes], tmp_path: Path) -> None:
    for name in _segments(written):
        report = _check({each: content for each, content in written.items() if each != name}, tmp_path)
        assert report.findings, name


def test_a_changed_or_removed_head_is_found(written: dict[str, bytes], tmp_path: Path) -> None:
    without = {name: content for name, content in written.items() if name != "head"}
    assert [each.kind for each in _check(without, tmp_path).findings] == [Tampering.HEAD]
    for at in range(0, 512, 7):
        head = bytearray(written["head"])
        head[at] ^= 1
        assert _check({**written, "head": bytes(head)}, tmp_path).findings, at


def test_a_record_with_a_hash_made_to_fit_is_found_by_the_next_one(written: dict[str, bytes], tmp_path: Path) -> None:
    name = _segments(written)[1]
    lines = written[name].splitlines(keepends=True)
    number = written[_segments(written)[0]].count(b"\n") + 1
    before = written[_segments(written)[0]].splitlines()[-1][-66:-2].decode()
    forged, _ = encode_line(AuditEntry(action="drain", person="grace"), number, before, utc_now())
    report = _check(_edit(written, name, [forged + b"\n", *lines[1:]]), tmp_path)
    assert _found(report) == {("changed", name, 1)}


def test_all_records_written_anew_are_found_by_a_head_that_was_written_down(tmp_path: Path) -> None:
    """Who may write every file can make a new chain: only a head that is kept elsewhere shows that."""
    for home, who in ((tmp_path / "true", "ada"), (tmp_path / "forged", "grace")):
        log = AuditLog(home / "audit")
        log.record(AuditEntry(action="drain", person=who))
        log.close()
    head = read_head(tmp_path / "true" / "audit")
    assert head is not None
    assert verify_audit(tmp_path / "true" / "audit", head.hash).findings == ()
    assert verify_audit(tmp_path / "forged" / "audit").findings == ()
    (finding,) = verify_audit(tmp_path / "forged" / "audit", head.hash).findings
    assert finding.kind is Tampering.CUT_OFF
    assert head.hash in finding.what


def test_segments_are_named_by_number(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").touch()
    segment_path(tmp_path, 3).touch()
    assert segments(tmp_path) == [3]
