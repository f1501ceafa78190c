"""Set the partition mode of an AMD GPU through sysfs or amd-smi.

A compute mode takes effect at once on an idle GPU; a memory mode when the driver is loaded again.
"""

import errno
import os
import subprocess
from collections.abc import Callable
from typing import Literal, Protocol

from kaiwo.devices.amd.sysfs_files import read_text

PCI_DEVICES = "sys/bus/pci/devices"
RELOAD = (("modprobe", "-r", "amdgpu"), ("modprobe", "amdgpu"))
TIMEOUT_S = 300.0

ModeKind = Literal["compute", "memory"]
Write = Callable[[str, str], None]
Run = Callable[[tuple[str, ...]], None]


class ModeWriter(Protocol):
    def describe(self, gpu: str, kind: ModeKind, mode: str) -> str:
        """What `set_mode` would do, as text."""

    def set_mode(self, gpu: str, kind: ModeKind, mode: str) -> None:
        """A memory mode is for the whole hive. OSError EBUSY: the GPU is in use; EINVAL: the mode is not allowed."""

    def reload(self) -> None:
        """Unload and load the driver; OSError EBUSY while anything uses a GPU."""


def driver_compute_mode(root: str, gpu: str) -> str:
    """The compute mode in the driver's file, whatever the topology shows; empty without such a file."""
    return read_text(mode_file(root, gpu, "compute")).upper()


def mode_file(root: str, gpu: str, kind: ModeKind) -> str:
    return os.path.join(root, PCI_DEVICES, gpu, f"current_{kind}_partition")


def write_file(path: str, text: str) -> None:
    """Write in one call, as sysfs requires; never creates a file."""
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def run_command(command: tuple[str, ...]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(errno.ETIMEDOUT, f"{command[0]} took longer than {TIMEOUT_S:.0f} s") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        is_busy = any("in use" in line or "busy" in line.lower() for line in lines)
        code = errno.EBUSY if is_busy else errno.EIO
        raise OSError(code, f"{' '.join(command)}: {lines[-1] if lines else f'exit status {done.returncode}'}")


class SysfsModeWriter:
    def __init__(self, root: str = "/", write: Write = write_file, run: Run = run_command) -> None:
        self._root, self._write, self._run = root, write, run

    def describe(self, gpu: str, kind: ModeKind, mode: str) -> str:
        return f"write {mode} to {mode_file(self._root, gpu, kind)}"

    def set_mode(self, gpu: str, kind: ModeKind, mode: str) -> None:
        self._write(mode_file(self._root, gpu, kind), mode)

    def reload(self) -> None:
        for command in RELOAD:
            self._run(command)


class SmiModeWriter:
    """Sets modes with amd-smi, where the sysfs files are not writable.

    GPUs are named by address: the tool numbers partitions, so indices change with every mode change.
    """

    def __init__(self, tool: str = "amd-smi", run: Run = run_command) -> None:
        self._tool, self._run = tool, run

    def describe(self, gpu: str, kind: ModeKind, mode: str) -> str:
        return "run " + " ".join(self._command(gpu, kind, mode))

    def set_mode(self, gpu: str, kind: ModeKind, mode: str) -> None:
        self._run(self._command(gpu, kind, mode))

    def reload(self) -> None:
        for command in RELOAD:
            self._run(command)

    def _command(self, gpu: str, kind: ModeKind, mode: str) -> tuple[str, ...]:
        return (self._tool, "set", "--gpu", gpu, f"--{kind}-partition", mode)
