"""Start tenants of a GPU, each a process of its own, and read how they ended."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kaiwo.devices.sharing.share_types import Grant

PATIENCE_S = 60


def environment(grant: Grant, **changes: str | None) -> dict[str, str]:
    """A tenant's environment: the shell's without CUDA variables, then the grant's, then the tenant's own changes."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
    found |= grant.environment
    for name, value in changes.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = value
    return found


def start(env: dict[str, str], *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "bench._gpu_tenant", *words]
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]") -> dict[str, Any]:
    try:
        out, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return {"error": "hung"}
    lines = out.strip().splitlines()
    return json.loads(lines[-1]) if lines else {"error": f"exit status {process.returncode}"}


def tenant(env: dict[str, str], *words: str) -> dict[str, Any]:
    return finish(start(env, *words))


@contextmanager
def neighbour(grant: Grant) -> Iterator["subprocess.Popen[str]"]:
    process = start(environment(grant), "work")
    assert process.stdout is not None
    process.stdout.readline()  # it computes
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ended(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Let it work a little longer, then read how it ended."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.5)
    return finish(process)
