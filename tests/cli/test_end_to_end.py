"""A user at a terminal: every verb against a real `kaiwo up`, checked by what it says and how it exits."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Typed
from tests.waiting import PATIENCE_S, is_in_time

KAIWO = Path(sys.executable).with_name("kaiwo")
pytestmark = pytest.mark.slow

QUEUES = """
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoQueue
metadata: {name: lab}
spec: {displayName: The lab, resources: {gpu: {quota: 4, limit: 4}}}
---
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoQueue
metadata: {name: vision}
spec: {parentQueue: lab, resources: {gpu: {quota: 2}}}
"""


class Product:
    """A running Kaiwo with two nodes of eight GPUs, and a shell in front of it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {**os.environ, "KAIWO_HOME": str(home), "NO_COLOR": "1"}
        for name in ("KAIWO_SERVER", "KAIWO_TOKEN"):
            self.env.pop(name, None)
        self.start()

    def start(self) -> None:
        self.up = subprocess.Popen(
            [KAIWO, "up", "--port", "0", "--nodes", "2"], env=self.env, stdout=subprocess.PIPE, text=True
        )
        assert self.up.stdout is not None
        line = self.up.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line
        self.url = found[0]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.up.send_signal(number)
        self.up.communicate(timeout=PATIENCE_S)
        return self.up.returncode

    def __call__(self, *args: str, given: str = "", cwd: Path | None = None) -> Typed:
        """Type one command line. Nothing may ever show a traceback."""
        done = subprocess.run(
            [KAIWO, *args],
            env=self.env,
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd=cwd,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Typed(done.returncode, done.stdout, done.stderr)

    def begin(self, *args: str) -> "subprocess.Popen[str]":
        return subprocess.Popen([KAIWO, *args], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def api(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {(self.home / 'token').read_text().strip()}"}
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/api/v1{path}", headers=headers)) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def kaiwo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    product = Product(tmp_path_factory.mktemp("home"))
    yield product
    product("cancel", "-q", "default")
    if product.up.poll() is None:
        product.stop()


def test_the_first_look(kaiwo: Product) -> None:
    assert kaiwo("status").out.startswith("cluster     local, virtual nodes")
    assert kaiwo("version").lines()[1].endswith(kaiwo.url)
    doctor = kaiwo("doctor")
    assert doctor.code == 0, doctor.out
    assert "kaiwo schedules 16 virtual GPUs" in doctor.out
    assert kaiwo("nodes", "-o", "name").lines() == ["node-1", "node-2"]
    assert len(kaiwo("gpus", "-o", "name").lines()) == 16
    assert kaiwo("queue", "-o", "name").lines() == ["default"]


def test_a_browser_is_let_in_once_and_out_again(kaiwo: Product) -> None:
    def send(method: str, path: str, body: bytes | None = None, token: str = "") -> tuple[int, Any]:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"{kaiwo.url}/api/v1{path}", body, headers, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)

    address = kaiwo("login").out.strip()
    with urllib.request.urlopen(address) as answer:
        assert b"<!doctype html>" in answer.read().lower()
    code = json.dumps({"code": address.rpartition("=")[2]}).encode()
    status, session = send("POST", "/sessions", code)
    assert status == 201
    assert send("GET", "/status", token=session["token"])[0] == 200
    status, refused = send("POST", "/sessions", code)
    assert (status, "`kaiwo login` prints a new one" in refused["message"]) == (403, True)
    assert kaiwo("logout").out == "1 browser logged out\n"
    assert send("GET", "/status", token=session["token"])[0] == 401


def test_a_second_up_in_the_same_home_is_refused(kaiwo: Product) -> None:
    done = kaiwo("up", "--port", "0")
    assert done.code == 1
    assert str(kaiwo.home) in done.err


def test_work_that_waits_is_explained_and_the_advice_is_good(kaiwo: Product) -> None:
    assert kaiwo("submit", "hog", "--pods", "2", "--gpus", "8", "--simulate", "1h").code == 0
    assert kaiwo("wait", "hog", "--for", "running", "--timeout", "20").lines() == ["hog is running"]
    assert kaiwo("submit", "next", "--gpus", "2", "--", "sh", "-c", "echo on $KAIWO_GPUS").code == 0
    assert "next" in kaiwo("get", "workloads", "--state", "waiting").out

    why = kaiwo("why", "next")
    assert why.code == 0
    assert why.lines()[0].startswith("next is waiting: ")
    assert "have 0" not in why.out  # the sentence has the numbers
    assert "stop hog" in why.lines()[-2]
    proposed = why.lines()[-1].split()
    assert proposed == ["kaiwo", "cancel", "hog"]

    assert kaiwo("hold", "next").out == "workload default/next held\n"
    assert "held" in kaiwo("why", "next").out
    assert kaiwo(*proposed[1:]).code == 0
    assert kaiwo("get", "w", "next", "--no-headers").out.split()[2] == "held"
    assert kaiwo("release", "next").out == "workload default/next released\n"
    assert kaiwo("wait", "next", "--timeout", "20").lines() == ["next succeeded"]
    assert re.fullmatch(r"on gpu-\d,gpu-\d\n", kaiwo("logs", "next").out)
    assert kaiwo("wait", "hog", "--for", "over").code == 0


def test_a_log_is_followed_while_it_grows(kaiwo: Product) -> None:
    kaiwo("submit", "talk", "--", "sh", "-c", "for i in 1 2 3; do echo line $i; sleep 0.7; done")
    follower = kaiwo.begin("logs", "-f", "talk")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "line 1\n"
    assert kaiwo.api("/workloads/default/talk")["summary"]["state"] == "running"
    rest, _ = follower.communicate(timeout=PATIENCE_S)
    assert (rest, follower.returncode) == ("line 2\nline 3\n", 0)
    assert kaiwo("logs", "talk", "--tail", "1").out == "line 3\n"


def test_run_is_like_running_it_here(kaiwo: Product, tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text("import os, sys\nprint(os.environ['COLOUR'], os.getcwd())\nsys.exit(7)\n")
    done = kaiwo("run", "--fraction", "0.5", "-e", "COLOUR=red", "--", sys.executable, "check.py", cwd=tmp_path)
    assert done.out == f"red {tmp_path}\n"
    assert done.code == 7
    assert "exit code 7" in done.err
    assert kaiwo("run", "--", "sh", "-c", "kill -9 $$").code == 137
    assert kaiwo("run", "--time", "1s", "--", "sleep", "60").code != 0


def test_ctrl_c_cancels_what_runs_in_the_foreground(kaiwo: Product) -> None:
    process = kaiwo.begin("run", "fore", "--", "sh", "-c", "echo begun; sleep 60")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "Ctrl-C: cancelled default/fore" in err
    assert kaiwo("wait", "fore", "--for", "over", "--timeout", "20").out.startswith("fore was cancelled")


def test_an_array_goes_by_its_base_name(kaiwo: Product) -> None:
    done = kaiwo("submit", "sweep", "--array", "0-2", "-o", "name", "--", "sh", "-c", "echo $KAIWO_ARRAY_INDEX")
    assert done.lines() == ["default/sweep-0", "default/sweep-1", "default/sweep-2"]
    assert kaiwo("wait", "sweep", "--timeout", "30").code == 0
    assert kaiwo("logs", "sweep-2").out == "2\n"
    kaiwo("submit", "many", "--array", "1,5", "--simulate", "1h")
    assert kaiwo("cancel", "many").out == "array default/many: 2 tasks cancelled\n"


def test_work_waits_for_other_work(kaiwo: Product) -> None:
    kaiwo("submit", "first", "--hold", "--", "true")
    kaiwo("submit", "second", "--after", "first", "--", "true")
    assert "default/first" in kaiwo("why", "second").out
    assert kaiwo("release", "first").code == 0
    assert kaiwo("wait", "first", "second", "--timeout", "20").code == 0


def test_failed_work_is_tried_again(kaiwo: Product, tmp_path: Path) -> None:
    script = "echo x >> tries; test $(wc -l < tries) -ge 2 || exit 3"
    done = kaiwo("submit", "flaky", "--retries", "2", "--wait", "--", "sh", "-c", script, cwd=tmp_path)
    assert done.code == 0, done.out
    assert (tmp_path / "tries").read_text() == "x\nx\n"
    kaiwo("submit", "bad", "--wait", "--", "sh", "-c", "exit 4")
    assert "exit code 4" in kaiwo("describe", "bad").out
    assert kaiwo("requeue", "bad").code == 0
    assert kaiwo("wait", "bad", "--timeout", "20").code == 1


def test_a_job_says_itself_that_it_has_saved_its_work(kaiwo: Product) -> None:
    """It finds the Kaiwo that runs it, whatever home the person's own shell names."""
    flags = ("--restart-cost", "5m", "--preemption-delay", "10m", "--env", "KAIWO_HOME=/nowhere")
    assert kaiwo("submit", "saver", *flags, "--", "sh", "-c", f"{KAIWO} checkpoint 2>&1").code == 0
    assert kaiwo("wait", "saver", "--timeout", "20").lines() == ["saver succeeded"], kaiwo("logs", "saver").out
    assert kaiwo("logs", "saver").out.startswith("workload default/saver last saved its work at 20")
    said = kaiwo("describe", "saver").out
    assert re.search(r"preemption delay: +waits 10 min before it may preempt others\n", said)
    assert re.search(r"last checkpoint: +\d+ s ago\n", said)
    assert re.search(r"restart cost: +5 min\n", said)
    assert kaiwo("submit", "bad", "--restart-cost", "soon", "--", "true").err.startswith(
        "kaiwo: workload 'bad': --restart-cost is \"soon\", which is not a duration; write it as"
    )
    refused = kaiwo("checkpoint", "saver")
    assert (refused.code, "has ended" in refused.err) == (3, True)


def test_nodes_are_taken_out_and_come_back(kaiwo: Product) -> None:
    kaiwo("submit", "mover", "--gpus", "8", "--simulate", "1h", "--label", "team=move")
    assert kaiwo("wait", "mover", "--for", "running", "--timeout", "20").code == 0
    (place,) = kaiwo.api("/workloads/default/mover")["summary"]["nodes"]
    other = "node-2" if place == "node-1" else "node-1"
    assert kaiwo("nodes", "cordon", other, "--reason", "new fan").code == 0
    assert "new fan" in kaiwo("nodes", "--state", "cordoned").out
    drained = kaiwo("nodes", "drain", place)
    assert "workload default/mover waits again" in drained.out
    assert "cordoned" in kaiwo("why", "mover").out
    assert kaiwo("nodes", "uncordon", other, place).code == 0
    assert kaiwo("wait", "mover", "--for", "running", "--timeout", "20").code == 0
    assert kaiwo("cancel", "-l", "team=move").out == "workload default/mover cancelled\n"


def test_queues_come_from_yaml_and_say_no(kaiwo: Product, tmp_path: Path) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text(QUEUES)
    assert kaiwo("apply", "-f", str(path), "--dry-run").code == 0
    assert kaiwo("queue", "-o", "name").lines() == ["default"]
    assert kaiwo("apply", "-f", "-", given=QUEUES).code == 0
    assert kaiwo("queue", "-o", "name").lines() == ["default", "lab", "vision"]
    assert "takes workloads:  no" in kaiwo("queue", "lab").out
    refused = kaiwo("submit", "x", "--queue", "lab", "--simulate", "1m")
    assert refused.code == 3
    assert "vision" in refused.err
    assert kaiwo("submit", "v", "--queue", "vision", "--gpus", "6", "--simulate", "1h").code == 0
    assert "queue 'lab'" in kaiwo("why", "v").lines()[0]
    assert kaiwo("delete", "-f", str(path)).code == 3  # v still names it
    assert kaiwo("cancel", "v").code == 0
    assert kaiwo("delete", "-f", str(path)).code == 0
    assert kaiwo("queue", "-o", "name").lines() == ["default"]


@pytest.mark.parametrize(
    ("args", "given"),
    [
        (["submit", "--fraction", "1.5", "--", "true"], ""),
        (["submit", "--fraction", "1.5"], ""),
        (["submit", "--gpus", "500", "--", "true"], ""),
        (["submit", "--gpus", "1"], ""),
        (["submit", "--gpus", "-1", "--", "true"], ""),
        (["submit", "--memory", "lots", "--", "true"], ""),
        (["submit", "--name", "Not A Name", "--", "true"], ""),
        (["submit", "--time", "soon", "--", "true"], ""),
        (["apply", "-f", "-"], "kind: [\n"),
        (["apply", "-f", "-"], "kind: Unheard\napiVersion: v1\n"),
        (["submit", "-f", "-"], "name: x\ngpuz: 2\n"),
        (["submit", "-f", "-"], "\x00" * 1000),
    ],
)
def test_bad_input_changes_nothing(kaiwo: Product, args: list[str], given: str) -> None:
    before = kaiwo.api("/workloads?limit=1")["total"]
    done = kaiwo(*args, given=given)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    if args[1].startswith("--") and args[1] != "--name":
        assert args[1] in done.err or "nothing to run" in done.err
    assert kaiwo.api("/workloads?limit=1")["total"] == before


def test_a_queue_that_is_not_there_is_a_refusal_that_says_where_to_look(kaiwo: Product) -> None:
    done = kaiwo("submit", "z", "--queue", "nope", "--gpus", "1", "--", "true")
    assert done.code == 3
    assert done.err.startswith("kaiwo: queue nope does not exist; there are: default")
    assert done.err.endswith("see the queues with: kaiwo queue\n")


def test_what_is_mine_is_found_as_mine(kaiwo: Product) -> None:
    kaiwo("submit", "mine", "--simulate", "1s")
    kaiwo("submit", "theirs", "--user", "ada", "--simulate", "1s")
    assert "default/mine" in kaiwo("get", "w", "-u", "me", "-o", "name").lines()
    assert kaiwo("get", "w", "-u", "ada", "-o", "name").lines() == ["default/theirs"]


def test_work_without_output_says_why(kaiwo: Product) -> None:
    kaiwo("submit", "pretend", "--simulate", "1h")
    assert kaiwo("wait", "pretend", "--for", "running", "--timeout", "20").code == 0
    for args in ([], ["-f"]):
        assert kaiwo("logs", "pretend", *args) == (0, "", "pretend has no output: it runs in simulated time\n")
    assert kaiwo("wait", "pretend", "--timeout", "0").err.endswith(
        "pretend is still running; see: kaiwo logs -f pretend\n"
    )
    kaiwo("submit", "later", "--hold", "--", "echo", "now")
    assert kaiwo("logs", "later") == (1, "", "later has not started; see: kaiwo why later\n")
    follower = kaiwo.begin("logs", "-f", "later")
    assert follower.stderr is not None
    assert follower.stderr.readline().startswith("later has not started; waiting for it")
    kaiwo("release", "later")
    assert follower.communicate(timeout=PATIENCE_S) == ("now\n", "")
    kaiwo("cancel", "pretend")


def test_many_documents_are_submitted_together(kaiwo: Product) -> None:
    done = kaiwo("submit", "-f", "-", "--wait", given="name: m1\ncommand: ['true']\n---\nname: m2\ncommand: ['true']\n")
    assert done.code == 0
    assert "m1 succeeded" in done.out
    assert kaiwo("submit", "-f", "-", given="name: m3\nsimulate: 1s\n---\nname: m4\ngpus: many\n").code == 2
    assert kaiwo("get", "w", "m3").code == 1


def test_json_is_the_apis_own(kaiwo: Product) -> None:
    assert kaiwo("get", "nodes", "-o", "json").json == kaiwo.api("/nodes?limit=500")
    assert kaiwo("describe", "m1", "-o", "json").json == kaiwo.api("/workloads/default/m1")
    assert kaiwo("get", "queues", "-o", "json").json == kaiwo.api("/queues")
    listed = kaiwo("get", "workloads", "-o", "json", "--sort-by", "name", "--limit", "3").json["items"]
    assert listed == kaiwo.api("/workloads?sort=name&limit=3")["items"]


def test_a_change_is_seen_by_who_watches(kaiwo: Product) -> None:
    watcher = kaiwo.begin("get", "workloads", "-w", "-o", "name", "-l", "seen=yes")
    assert watcher.stdout is not None
    time.sleep(0.5)
    kaiwo("submit", "seen-one", "-l", "seen=yes", "--simulate", "1s")
    assert watcher.stdout.readline() == "default/seen-one\n"
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=PATIENCE_S)
    assert watcher.returncode == 0


def test_every_cycle_decides_the_same_again(kaiwo: Product) -> None:
    cycles = kaiwo("get", "cycles", "-o", "name", "--limit", "0").lines()
    assert len(cycles) > 5
    for number in (cycles[-1], cycles[len(cycles) // 2], cycles[1]):
        done = kaiwo("replay", number)
        assert done.code == 0, done.out + done.err
        assert "the same plan, byte for byte" in done.lines()[0]
    assert kaiwo("replay", "99999999").code == 1


def test_the_demo_can_be_cleared(kaiwo: Product) -> None:
    kaiwo("submit", "sample", "-l", "kaiwo.ai/demo=true", "--simulate", "1h")
    assert kaiwo("demo", "clear").out == "workload default/sample deleted\n"
    assert kaiwo("get", "w", "--state", "living", "-l", "kaiwo.ai/demo=true", "-o", "name").out == ""


def test_a_server_that_is_killed_is_found_again_with_its_work(kaiwo: Product, tmp_path: Path) -> None:
    script = "echo alive; until test -e go; do sleep 0.1; done; echo done"
    kaiwo("submit", "tough", "--gpus", "1", "--", "sh", "-c", script, cwd=tmp_path)
    waiter = kaiwo.begin("wait", "tough")
    follower = kaiwo.begin("logs", "-f", "tough")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "alive\n"
    assert kaiwo("describe", "tough").code == 0  # by now the waiter waits
    kaiwo.stop(signal.SIGKILL)
    _, err = follower.communicate(timeout=PATIENCE_S)
    assert follower.returncode == 1
    assert "lost the connection to" in err
    assert kaiwo("status").code == 1
    kaiwo.start()
    (tmp_path / "go").touch()
    assert waiter.communicate(timeout=PATIENCE_S) == ("tough succeeded\n", "")
    assert waiter.returncode == 0
    assert kaiwo("logs", "tough").out == "alive\ndone\n"


def test_a_stopped_server_leaves_no_trace_of_itself(kaiwo: Product) -> None:
    assert kaiwo.stop(signal.SIGINT) == 0
    done = kaiwo("status")
    assert done.code == 1
    assert done.err == f"kaiwo: no kaiwo is running (looked in {kaiwo.home}/server.json); start one with: kaiwo up\n"
    assert kaiwo("doctor").code == 0
    kaiwo.start()


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("gpus --node nod-1", "there is no node 'nod-1'; did you mean 'node-1'?"),
        ("describe gpu nod-1/gpu-0", "there is no node 'nod-1'; did you mean 'node-1'?"),
        ("nodes cordon nod-1", "there is no node 'nod-1'; did you mean 'node-1'?"),
        ("queue -q defalt", "there is no queue 'defalt'; did you mean 'default'?"),
        ("get queues -q defalt", "there is no queue 'defalt'; did you mean 'default'?"),
        ("get workloads -q defalt", "there is no queue 'defalt'; did you mean 'default'?"),
    ],
)
def test_a_name_that_does_not_exist_is_an_error_with_the_nearest_one(kaiwo: Product, line: str, hint: str) -> None:
    done = kaiwo(*line.split())
    assert (done.code, done.out) == (1, "")
    assert hint in done.err


def test_a_list_that_is_empty_is_no_error(kaiwo: Product) -> None:
    for line in ("gpus --node node-1 --model H100", "get workloads -q default -l no=such"):
        assert kaiwo(*line.split()).code == 0


@pytest.mark.serial
def test_an_array_of_ten_thousand_is_one_thing(kaiwo: Product) -> None:
    """Submit, list and cancel within a second each, and ten lines of output together."""
    lines = 0
    for line in (
        "submit huge --array 0-9999 --gpus 1 --simulate 1h -q default",
        "get workloads --limit 5",
        "cancel huge",
    ):
        began_s = time.monotonic()
        done = kaiwo(*line.split())
        took_s = time.monotonic() - began_s
        assert done.code == 0, done
        assert is_in_time(took_s, 1.0), f"{line} took {took_s:.2f} s"
        lines += len(done.lines()) + len(done.err.splitlines())
        assert "huge" in done.out
    assert lines <= 10
