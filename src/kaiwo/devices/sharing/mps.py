"""NVIDIA's Multi-Process Service (MPS): its control daemon, the variables of clients, and GPU compute modes.

Never: mistakes another process for its daemon: a process is identified by pid and start time.

Like the workloads that use it, the daemon survives a restart of Kaiwo, which finds it again by its folder.
A daemon of root serves the processes of all users side by side. One of another user serves that user alone.
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from kaiwo.devices.atomic_write import write_atomically
from kaiwo.devices.sharing.share_types import GrantedDevice
from kaiwo.model.errors import ClusterError
from kaiwo.model.gpus.gpu import WHOLE_MILLI

DEFAULT, EXCLUSIVE_PROCESS = 0, 3


def set_compute_mode(uuid: str, mode: int) -> bool:
    """Set the compute mode of a GPU; True if it has this mode now."""
    try:
        import pynvml
    except ImportError:
        return False
    try:
        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            if pynvml.nvmlDeviceGetComputeMode(handle) != mode:
                pynvml.nvmlDeviceSetComputeMode(handle, mode)
            return True
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return False


PIPES, LOGS = "pipe", "log"


def client_milli(held: Sequence[GrantedDevice]) -> int:
    """The threads of a client: one number for all its devices."""
    return min(share.threads_milli or share.milli for share in held)


def client_variables(held: Sequence[GrantedDevice], folder: str) -> dict[str, str]:
    variables = {
        "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/{PIPES}",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percent(client_milli(held)),
    }
    limits = [f"{index}={share.mib}M" for index, share in enumerate(held) if share.mib]
    if limits:
        variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
    return variables


def daemon_variables(uuids: Sequence[str], folder: str) -> dict[str, str]:
    return {
        "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/{PIPES}",
        "CUDA_MPS_LOG_DIRECTORY": f"{folder}/{LOGS}",
        "CUDA_VISIBLE_DEVICES": ",".join(uuids),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def percent(milli: int) -> str:
    """300 is `30`, 333 is `33.3`; never 0, which CUDA takes as no limit."""
    whole, tenth = divmod(max(1, min(milli, WHOLE_MILLI)), 10)
    return f"{whole}.{tenth}" if tenth else str(whole)


CONTROL = "nvidia-cuda-mps-control"
CONTROL_FOLDERS = ("/usr/bin", "/usr/local/nvidia/bin", "/usr/local/bin", "/opt/nvidia/bin")
MAX_PATH = 80  # socket paths are limited to 108 bytes, and the daemon appends names
MAX_WAIT_S = 10.0
COMMAND_S = 5.0
POLL_S = 0.02
MULTI_USER = "-multiuser-server"  # root only: one server for all users, which nobody else can signal
# Others may connect to a socket whose name they know, and list nothing.
FOLDER_MODE, FOLDER_MODE_FOR_ALL = 0o700, 0o711


def find_mps_control() -> str:
    return shutil.which(CONTROL) or shutil.which(CONTROL, path=os.pathsep.join(CONTROL_FOLDERS)) or ""


@functools.cache
def serves_all_users(control: str) -> bool:
    """True if a daemon that we start serves several users at once: as root, with a driver that can do it."""
    if os.geteuid() or not control:
        return False
    try:
        done = subprocess.run([control, "--help"], capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return MULTI_USER in done.stdout + done.stderr


class MpsDaemon:
    def __init__(self, folder: str, uuids: Sequence[str], control: str) -> None:
        if len(folder) > MAX_PATH:
            raise ClusterError(f"the folder {folder} is too long for MPS sockets; use at most {MAX_PATH} characters")
        self.folder = folder
        self.uuids = tuple(uuids)
        self._control = control
        # The daemon's servers would inherit CUDA's variables.
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "NVIDIA_"))}
        self._variables = {**ours, **daemon_variables(uuids, folder)}

    @property
    def pid(self) -> int:
        """The pid of the running daemon; 0 if there is none."""
        try:
            with open(os.path.join(self.folder, "daemon"), encoding="ascii") as file:
                pid, ticks = (int(word) for word in file.read().split())
        except (OSError, ValueError):
            return 0
        return pid if ticks and start_ticks(pid) == ticks else 0

    def is_answering(self) -> bool:
        return bool(self.pid) and self.send_command("get_server_list") is not None

    def ensure(self) -> str:
        """Make sure that the daemon answers; returns `kept`, `started` or `restarted`."""
        had = bool(self.pid)
        if had and self.is_answering():
            return "kept"
        if had:
            self.stop()
        was_there = os.path.exists(os.path.join(self.folder, "daemon"))
        self._start()
        return "restarted" if was_there else "started"

    def stop(self) -> None:
        """Stop the daemon and its servers. Clients that still run lose their GPU."""
        pid = self.pid
        if not pid:
            return
        servers = self.servers()
        self.send_command("quit")
        if not _wait_gone(pid, MAX_WAIT_S):
            _kill(pid)
        for server in servers:
            if not _wait_gone(server, 1.0):
                _kill(server)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.folder, "daemon"))

    def limit_clients(self, threads_milli: int, mib_by_uuid: Mapping[str, int]) -> None:
        """Bound every client that starts from now on, whatever its own variables say; they can only ask for less."""
        threads = percent(threads_milli)
        commands = [f"set_default_active_thread_percentage {threads}"]
        commands += [f"set_default_device_pinned_mem_limit {uuid} {mib}M" for uuid, mib in mib_by_uuid.items()]
        for server in self.servers():  # the defaults are for servers that start later
            commands.append(f"set_active_thread_percentage {server} {threads}")
            commands += [f"set_device_pinned_mem_limit {server} {uuid} {mib}M" for uuid, mib in mib_by_uuid.items()]
        if self.send_command("\n".join(commands)) is None:
            raise ClusterError(
                f"the MPS daemon of {', '.join(self.uuids)} does not take limits; see {self.folder}/{LOGS}"
            )

    def servers(self) -> list[int]:
        """The pids of its servers: one for all users, or one for the user whose clients run now."""
        answer = self.send_command("get_server_list") or ""
        return [int(word) for word in answer.split() if word.isdecimal()]

    def send_command(self, command: str) -> str | None:
        """Send a command, or several lines of them; return the answer, or None if there is none."""
        try:
            done = subprocess.run(
                [self._control], input=f"{command}\n", env=self._variables, capture_output=True, text=True,
                timeout=COMMAND_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None
        return None if done.returncode or "Cannot find MPS control daemon" in done.stdout else done.stdout

    def _start(self) -> None:
        is_for_all = serves_all_users(self._control)
        pipes = os.path.join(self.folder, PIPES)
        self._make_folders(FOLDER_MODE_FOR_ALL if is_for_all else FOLDER_MODE)
        for name in os.listdir(pipes):  # sockets of a crashed daemon; containers have the folder itself mounted
            os.unlink(os.path.join(pipes, name))
        try:
            done = subprocess.run(
                [self._control, *((MULTI_USER,) if is_for_all else ()), "-d"], env=self._variables,
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MAX_WAIT_S, check=False,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ClusterError(f"the MPS daemon of {', '.join(self.uuids)} did not start: {error}") from error
        if done.returncode:
            raise ClusterError(f"the MPS daemon of {', '.join(self.uuids)} did not start: {_failure_text(done)}")
        self._record_pid(os.path.join(pipes, f"{CONTROL}.pid"))

    def _make_folders(self, mode: int) -> None:
        for folder in (self.folder, os.path.join(self.folder, PIPES), os.path.join(self.folder, LOGS)):
            os.makedirs(folder, mode=FOLDER_MODE, exist_ok=True)
            os.chmod(folder, FOLDER_MODE if folder.endswith(LOGS) else mode)  # the log names everybody's processes

    def _record_pid(self, pid_file: str) -> None:
        deadline = time.monotonic() + MAX_WAIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError), open(pid_file, encoding="ascii") as file:
                pid = int(file.read())
                if (ticks := start_ticks(pid)) and self.send_command("get_server_list") is not None:
                    os.chmod(pid_file, 0o600)  # the daemon leaves it writable by everybody
                    write_atomically(os.path.join(self.folder, "daemon"), f"{pid} {ticks}\n".encode())
                    return
            time.sleep(POLL_S)
        raise ClusterError(f"the MPS daemon of {', '.join(self.uuids)} does not answer; see its log in {self.folder}")


def start_ticks(pid: int) -> int:
    """The start time of a process in ticks since boot; 0 if it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return 0 if fields[0] == b"Z" else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0


def _wait_gone(pid: int, patience_s: float) -> bool:
    ticks = start_ticks(pid)
    deadline = time.monotonic() + patience_s
    while ticks and start_ticks(pid) == ticks:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _failure_text(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr or done.stdout).strip().partition("\n")[0] or f"exit status {done.returncode}"
