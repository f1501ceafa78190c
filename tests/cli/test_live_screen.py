"""`-w`: a live screen on a terminal, a line for each change in a pipe."""

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import msgspec
import pytest

from kaiwo.api.views.workloads import ChangeView, ObstacleView, WhyView
from kaiwo.cli.lists.watch_list import read_events
from kaiwo.cli.output.table_layout import display_width
from kaiwo.model.workload_record import WorkloadState
from tests.cli.stub_server import Stub, workload
from tests.waiting import PATIENCE_S

KAIWO = Path(sys.executable).with_name("kaiwo")


def test_events_are_read_as_the_standard_says() -> None:
    lines = b": comment\n\nid: e-1\nevent: reset\ndata: {\ndata: }\n\ndata:x\n\nevent: lonely\n\n".split(b"\n")
    assert list(read_events(lines)) == [("reset", "e-1", b"{\n}"), ("message", "", b"x")]


def test_a_pipe_gets_the_table_then_each_change(stub: Stub) -> None:
    new = workload("late", "waiting")
    ended = msgspec.structs.replace(stub.workloads["default/train"], state=WorkloadState.SUCCEEDED)
    stub.events = [
        ("delta", {"set": [ended, new], "gone": [], "total": 3}),
        ("delta", {"set": [], "gone": ["default/late"], "total": 2}),
    ]
    lines = read_some_lines(["get", "workloads", "-w"], 6)
    assert [line.split()[0] for line in lines] == ["NAME", "train", "eval", "train", "late", "default/late"]
    assert "succeeded" in lines[3]
    assert lines[5].strip() == "default/late is gone"
    assert stub.stream_views == ["workloads"]


def test_a_pipe_gets_json_lines(stub: Stub) -> None:
    lines = read_some_lines(["get", "nodes", "-w", "-o", "json"], 2)
    assert [json.loads(line)["name"] for line in lines] == ["node-1", "node-2"]


def test_what_has_no_stream_is_asked_for_again_and_again(stub: Stub) -> None:
    assert len(read_some_lines(["get", "cycles", "-w"], 3)) == 3
    assert stub.stream_views == []


def test_status_can_be_watched_too(stub: Stub) -> None:
    assert read_some_lines(["status", "-w"], 2)[0].startswith("cluster")


def test_a_terminal_is_redrawn_and_left_as_it_was(stub: Stub) -> None:
    stub.events = [("delta", {"set": [workload("late", "waiting")], "total": 3})]
    screen = Terminal(["get", "workloads", "-w"], columns=60)
    screen.wait_for("late")
    screen.wait_for("live: 3 workloads; Ctrl-C to stop")
    assert screen.end(signal.SIGINT) == 0
    assert "\x1b[?1049h" in screen.text
    assert screen.text.index("\x1b[?1049l") < screen.text.rindex("NAME")  # the last picture stays
    assert screen.widest() <= 60, screen.text


def test_a_terminal_has_colours_and_no_color_takes_them(stub: Stub) -> None:
    coloured = Terminal(["get", "workloads"], columns=80)
    coloured.end()
    assert "\x1b[32mrunning\x1b[0m" in coloured.text
    plain = Terminal(["get", "workloads"], columns=80, NO_COLOR="1")
    plain.end()
    assert "\x1b" not in plain.text
    assert "running" in plain.text


@pytest.mark.parametrize("width", [80, 60])
def test_reasons_are_read_in_full_on_a_narrow_terminal(stub: Stub, width: int) -> None:
    why = "it needs 4 GPUs, but queue 'research' has 1.797 GPUs left of its limit"
    stub.workloads["default/long"] = workload("demo/nightly-regression", "waiting", reason=why)
    screen = Terminal(["get", "workloads"], columns=width)
    assert screen.end() == 0
    assert "demo/nightly-regression" in screen.plain()
    assert why in " ".join(screen.plain().split())


@pytest.mark.parametrize(("width", "bar"), [(80, 24), (60, 16), (40, 0)])
def test_the_bars_of_status_give_way_to_the_numbers(stub: Stub, width: int, bar: int) -> None:
    screen = Terminal(["status"], columns=width)
    assert screen.end() == 0
    lines = screen.plain().splitlines()
    (gpus,) = [line for line in lines if line.startswith("GPUs ")]
    assert gpus.endswith("50 %  2 of 4 in use")
    assert gpus.count("#") + gpus.count(".") == bar, lines
    assert "kaiwo get workloads --state waiting" in " ".join(screen.plain().split())


@pytest.mark.parametrize("width", [80, 60, 30])
def test_a_command_that_takes_several_lines_can_still_be_copied(stub: Stub, width: int) -> None:
    name = "demo/elastic-finetune"
    command = f"kaiwo cancel {name} && kaiwo submit {name} --queue default --gpus 2"
    change = ChangeView("other-queue", "researcher", "submit it elsewhere", command)
    obstacle = ObstacleView("quota", "no room", "", 0, 0, "", "")
    stub.why = WhyView("default/eval", WorkloadState.WAITING, "it waits", [obstacle], 1, 0, change, "", 0)
    screen = Terminal(["why", "eval"], columns=width, NO_COLOR="1")
    assert screen.end() == 0
    assert screen.widest() <= max(width, len("    kaiwo submit demo/elastic-finetune") + 2)
    typed = screen.plain().partition("elsewhere")[2]
    script = f'kaiwo() {{ echo "kaiwo $*"; }}\n{typed}'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert " && ".join(done.stdout.splitlines()) == command


def test_every_look_fits_a_narrow_terminal(stub: Stub) -> None:
    stub.workloads["default/long"] = workload("a-very-long-name-" * 6, "waiting", queue="数据" * 10)
    for args in (["get", "w"], ["get", "w", "-o", "wide"], ["nodes"], ["gpus"], ["queue"], ["status"],
                 ["describe", "train"], ["describe", "node", "node-1"], ["get", "cycles"]):  # fmt: skip
        screen = Terminal(args, columns=40)
        assert screen.end() == 0
        assert screen.widest() <= 40, args


def read_some_lines(args: list[str], count: int) -> list[str]:
    process = subprocess.Popen([KAIWO, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(count)]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    return lines


class Terminal:
    """A pseudo-terminal of a given width with one command in it."""

    def __init__(self, args: list[str], columns: int, **env: str) -> None:
        self.text = ""
        pid, self._fd = pty.fork()
        if pid == 0:
            os.environ.update({"TERM": "xterm-256color", **env})
            ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execv(KAIWO, ["kaiwo", *args])
        self._pid = pid

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.text:
            assert time.monotonic() < deadline, self.text
            self._read(0.1)

    def end(self, number: int = 0) -> int:
        """The exit code."""
        if number:
            os.kill(self._pid, number)
        while self._read(20):
            pass
        _, status = os.waitpid(self._pid, 0)
        os.close(self._fd)
        return os.waitstatus_to_exitcode(status)

    def plain(self) -> str:
        """What was drawn, without colours."""
        drawn = self.text.replace("\x1b[H", "\n").replace("\x1b[?1049l", "\n")
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn).replace("\r\n", "\n").replace("\r", "\n")

    def widest(self) -> int:
        return max(display_width(line) for line in self.plain().split("\n"))

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self._fd], [], [], timeout_s)[0]:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            return False
        self.text += data.decode(errors="replace")
        return bool(data)
