"""Attach this terminal, or these pipes, to a command that Kaiwo runs on this machine.

In:    the run's folder with its socket.   Out: the command's output on stdout as it arrives, and its exit record.
Never: leaves the terminal in another state than it found it. The messages are defined in clusters/local/console.py.
"""

import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Any

from kaiwo.cli.output.printing import terminal_size

HEAD = struct.Struct("!cI")
CHUNK = 32 * 1024
INPUT, OUTPUT = 0, 1


def wants_input() -> bool:
    """True if there is an input: not /dev/null, and not a terminal that another process group reads."""
    try:
        if os.path.samestat(os.fstat(INPUT), os.stat(os.devnull)):
            return False
        return not os.isatty(INPUT) or os.tcgetpgrp(INPUT) == os.getpgrp()
    except OSError:  # closed, or a terminal that is not ours
        return False


def is_terminal() -> bool:
    """True if input and output are a terminal, so that the command gets one."""
    return os.isatty(INPUT) and os.isatty(OUTPUT)


def call(folder: str) -> socket.socket | None:
    """Connect to the console socket in this folder; None if nothing listens there (yet)."""
    person = socket.socket(socket.AF_UNIX)
    try:
        # Through the folder's descriptor: a socket path is limited to 107 bytes, and a home folder may be deeper.
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            person.connect(f"/proc/self/fd/{at}/console")
        finally:
            os.close(at)
    except OSError:
        person.close()
        return None
    return person


class Sitting:
    """One attached session, from the hello message to the exit record."""

    def __init__(self, person: socket.socket) -> None:
        self._person = person
        self._is_terminal = is_terminal()
        self._heard = bytearray()
        self._unsent = bytearray()
        self._has_input = True
        self.copied = 0  # bytes of output
        self.end: dict[str, Any] | None = None  # the exit record; None if the connection broke before it arrived

    def sit(self) -> None:
        """Copy input and output until the command or the connection ends."""
        hello = {"terminal": self._is_terminal, **_size()}
        self._say(b"h", json.dumps(hello).encode())
        self._person.setblocking(False)
        sys.stdout.flush()
        with contextlib.closing(self._person), _raw() if self._is_terminal else contextlib.nullcontext(-1) as wake:
            while self.end is None and self._turn(wake):
                pass

    def _turn(self, wake: int) -> bool:
        """Wait for data and copy it once; False if the connection has ended."""
        reads: list[Any] = [self._person] + ([wake] if wake >= 0 else [])
        if self._has_input and not self._unsent:
            reads.append(INPUT)
        readable = select.select(reads, [self._person] if self._unsent else [], [])[0]
        if wake in readable:
            os.read(wake, CHUNK)
            self._say(b"w", json.dumps(_size()).encode())
        if INPUT in readable:
            self._read_input()
        try:
            if self._unsent:
                self._send()
            return self._person not in readable or self._hear()
        except ConnectionError:
            return self._hear_the_rest()

    def _send(self) -> None:
        with contextlib.suppress(BlockingIOError):
            del self._unsent[: self._person.send(self._unsent)]

    def _read_input(self) -> None:
        try:
            content = os.read(INPUT, CHUNK)
        except OSError:  # the terminal is gone
            content = b""
        if content:
            self._say(b"i", content)
            return
        self._has_input = False
        if self._is_terminal:
            self._person.shutdown(socket.SHUT_WR)
        else:
            self._say(b"e", b"")

    def _say(self, kind: bytes, content: bytes) -> None:
        self._unsent += HEAD.pack(kind, len(content)) + content

    def _hear(self) -> bool:
        content = self._person.recv(CHUNK)
        self._heard += content
        while len(self._heard) >= HEAD.size:
            kind, size = HEAD.unpack_from(self._heard)
            if len(self._heard) < HEAD.size + size:
                break
            said = bytes(self._heard[HEAD.size : HEAD.size + size])
            del self._heard[: HEAD.size + size]
            if kind == b"o":
                _write(said)
                self.copied += len(said)
            elif kind == b"x":
                self.end = json.loads(said)
        return bool(content)

    def _hear_the_rest(self) -> bool:
        """Read what arrived before the connection broke."""
        with contextlib.suppress(OSError):
            while self.end is None and self._hear():
                pass
        return False


@contextlib.contextmanager
def _raw() -> Iterator[int]:
    """Put the terminal into raw mode, and restore it; yields a pipe that becomes readable on a resize."""
    before = termios.tcgetattr(INPUT)
    wake, wake_write = os.pipe()
    os.set_blocking(wake_write, False)

    def resized(*_: Any) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(wake_write, b"1")

    def resumed(*_: Any) -> None:
        tty.setraw(INPUT, termios.TCSADRAIN)  # another program may have changed the mode meanwhile

    handlers = {
        number: signal.signal(number, act) for number, act in ((signal.SIGWINCH, resized), (signal.SIGCONT, resumed))
    }
    try:
        tty.setraw(INPUT, termios.TCSADRAIN)  # keeps what was typed ahead
        yield wake
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(INPUT, termios.TCSADRAIN, before)
        os.close(wake)
        os.close(wake_write)


def _size() -> dict[str, int]:
    columns, rows = terminal_size()
    return {"rows": rows, "columns": columns}


def _write(content: bytes) -> None:
    while content:
        content = content[os.write(OUTPUT, content) :]
