"""The console of a run: connect the input and output of its command with its user, over a terminal or two pipes.

In:    the run's folder, where the socket `console` waits for one client, whose first message describes its terminal.
Out:   the command's output in the log and, from the log, to the client; the client's input to the command.
Never: buffers output in memory for a client that does not read: the log is the buffer. Accepts a second client. Imports
       more than the standard library: the supervisor loads this file by its path, for runs with a console only.

A message is a letter, four bytes of length, and the content. From the client: `h` a description of its terminal (once,
and first), `i` input, `e` the end of the input, `w` the window's size. To the client: `o` output, `x` the exit record.
"""

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import termios
import threading
import time

NAME = "console"
HEAD = struct.Struct("!cI")
CHUNK = 64 * 1024
LONGEST_MESSAGE = 1 << 20
CLIENT_WAIT_S = 60.0  # a client that has not connected by then never will
HELLO_S = 5.0
FLUSH_S, LONGEST_FLUSH_S = 2.0, 10.0  # a client that reads nothing for this long finds the rest in the log
REST_S = 0.1  # between two checks of a terminal that no process has open
IDLE_S = 1.0  # between two ends of the input, for a command that still reads after its client has gone
END_OF_INPUT = b"\x04"


class GoneError(Exception):
    """The client has disconnected, or sent something that is not a message."""


class Console:
    """The console of one run. `connect` starts the thread that moves the bytes; call its public methods elsewhere."""

    def __init__(self, folder: str, log: int) -> None:
        self._folder, self._log = folder, log
        self._listener = listen(folder)
        self._client: socket.socket | None = None
        self._hello: dict = {}
        self._received = bytearray()  # of a message that is not complete yet
        self._input = self._output = -1
        self._to_command = bytearray()
        self._is_input_over = False
        self._to_client = b""  # the rest of the message being sent
        self._sent = 0  # of the log
        self._pid = 0
        self._rest_until = 0.0
        self._is_over = threading.Event()  # the command, and all its processes
        self._is_drained = threading.Event()
        self._exit_message = b""
        self._is_sending_exit = False
        self._deadline = 0.0
        self._wake, self._wake_write = os.pipe()

    @property
    def is_terminal(self) -> bool:
        return bool(self._hello.get("terminal"))

    def wait_for_client(self, stop_signals: set) -> str:
        """Wait for the client. Returns why the command must not start; empty: the client is connected."""
        until = time.monotonic() + CLIENT_WAIT_S
        while time.monotonic() < until:
            if signal.sigtimedwait(stop_signals, 0) is not None:
                return "stopped"
            if select.select([self._listener], [], [], REST_S)[0] and self._accept():
                self._listener.close()
                os.unlink(os.path.join(self._folder, NAME))
                return ""
        return "alone"

    def ends(self) -> tuple:
        """The command's input and output; the other ends stay here."""
        if self.is_terminal:
            self._input, terminal = os.openpty()
            self._output = self._input
            self._resize(self._hello)
            return terminal, terminal
        given_input, self._input = os.pipe()
        self._output, given_output = os.pipe()
        return given_input, given_output

    def connect(self, pid: int) -> None:
        """Move bytes to and from the command until `finish`."""
        self._pid = pid
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._reader = os.open(os.path.join(self._folder, "log"), os.O_RDONLY)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def drain(self) -> None:
        """The command and all its processes have ended: wait until their output is in the log."""
        self._is_over.set()
        self._wake_thread()
        self._is_drained.wait(FLUSH_S)

    def finish(self, record: dict) -> None:
        """Send the exit record after all of the output, unless the client stops reading."""
        self._deadline = time.monotonic() + LONGEST_FLUSH_S
        self._exit_message = message(b"x", json.dumps(record).encode())
        self._wake_thread()
        self._thread.join()

    def _accept(self) -> bool:
        client, _ = self._listener.accept()
        client.settimeout(HELLO_S)
        try:
            kind, content = read_message(client)
            if kind != b"h":
                raise GoneError
            self._hello = json.loads(content)
        except (OSError, ValueError, GoneError):
            client.close()
            return False
        client.setblocking(False)
        self._client = client
        return True

    # On the thread.

    def _run(self) -> None:
        try:
            self._move_bytes()
        finally:
            self._hang_up()  # only a bug of ours ends it before the command, which must not wait for us then
            for fd in {self._input, self._output} - {-1}:
                os.close(fd)
            self._is_drained.set()

    def _move_bytes(self) -> None:
        quiet_since = time.monotonic()
        while not self._is_done(quiet_since):
            readable = self._wait()
            if self._wake in readable:
                os.read(self._wake, CHUNK)
            has_moved = self._output in readable and self._take_output()
            if self._client is not None and self._client in readable:
                self._read_client()
            if self._to_command or self._is_input_over:
                self._write_command()
            has_moved = self._write_client() or has_moved
            if has_moved or not self._exit_message:
                quiet_since = time.monotonic()
            if self._is_over.is_set() and self._output not in readable:
                self._is_drained.set()

    def _is_done(self, quiet_since: float) -> bool:
        if not self._exit_message:
            return False
        now = time.monotonic()
        return self._client is None or now - quiet_since > FLUSH_S or now > self._deadline

    def _wait(self) -> list:
        """Wait until there is something to move. Returns what can be read."""
        reads: list = [self._wake]
        writes: list = []
        is_resting = time.monotonic() < self._rest_until
        if self._output >= 0 and not is_resting:
            reads.append(self._output)
        if self._client is not None:
            if len(self._to_command) < CHUNK:
                reads.append(self._client)
            if self._to_client or self._has_output():
                writes.append(self._client)
        if self._input >= 0 and self._to_command:
            writes.append(self._input)
        is_draining = self._is_over.is_set() and not self._is_drained.is_set()
        timeout_s = 0.0 if is_draining else REST_S if is_resting or self._exit_message else IDLE_S
        return select.select(reads, writes, [], timeout_s)[0]

    def _take_output(self) -> bool:
        try:
            content = os.read(self._output, CHUNK)
        except BlockingIOError:
            return False
        except OSError as error:  # no process has the terminal open; one may open it again
            if error.errno != errno.EIO:
                raise
            content = b""
        if content:
            self._log_output(content)
        elif self.is_terminal:
            self._rest_until = time.monotonic() + REST_S
        else:
            os.close(self._output)
            self._output = -1
        return bool(content)

    def _log_output(self, content: bytes) -> None:
        while content:
            try:
                content = content[os.write(self._log, content) :]
            except OSError:  # the disk is full: the output is lost, as if the command had written it there itself
                return

    def _read_client(self) -> None:
        """When the client has gone, the command is notified as by a terminal."""
        assert self._client is not None
        try:
            content = self._client.recv(CHUNK)
            if not content:
                raise GoneError
            self._received += content
            for kind, content in split(self._received):
                self._handle(kind, content)
        except BlockingIOError:
            return
        except (OSError, ValueError, GoneError):
            self._hang_up()

    def _handle(self, kind: bytes, content: bytes) -> None:
        if kind == b"i":
            self._to_command += content
        elif kind == b"e" and not self.is_terminal:
            self._is_input_over = True
        elif kind == b"w":
            self._resize(json.loads(content))

    def _resize(self, size: dict) -> None:
        if self.is_terminal:
            rows, columns = (max(0, min(int(size.get(side, 0)), 9999)) for side in ("rows", "columns"))
            fcntl.ioctl(self._input, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _write_command(self) -> None:
        if self._input < 0:
            self._to_command.clear()
            return
        try:
            while self._to_command:
                del self._to_command[: os.write(self._input, self._to_command)]
        except BlockingIOError:
            return
        except OSError:  # the command no longer reads
            self._to_command.clear()
        if not self._is_input_over:
            return
        if self.is_terminal:
            with contextlib.suppress(OSError):  # for the next read: a terminal that has gone stays gone
                os.write(self._input, END_OF_INPUT)
            return
        os.close(self._input)
        self._input = -1

    def _has_output(self) -> bool:
        size = os.fstat(self._reader).st_size
        self._sent = min(self._sent, size)
        return self._sent < size or bool(self._exit_message)

    def _write_client(self) -> bool:
        has_moved = False
        while self._client is not None:
            if not self._to_client:
                content = os.pread(self._reader, CHUNK, self._sent)
                if not content and not self._exit_message:
                    return has_moved
                self._sent += len(content)
                self._is_sending_exit = not content
                self._to_client = self._exit_message if self._is_sending_exit else message(b"o", content)
            try:
                sent = self._client.send(self._to_client)
            except BlockingIOError:
                return has_moved
            except OSError:
                self._hang_up()
                return has_moved
            self._to_client = self._to_client[sent:]
            has_moved = True
            if self._is_sending_exit and not self._to_client:
                self._disconnect()
        return has_moved

    def _hang_up(self) -> None:
        """The client has gone: send SIGHUP and end the input. The log continues."""
        self._disconnect()
        self._is_input_over = True
        if self._is_over.is_set():
            return
        groups = [self._pid]
        if self.is_terminal:
            with contextlib.suppress(OSError, termios.error):
                attributes = termios.tcgetattr(self._input)
                attributes[3] |= termios.ICANON  # otherwise the character for the end of the input does not end it
                termios.tcsetattr(self._input, termios.TCSANOW, attributes)
                groups.insert(0, os.tcgetpgrp(self._input))
        for group in dict.fromkeys(groups):
            for number in (signal.SIGHUP, signal.SIGCONT):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, number)

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _wake_thread(self) -> None:
        os.write(self._wake_write, b"1")


def listen(folder: str) -> socket.socket:
    """The socket in the run's folder, for its owner only. Bound from inside, since its path may have 107 bytes."""
    listener = socket.socket(socket.AF_UNIX)
    os.chdir(folder)
    mask = os.umask(0o177)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(NAME)
        listener.bind(NAME)
    finally:
        os.umask(mask)
        os.chdir("/")
    listener.listen(1)
    return listener


def message(kind: bytes, content: bytes) -> bytes:
    return HEAD.pack(kind, len(content)) + content


def split(received: bytearray) -> list:
    """Remove the complete messages from the received bytes."""
    found = []
    while len(received) >= HEAD.size:
        kind, size = HEAD.unpack_from(received)
        if size > LONGEST_MESSAGE:
            raise GoneError
        if len(received) < HEAD.size + size:
            break
        found.append((kind, bytes(received[HEAD.size : HEAD.size + size])))
        del received[: HEAD.size + size]
    return found


def read_message(client: socket.socket) -> tuple:
    kind, size = HEAD.unpack(read_exactly(client, HEAD.size))
    if size > CHUNK:
        raise GoneError
    return kind, read_exactly(client, size)


def read_exactly(client: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = client.recv(size - len(content))
        if not part:
            raise GoneError
        content += part
    return content
