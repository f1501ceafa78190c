"""Attach this terminal, or these pipes, to a command that Kaiwo runs on this machine.

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


def has_input() -> bool:
    """True if there is an input: not /dev/null, and not a terminal that another process group reads."""
    try:
        if os.path.samestat(os.fstat(INPUT), os.stat(os.devnull)):
            return False
        return not os.isatty(INPUT) or os.tcgetpgrp(INPUT) == os.getpgrp()
    except OSError:  # closed, or a terminal that is not ours
        return False


def is_terminal() -> bool:
    return os.isatty(INPUT) and os.isatty(OUTPUT)


def connect_console(folder: str) -> socket.socket | None:
    """Connect to the console socket in this folder; None if nothing listens there (yet)."""
    console = socket.socket(socket.AF_UNIX)
    try:
        # Through the folder's descriptor: a socket path is limited to 107 bytes, and a home folder may be deeper.
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            console.connect(f"/proc/self/fd/{at}/console")
        finally:
            os.close(at)
    except OSError:
        console.close()
        return None
    return console


class ConsoleSession:
    """One attached session, from the hello message to the exit record."""

    def __init__(self, console: socket.socket) -> None:
        self._socket = console
        self._is_terminal = is_terminal()
        self._received = bytearray()
        self._unsent = bytearray()
        self._has_input = True
        self.copied = 0  # bytes of output
        self.exit_record: dict[str, Any] | None = None  # None: the connection broke before it arrived

    def run(self) -> None:
        """Copy input and output until the command or the connection ends."""
        hello = {"terminal": self._is_terminal, **_size()}
        self._queue_message(b"h", json.dumps(hello).encode())
        self._socket.setblocking(False)
        sys.stdout.flush()
        with (
            contextlib.closing(self._socket),
            _raw_terminal() if self._is_terminal else contextlib.nullcontext(-1) as wake,
        ):
            while self.exit_record is None and self._copy_once(wake):
                pass

    def _copy_once(self, wake: int) -> bool:
        """Wait for data and copy it once; False if the connection has ended."""
        reads: list[Any] = [self._socket] + ([wake] if wake >= 0 else [])
        if self._has_input and not self._unsent:
            reads.append(INPUT)
        readable = select.select(reads, [self._socket] if self._unsent else [], [])[0]
        if wake in readable:
            os.read(wake, CHUNK)
            self._queue_message(b"w", json.dumps(_size()).encode())
        if INPUT in readable:
            self._read_input()
        try:
            if self._unsent:
                with contextlib.suppress(BlockingIOError):
                    del self._unsent[: self._socket.send(self._unsent)]
            return self._socket not in readable or self._receive()
        except ConnectionError:
            return self._receive_rest()

    def _read_input(self) -> None:
        try:
            content = os.read(INPUT, CHUNK)
        except OSError:  # the terminal is gone
            content = b""
        if content:
            self._queue_message(b"i", content)
            return
        self._has_input = False
        if self._is_terminal:
            self._socket.shutdown(socket.SHUT_WR)
        else:
            self._queue_message(b"e", b"")

    def _queue_message(self, kind: bytes, content: bytes) -> None:
        self._unsent += HEAD.pack(kind, len(content)) + content

    def _receive(self) -> bool:
        chunk = self._socket.recv(CHUNK)
        self._received += chunk
        while len(self._received) >= HEAD.size:
            kind, size = HEAD.unpack_from(self._received)
            if len(self._received) < HEAD.size + size:
                break
            content = bytes(self._received[HEAD.size : HEAD.size + size])
            del self._received[: HEAD.size + size]
            if kind == b"o":
                _write(content)
                self.copied += len(content)
            elif kind == b"x":
                self.exit_record = json.loads(content)
        return bool(chunk)

    def _receive_rest(self) -> bool:
        with contextlib.suppress(OSError):
            while self.exit_record is None and self._receive():
                pass
        return False


@contextlib.contextmanager
def _raw_terminal() -> Iterator[int]:
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
