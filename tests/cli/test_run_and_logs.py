"""`run` and `logs`: output as it comes, the command's exit code, and Ctrl-C."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kaiwo.api.views.cluster import Usage
from kaiwo.cli.verbs.workloads.run import StoppedBySignal, StopSignals
from kaiwo.model.workload_record import WorkloadState
from tests.cli.conftest import Type
from tests.cli.stub_server import Stub, detail, problem_body, workload
from tests.waiting import PATIENCE_S

KAIWO = Path(sys.executable).with_name("kaiwo")


def test_logs_are_copied_byte_for_byte(stub: Stub, kaiwo: Type) -> None:
    stub.logs = [b"half a ", b"line\n", "ünïcode\r50%\r100%\n".encode()]
    assert kaiwo("logs", "train", "--pod", "main-1", "--tail", "5").out == "half a line\nünïcode\r50%\r100%\n"
    assert stub.seen[0][2] == {"pod": ["main-1"], "tail": ["5"]}


def test_logs_keep_bytes_that_are_no_text(stub: Stub) -> None:
    stub.logs = [b"\xff\x00\xfe"]
    assert subprocess.run([KAIWO, "logs", "-f", "train"], capture_output=True, check=True).stdout == b"\xff\x00\xfe"


def silent(stub: Stub, name: str, state: str, **more: Any) -> None:
    """A workload that printed nothing."""
    stub.logs = []
    view = workload(name, state)
    stub.workloads[view.name] = view
    stub.details[view.name] = detail(view, **more)


@pytest.mark.parametrize("follow", [[], ["-f"]])
@pytest.mark.parametrize("state", ["running", "succeeded"])
def test_simulated_work_has_no_output_and_says_so(stub: Stub, kaiwo: Type, follow: list[str], state: str) -> None:
    silent(stub, "x", state, command=[])
    assert kaiwo("logs", "x", *follow) == (0, "", "x has no output: it runs in simulated time\n")


@pytest.mark.parametrize("state", ["waiting", "held", "starting"])
def test_work_that_has_not_started_says_so_and_fails(stub: Stub, kaiwo: Type, state: str) -> None:
    for command in ([], ["python"]):
        silent(stub, "team/x", state, command=command)
        assert kaiwo("logs", "team/x") == (1, "", "team/x has not started; see: kaiwo why team/x\n")


def test_work_that_never_started_says_so(stub: Stub, kaiwo: Type) -> None:
    silent(stub, "x", "cancelled")
    assert kaiwo("logs", "x") == (1, "", "x has no output: it never started, and was cancelled\n")


def test_work_that_ran_without_a_word_is_no_failure(stub: Stub, kaiwo: Type) -> None:
    silent(stub, "x", "succeeded")
    assert kaiwo("logs", "x") == (0, "", "")


def test_following_waits_for_the_start_and_says_so(stub: Stub, kaiwo: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kaiwo.cli.verbs.workloads.logs.QUIET_S", 0)
    stub.workloads["default/x"] = workload("x", "waiting")
    said = "x has not started; waiting for it (Ctrl-C to stop; see why it waits: kaiwo why x)\n"
    assert kaiwo("logs", "-f", "x") == (0, "step 1\nstep 2\n", said)


def test_following_work_that_starts_at_once_says_nothing(stub: Stub, kaiwo: Type) -> None:
    stub.workloads["default/x"] = workload("x", "starting")
    threading.Timer(0.3, ends, (stub, "x", "running")).start()
    assert kaiwo("logs", "-f", "x") == (0, "step 1\nstep 2\n", "")


def test_following_names_each_attempt_but_not_a_single_one(stub: Stub, kaiwo: Type) -> None:
    stub.attempts, stub.logs = [2, 3], [b"same\n"]
    said = "--- attempt 2 of train ---\n--- attempt 3 of train ---\n"
    assert kaiwo("logs", "-f", "train") == (0, "same\nsame\n", said)
    assert [seen[2].get("attempt") for seen in stub.seen if seen[1].endswith("/logs")] == [["2"], ["3"]]


def test_a_server_that_dies_while_following_is_said(stub: Stub, kaiwo: Type) -> None:
    stub.cuts_log = True
    done = kaiwo("logs", "-f", "train")
    assert done.code == 1
    assert done.out == "step 1\nstep 2\n"
    assert "while following default/train; the workload may still be running: kaiwo logs -f train" in done.err


def test_a_reader_that_has_enough_is_no_failure(stub: Stub) -> None:
    stub.logs = [b"x" * 60_000 + b"\n"] * 50
    line = f"{KAIWO} logs train | head -c 10; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["x" * 10 + "0"]
    assert done.stderr == ""


def ends(stub: Stub, name: str, state: str, exit_code: int = 0, message: str = "") -> None:
    """From now on the workload is over."""
    view = workload(name, state)
    stub.workloads[view.name] = view
    stub.details[view.name] = detail(view, exit_code=exit_code, message=message)


@pytest.mark.parametrize(
    ("state", "exit_code", "code"),
    [("succeeded", 0, 0), ("failed", 7, 7), ("failed", -9, 137), ("failed", 0, 1), ("cancelled", 0, 1)],
)
def test_run_shows_the_output_and_ends_as_the_command_does(
    stub: Stub, kaiwo: Type, state: str, exit_code: int, code: int
) -> None:
    ends(stub, "x", state, exit_code, "it was too slow" if state != "succeeded" else "")
    done = kaiwo("run", "x", "--gpus", "1", "--", "python", "t.py")
    assert done.code == code
    assert done.out == "step 1\nstep 2\n"
    assert ("it was too slow" in done.err) == (state != "succeeded")


def test_run_says_why_it_waits_and_goes_on_when_it_runs(stub: Stub, kaiwo: Type) -> None:
    threading.Timer(1.2, ends, (stub, "x", "succeeded")).start()
    done = kaiwo("run", "x", "--gpus", "8", "--", "true")
    assert done.code == 0
    assert done.err.count("x waits: needs 4 free GPUs on one node, the best has 2") == 1


def test_run_with_several_pods_says_whose_output_it_shows(stub: Stub, kaiwo: Type) -> None:
    ends(stub, "x", "succeeded")
    view = msgspec.structs.replace(stub.workloads["default/x"], pods=Usage(3, 0))
    stub.workloads["default/x"], stub.details["default/x"] = view, detail(view, exit_code=0)
    done = kaiwo("run", "x", "--pods", "3", "--", "true")
    said = "this is the output of main-0, the first of 3 pods; for another pod: kaiwo logs x --pod main-1\n"
    assert done == (0, "step 1\nstep 2\n", said)


def test_run_passes_on_a_refusal(stub: Stub, kaiwo: Type) -> None:
    stub.answers["POST /workloads"] = (409, problem_body("refused", "queue 'lab' takes no work"))
    assert kaiwo("run", "--", "true").code == 3


@pytest.mark.parametrize(("number", "said"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_ctrl_c_cancels_the_work_and_says_so(stub: Stub, number: signal.Signals, said: str) -> None:
    process = subprocess.Popen([KAIWO, "run", "x", "--", "true"], stderr=subprocess.PIPE, text=True)
    wait_for_request(stub, "/workloads/default/x")
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert f"kaiwo: {said}: cancelled default/x" in err
    assert "Traceback" not in err
    assert process.returncode == 128 + number
    assert "DELETE /workloads/default/x" in stub.written()


class SignalledWhenCollected(io.RawIOBase):
    def close(self) -> None:
        if not self.closed:
            signal.raise_signal(signal.SIGINT)
        super().close()


def test_a_ctrl_c_that_python_drops_is_noticed_at_the_next_pause() -> None:
    signals = StopSignals()
    try:
        signals.check()
        for _ in [SignalledWhenCollected()]:  # the exception of the handler ends with the object
            pass
        del _
        assert signals.number == signal.SIGINT
        with pytest.raises(StoppedBySignal) as stopped:
            signals.check()
        assert stopped.value.number == signal.SIGINT
    finally:
        signals.restore()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nohup_is_respected(stub: Stub) -> None:
    process = subprocess.Popen(
        [KAIWO, "run", "x", "--", "true"],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    wait_for_request(stub, "/workloads/default/x")
    process.send_signal(signal.SIGHUP)
    ends(stub, "x", "succeeded")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert stub.written() == ["POST /workloads"]


def test_a_wait_survives_a_restart_of_the_server(stub: Stub, home: Path) -> None:
    process = subprocess.Popen([KAIWO, "wait", "eval"], stdout=subprocess.PIPE, text=True)
    wait_for_request(stub, "/workloads/default/eval", 2)
    after = Stub()
    stub.close()
    time.sleep(0.3)
    after.workloads["default/eval"] = msgspec.structs.replace(
        after.workloads["default/eval"], state=WorkloadState.SUCCEEDED
    )
    (home / "server.json").write_text(f'{{"url": "{after.url}", "pid": {os.getpid()}}}')
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "eval succeeded\n")


def wait_for_request(stub: Stub, path: str, count: int = 1) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while sum(seen[1] == path for seen in list(stub.seen)) < count:
        assert time.monotonic() < deadline, "the command never asked"
        time.sleep(0.01)
