"""`kaiwo run` with somebody at its input: pipes and a real terminal, against a real `kaiwo up`."""

import contextlib
import fcntl
import hashlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_end_to_end import KAIWO, Product
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kaiwo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    deep = tmp_path_factory.mktemp("deep") / ("d" * 120)  # a socket's path may not be so long
    deep.mkdir()
    product = Product(deep)
    yield product
    product("cancel", "-q", "default")
    if product.up.poll() is None:
        product.stop()


class Terminal:
    """A terminal with a `kaiwo` in it."""

    def __init__(self, product: Product, *args: str, rows: int = 33, columns: int = 101) -> None:
        self.keys, self.screen = os.openpty()
        self.resize(rows, columns)
        self.seen = b""
        self.process = subprocess.Popen(
            [KAIWO, *args],
            env={**product.env, "TERM": "xterm"},
            stdin=self.screen,
            stdout=self.screen,
            stderr=self.screen,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def type(self, text: str) -> None:
        os.write(self.keys, text.encode())

    def until(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.keys], [], [], 0.1)[0]:
                self.seen += os.read(self.keys, 65536)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.keys, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def is_cooked(self) -> bool:
        return bool(termios.tcgetattr(self.screen)[3] & termios.ICANON)

    def end(self) -> int:
        return self.process.wait(20)


@contextlib.contextmanager
def at_terminal(product: Product, *args: str) -> Iterator[Terminal]:
    terminal = Terminal(product, *args)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.keys)
        os.close(terminal.screen)


def test_a_pipe_is_the_commands_input_with_its_end(kaiwo: Product) -> None:
    assert kaiwo("run", "--", "cat", given="hi\n") == (0, "hi\n", "")
    assert kaiwo("run", "--", "sh", given="echo from the shell; exit 7\n")[:2] == (7, "from the shell\n")
    assert kaiwo("run", "--", "true", given="nobody reads this\n" * 10_000).code == 0


def test_nothing_is_lost_or_out_of_order(kaiwo: Product) -> None:
    given = b"".join(b"%d\n" % number for number in range(400_000))
    done = subprocess.run(
        [KAIWO, "run", "many", "--", "cat"], env=kaiwo.env, input=given, capture_output=True, timeout=PATIENCE_S
    )
    assert hashlib.md5(done.stdout).digest() == hashlib.md5(given).digest()
    assert kaiwo("logs", "many").out.encode() == given


def test_a_terminal_is_a_terminal(kaiwo: Product) -> None:
    with at_terminal(kaiwo, "run", "--", "sh", "-c", "tty; stty size; echo $TERM; echo ready; exec cat") as terminal:
        terminal.until("ready\r\n")
        lines = terminal.seen.decode().split("\r\n")
        assert lines[0].startswith("/dev/pts/")
        assert lines[1:3] == ["33 101", "xterm"]
        assert not terminal.is_cooked
        terminal.type("typed\r")
        terminal.until("typed\r\ntyped\r\n")
        terminal.type("\x03")
        assert terminal.end() == 128 + signal.SIGINT
        assert terminal.is_cooked


def test_a_shell_sees_the_window_grow_and_its_exit_code_is_ours(kaiwo: Product) -> None:
    with at_terminal(kaiwo, "run", "--", "sh") as terminal:
        terminal.type("PS1=; trap 'stty size' WINCH; echo rea''dy\r")
        terminal.until("ready")
        terminal.resize(44, 90)
        deadline, asked = time.monotonic() + PATIENCE_S, 0
        while b"44 90" not in terminal.seen:
            assert time.monotonic() < deadline
            asked += 1  # each is answered before the next: a terminal whose buffers are full takes no more keys
            terminal.type(f"echo as''ked {asked}.\r")
            terminal.until(f"asked {asked}.")
        terminal.type("exit 5\r")
        assert terminal.end() == 5
        assert terminal.is_cooked


@pytest.mark.parametrize("is_terminal", [True, False])
def test_who_goes_away_hangs_up(kaiwo: Product, is_terminal: bool) -> None:
    name = f"left-{is_terminal}".lower()
    script = "trap 'echo hung up; exit 9' HUP; echo begun; while :; do sleep 0.05; done"
    command = ["run", name, "--", "sh", "-c", script]
    if is_terminal:
        with at_terminal(kaiwo, *command) as terminal:
            terminal.until("begun")
            terminal.process.kill()
            terminal.process.wait()
    else:
        process = subprocess.Popen([KAIWO, *command], env=kaiwo.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.kill()
        process.communicate()
    assert kaiwo("wait", name, "--for", "over", "--timeout", "20").code == 0
    assert "exit code 9" in kaiwo("describe", name).out
    assert kaiwo("logs", name).out.split("\n")[-2].strip() == "hung up"


def test_a_reader_that_has_enough_ends_the_command(kaiwo: Product) -> None:
    command = [KAIWO, "run", "talker", "--", "yes"]
    with subprocess.Popen(command, env=kaiwo.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.wait(20) == 0
    assert kaiwo("wait", "talker", "--for", "over", "--timeout", "20").out.startswith("talker failed")


def test_a_drained_node_ends_it_and_it_says_so(kaiwo: Product) -> None:
    with at_terminal(kaiwo, "run", "guest", "--gpus", "1", "--", "sh", "-c", "echo begun; exec cat") as terminal:
        terminal.until("begun")
        node = kaiwo.api("/workloads/default/guest")["summary"]["nodes"][0]
        kaiwo("nodes", "drain", node)
        assert terminal.end() == 128 + signal.SIGTERM
        terminal.until(f"guest failed: its node {node} is drained")
        assert terminal.is_cooked
        kaiwo("nodes", "uncordon", node)
    assert kaiwo.api("/workloads/default/guest")["summary"]["attempt"] == 1


def test_a_supervisor_that_is_killed_ends_it_and_nothing_printed_is_lost(kaiwo: Product) -> None:
    with at_terminal(kaiwo, "run", "lost", "--", "sh", "-c", "echo begun; exec cat") as terminal:
        terminal.until("begun")
        folder = kaiwo.api("/workloads/default/lost/console")["folder"]
        os.kill(json.loads(Path(folder, "start.json").read_text())["supervisor"], signal.SIGKILL)
        assert terminal.end() == 128 + signal.SIGKILL
        terminal.until("lost failed: pod main-0: its supervisor was killed")
        assert terminal.seen.count(b"begun") == 1
        assert terminal.is_cooked
    assert kaiwo.api("/workloads/default/lost")["summary"]["attempt"] == 1


def test_an_input_that_is_closed_or_nothing_is_empty(kaiwo: Product) -> None:
    for end in ("<&-", "</dev/null"):
        line = f"{KAIWO} run -- sh -c 'cat; echo done' {end}"
        done = subprocess.run(["sh", "-c", line], env=kaiwo.env, capture_output=True, timeout=PATIENCE_S, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"done\n", b"")


def test_only_the_first_of_many_pods_has_the_input(kaiwo: Product) -> None:
    done = kaiwo("run", "pair", "--pods", "2", "--", "sh", "-c", "echo $KAIWO_POD got $(cat)", given="it\n")
    assert (done.code, done.out) == (0, "main-0 got it\n")
    assert kaiwo("logs", "pair", "--pod", "main-1").out == "main-1 got\n"


def test_with_retries_the_input_is_empty_and_that_is_said(kaiwo: Product) -> None:
    done = kaiwo("run", "--retries", "1", "--", "cat", given="hi\n")
    assert (done.code, done.out) == (0, "")
    assert "it cannot read from your terminal: work with retries" in done.err


def test_every_attempt_is_followed_and_named(kaiwo: Product) -> None:
    kaiwo("submit", "ft", "--retries", "2", "--", "sh", "-c", "echo try $KAIWO_ATTEMPT; exit 1")
    done = kaiwo("logs", "-f", "ft")
    assert done.out == "try 1\ntry 2\ntry 3\n"
    assert "--- attempt 2 of ft ---\n--- attempt 3 of ft ---\n" in done.err
    assert kaiwo("logs", "ft", "--attempt", "1").out == "try 1\n"


def test_it_goes_on_while_kaiwo_is_killed_and_starts_again(kaiwo: Product) -> None:
    with at_terminal(
        kaiwo, "run", "stays", "--", sys.executable, "-u", "-c", "while True: print('got', input())"
    ) as terminal:
        terminal.type("one\r")
        terminal.until("got one")
        kaiwo.stop(signal.SIGKILL)
        terminal.type("two\r")
        terminal.until("got two")
        kaiwo.start()
        terminal.type("\x04")
        assert terminal.end() == 1, "the end of the input is an error to that program"
        terminal.until("EOFError")


def test_what_is_still_stopping_says_when_its_name_is_free(kaiwo: Product, tmp_path: Path) -> None:
    kaiwo("submit", "slow", "--", "sh", "-c", "trap '' TERM; touch begun; sleep 60 & wait", cwd=tmp_path)
    deadline = time.monotonic() + PATIENCE_S
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    kaiwo("cancel", "slow")
    done = kaiwo("submit", "slow", "--", "true")
    assert done.code == 2
    free = "its name is free again as soon as it has ended: kaiwo wait default/slow --for over"
    assert f"workload default/slow was cancelled and is still stopping; {free}" in done.err
