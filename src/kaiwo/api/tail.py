"""Read a growing file: its last lines, and what is added, without a thread that waits.

In:    where the file is.   Out: its bytes, until whoever writes it is done.
"""

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, Callable

CHUNK = 64 * 1024
QUICK_S, SLOW_S = 0.1, 0.5
Piece = tuple[bytes, int]  # content, and the file's size


async def read_all(path: str, tail: int | None) -> AsyncGenerator[bytes, None]:
    """The file as it is now; nothing when there is none."""
    at, end = await asyncio.to_thread(_begin, path, tail)
    while at < end:
        content, _ = await asyncio.to_thread(_read, path, at, min(CHUNK, end - at))
        if not content:
            return
        at += len(content)
        yield content


async def follow_file(path: str, is_over: Callable[[], bool], tail: int | None) -> AsyncGenerator[bytes, None]:
    """The file and all that is added to it, until it is over and read to the end. It may not be there yet."""
    at, _ = await asyncio.to_thread(_begin, path, tail)
    pause_s = QUICK_S
    while True:
        was_over = is_over()  # asked before the read: what was written before the end is read
        content, size = await asyncio.to_thread(_read, path, at, CHUNK)
        if content:
            at += len(content)
            pause_s = QUICK_S
            yield content
            continue
        if size < at:  # somebody emptied it
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


def _read(path: str, at: int, size: int) -> Piece:
    file = _open(path)
    if file is None:
        return b"", at
    try:
        return os.pread(file, size, at), os.fstat(file).st_size
    finally:
        os.close(file)


def _open(path: str) -> int | None:
    """A plain file only: opening a pipe would wait for ever."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) if path else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    if file is not None and not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    return file
