"""`submit` and `apply`: flags become the form, files travel untouched, and the answer gives the exit code."""

import io
import os
import re
from pathlib import Path

import msgspec
import pytest

from kaiwo.api.views.answers import Outcome, Problem
from kaiwo.api.views.workloads import ArrayView
from kaiwo.cli.name_completion import current_user
from kaiwo.cli.workload_options import make_name
from tests.cli.conftest import Type
from tests.cli.stub_server import Stub, problem_body, workload


def test_every_flag_reaches_the_form(stub: Stub, kaiwo: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf-secret")
    done = kaiwo(
        "submit", "team/train", "--gpus", "4", "--fraction", "0.5", "--gpu-memory", "24Gi", "--devices", "2",
        "--partition", "CPX", "--shared",
        "--model", "MI300X", "--model", "H200", "--cpu", "4", "--memory", "16Gi", "--pods", "8", "--min-pods", "4",
        "--queue", "lab", "--priority", "7", "--type", "training", "--time", "2h30m", "--estimate", "2h",
        "--preemption-delay", "10m", "--restart-cost", "5m",
        "--retries", "3", "--array", "0-9", "--after", "prepare,team/other", "--after", "third", "--hold",
        "--label", "team=vision", "--env", "A=b=c", "--env", "HF_TOKEN", "--image", "img:1", "--simulate", "10m",
        "--workdir", "/data", "--node-selector", "pool=a", "--no-preempt", "--user", "ada",
        "--", "python", "-u", "t.py",
    )  # fmt: skip
    assert done == (0, "workload team/train submitted\n", "")
    assert stub.last_form() == {
        "name": "train", "namespace": "team", "gpus": 4, "gpuFraction": "0.5", "gpuMemory": 24576, "gpuDevices": 2,
        "gpuPartition": "CPX", "gpuSharing": True,
        "gpuModels": ["MI300X", "H200"], "cpu": "4", "memory": "16Gi", "pods": 8, "minPods": 4, "queue": "lab",
        "priority": 7, "type": "training", "time": "2h30m", "estimate": "2h", "retries": 3, "array": "0-9",
        "preemptionDelay": "10m", "restartCost": "5m",
        "after": ["default/prepare", "team/other", "default/third"], "hold": True, "labels": {"team": "vision"},
        "env": {"A": "b=c", "HF_TOKEN": "hf-secret"}, "image": "img:1", "simulate": "10m", "workdir": "/data",
        "nodeSelector": {"pool": "a"}, "preemptible": False, "user": "ada", "command": ["python", "-u", "t.py"],
    }  # fmt: skip


def test_what_was_not_said_is_not_sent(stub: Stub, kaiwo: Type) -> None:
    kaiwo("submit", "--name", "x", "--gpus", "0", "--", "true")
    form = stub.last_form()
    assert form.pop("user")
    assert form == {"name": "x", "gpus": 0, "command": ["true"], "workdir": os.getcwd()}


@pytest.mark.parametrize(
    ("command", "stem"),
    [
        (["python", "train.py"], "train"),
        (["python3.11", "-u", "/a/b/My_Train.py", "--lr", "1"], "my-train"),
        (["/usr/bin/env", "A=1", "bash", "run.sh"], "run"),
        (["./sweep"], "sweep"),
        (["python"], "python"),
        (["sh", "-c", "echo a; exit 3"], "sh"),
        (["bash", "-lc", "x"], "bash"),
        (["python3", "-m", "my.train", "--x"], "my-train"),
        (["数据"], "work"),
        ([], "work"),
    ],
)
def test_a_name_is_made_from_the_command(command: list[str], stem: str) -> None:
    assert re.fullmatch(rf"{stem}-[a-z0-9]{{5}}", make_name(command))


def test_two_made_names_differ() -> None:
    assert make_name(["a"]) != make_name(["a"])


def test_a_dry_run_changes_nothing(stub: Stub, kaiwo: Type) -> None:
    done = kaiwo("submit", "x", "--dry-run", "--", "true")
    assert done.out == "workload default/x would be submitted\n"
    assert stub.seen[-1][2] == {"dry_run": ["true"]}


def test_the_name_alone_can_be_printed(stub: Stub, kaiwo: Type) -> None:
    assert kaiwo("submit", "x", "-o", "name", "--", "true").out == "default/x\n"
    assert kaiwo("submit", "x", "-o", "json", "--", "true").json["names"] == ["default/x"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["submit"], "nothing to run; give a command after --"),
        (["submit", "x", "--gpus", "1"], "nothing to run"),
        (["submit", "--gpus", "1", "python", "t.py"], "after --, like: kaiwo submit --gpus 1 -- python t.py"),
        (["submit", "python", "t.py", "--lr", "1"], "unknown option '--lr'"),
        (["submit", "--gps", "1", "--", "true"], "unknown option '--gps' (did you mean"),
        (["submit", "--gpus", "many", "--", "true"], "'many' is not a whole number"),
        (["submit", "--type", "fun", "--", "true"], "'fun' is not one of"),
        (["submit", "a", "--name", "b", "--", "true"], "give one name"),
        (["submit", "--gpu-memory", "lots", "--", "true"], "--gpu-memory 'lots' is not an amount"),
        (["submit", "--label", "x", "--", "true"], "'x' is not a label"),
        (["submit", "--env", "NOT_THERE_7", "--", "true"], "no such variable in your environment"),
        (["submit", "-f", "/no/such.yaml"], "cannot read /no/such.yaml (No such file or directory)"),
        (["submit", "-f", "-", "--gpus", "2"], "with -f everything comes from the files; leave out --gpus"),
        (["submit", "-f", "-", "--", "true"], "leave out the command after --"),
        (["apply"], "missing option '-f' / '--file'"),
        (["run", "--gpus", "1"], "no command to run"),
    ],
)
def test_bad_input_is_said_in_one_sentence_and_changes_nothing(
    stub: Stub, kaiwo: Type, args: list[str], said: str
) -> None:
    done = kaiwo(*args)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    assert stub.written() == []


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [("invalid", 400, 2), ("refused", 409, 3), ("not-found", 404, 1), ("broken", 503, 1), ("forbidden", 403, 1)],
)
def test_the_servers_no_gives_the_exit_code(stub: Stub, kaiwo: Type, kind: str, status: int, code: int) -> None:
    stub.answers["POST /workloads"] = (status, problem_body(kind, "queue 'lab' does not want it; ask somebody"))
    done = kaiwo("submit", "x", "--", "true")
    assert done == (code, "", "kaiwo: queue 'lab' does not want it; ask somebody\n")


def test_a_complaint_about_a_field_names_the_flag(stub: Stub, kaiwo: Type) -> None:
    said = 'gpuFraction is "1.5"; for half write gpuFraction: "0.5", or use gpuMemory'
    stub.answers["POST /workloads"] = (400, problem_body("invalid", said))
    err = kaiwo("submit", "x", "--fraction", "1.5", "--", "true").err
    assert err == 'kaiwo: --fraction is "1.5"; for half write --fraction 0.5, or use --gpu-memory\n'


def test_a_plain_field_is_named_by_its_flag_too(stub: Stub, kaiwo: Type) -> None:
    said = "workload 'x': gpus asks for 500 whole GPUs, and some gpus are not whole; one pod gets at most 64"
    stub.answers["POST /workloads"] = (400, msgspec.json.encode(Problem("invalid", said, "gpus")))
    done = kaiwo("submit", "x", "--gpus", "500", "--", "true")
    assert done == (2, "", f"kaiwo: {said.replace(': gpus', ': --gpus')}\n")


@pytest.mark.parametrize("verb", ["submit", "run"])
def test_a_part_of_a_gpu_is_shown_its_flag(kaiwo: Type, verb: str) -> None:
    done = kaiwo(verb, "x", "--gpus", "0.5", "--", "true")
    assert done.code == 2
    assert "'0.5' is not a whole number; for a fraction of a GPU use --fraction 0.5" in done.err


def test_a_warning_about_a_field_names_the_flag(stub: Stub, kaiwo: Type) -> None:
    outcome = Outcome(["workload default/x submitted"], ["workload 'x': gpuModels names \"MI9\""], ["default/x"])
    stub.answers["POST /workloads"] = (201, msgspec.json.encode(outcome))
    err = kaiwo("submit", "x", "--model", "MI9", "--", "true").err
    assert err == "warning: workload 'x': --model names \"MI9\"\n"


def test_waiting_for_nobody_is_a_slip(stub: Stub, kaiwo: Type) -> None:
    done = kaiwo("submit", "x", "--after", "a,,b", "--", "true")
    assert (done.code, done.err) == (2, "kaiwo: '' is not a workload name; write it like train or team/train\n")


@pytest.mark.parametrize("verb", ["submit", "run"])
def test_an_impossible_size_is_said_before_the_missing_command(stub: Stub, kaiwo: Type, verb: str) -> None:
    stub.answers["POST /workloads"] = (400, problem_body("invalid", 'gpuFraction is "1.5"; write at most 1'))
    done = kaiwo(verb, "x", "--fraction", "1.5")
    assert done == (2, "", 'kaiwo: --fraction is "1.5"; write at most 1\n')
    assert stub.seen[-1][2] == {"dry_run": ["true"]}


@pytest.mark.parametrize("verb", ["submit", "run"])
def test_a_missing_command_is_said_without_a_server_or_a_token(kaiwo: Type, verb: str) -> None:
    done = kaiwo(verb, "x", "--gpus", "1")
    assert done.code == 2
    assert "to run; give" in done.err


def test_a_queue_that_says_no_is_told_with_the_way_to_see_the_queues(stub: Stub, kaiwo: Type) -> None:
    stub.answers["POST /workloads"] = (
        409,
        problem_body("refused", "queue nope does not exist; there are: default", "queue"),
    )
    done = kaiwo("submit", "z", "--queue", "nope", "--gpus", "1", "--", "true")
    said = "kaiwo: queue nope does not exist; there are: default; see the queues with: kaiwo queue\n"
    assert done == (3, "", said)


@pytest.mark.parametrize("verb", ["apply", "delete"])
def test_the_help_names_the_kinds_that_are_taken_and_no_others(kaiwo: Type, verb: str) -> None:
    text = " ".join(kaiwo(verb, "--help").out.split())
    kinds = "queues (KaiwoQueue), reservations (KaiwoReservation), partition modes (PartitioningPlan) and workloads:"
    assert f"{kinds} KaiwoJob, Job, Pod, or the short form" in text
    assert "node" not in text.lower()


def test_my_own_work_is_submitted_and_found_under_one_name(stub: Stub, kaiwo: Type) -> None:
    names = []
    for args in ([], ["--user", "me"]):
        kaiwo("submit", "x", *args, "--", "true")
        names.append(stub.last_form()["user"])
    kaiwo("get", "workloads", "-u", "me")
    names += next(query["user"] for _, path, query, *_ in reversed(stub.seen) if path == "/workloads")
    assert names == [current_user()] * 3
    assert "for your own" in kaiwo("get", "--help").out


def test_files_are_sent_as_they_are(stub: Stub, kaiwo: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_bytes(b"name: a\n---\nname: b\n")
    two.write_bytes("name: é\n".encode())
    done = kaiwo("apply", "-f", str(one), "-f", str(two), "--dry-run")
    assert done == (0, "queue lab applied\n", "warning: kaiwo.silogen.ai is an old name\n")
    method, path, query, body, headers = stub.seen[-1]
    assert (method, path, query) == ("POST", "/manifests", {"dry_run": ["true"]})
    assert body == one.read_bytes() + b"\n---\n" + two.read_bytes()
    assert headers["Content-Type"] == "application/yaml"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"name: c\n")))
    assert kaiwo("delete", "-f", "-").out == "queue lab deleted\n"
    assert stub.seen[-1][1] == "/manifests/delete"
    assert stub.seen[-1][3] == b"name: c\n"


def test_an_empty_file_is_said(stub: Stub, kaiwo: Type, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text(" \n")
    done = kaiwo("apply", "-f", str(tmp_path / "empty.yaml"))
    assert done.code == 2
    assert "is empty" in done.err


@pytest.mark.parametrize(("state", "code", "said"), [("succeeded", 0, "x succeeded"), ("failed", 1, "x failed: exit")])
def test_submit_can_wait_for_the_end(stub: Stub, kaiwo: Type, state: str, code: int, said: str) -> None:
    stub.workloads["default/x"] = workload("x", state)
    done = kaiwo("submit", "x", "--wait", "--", "true")
    assert done.code == code
    assert said in done.out


def test_writes_carry_the_token(stub: Stub, kaiwo: Type, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kaiwo("cancel", "train").code == 0
    (home / "token").write_text("wrong")
    way_out = f"give the home folder of the kaiwo at {stub.url} with --home, or set KAIWO_TOKEN"
    said = f"kaiwo: the token from {home}/token is wrong; {way_out}\n"
    assert kaiwo("cancel", "train") == (1, "", said)
    (home / "token").unlink()
    assert kaiwo("cancel", "train") == (1, "", f"kaiwo: this needs a token; {way_out}\n")
    monkeypatch.setenv("KAIWO_TOKEN", "wrong too")
    said = f"the token in KAIWO_TOKEN is wrong; set it to the token of the kaiwo at {stub.url}, or unset it"
    assert kaiwo("cancel", "train") == (1, "", f"kaiwo: {said}\n")


def test_the_token_of_this_machine_is_not_sent_elsewhere(stub: Stub, home: Path) -> None:
    from kaiwo.cli.client.find_server import ServerLocation, connect

    assert connect(ServerLocation("http://127.0.0.1:1", str(home))).token
    assert connect(ServerLocation("http://gpu.example.org:7600", str(home))).token == ""
    (home / "server.json").write_text('{"url": "http://gpu.example.org:7600", "pid": 1}')
    assert connect(ServerLocation("", str(home))).token


def test_steering_one_or_many(stub: Stub, kaiwo: Type) -> None:
    assert kaiwo("hold", "eval").out == "workload default/eval hold\n"
    assert kaiwo("release", "eval").code == 0
    assert kaiwo("requeue", "team/x", "train").code == 1  # team/x is not there, train is requeued all the same
    assert stub.written() == ["POST /workloads/hold", "POST /workloads/release", "POST /workloads/requeue"]
    assert stub.steered == ["hold default/eval", "release default/eval", "requeue team/x", "requeue default/train"]


def test_thousands_are_cancelled_with_few_requests(stub: Stub, kaiwo: Type) -> None:
    names = [f"sweep-{index}" for index in range(2500)]
    stub.workloads = {f"default/{name}": workload(name, "waiting", labels=member(name)) for name in names}
    done = kaiwo("cancel", "sweep-*")
    assert done.lines() == ["array default/sweep: 2500 tasks cancel"]
    assert stub.written() == ["POST /workloads/cancel"]
    stub.seen.clear()
    assert kaiwo("cancel", "sweep-?*").lines() == ["array default/sweep[0-2499]: 2500 tasks cancel"]
    assert stub.written() == ["POST /workloads/cancel"] * 2, "one for the array that it could be, then one for all"


def test_a_server_with_too_much_to_do_is_asked_again(stub: Stub, kaiwo: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    busy = 429, problem_body("broken", "too many changes at once"), {"Retry-After": "7"}
    stub.answers["POST /workloads/cancel"] = busy

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            stub.answers.clear()

    monkeypatch.setattr("kaiwo.cli.client.api_client.time.sleep", pause)
    assert kaiwo("cancel", "train") == (0, "workload default/train cancel\n", "")
    assert pauses == [7.0, 7.0]
    monkeypatch.setattr("kaiwo.cli.client.api_client.MAX_RETRY_S", 5.0)
    stub.answers["POST /workloads/cancel"] = busy
    assert kaiwo("cancel", "train") == (1, "", "kaiwo: too many changes at once\n")


@pytest.mark.parametrize("flag", ["--array", "--queue", "--time", "--label", "--after"])
def test_an_empty_flag_is_a_slip_and_not_the_same_as_none(stub: Stub, kaiwo: Type, flag: str) -> None:
    said = f"kaiwo: {flag} is empty; give it a value or leave it out\n"
    assert kaiwo("submit", "x", flag, "", "--", "true") == (2, "", said)
    assert stub.written() == []


def member(name: str) -> dict[str, str]:
    base, _, index = name.rpartition("-")
    return {"kaiwo.ai/array": base, "kaiwo.ai/array-index": index}


@pytest.mark.parametrize("name", ["sweep", "sweep-*"])
def test_an_array_is_steered_by_its_base_name(stub: Stub, kaiwo: Type, name: str) -> None:
    states = {"sweep-10": "running", "sweep-2": "waiting", "sweep-1": "succeeded"}
    stub.workloads = {f"default/{task}": workload(task, state, labels=member(task)) for task, state in states.items()}
    stub.workloads["team/sweep-3"] = workload("team/sweep-3", labels=member("sweep-3"))
    stub.workloads["default/sweep-x"] = workload("sweep-x")
    assert kaiwo("cancel", name) == (0, "array default/sweep: 2 tasks cancel\n", "")
    assert set(stub.steered) <= {"cancel default/sweep", "cancel default/sweep-*"}
    assert kaiwo("release", name) == (0, "", "there is no workload 'default/sweep-*'; nothing changed\n")


def test_requeueing_an_array_brings_back_its_cancelled_tasks(stub: Stub, kaiwo: Type) -> None:
    states = {"sweep-0": "succeeded", "sweep-1": "cancelled", "sweep-2": "failed"}
    stub.workloads = {f"default/{task}": workload(task, state, labels=member(task)) for task, state in states.items()}
    assert kaiwo("requeue", "default/sweep-*").code == 0  # as `why` writes it to whoever waits for the array
    assert stub.steered == ["requeue default/sweep-*"]


def test_many_are_chosen_by_label_queue_and_state(stub: Stub, kaiwo: Type) -> None:
    stub.workloads = {
        w.name: w
        for w in (
            workload("a", "waiting", labels={"team": "v"}),
            workload("b", "running", labels={"team": "v"}),
            workload("c", "waiting"),
            workload("d", "failed", labels={"team": "v"}),
        )
    }
    kaiwo("cancel", "-l", "team=v", "--state", "waiting")
    kaiwo("cancel", "-l", "team=v")
    assert stub.steered == [f"cancel default/{name}" for name in "aab"]
    assert "nothing changed" in kaiwo("release", "-l", "team=v").err


@pytest.mark.parametrize("args", [["cancel"], ["cancel", "a", "-l", "x=y"], ["hold", "a", "--state", "waiting"]])
def test_steering_must_know_what(stub: Stub, kaiwo: Type, args: list[str]) -> None:
    assert kaiwo(*args).code == 2


def test_nodes_are_taken_out_and_back(stub: Stub, kaiwo: Type) -> None:
    assert kaiwo("nodes", "drain", "node-1", "--reason", "new fan").code == 0
    assert stub.last_form() == {"reason": "new fan"}
    assert kaiwo("nodes", "uncordon", "node-1", "node-2").code == 0
    assert stub.written()[0] == "POST /nodes/node-1/drain"
    done = kaiwo("nodes", "node-1")
    assert done.code == 2
    assert "did you mean: kaiwo describe node node-1" in done.err


def test_a_login_is_an_address(stub: Stub, kaiwo: Type) -> None:
    assert kaiwo("login").out == f"{stub.url}/login?code=once\n"
    assert stub.written() == ["POST /logins"]


def test_the_demo_is_cleared(stub: Stub, kaiwo: Type) -> None:
    assert kaiwo("demo", "clear").out == "12 workloads of the demo removed\n"
    assert stub.written() == ["DELETE /demo"]


@pytest.mark.parametrize(
    ("goal", "state", "code"),
    [
        ("succeeded", "succeeded", 0), ("succeeded", "failed", 1), ("over", "failed", 0), ("over", "cancelled", 0),
        ("running", "running", 0), ("running", "succeeded", 0), ("running", "cancelled", 1),
    ],
)  # fmt: skip
def test_wait_ends_with_the_goal_or_without(stub: Stub, kaiwo: Type, goal: str, state: str, code: int) -> None:
    stub.workloads["default/x"] = workload("x", state)
    assert kaiwo("wait", "x", "--for", goal).code == code


def test_wait_gives_up_in_time(stub: Stub, kaiwo: Type) -> None:
    done = kaiwo("wait", "eval", "--timeout", "0")
    assert done.code == 1
    assert done.err == "kaiwo: timed out after 0 s: eval is still waiting; see: kaiwo why eval\n"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["train"], "train is still running; see: kaiwo logs -f train"),
        (["train", "eval"], "train is still running, eval is still waiting; see: kaiwo logs -f train"),
        (["eval", "team/x"], "eval is still waiting, team/x is held; see: kaiwo why eval"),
    ],
)
def test_a_wait_in_vain_says_what_each_still_does(stub: Stub, kaiwo: Type, names: list[str], said: str) -> None:
    stub.workloads["team/x"] = workload("team/x", "held")
    assert kaiwo("wait", *names, "--timeout", "0") == (1, "", f"kaiwo: timed out after 0 s: {said}\n")


def test_a_wait_in_vain_for_many_names_a_few(stub: Stub, kaiwo: Type) -> None:
    names = [f"w-{i}" for i in range(8)]
    stub.workloads = {w.name: w for w in (workload(name) for name in names)}
    assert "w-4 is still running and 3 more; see: kaiwo logs -f w-0" in kaiwo("wait", *names, "--timeout", "0").err


def test_wait_asks_for_an_array_as_a_whole(stub: Stub, kaiwo: Type) -> None:
    tasks = ArrayView(3, "0-2", {"failed": 1, "succeeded": 2})
    folded = workload("s-*", "failed", labels=member("s-0"), array=tasks, reason="1 failed, 2 succeeded")
    stub.workloads = {"default/s-*": folded}
    done = kaiwo("wait", "s")
    assert (done.code, done.out) == (1, "s: 1 failed, 2 succeeded\n")
    assert kaiwo("wait", "s", "--for", "over").code == 0


def test_an_outcome_may_carry_warnings(stub: Stub, kaiwo: Type) -> None:
    outcome = Outcome(["workload default/x submitted"], ["the estimate is longer than the limit"], ["default/x"])
    stub.answers["POST /workloads"] = (200, msgspec.json.encode(outcome))
    assert kaiwo("submit", "x", "--", "true").err == "warning: the estimate is longer than the limit\n"


@pytest.mark.parametrize(
    ("line", "corrected"),
    [
        ("submit train sleep 5 --gpus 1", "kaiwo submit train --gpus 1 -- sleep 5"),
        ("submit --gpus 5 train sleep 5 -q lab", "kaiwo submit train --gpus 5 -q lab -- sleep 5"),
        ("submit python train.py -g 2", "kaiwo submit -g 2 -- python train.py"),
        ("run sleep 5 --gpus 1", "kaiwo run --gpus 1 -- sleep 5"),
    ],
)
def test_the_corrected_line_keeps_its_flags(kaiwo: Type, line: str, corrected: str) -> None:
    done = kaiwo(*line.split())
    assert done.code == 2
    assert done.err == f"kaiwo: the command must come after --, like: {corrected}\n"
