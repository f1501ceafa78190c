"""`doctor` and `completion`."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from kaiwo.cli.verbs.start import doctor
from tests.cli.conftest import Type
from tests.cli.stub_server import Stub
from tests.waiting import PATIENCE_S

KAIWO = Path(sys.executable).with_name("kaiwo")


def results(kaiwo: Type) -> dict[str, str]:
    return {finding["check"]: finding["result"] for finding in kaiwo("doctor", "-o", "json").json}


def test_a_healthy_installation_is_told_so(stub: Stub, kaiwo: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_page", lambda: doctor.CheckResult("page", "ok", "the web page is built"))
    done = kaiwo("doctor")
    assert done.code == 0, done.out
    assert done.lines()[-1] == "all checks passed"
    names = ["python", "home", "disk", "token", "server", "clock", "gpus", "memory", "page"]
    assert [line.split()[1] for line in done.lines()[: len(names)]] == names
    assert all(line.startswith("ok") for line in done.lines()[: len(names)])


def test_no_server_is_a_warning_with_the_way_out(kaiwo: Type) -> None:
    done = kaiwo("doctor")
    assert done.code == 0
    assert "warn  server" in done.out
    assert "-> start one with: kaiwo up" in done.out


def test_a_token_that_others_can_read_fails(stub: Stub, kaiwo: Type, home: Path) -> None:
    (home / "token").chmod(0o644)
    done = kaiwo("doctor")
    assert done.code == 1
    assert "mode 0644" in done.out
    assert f"chmod 600 {home}/token" in done.out


def test_another_version_is_a_warning(stub: Stub, kaiwo: Type) -> None:
    stub.answers["GET /version"] = (200, b'{"version": "9.9.9", "api": "v1"}')
    assert results(kaiwo)["server"] == "warn"


def test_another_program_on_the_port_fails(stub: Stub, kaiwo: Type) -> None:
    stub.answers["GET /version"] = (200, b"<html>")
    assert results(kaiwo)["server"] == "fail"
    assert kaiwo("doctor").code == 1


def test_a_full_disk_and_a_wrong_clock_are_seen(stub: Stub, kaiwo: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "FAIL_FREE_MIB", 10**9)
    assert results(kaiwo)["disk"] == "fail"
    monkeypatch.setattr(doctor, "FAIL_FREE_MIB", 0)
    monkeypatch.setattr(doctor, "WARN_FREE_MIB", 10**9)
    assert results(kaiwo)["disk"] == "warn"
    monkeypatch.setattr(doctor, "time", SimpleNamespace(time=lambda: 2e9, gmtime=time.gmtime, strftime=time.strftime))
    assert results(kaiwo)["clock"] == "warn"
    monkeypatch.setattr(doctor, "time", SimpleNamespace(time=lambda: 0.0, gmtime=time.gmtime, strftime=time.strftime))
    assert results(kaiwo)["clock"] == "fail"


def test_a_home_that_cannot_be_made_fails(kaiwo: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KAIWO_HOME", str(tmp_path / "file" / "home"))
    assert results(kaiwo)["home"] == "fail"


def test_amd_gpus_are_counted_without_the_cpus(tmp_path: Path) -> None:
    for name, simd in (("0", 0), ("1", 1216), ("2", 1216)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "properties").write_text(f"cpu_cores_count 8\nsimd_count {simd}\n")
    assert doctor._amd_gpus(str(tmp_path)) == 2
    assert doctor._nvidia_gpus(str(tmp_path / "none")) == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(kaiwo: Type, shell: str) -> None:
    done = kaiwo("completion", shell)
    assert done.code == 0
    assert f"_KAIWO_COMPLETE={shell}_complete" in done.out


def test_other_shells_are_refused(kaiwo: Type) -> None:
    assert kaiwo("completion", "tcsh").code == 2


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("kaiwo sub", ["submit"]),
        ("kaiwo why ", ["train", "eval"]),
        ("kaiwo why ev", ["eval"]),
        ("kaiwo why default/ev", ["default/eval"]),
        ("kaiwo set ev", ["eval"]),
        ("kaiwo cancel train ", ["eval"]),
        ("kaiwo get ", ["workloads", "nodes", "queues", "gpus", "cycles", "reservations"]),
        ("kaiwo get nodes ", ["node-1", "node-2"]),
        ("kaiwo describe node ", ["node-1", "node-2"]),
        ("kaiwo nodes drain ", ["node-1", "node-2"]),
        ("kaiwo queue ", ["lab", "default", "vision"]),
        ("kaiwo submit --queue v", ["vision"]),
        ("kaiwo submit --type t", ["training"]),
        ("kaiwo submit --after tr", ["train"]),
        ("kaiwo get workloads -o y", ["yaml"]),
        ("kaiwo demo ", ["clear"]),
        ("kaiwo describe gpu node-", ["node-1/", "node-2/"]),
        ("kaiwo describe gpu node-1/", ["node-1/gpu-0", "node-1/gpu-1"]),
    ],
)
def test_words_and_names_are_completed(stub: Stub, line: str, found: list[str]) -> None:
    assert complete(line) == found


def test_without_a_server_names_are_not_completed_and_nothing_is_said(home: Path) -> None:
    assert complete("kaiwo why ") == []


@pytest.mark.parametrize(("typed", "found"), [("ev", "eval"), ("default/ev", "default/eval")])
def test_the_bash_script_works_in_bash(stub: Stub, typed: str, found: str) -> None:
    script = f"""
        PATH={KAIWO.parent}:$PATH; source <(kaiwo completion bash)
        COMP_WORDS=(kaiwo why {typed}) COMP_CWORD=2 COMP_LINE='kaiwo why {typed}' COMP_POINT={10 + len(typed)}
        _kaiwo_completion kaiwo {typed} why
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [found], done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_the_zsh_script_completes_a_name_with_a_slash_in_zsh(stub: Stub, tmp_path: Path) -> None:
    """A real zsh at a terminal, and a Tab."""
    script = f"""
        zmodload zsh/zpty; zpty z zsh -f -i
        zpty -w z "PATH={KAIWO.parent}:$PATH; autoload -U compinit; compinit -u -d {tmp_path}/dump"
        zpty -w z "source <(kaiwo completion zsh)"
        zpty -w z "echo LOA''DED"; zpty -r -m z said '*LOADED*'
        zpty -w -n z "kaiwo why default/ev"$'\t'
        zpty -r -m z said '*default/eval*' && echo completed
        zpty -d z
    """
    done = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout.splitlines()[-1:] == ["completed"], (done.stdout, done.stderr)


def complete(line: str) -> list[str]:
    words = line.split(" ")
    env = os.environ | {
        "_KAIWO_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1),
    }  # fmt: skip
    done = subprocess.run([KAIWO], env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [answer.partition(",")[2] for answer in done.stdout.splitlines() if answer]
