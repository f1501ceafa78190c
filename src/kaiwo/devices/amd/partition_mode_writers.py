"""How a GPU is told its partition mode: the driver's own files, or AMD's tool.

In:    a GPU's PCI address and a mode.   Out: nothing, or OSError with the kernel's word (busy, not valid).
A compute mode acts at once on an idle GPU. A memory mode is only noted; the driver takes it when it is loaded again.
"""

import errno
import os
import subprocess
from collections.abc import Callable
from typing import Protocol

from kaiwo.devices.amd.sysfs_files import read_text

PCI_DEVICES = "sys/bus/pci/devices"
COMPUTE_FILE, MEMORY_FILE = "current_compute_partition", "current_memory_partition"
RELOAD = (("modprobe", "-r", "amdgpu"), ("modprobe", "amdgpu"))
TIMEOUT_S = 300.0

Write = Callable[[str, str], None]
Run = Callable[[tuple[str, ...]], None]


class ModeWriter(Protocol):
    """One way to tell a GPU its mode."""

    def describe_compute(self, gpu: str, mode: str) -> str:
        """What `set_compute` does, for a person."""

    def describe_memory(self, gpu: str, mode: str) -> str:
        """What `set_memory` does, for a person."""

    def set_compute(self, gpu: str, mode: str) -> None:
        """At once; OSError EBUSY while work runs on it, EINVAL when the mode does not go with the memory mode."""

    def set_memory(self, gpu: str, mode: str) -> None:
        """Noted for the whole hive until the driver is loaded again."""

    def reload(self) -> None:
        """Unload and load the driver; OSError EBUSY while anything uses a GPU."""


def driver_compute_mode(root: str, gpu: str) -> str:
    """The compute mode that the driver's file says, whatever the topology shows; empty where there is no such file."""
    return read_text(os.path.join(root, PCI_DEVICES, gpu, COMPUTE_FILE)).upper()


def write_file(path: str, text: str) -> None:
    """One write, as sysfs wants it; never makes a file that is not there."""
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def run_command(command: tuple[str, ...]) -> None:
    """OSError with what the command said when it failed."""
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
    """The driver's files."""

    def __init__(self, root: str = "/", write: Write = write_file, run: Run = run_command) -> None:
        self._root, self._write, self._run = root, write, run

    def describe_compute(self, gpu: str, mode: str) -> str:
        return f"write {mode} to {self._path(gpu, COMPUTE_FILE)}"

    def describe_memory(self, gpu: str, mode: str) -> str:
        return f"write {mode} to {self._path(gpu, MEMORY_FILE)}"

    def set_compute(self, gpu: str, mode: str) -> None:
        self._write(self._path(gpu, COMPUTE_FILE), mode)

    def set_memory(self, gpu: str, mode: str) -> None:
        self._write(self._path(gpu, MEMORY_FILE), mode)

    def reload(self) -> None:
        for command in RELOAD:
            self._run(command)

    def _path(self, gpu: str, name: str) -> str:
        return os.path.join(self._root, PCI_DEVICES, gpu, name)


class SmiModeWriter:
    """AMD's tool, where the files may not be written.

    GPUs are named to it by address: it counts partitions as GPUs, so every change gives the later ones other numbers.
    """

    def __init__(self, tool: str = "amd-smi", run: Run = run_command) -> None:
        self._tool, self._run = tool, run

    def describe_compute(self, gpu: str, mode: str) -> str:
        return "run " + " ".join(self._command(gpu, "--compute-partition", mode))

    def describe_memory(self, gpu: str, mode: str) -> str:
        return "run " + " ".join(self._command(gpu, "--memory-partition", mode))

    def set_compute(self, gpu: str, mode: str) -> None:
        self._run(self._command(gpu, "--compute-partition", mode))

    def set_memory(self, gpu: str, mode: str) -> None:
        self._run(self._command(gpu, "--memory-partition", mode))

    def reload(self) -> None:
        for command in RELOAD:
            self._run(command)

    def _command(self, gpu: str, option: str, mode: str) -> tuple[str, ...]:
        return (self._tool, "set", "--gpu", gpu, option, mode)
