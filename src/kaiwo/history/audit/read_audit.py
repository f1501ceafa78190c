"""Read the audit from the newest record to the oldest, a page at a time.

In:    the folder and a filter.   Out: at most so many records, and where the next page begins.
Never: reads more than a bounded number of bytes for one page; a page may be empty and still have a next one.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from kaiwo.history.audit.audit_files import AuditHead, read_head, segment_path, segments
from kaiwo.history.audit.audit_record import BEGUN, AuditRecord, read_record

PAGE_BYTES = 16 << 20  # of segments that one page may read


class AuditFilter(msgspec.Struct, frozen=True):
    """Empty: any. `object` is a whole name, its kind, or what comes before a slash: `node` has `node/node-3`."""

    person: str = ""
    action: str = ""
    object: str = ""
    since: str = ""  # UTC, as in the records
    after: int = 0  # only newer than this number
    before: int = 0  # only older than this number; 0: from the newest


class AuditPage(msgspec.Struct, frozen=True):
    records: list[AuditRecord]
    next: int  # `before` of the next page; 0: there is none
    head: AuditHead


def read_page(folder: Path, chosen: AuditFilter, most: int) -> AuditPage:
    """The newest first. That a write began is shown only as long as nothing says how it ended."""
    head = read_head(folder) or AuditHead()
    found, ended, read_bytes = list[AuditRecord](), set[int](), 0
    for records, size in _newest_segments(folder, chosen.before):
        ended |= {each.of for each in records if each.of}
        for record in reversed(records):
            if chosen.before and record.n >= chosen.before:
                continue
            if record.n <= chosen.after or (chosen.since and record.at < chosen.since):
                return AuditPage(found, 0, head)
            if len(found) == most:
                return AuditPage(found, record.n + 1, head)
            if _matches(record, chosen) and not (record.outcome == BEGUN and record.n in ended):
                found.append(record)
        read_bytes += size
        if read_bytes >= PAGE_BYTES and records and records[0].n > head.first:
            return AuditPage(found, records[0].n, head)
    return AuditPage(found, 0, head)


def _matches(record: AuditRecord, chosen: AuditFilter) -> bool:
    is_object = not chosen.object or record.object == chosen.object or record.object.startswith(chosen.object + "/")
    has_name = is_object or record.object.partition("/")[2] == chosen.object
    return (
        has_name
        and (not chosen.person or record.person == chosen.person)
        and (not chosen.action or record.action == chosen.action)
    )


def _newest_segments(folder: Path, before: int) -> Iterator[tuple[list[AuditRecord], int]]:
    """Each segment's records, oldest first, and its size. Starts one segment newer than needed: a write that began
    in one segment may have ended in the next."""
    known = segments(folder)
    start = len(known)
    if before:
        while start > 1 and _first_number(folder, known[start - 1]) >= before:
            start -= 1
        start = min(start + 1, len(known))
    for sequence in reversed(known[:start]):
        path = segment_path(folder, sequence)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return  # it was removed meanwhile, and all older ones with it
        yield [record for line in content.splitlines() if (record := read_record(line)) is not None], len(content)


def _first_number(folder: Path, sequence: int) -> int:
    try:
        with segment_path(folder, sequence).open("rb") as file:
            record = read_record(file.readline())
    except OSError:
        return 0
    return record.n if record is not None else 0
