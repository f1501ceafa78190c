"""Append records to the audit, and keep its chain whole through kills, power cuts and full disks.

In:    entries, from any thread.   Out: lines in the newest segment, and the head after them.
Never: changes or reorders a record, loses one silently, or blocks what the scheduler does.

A record is with the kernel before `record` returns, so `kill -9` does not lose it; the disk has it within a second
(`sync`). When the disk is full, room that was set aside takes the records of what has already been done; entries that
do not even fit there wait in memory. Meanwhile `check_writable` refuses, so that nobody makes further changes.
"""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from kaiwo.history.audit.audit_files import (
    AuditHead,
    boot_id,
    earlier_hash,
    encode_head,
    read_head,
    segment_path,
    segments,
)
from kaiwo.history.audit.audit_record import AuditEntry, encode_line, read_link, utc_now
from kaiwo.model.errors import ClusterError

SEGMENT_BYTES = 4 << 20
MAX_BYTES = 1 << 30  # of all segments; the oldest are removed first
KEEP_S = 730 * 86_400  # two years
RESERVE_BYTES = 256 << 10
MAX_WAITING = 20_000  # entries in memory while the disk takes none
_TAIL_BYTES = 1 << 20  # longer than any record
_RESERVE = ".reserved"
KAIWO = "kaiwo"  # the person of records about the audit itself


class _Waiting(NamedTuple):
    at: str
    entry: AuditEntry


class AuditLog:
    """One per folder and process."""

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        max_bytes: int = MAX_BYTES,
        keep_s: float = KEEP_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self._segment_bytes, self._max_bytes, self._keep_s, self._clock = segment_bytes, max_bytes, keep_s, clock
        self._mutex = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._lost = 0  # entries for which memory had no room either
        self.problem = ""  # why the disk takes no records
        self._is_closed = False
        self._boot = boot_id()
        try:
            self._lock = _take_folder(folder)
            self._open()
        except OSError as error:
            way_out = "make it writable, or name another folder with KAIWO_HOME"
            raise ClusterError(f"the audit in {folder} cannot be opened: {error.strerror}; {way_out}") from error

    @property
    def head(self) -> AuditHead:
        return self._head

    def check_writable(self) -> None:
        """Raises ClusterError while records cannot be written: what is not recorded must not be done."""
        with self._mutex:
            if self.problem:
                self._try_again()
            if self.problem:
                raise ClusterError(
                    f"the audit in {self.folder} cannot be written ({self.problem}), and a change that is not recorded "
                    "is refused; free some space on its disk"
                )

    def record(self, *entries: AuditEntry) -> int:
        """Write these records. Returns the number of the first one; 0 when they wait in memory for a full disk."""
        at = utc_now()
        with self._mutex:
            if self._is_closed or not entries:
                return 0
            has_backlog = bool(self._waiting)  # then the disk is full, and `sync` tries again once a second
            self._waiting += [_Waiting(at, entry) for entry in entries]
            if has_backlog:
                self._bound_backlog()
                return 0
            first = self._head.count + 1
            self._write_waiting()
            return 0 if self._waiting else first

    def sync(self) -> None:
        """Flush to the disk what was written since the last time; called once a second."""
        with self._mutex:
            if self._is_closed:
                return
            if self.problem:
                self._try_again()
            count, file = self._head.count, os.dup(self._file)
        try:
            if count > self._head.synced:
                os.fsync(file)  # not under the mutex: a slow disk must not hold up a record
                with self._mutex:
                    self._write_head(synced=min(count, self._head.count))
        except OSError as error:
            self.problem = self.problem or error.strerror or str(error)
        finally:
            os.close(file)

    def close(self) -> None:
        if self._is_closed:
            return
        self.sync()
        with self._mutex:
            self._is_closed = True
            for file in (self._file, self._head_file):
                os.close(file)
            self._lock.close()

    def _open(self) -> None:
        head = read_head(self.folder)
        known = segments(self.folder)
        is_new = head is None and not known
        self._head = head or AuditHead()
        self._head_file = os.open(self.folder / "head", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if is_new:
            before, _ = earlier_hash(self.folder.parent)
            self._write_head(hash=before, before=before)
        elif head is None:  # the numbers go on after the last record, and a record says that the head was missing
            self._head = self._head_of_first()
        self._sequence = known[-1] if known else 1
        notes = [] if head is not None or is_new else [AuditEntry(action="audit-head-missing", person=KAIWO)]
        notes += self._find_end(known)
        self._open_segment()
        self._set_aside_room()
        self._remove_leftovers()
        if not self._head.count:
            _, names = earlier_hash(self.folder.parent)
            new = {"earlier_files": names} if names else None
            notes.insert(0, AuditEntry(action="audit-begins", person=KAIWO, object="audit", new=new))
        self.record(*notes)

    def _head_of_first(self) -> AuditHead:
        for sequence in segments(self.folder):
            with segment_path(self.folder, sequence).open("rb") as file:
                found = read_link(file.readline().rstrip(b"\n"))
            if found is not None:
                return AuditHead(first=found.n, before=found.prev, hash=found.prev)
        return AuditHead()

    def _find_end(self, known: Sequence[int]) -> list[AuditEntry]:
        """Continue after the last whole record. Returns what to record about an end that is not as the head says."""
        notes: list[AuditEntry] = []
        for sequence in reversed(known):
            path = segment_path(self.folder, sequence)
            whole_bytes, last, torn = _tail(path)
            if torn:
                os.truncate(path, whole_bytes)
                what = {"bytes": len(torn), "begins": torn[:200].decode("ascii", "replace")}
                notes.append(AuditEntry(action="audit-torn-line", person=KAIWO, object=f"audit/{path.name}", new=what))
            if not last:
                continue  # a kill came right after the rotation
            link = read_link(last)
            if link is None:
                notes.append(AuditEntry(action="audit-damaged-line", person=KAIWO, object=f"audit/{path.name}"))
            elif link.n > self._head.count:
                self._head = _replace(self._head, count=link.n, hash=link.hash)
            elif link.n < self._head.count:
                notes.append(self._missing_end(link.n))
            elif link.hash != self._head.hash:
                notes.append(AuditEntry(action="audit-damaged-line", person=KAIWO, object=f"audit/{path.name}"))
            return notes
        if self._head.count:
            notes.append(self._missing_end(self._head.first - 1))
        return notes

    def _missing_end(self, last: int) -> AuditEntry:
        """A power cut may lose what was not flushed yet. Anything else that is missing was removed."""
        is_power_cut = last >= self._head.synced and bool(self._boot) and self._head.boot != self._boot
        action = "audit-power-cut" if is_power_cut else "audit-end-missing"
        return AuditEntry(action=action, person=KAIWO, object="audit", new={"from": last + 1, "to": self._head.count})

    def _open_segment(self) -> None:
        path = segment_path(self.folder, self._sequence)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._size = os.fstat(self._file).st_size

    def _write_waiting(self) -> None:
        """Write all that waits, as one piece. Entries that cannot be written go on waiting."""
        lost = [AuditEntry(action="audit-records-lost", person=KAIWO, new=self._lost)] if self._lost else []
        waiting = [*self._waiting, *(_Waiting(utc_now(), entry) for entry in lost)]
        try:
            if self._size >= self._segment_bytes:
                self._rotate()
            self._append(waiting)
        except OSError as error:
            if self._release_room():
                self._retry(waiting, error)
            else:
                self._keep(error)
            return
        self._waiting, self._lost = [], 0

    def _retry(self, waiting: Sequence[_Waiting], error: OSError) -> None:
        """With the room that was set aside; after that, changes are refused until there is more."""
        self.problem = error.strerror or str(error)
        try:
            self._append(waiting)
        except OSError as again:
            self._keep(again)
            return
        self._waiting, self._lost = [], 0

    def _keep(self, error: OSError) -> None:
        self.problem = error.strerror or str(error)
        self._bound_backlog()

    def _bound_backlog(self) -> None:
        if (over := len(self._waiting) - MAX_WAITING) > 0:
            self._lost += over
            del self._waiting[MAX_WAITING:]

    def _append(self, waiting: Sequence[_Waiting]) -> None:
        count, digest = self._head.count, self._head.hash
        lines = []
        for at, entry in waiting:
            count += 1
            line, digest = encode_line(entry, count, digest, at)
            lines.append(line)
        data = b"\n".join(lines) + b"\n"
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            with contextlib.suppress(OSError):  # where that fails too, the next start finds a torn line
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)
        self._write_head(count=count, hash=digest)

    def _write_head(self, **fields: int | str) -> None:
        """After the records that it counts: a kill between the two leaves more records than the head knows of."""
        self._head = _replace(self._head, boot=self._boot, **fields)
        os.pwrite(self._head_file, encode_head(self._head), 0)

    def _rotate(self) -> None:
        """Begin a new segment, whose first record holds the hash of the last one of this segment."""
        os.fsync(self._file)
        before, self._sequence = self._file, self._sequence + 1
        try:
            self._open_segment()
        except OSError:
            self._sequence -= 1
            self._file = before
            raise
        os.close(before)
        self._write_head(synced=self._head.count)
        self._remove_old()

    def _remove_old(self) -> None:
        """Remove the oldest segments. The head keeps the hash that the first one left refers to.

        For its age at most one goes for each new one: a clock that jumped must not remove years at once.
        """
        known = segments(self.folder)[:-1]
        sizes = {each: segment_path(self.folder, each).stat() for each in known}
        left, removed = sum(status.st_size for status in sizes.values()), list[int]()
        for each in known:
            is_old = not removed and sizes[each].st_mtime < self._clock() - self._keep_s
            if left <= self._max_bytes and not is_old:
                break
            left -= sizes[each].st_size
            removed.append(each)
        if not removed:
            return
        _, last, _ = _tail(segment_path(self.folder, removed[-1]))
        link = read_link(last)
        if link is None:
            return  # a damaged segment is evidence
        what = {"segments": len(removed), "from": self._head.first, "to": link.n}
        note = AuditEntry(action="audit-removed-old", person=KAIWO, object="audit", new=what, reason="retention")
        self._append([_Waiting(utc_now(), note)])
        self._write_head(first=link.n + 1, before=link.hash)
        for each in removed:
            segment_path(self.folder, each).unlink(missing_ok=True)

    def _remove_leftovers(self) -> None:
        """Segments that a kill left behind between the head's change and their removal."""
        for each in segments(self.folder)[:-1]:
            _, last, _ = _tail(segment_path(self.folder, each))
            link = read_link(last)
            if link is None or link.n >= self._head.first:
                return
            segment_path(self.folder, each).unlink(missing_ok=True)

    def _set_aside_room(self) -> bool:
        path = self.folder / _RESERVE
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(file, 0, RESERVE_BYTES)
            finally:
                os.close(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink()
            self.problem = error.strerror or str(error)
            return False
        return True

    def _release_room(self) -> bool:
        try:
            (self.folder / _RESERVE).unlink()
        except OSError:
            return False
        return True

    def _try_again(self) -> None:
        if self._set_aside_room():
            self.problem = ""
            if self._waiting or self._lost:
                self._write_waiting()


def _replace(head: AuditHead, **fields: int | str) -> AuditHead:
    return AuditHead(**{name: fields.get(name, getattr(head, name)) for name in AuditHead.__struct_fields__})


def _tail(path: Path) -> tuple[int, bytes, bytes]:
    """How many bytes are whole lines, the last whole line without its newline, and what follows it."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - _TAIL_BYTES)
        file.seek(start)
        data = file.read()
    end = data.rfind(b"\n")
    if end < 0:
        return (0 if start == 0 else size), b"", data if start == 0 else b""
    return start + end + 1, data[data.rfind(b"\n", 0, end) + 1 : end], data[end + 1 :]


def _take_folder(folder: Path) -> IO[bytes]:
    """The lock of the only writer."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "lock").touch(mode=0o600)
    lock = (folder / "lock").open("ab")
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise ClusterError(f"another process writes the audit in {folder}; stop it, or set KAIWO_HOME") from None
    return lock
