"""Check the chain of the audit, and name each place where it was tampered with.

In:    the folder of the audit; it may be written meanwhile.   Out: what is wrong, by file and line.

First one pass over all lines, which keeps nothing. Only if that finds a line out of place, a second pass looks at all
numbers and hashes together, and tells what was changed, removed, moved or inserted.
"""

import enum
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kaiwo.history.audit.audit_files import (
    AuditHead,
    boot_id,
    earlier_hash,
    lines_of,
    read_head,
    segment_path,
    segments,
)
from kaiwo.history.audit.audit_record import ChainLink, read_link

_NOTED = ("audit-torn-line", "audit-power-cut", "audit-head-missing", "audit-end-missing", "audit-records-lost")


class Tampering(enum.StrEnum):
    CHANGED = "changed"
    MISSING = "missing"
    REORDERED = "reordered"
    INSERTED = "inserted"
    CUT_OFF = "cut off"
    HEAD = "head"  # the file that says how far the records must reach is missing or wrong


class AuditFinding(msgspec.Struct, frozen=True):
    kind: Tampering
    file: str
    line: int  # 1 for the first; 0: the file as a whole
    what: str  # in words

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{place}: {self.what}"


class AuditReport(msgspec.Struct, frozen=True):
    records: int
    first: int  # number of the first record
    last: int
    hash: str  # of the last one
    findings: tuple[AuditFinding, ...] = ()
    notes: tuple[str, ...] = ()  # what happened to the audit itself, such as a power cut; no sign of tampering


class _Line(NamedTuple):
    file: str
    number: int
    link: ChainLink | None  # None: it is no record, or its hash is wrong
    is_whole: bool  # it ends with a newline


def verify_audit(folder: Path, expected_head: str = "") -> AuditReport:
    """`expected_head`: a hash that was written down earlier and must be among the records."""
    head = read_head(folder)
    state = _Chain(folder, head)
    has_expected, is_straight = not expected_head, True
    for line in _lines(folder):
        is_straight = state.take(line) and is_straight
        has_expected = has_expected or (line.link is not None and line.link.hash == expected_head)
    findings = [] if is_straight else _tampering(list(_lines(folder)), state)
    findings += state.end_findings()
    has_expected = has_expected or state.start_hash == expected_head
    if not has_expected:
        what = f"no record has the hash {expected_head}: records were removed from the end, or all were written anew"
        findings.append(AuditFinding(Tampering.CUT_OFF, "head", 0, what))
    return AuditReport(
        state.records, state.first, state.highest.n, state.highest.hash, tuple(findings), tuple(state.notes)
    )


class _Chain:
    """Follows the records from the first to the last."""

    def __init__(self, folder: Path, head: AuditHead | None) -> None:
        self.folder, self.head = folder, head
        before = head.before if head is not None else ""
        self.start_hash = before
        self.first = head.first if head is not None else 0
        self.start_n = self.first - 1 if head is not None else 0
        self.last = ChainLink(self.start_n, "", before)
        self.records = 0
        self.notes: list[str] = []
        self.torn: _Line | None = None
        self.at: _Line | None = None  # the last line
        self.highest = self.last
        self.bad_tail = 0  # lines at the end that are no records
        self.at_head: _Line | None = None  # the record whose number the head has
        self.has_head = False  # and its hash

    def take(self, line: _Line) -> bool:
        """False if this line is not the one that must follow."""
        if not line.is_whole:
            self.torn = line  # the head says whether it was ever whole
            return True
        self.torn, self.at = None, line
        link = line.link
        if link is None:
            self.bad_tail += 1
            return False
        before, self.last, self.bad_tail = self.last, link, 0
        if self.head is not None and link.n == self.head.count:
            self.at_head, self.has_head = line, self.has_head or link.hash == self.head.hash
        if link.n > self.highest.n:
            self.highest = link
        self.records += 1
        if self.records == 1 and (self.head is None or link.n < self.head.first):
            # Segments that retention removed may still be there after a kill.
            self.first, self.start_n, self.start_hash = link.n, link.n - 1, link.prev
            return True
        if link.action in _NOTED:
            self._note(line, link)
        gap = link.action == "audit-power-cut" and link.new == {"from": before.n + 1, "to": link.n - 1}
        return gap or (link.n == before.n + 1 and link.prev == before.hash)

    def _note(self, line: _Line, link: ChainLink) -> None:
        words = {
            "audit-torn-line": "a kill or a full disk left an incomplete line, which was never acknowledged",
            "audit-power-cut": "the machine stopped before the disk had the last records",
            "audit-head-missing": "the head was missing when Kaiwo started, so earlier cuts cannot be found",
            "audit-end-missing": "the last records were missing when Kaiwo started",
            "audit-records-lost": "the disk was full for so long that records were lost",
        }
        detail = f" ({msgspec.json.encode(link.new).decode()[:300]})" if link.new is not None else ""
        self.notes.append(f"{line.file}, line {line.number}: {words[link.action]}{detail}")

    def end_findings(self) -> list[AuditFinding]:
        """Compare the beginning and the end with the head."""
        findings = []
        if self.first == 1 and self.records and self.start_hash != earlier_hash(self.folder.parent)[0]:
            what = "the audit files of earlier versions beside this folder are not those with which the chain began"
            findings.append(AuditFinding(Tampering.CHANGED, "audit.jsonl", 0, what))
        head = self.head
        if head is None:
            if self.records or segments(self.folder):
                what = "the head is missing or damaged, so it is not known how far the records must reach"
                findings.append(AuditFinding(Tampering.HEAD, "head", 0, what))
            return findings
        if self.highest.n + self.bad_tail < head.count:
            return findings + self._cut_off(head)
        if self.at_head is not None and not self.has_head:
            what = "this record, or the head, was changed: its hash is not the one in the head"
            findings.append(_finding(Tampering.CHANGED, self.at_head, what))
        return findings

    def _cut_off(self, head: AuditHead) -> list[AuditFinding]:
        last = self.highest.n + self.bad_tail
        missing = f"{last + 1} to {head.count}" if last + 1 < head.count else str(head.count)
        if last >= head.synced and head.boot and head.boot != boot_id():
            self.notes.append(f"records {missing} are missing: the machine stopped before the disk had them")
            return []
        at = self.torn or self.at
        name, number = (at.file, at.number) if at is not None else ("head", 0)
        what = f"the records end with number {last}, but the head counts {head.count}: {missing} were cut off"
        return [AuditFinding(Tampering.CUT_OFF, name, number, what)]


def _tampering(lines: Sequence[_Line], state: _Chain) -> list[AuditFinding]:
    """Say for each line that is out of place what happened to it."""
    lines = [line for line in lines if line.is_whole or line.link is not None]
    wanted = _wanted_hashes(lines, state)
    positions: dict[int, list[int]] = {}
    for at, line in enumerate(lines):
        if line.link is not None:
            positions.setdefault(line.link.n, []).append(at)
    kept: dict[int, int] = {}  # for each number, the position of its true record
    for n, found in positions.items():
        true = [at for at in found if _hash_at(lines, at) == wanted.get(n)]
        kept[n] = max(true or found, key=lambda at: _fits_there(lines, at))
    findings = list[AuditFinding]()
    bad = list[_Line]()
    last, furthest = state.start_n, state.start_n
    for at, line in enumerate(lines):
        link = line.link
        if link is None:
            bad.append(line)
            continue
        if kept[link.n] != at:
            findings.append(_finding(Tampering.INSERTED, line, f"this second record number {link.n} was inserted"))
            continue
        if link.n < furthest:
            findings.append(_finding(Tampering.REORDERED, line, f"record {link.n} was moved here from its place"))
            last = link.n
            continue
        gone = [] if _is_power_cut(link, last) else [n for n in range(last + 1, link.n) if n not in kept]
        findings += _explain_gap(bad, gone, line)
        if wanted.get(link.n, link.hash) != link.hash:
            what = f"record {link.n} was changed: the next record holds another hash"
            findings.append(_finding(Tampering.CHANGED, line, what))
        bad, last, furthest = [], link.n, link.n
    return findings + _explain_bad_end(bad, last, state)


def _wanted_hashes(lines: Sequence[_Line], state: _Chain) -> dict[int, str]:
    """By number, the hash that the record after it holds, or the head."""
    links = [line.link for line in lines if line.link is not None]
    hashes = {(link.n, link.hash) for link in links}
    wanted: dict[int, str] = {}
    for link in links:  # of several records with one number, the one that fits counts
        if link.n - 1 not in wanted or (link.n - 1, link.prev) in hashes:
            wanted[link.n - 1] = link.prev
    if state.head is not None:
        wanted[state.head.count] = state.head.hash
    return wanted


def _fits_there(lines: Sequence[_Line], at: int) -> int:
    """How many of the two lines around this one are its neighbours in the chain, too."""
    link = lines[at].link
    around = [lines[other].link for other in (at - 1, at + 1) if 0 <= other < len(lines)]
    return sum(each is not None and link is not None and abs(each.n - link.n) == 1 for each in around)


def _hash_at(lines: Sequence[_Line], at: int) -> str:
    link = lines[at].link
    return link.hash if link is not None else ""


def _is_power_cut(link: ChainLink, last: int) -> bool:
    return link.action == "audit-power-cut" and link.new == {"from": last + 1, "to": link.n - 1}


def _explain_gap(bad: Sequence[_Line], gone: Sequence[int], before: _Line) -> list[AuditFinding]:
    """Lines that are no records stand for missing numbers, one each; what is left over was inserted or removed."""
    findings = []
    for line, n in zip(bad, gone, strict=False):
        findings.append(_finding(Tampering.CHANGED, line, f"record {n} was changed: its hash is wrong"))
    for line in bad[len(gone) :]:
        findings.append(_finding(Tampering.INSERTED, line, "this line is no record of the chain: it was inserted"))
    if missing := gone[len(bad) :]:
        named = str(missing[0]) if len(missing) == 1 else f"{missing[0]} to {missing[-1]}"
        what = f"{'record' if len(missing) == 1 else 'records'} {named} before this line were removed"
        findings.append(_finding(Tampering.MISSING, before, what))
    return findings


def _explain_bad_end(bad: Sequence[_Line], last: int, state: _Chain) -> list[AuditFinding]:
    count = state.head.count if state.head is not None else last
    findings = []
    for offset, line in enumerate(bad, 1):
        if last + offset <= count:
            what = f"record {last + offset} was changed: its hash is wrong"
            findings.append(_finding(Tampering.CHANGED, line, what))
        else:
            findings.append(_finding(Tampering.INSERTED, line, "this line is no record of the chain: it was inserted"))
    return findings


def _finding(kind: Tampering, line: _Line, what: str) -> AuditFinding:
    return AuditFinding(kind, line.file, line.number, what)


def _lines(folder: Path) -> Iterator[_Line]:
    """All lines in order; an incomplete last line of any but the last segment was tampered with."""
    known = segments(folder)
    for sequence in known:
        path = segment_path(folder, sequence)
        for number, content in enumerate(lines_of(path), 1):
            is_whole = content.endswith(b"\n")
            link = read_link(content.removesuffix(b"\n"))
            yield _Line(path.name, number, link, is_whole or sequence != known[-1])
