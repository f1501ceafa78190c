"""Routes that read and follow the logs of workloads. A growing file is read in steps, without a waiting thread."""

import asyncio
import errno
import os
import stat
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import NamedTuple

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import not_found
from kaiwo.api.http.query_params import Param
from kaiwo.api.http.streaming_response import Streaming
from kaiwo.api.routes.workloads import NAMED, SUBMISSION, find_submission
from kaiwo.api.security.own_work import check_sight
from kaiwo.api.security.roles import AccessRole
from kaiwo.api.views.workloads import AttemptsView, AttemptView
from kaiwo.clusters.protocol import LogFile
from kaiwo.model.errors import NotFoundError
from kaiwo.model.workload import ordered_pods
from kaiwo.model.workload_record import WorkloadRecord

TEXT = "text/plain; charset=utf-8"
MAX_ATTEMPTS = 1_000_000
POD = Param("pod", "text", "Pod (default: the first).")
LOG_PARAMS = (
    POD,
    Param("follow", "flag", "Keep following until the attempt ends, or the workload when no attempt is given.", False),
    Param("tail", "int", "Only the last N lines of the attempt.", None, 0, 10**6),
    Param("attempt", "int", "Attempt number (default: latest).", None, 1, MAX_ATTEMPTS),
    SUBMISSION,
)
Find = Callable[[], Sequence[LogFile]]
CHUNK = 64 * 1024
QUICK_S, SLOW_S = 0.1, 0.5


async def read_all(path: str, tail: int | None) -> AsyncGenerator[bytes, None]:
    """The file as it is now; nothing when there is none."""
    at, end = await asyncio.to_thread(_begin, path, tail)
    while at < end:
        found = await asyncio.to_thread(_read, path, at, min(CHUNK, end - at))
        if not found.content:
            return
        at = found.next
        yield found.content


async def follow_file(path: str, is_over: Callable[[], bool], tail: int | None) -> AsyncGenerator[bytes, None]:
    """The file and everything added to it, until it is over and read to the end. It may not exist yet."""
    at, _ = await asyncio.to_thread(_begin, path, tail)
    pause_s = QUICK_S
    while True:
        was_over = is_over()  # asked first, so that everything written before the end is read
        found = await asyncio.to_thread(_read, path, at, CHUNK)
        if found.content:
            at = found.next
            pause_s = QUICK_S
            yield found.content
            continue
        if found.size < at:  # it was truncated
            at = 0
            continue
        if was_over:
            return
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, SLOW_S)


def _begin(path: str, tail: int | None) -> tuple[int, int]:
    """Where the last `tail` lines begin, and the file's size."""
    file = _open(path)
    if file is None:
        return 0, 0
    with os.fdopen(file, "rb") as content:
        size = os.fstat(file).st_size
        if tail is None:
            return 0, size
        wanted, at = tail, size
        if size and tail:
            content.seek(size - 1)
            wanted += content.read(1) == b"\n"  # the break that ends the last line begins no other
        while at > 0 and wanted > 0:
            start = max(0, at - CHUNK)
            content.seek(start)
            block = content.read(at - start)
            cut = len(block)
            while wanted > 0 and (cut := block.rfind(b"\n", 0, cut)) >= 0:
                wanted -= 1
            if wanted == 0:
                return start + cut + 1, size
            at = start
        return at, size


class _Part(NamedTuple):
    content: bytes
    next: int  # where the next part begins
    size: int  # of the file


def _read(path: str, at: int, size: int) -> _Part:
    """The next part of a file. In place of a hole, which the supervisor makes in a long log, a line says so."""
    file = _open(path)
    if file is None:
        return _Part(b"", at, at)
    try:
        end = os.fstat(file).st_size
        if at >= end:
            return _Part(b"", at, end)
        data = _seek(file, at, os.SEEK_DATA, end)
        if data > at:
            line = f"\n[kaiwo: {(data - at) / 1e6:,.1f} MB of this log were removed: it was longer than --log-size]\n"
            return _Part(line.encode(), data, end)
        content = os.pread(file, min(size, _seek(file, at, os.SEEK_HOLE, end) - at), at)
        return _Part(content, at + len(content), end)
    finally:
        os.close(file)


def _seek(file: int, at: int, how: int, end: int) -> int:
    """Where the next data or the next hole begins; the end, if there is none."""
    try:
        return os.lseek(file, at, how)
    except OSError as error:
        return end if error.errno == errno.ENXIO else at if how == os.SEEK_DATA else end


def _open(path: str) -> int | None:
    """Plain files only: opening a pipe would block."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) if path else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    if file is not None and not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    return file


async def attempts(call: EndpointCall) -> AttemptsView:
    record = find_submission(call)
    found = _logs_of(call, record)
    pods = [name for name, _ in ordered_pods(record.workload)]
    return AttemptsView([AttemptView(each.attempt, each.is_over) for each in found], record.state, pods)


async def logs(call: EndpointCall) -> Streaming:
    """Without an attempt, following starts with the first one that is kept."""
    record, cluster = find_submission(call), call.context.live.cluster
    check_sight(call.context.access, call.person, record, "log")
    name = record.workload.name
    found, tail = _logs_of(call, record), call.query["tail"]
    chosen = _chosen(found, call.query["attempt"], name)
    call.context.streams.check_limit(call.user, call.person.role is AccessRole.ADMIN)

    def find() -> Sequence[LogFile]:
        try:
            return _logs_of(call, record)
        except NotFoundError:
            return ()

    def is_over() -> bool:
        try:
            now = cluster.record(name)
            return now.state.is_over or now.submission != record.submission
        except NotFoundError:
            return True

    chunks: AsyncGenerator[bytes, None]
    if not call.query["follow"]:
        chunks = read_all(chosen.path if chosen else "", tail)
    elif call.query["attempt"] is not None and chosen is not None:
        chunks = follow_file(chosen.path, _end_of(find, chosen.attempt), tail)
    else:
        seen = chosen.attempt - 1 if chosen and tail is not None else 0
        chunks = follow_attempts(find, is_over, tail, seen)
    return Streaming(call.context.streams, call.user, chunks, TEXT, until_over=call.until_over)


async def follow_attempts(
    find: Find, is_over: Callable[[], bool], tail: int | None = None, seen: int = 0
) -> AsyncGenerator[bytes, None]:
    """Follow every attempt after `seen`, one after the other, until the workload ends."""
    pause_s = QUICK_S
    while True:
        was_over = is_over()  # asked first, so that an attempt that began before the end is found
        fresh = next((each for each in find() if each.attempt > seen), None)
        if fresh is not None:
            async for chunk in follow_file(fresh.path, _end_of(find, fresh.attempt), tail):
                yield chunk
            seen, tail, pause_s = fresh.attempt, None, QUICK_S
        elif was_over:
            return
        else:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, SLOW_S)


def _end_of(find: Find, attempt: int) -> Callable[[], bool]:
    """An attempt that is no longer kept is over, too."""
    return lambda: all(each.is_over for each in find() if each.attempt == attempt)


def _chosen(found: Sequence[LogFile], attempt: int | None, name: str) -> LogFile | None:
    if attempt is None:
        return found[-1] if found else None
    if chosen := next((each for each in found if each.attempt == attempt), None):
        return chosen
    kept = ", ".join(str(each.attempt) for each in found) or "none"
    raise not_found(f"workload {name} has no log of attempt {attempt}; there are logs of attempts: {kept}")


def _logs_of(call: EndpointCall, record: WorkloadRecord) -> Sequence[LogFile]:
    """The log files of exactly this submission: the name may be submitted again, by somebody else.

    Empty if the cluster keeps no logs of its own.
    """
    logs = call.context.live.cluster.abilities.logs
    return () if logs is None else logs.logs_of(record.workload.name, call.query["pod"] or "", record.submission)


ROUTES = (
    Route("GET", NAMED + "/logs", "Its log.", logs, "text/plain", params=LOG_PARAMS, errors=(404,)),
    Route("GET", NAMED + "/attempts", "Which attempts have a log.", attempts, AttemptsView, params=(POD, SUBMISSION),
          errors=(404,)),
)  # fmt: skip
