"""Verbs start fast: nothing heavy is imported, and the clock agrees."""

import gc
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from kaiwo.app.http_server import NO_TLS, Tls, check_exposure
from kaiwo.cli.verb_table import ENTRIES
from tests.cli.conftest import Type
from tests.cli.stub_server import Stub

HEAVY = ("numpy", "aiohttp", "starlette", "uvicorn", "asyncio", "yaml", "sqlite3", "http.client", "email", "ssl",
         "prometheus_client", "logging", "subprocess", "dataclasses")  # fmt: skip
CLIENT_VERBS = (
    ["--help"],
    ["status"],
    ["why", "eval"],
    ["get", "workloads"],
    ["get", "nodes", "-o", "json"],
    ["queue"],
    ["gpus"],
    ["nodes"],
    ["describe", "train"],
    ["submit", "--gpus", "1", "--", "true"],
    ["cancel", "train"],
    ["logs", "train"],
    ["wait", "train", "--for", "running"],
    ["login"],
    ["version"],
    ["up", "--help"],
)
SCRIPT = """
import json, sys
from kaiwo.cli.main import main
code = main(json.loads(sys.argv[1]))
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


@pytest.mark.parametrize("args", CLIENT_VERBS, ids=" ".join)
def test_a_client_verb_imports_nothing_heavy(stub: Stub, args: list[str]) -> None:
    stub.why = None
    stub.answers["GET /workloads/default/eval/why"] = (
        200,
        json.dumps(
            {"workload": "default/eval", "state": "waiting", "answer": "it waits", "obstacles": [], "position": 1,
             "ahead": 0, "change": None, "no_change": "nothing helps", "as_of_s": 1}
        ).encode(),
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", SCRIPT, json.dumps(args)], capture_output=True, text=True, check=False)
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    assert [name for name in HEAVY if name in modules] == []


def test_help_loads_no_verb_and_no_client() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, '["--help"]'], capture_output=True, text=True, check=True)
    _, modules = json.loads(done.stderr.splitlines()[-1])
    assert [name for name in modules if name.startswith("kaiwo.cli.verbs") or name in ("msgspec", "socket")] == []


def test_describing_a_workload_loads_no_other_verb(stub: Stub) -> None:
    given = '["describe", "eval"]'
    done = subprocess.run([sys.executable, "-c", SCRIPT, given], capture_output=True, text=True, check=True)
    _, modules = json.loads(done.stderr.splitlines()[-1])
    assert [name for name in modules if name.startswith("kaiwo.cli.verbs.")] == [
        "kaiwo.cli.verbs.inspect",
        "kaiwo.cli.verbs.inspect.describe",
    ]
    assert [name for name in ("unicodedata", "encodings.idna") if name in modules] == []


def test_the_garbage_collector_is_left_as_it_was(kaiwo: Type) -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    assert kaiwo("--version").code == 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


@pytest.mark.serial
@pytest.mark.parametrize("args", [["--help"], ["status"], ["get", "workloads"], ["describe", "train"]], ids=" ".join)
def test_a_verb_starts_in_time(stub: Stub, args: list[str]) -> None:
    kaiwo = Path(sys.executable).with_name("kaiwo")
    subprocess.run([kaiwo, *args], capture_output=True, check=True)  # writes the bytecode
    took_s = [processor_time_s([str(kaiwo), *args]) for _ in range(7)]
    # Measured: 50 to 85 ms. The promise is 150 ms; a slow or crowded machine gets twice that.
    assert min(took_s) < 0.3, took_s


def processor_time_s(command: list[str]) -> float:
    """What a command computes; other work on the machine hardly changes it, as it does the time on the wall."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_every_verb_of_the_help_can_be_loaded_and_has_an_example() -> None:
    import click

    from kaiwo.cli.verb_table import kaiwo

    context = click.Context(kaiwo)
    for name in ENTRIES:
        command = kaiwo.get_command(context, name)
        assert command is not None, name
        assert command.name == name
        assert "Example" in (command.help or ""), f"{name} teaches nothing"
        assert f"kaiwo {name}" in (command.help or "") or name == "get", name


def test_the_module_can_be_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kaiwo.cli.main", "--version"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONWARNINGS": "error"},
    )
    assert done.stdout.startswith("kaiwo ")


@pytest.mark.parametrize("verb", ["up", "scheduler"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "gpu.lab"])
def test_other_machines_are_not_served_in_the_clear_unless_one_insists(kaiwo: Type, verb: str, host: str) -> None:
    done = kaiwo(verb, "--host", host, "--port", "0")
    assert done.code == 2
    assert f"--host {host} lets other machines connect" in done.err
    assert "--tls-cert" in done.err
    assert "--insecure-http" in done.err
    check_exposure(host, NO_TLS, is_insisted=True)
    check_exposure(host, Tls("a.pem"), is_insisted=False)
    for local in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
        check_exposure(local, NO_TLS, is_insisted=False)
