"""Connects a command's input and output with the person who runs it: a terminal, or two pipes.

In:    the run's folder, where the socket `console` waits for one person, who says first what they sit at.
Out:   the command's output in the log and, out of the log, to the person; the person's input to the command.
Never: keeps output in memory for a person who does not read: the log is the buffer. Lets a person in twice. Nothing but
       the standard library: the supervisor loads this file by its path, and only for runs that have a console.

Every message is a letter, four bytes of length, and so much content. From the person: `h` what they sit at (once, and
first), `i` input, `e` the end of the input, `w` the window's size. To the person: `o` output, `x` the exit record.
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
MEET_S = 60.0  # a person who has not come by then never will
HELLO_S = 5.0
FLUSH_S, LONGEST_FLUSH_S = 2.0, 10.0  # a person who takes nothing for so long reads the rest in the log
REST_S = 0.1  # between two looks at a terminal that no process has open
IDLE_S = 1.0  # between two ends of the input, for a command that reads on without a person
END_OF_INPUT = b"\x04"


class GoneError(Exception):
    """The person is gone, or says what makes no sense."""


class Console:
    """One run's. Made and met on the main thread; `connect` begins the thread that carries the bytes."""

    def __init__(self, folder: str, log: int) -> None:
        self._folder, self._log = folder, log
        self._listener = listen(folder)
        self._person: socket.socket | None = None
        self._hello: dict = {}
        self._heard = bytearray()  # of a message that is not whole yet
        self._input = self._output = -1
        self._to_command = bytearray()
        self._is_input_over = False
        self._to_person = b""  # the message that is on its way
        self._sent = 0  # of the log
        self._pid = 0
        self._rest_until = 0.0
        self._is_over = threading.Event()  # the command, and all that it left behind
        self._is_drained = threading.Event()
        self._last_word = b""
        self._is_parting = False  # the last word is on its way
        self._parts_by = 0.0
        self._wake, self._wake_write = os.pipe()

    @property
    def is_terminal(self) -> bool:
        """The person sits at one, so the command gets one."""
        return bool(self._hello.get("terminal"))

    def meet(self, stop_signals: set) -> str:
        """Wait for the person. Returns why the command shall not begin; empty: they are here."""
        until = time.monotonic() + MEET_S
        while time.monotonic() < until:
            if signal.sigtimedwait(stop_signals, 0) is not None:
                return "stopped"
            if select.select([self._listener], [], [], REST_S)[0] and self._let_in():
                self._listener.close()
                os.unlink(os.path.join(self._folder, NAME))
                return ""
        return "alone"

    def ends(self) -> tuple:
        """What the command gets as its input and output; the other ends stay here."""
        if self.is_terminal:
            self._input, terminal = os.openpty()
            self._output = self._input
            self._resize(self._hello)
            return terminal, terminal
        given_input, self._input = os.pipe()
        self._output, given_output = os.pipe()
        return given_input, given_output

    def connect(self, pid: int) -> None:
        """The command is there: carry bytes until `finish`."""
        self._pid = pid
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._reader = os.open(os.path.join(self._folder, "log"), os.O_RDONLY)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def drain(self) -> None:
        """The command and all that it left are gone: see that what they wrote is in the log."""
        self._is_over.set()
        self._poke()
        self._is_drained.wait(FLUSH_S)

    def finish(self, record: dict) -> None:
        """Tell the person how it ended, after all of the output; not for ever, if they do not listen."""
        self._parts_by = time.monotonic() + LONGEST_FLUSH_S
        self._last_word = message(b"x", json.dumps(record).encode())
        self._poke()
        self._thread.join()

    def _let_in(self) -> bool:
        person, _ = self._listener.accept()
        person.settimeout(HELLO_S)
        try:
            kind, content = read_message(person)
            if kind != b"h":
                raise GoneError
            self._hello = json.loads(content)
        except (OSError, ValueError, GoneError):
            person.close()
            return False
        person.setblocking(False)
        self._person = person
        return True

    # On the thread.

    def _run(self) -> None:
        try:
            self._carry()
        finally:
            self._hang_up()  # only a mistake of ours ends it before the command: that must not wait for us
            for fd in {self._input, self._output} - {-1}:
                os.close(fd)
            self._is_drained.set()

    def _carry(self) -> None:
        quiet_since = time.monotonic()
        while not self._is_done(quiet_since):
            readable = self._wait()
            if self._wake in readable:
                os.read(self._wake, CHUNK)
            has_moved = self._output in readable and self._take_output()
            if self._person is not None and self._person in readable:
                self._hear()
            if self._to_command or self._is_input_over:
                self._feed()
            has_moved = self._tell() or has_moved
            if has_moved or not self._last_word:
                quiet_since = time.monotonic()
            if self._is_over.is_set() and self._output not in readable:
                self._is_drained.set()

    def _is_done(self, quiet_since: float) -> bool:
        """Everything is told, or nobody is there to be told, or they do not listen."""
        if not self._last_word:
            return False
        now = time.monotonic()
        return self._person is None or now - quiet_since > FLUSH_S or now > self._parts_by

    def _wait(self) -> list:
        """Until there is something to carry. Returns what can be read."""
        reads: list = [self._wake]
        writes: list = []
        is_resting = time.monotonic() < self._rest_until
        if self._output >= 0 and not is_resting:
            reads.append(self._output)
        if self._person is not None:
            if len(self._to_command) < CHUNK:
                reads.append(self._person)
            if self._to_person or self._has_news():
                writes.append(self._person)
        if self._input >= 0 and self._to_command:
            writes.append(self._input)
        is_draining = self._is_over.is_set() and not self._is_drained.is_set()
        timeout_s = 0.0 if is_draining else REST_S if is_resting or self._last_word else IDLE_S
        return select.select(reads, writes, [], timeout_s)[0]

    def _take_output(self) -> bool:
        """From the command into the log."""
        try:
            content = os.read(self._output, CHUNK)
        except BlockingIOError:
            return False
        except OSError as error:  # no process has the terminal open; one may open it again
            if error.errno != errno.EIO:
                raise
            content = b""
        if content:
            self._keep(content)
        elif self.is_terminal:
            self._rest_until = time.monotonic() + REST_S
        else:
            os.close(self._output)
            self._output = -1
        return bool(content)

    def _keep(self, content: bytes) -> None:
        while content:
            try:
                content = content[os.write(self._log, content) :]
            except OSError:  # the disk is full: it is lost, as if the command had written there itself
                return

    def _hear(self) -> None:
        """What the person says; when they are gone, the command is told as a terminal would."""
        assert self._person is not None
        try:
            content = self._person.recv(CHUNK)
            if not content:
                raise GoneError
            self._heard += content
            for kind, said in split(self._heard):
                self._obey(kind, said)
        except BlockingIOError:
            return
        except (OSError, ValueError, GoneError):
            self._hang_up()

    def _obey(self, kind: bytes, said: bytes) -> None:
        if kind == b"i":
            self._to_command += said
        elif kind == b"e" and not self.is_terminal:
            self._is_input_over = True
        elif kind == b"w":
            self._resize(json.loads(said))

    def _resize(self, size: dict) -> None:
        if self.is_terminal:
            rows, columns = (max(0, min(int(size.get(side, 0)), 9999)) for side in ("rows", "columns"))
            fcntl.ioctl(self._input, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _feed(self) -> None:
        """From the person into the command."""
        if self._input < 0:
            self._to_command.clear()
            return
        try:
            while self._to_command:
                del self._to_command[: os.write(self._input, self._to_command)]
        except BlockingIOError:
            return
        except OSError:  # the command reads no more
            self._to_command.clear()
        if not self._is_input_over:
            return
        if self.is_terminal:
            with contextlib.suppress(OSError):  # read by whoever reads again: a terminal that is gone stays gone
                os.write(self._input, END_OF_INPUT)
            return
        os.close(self._input)
        self._input = -1

    def _has_news(self) -> bool:
        size = os.fstat(self._reader).st_size
        self._sent = min(self._sent, size)
        return self._sent < size or bool(self._last_word)

    def _tell(self) -> bool:
        """From the log to the person; at the end the last word."""
        has_moved = False
        while self._person is not None:
            if not self._to_person:
                content = os.pread(self._reader, CHUNK, self._sent)
                if not content and not self._last_word:
                    return has_moved
                self._sent += len(content)
                self._is_parting = not content
                self._to_person = self._last_word if self._is_parting else message(b"o", content)
            try:
                sent = self._person.send(self._to_person)
            except BlockingIOError:
                return has_moved
            except OSError:
                self._hang_up()
                return has_moved
            self._to_person = self._to_person[sent:]
            has_moved = True
            if self._is_parting and not self._to_person:
                self._leave()
        return has_moved

    def _hang_up(self) -> None:
        """The person is gone: SIGHUP, and the end of the input. The log goes on."""
        self._leave()
        self._is_input_over = True
        if self._is_over.is_set():
            return
        groups = [self._pid]
        if self.is_terminal:
            with contextlib.suppress(OSError, termios.error):
                attributes = termios.tcgetattr(self._input)
                attributes[3] |= termios.ICANON  # so that the end of the input is one
                termios.tcsetattr(self._input, termios.TCSANOW, attributes)
                groups.insert(0, os.tcgetpgrp(self._input))
        for group in dict.fromkeys(groups):
            for number in (signal.SIGHUP, signal.SIGCONT):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, number)

    def _leave(self) -> None:
        if self._person is not None:
            self._person.close()
            self._person = None

    def _poke(self) -> None:
        os.write(self._wake_write, b"1")


def listen(folder: str) -> socket.socket:
    """The socket in the run's folder, for its owner alone. A socket's path may have 107 bytes: hence from inside."""
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
    """As it goes over the socket."""
    return HEAD.pack(kind, len(content)) + content


def split(heard: bytearray) -> list:
    """Take the whole messages out of what was heard."""
    found = []
    while len(heard) >= HEAD.size:
        kind, size = HEAD.unpack_from(heard)
        if size > LONGEST_MESSAGE:
            raise GoneError
        if len(heard) < HEAD.size + size:
            break
        found.append((kind, bytes(heard[HEAD.size : HEAD.size + size])))
        del heard[: HEAD.size + size]
    return found


def read_message(person: socket.socket) -> tuple:
    """The first message of a person, no byte more."""
    kind, size = HEAD.unpack(read_exactly(person, HEAD.size))
    if size > CHUNK:
        raise GoneError
    return kind, read_exactly(person, size)


def read_exactly(person: socket.socket, size: int) -> bytes:
    """So many bytes, or they are gone."""
    content = b""
    while len(content) < size:
        part = person.recv(size - len(content))
        if not part:
            raise GoneError
        content += part
    return content
