"""Try to break out of a share of a real GPU in every known way, and compare with what the grade guarantees.

Two grants on one GPU: a tenant that attacks and a neighbour that works. The result has a row for every attack: what
happened, the verdict, and what the grade guarantees.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench._container_tenants import command_service
from bench._gpu_tenants import ended, environment, neighbour, tenant
from bench._isolation_guarantees import ESCAPES, GUARANTEES
from kaiwo.devices.sharing.mps import MpsDaemon
from kaiwo.devices.sharing.share_types import Grant

NOBODY = 65534


class EscapeAttempts:
    """One tenant attacks, one neighbour works."""

    def __init__(self, mine: Grant, theirs: Grant, daemon: MpsDaemon | None, gpus: int) -> None:
        self.grade, self.mine, self.theirs, self.daemon, self.gpus = mine.grade, mine, theirs, daemon, gpus
        self.limit_mib = mine.held[0].mib

    def try_all(self) -> list[dict[str, Any]]:
        rows = []
        for way, guarantee in GUARANTEES[self.grade].items():
            is_held, seen = getattr(self, way.replace("-", "_"))()
            verdict = "not tried" if is_held is None else "held" if is_held else "open"
            rows.append({"way": way, "tried": ESCAPES[way], "seen": seen, "verdict": verdict, "promised": guarantee})
        return rows

    def more_memory(self) -> tuple[bool, str]:
        got = tenant(environment(self.mine), "fill", str(2 * self.limit_mib)).get("got_mib", 0)
        return got <= self.limit_mib, f"{got} MiB in pieces, {self.limit_mib} are its share"

    def memory_variable(self) -> tuple[bool, str]:
        env = environment(self.mine, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=None)
        got = tenant(env, "fill", str(2 * self.limit_mib)).get("got_mib", 0)
        return got <= self.limit_mib, f"{got} MiB in pieces, {self.limit_mib} are its share"

    def more_threads(self) -> tuple[bool, str]:
        given = tenant(environment(self.mine), "allocate").get("units", 0)
        taken = tenant(environment(self.mine, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="100"), "allocate").get("units", 0)
        share = self.mine.held[0].device.compute_units * self.mine.held[0].milli // 1000
        return max(given, taken) <= share, f"{given} units as given, {taken} when it asks for all; its share is {share}"

    def another_device(self) -> tuple[bool | None, str]:
        """On a machine with one GPU there is no other to reach."""
        if self.gpus < 2:
            return None, "the machine has one GPU"
        seen = tenant(environment(self.mine, CUDA_VISIBLE_DEVICES=None), "allocate").get("devices", 0)
        return seen <= 1, f"{seen} of {self.gpus} visible without the variable"

    def leave_service(self) -> tuple[bool, str]:
        names = [name for name in self.mine.environment if name.startswith("CUDA_MPS_")]
        answer = tenant(environment(self.mine, **dict.fromkeys(names)), "fill", str(2 * self.limit_mib))
        return "error" in answer, answer.get("error", f"got a context and {answer.get('got_mib')} MiB")

    def own_service(self) -> tuple[bool, str]:
        with tempfile.TemporaryDirectory(prefix="own") as folder, own_daemon(folder, self.mine) as own:
            if own is None:
                return True, "nvidia-cuda-mps-control is not installed"
            names = {name: None for name in self.mine.environment if name.startswith("CUDA_MPS_")}
            env = environment(self.mine, **{**names, "CUDA_MPS_PIPE_DIRECTORY": f"{own.folder}/pipe"})
            answer = tenant(env, "fill", str(2 * self.limit_mib))
        return "error" in answer, answer.get("error", f"got a context and {answer.get('got_mib')} MiB")

    def crash(self) -> tuple[bool, str]:
        with neighbour(self.theirs) as other:
            mine = tenant(environment(self.mine), "fault")
            outcome = ended(other)
        after = tenant(environment(self.theirs), "allocate", "64")
        seen = f"its own end: {mine.get('error')}; the neighbour's: {outcome.get('error', 'worked on')}"
        return "error" not in outcome, f"{seen}; a new process: {after.get('error', 'works')}"

    def kill_neighbour(self) -> tuple[bool, str]:
        with neighbour(self.theirs) as other:
            code = f"import os; os.kill({other.pid}, 9)"
            done = subprocess.run(
                [sys.executable, "-c", code], user=NOBODY, capture_output=True, text=True, check=False
            )
            outcome = ended(other)
        return "error" not in outcome, (done.stderr.strip().splitlines() or ["killed"])[-1]

    def change_mode(self) -> tuple[bool, str]:
        uuid = self.mine.held[0].device.uuid
        command = ["nvidia-smi", "-i", uuid, "-c", "PROHIBITED"]
        done = subprocess.run(command, user=NOBODY, capture_output=True, text=True, check=False)
        after = tenant(environment(self.theirs), "allocate", "64")
        said = " ".join((done.stdout + done.stderr).split())
        return "error" not in after, said[:160]

    def kill_service(self) -> tuple[bool, str]:
        assert self.daemon is not None, "only MPS has a service to kill"
        with neighbour(self.theirs) as other:
            for server in self.daemon.servers():
                os.kill(server, signal.SIGKILL)
            outcome = ended(other)
        after = tenant(environment(self.theirs), "allocate", "64")
        seen = f"the neighbour's end: {outcome.get('error', 'worked on')}"
        return "error" not in outcome, f"{seen}; a new process: {after.get('error', 'works')}"

    def command_service(self) -> tuple[bool, str]:
        assert self.daemon is not None, "only MPS has a service to command"
        with neighbour(self.theirs) as other:
            is_held, seen = command_service(self.daemon)
            outcome = ended(other)
        return is_held and "error" not in outcome, seen


@contextmanager
def own_daemon(folder: str, grant: Grant) -> Iterator[MpsDaemon | None]:
    from kaiwo.devices.sharing.mps import find_mps_control

    control = find_mps_control()
    daemon = MpsDaemon(folder, (grant.held[0].device.uuid,), control) if control else None
    if daemon:
        daemon.ensure()
    try:
        yield daemon
    finally:
        if daemon:
            daemon.stop()
