"""Run one command and record its start and its end: the only process that must outlive Kaiwo.

    python -I -S supervisor.py RUN_FOLDER [NOTICE_FD]

In:    RUN_FOLDER/run.json (command, env, workdir, log, time_limit_s, grace_s).
Out:   start.json before the command begins, overdue at its time limit, exit.json after it ended, its output in the log.
       With `console` in run.json the command begins once its client has connected (supervisor_console.py).
Never: runs twice. The lock is held while this process lives, and a folder with a start or an exit record is left alone.
       Imports more than a little of the standard library: hundreds of these may wait at once.

It has its own session, so neither a signal to Kaiwo nor Kaiwo's death reaches it. SIGTERM means: stop the command.
"""

import contextlib
import fcntl
import json
import os
import signal
import sys
import termios
import time

SWEEP_S = 2.0  # how long processes that the command left running may take to end
IS_TAKEN = 75  # another supervisor has this run, or had it
WATCHED = {signal.SIGCHLD, signal.SIGTERM}


def main(folder: str, notice: int) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)  # read with sigtimedwait: no handlers, no races
    lock = take_lock(folder)
    if lock is None:
        return IS_TAKEN
    with open(os.path.join(folder, "run.json")) as file:
        run = json.load(file)
    adopt_orphans()
    log = os.open(run["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    console = load_console().Console(folder, log) if run.get("console") else None
    if console is not None and (why := console.wait_for_client({signal.SIGTERM})):
        write_json(folder, "exit.json", never_began(why))
        return 0
    has_terminal = console is not None and console.is_terminal
    began = time.time()
    ends = console.ends() if console is not None else (os.open(os.devnull, os.O_RDONLY), log)
    pid, go, error_pipe = fork_command(run, ends, (lock, notice))
    own = os.getpid()
    start = {"supervisor": own, "supervisor_ticks": start_ticks(own), "pid": pid, "ticks": start_ticks(pid)}
    write_json(folder, "start.json", {**start, "boot": boot_id(), "started": began})
    if console is not None:
        for fd in set(ends):
            os.close(fd)
        console.connect(pid)
    os.write(go, b"1")
    os.close(go)
    if notice >= 0:
        with contextlib.suppress(BrokenPipeError):  # Kaiwo died meanwhile; the next one reads the record
            os.write(notice, b"1")
        os.close(notice)
    status, reason, left_s = wait_for(pid, run["time_limit_s"], run["grace_s"], folder, has_terminal)
    message = read_all(error_pipe)
    if message:
        os.write(log, f"kaiwo: {message}\n".encode())
    sweep(pid, left_s, is_signalled=reason != "exited")
    if console is not None:
        console.drain()
    code = os.waitstatus_to_exitcode(status)
    record = {"code": code, "reason": reason, "message": message, "started": began, "ended": time.time()}
    write_json(folder, "exit.json", record)
    if console is not None:
        console.finish(record)
    return 0


def load_console():
    """Load the file next to this one: there is no package to import it from."""
    from importlib.util import module_from_spec, spec_from_file_location

    folder = os.path.dirname(os.path.abspath(__file__))
    spec = spec_from_file_location("console", os.path.join(folder, "supervisor_console.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def never_began(why: str) -> dict:
    """The exit record of a command whose client never connected."""
    if why == "stopped":
        return {"code": -signal.SIGTERM, "reason": "stopped"}
    return {"code": -signal.SIGHUP, "reason": "exited", "message": "its user disconnected before it began"}


def take_lock(folder: str) -> int | None:
    """The folder's lock; None when another supervisor has or had the run."""
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(40):  # Kaiwo holds it for a moment when it checks on the run
        if any(os.path.exists(os.path.join(folder, name)) for name in ("start.json", "exit.json")):
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
            continue
        is_fresh = not any(os.path.exists(os.path.join(folder, name)) for name in ("start.json", "exit.json"))
        return lock if is_fresh else None
    return None


def fork_command(run: dict, ends: tuple[int, int], private: tuple[int, ...]) -> tuple[int, int, int]:
    """Fork a child that waits for a byte. Returns its pid, the pipe for that byte, and the pipe with its error."""
    go_read, go = os.pipe()
    error_pipe, error_pipe_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        for fd in (*private, go, error_pipe):
            if fd >= 0:
                os.close(fd)
        try:
            become_command(run, ends, go_read)
        except BaseException as error:
            os.write(error_pipe_write, explain(run, error).encode())
        finally:
            os._exit(127)
    os.close(go_read)
    os.close(error_pipe_write)
    return pid, go, error_pipe


def become_command(run: dict, ends: tuple[int, int], go: int) -> None:
    """In the child, between the fork and the command. Does not return."""
    os.setsid()
    if os.isatty(ends[0]):
        fcntl.ioctl(ends[0], termios.TIOCSCTTY, 0)  # so that Ctrl-C there reaches it
    if not os.read(go, 1):
        os._exit(127)  # the supervisor died before it wrote its start record, so the command must not run
    if run.get("cgroup"):
        with open(os.path.join(run["cgroup"], "cgroup.procs"), "w") as procs:
            procs.write(str(os.getpid()))
    os.dup2(ends[0], 0)
    os.dup2(ends[1], 1)
    os.dup2(ends[1], 2)
    os.chdir(run["workdir"])
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # make or the shell that started Kaiwo may ignore some
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execvpe(run["command"][0], run["command"], {**os.environ, **run["env"]})


def explain(run: dict, error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename == run["workdir"]:
        return f"the working directory {run['workdir']} cannot be used: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return f"the command {run['command'][0]!r} was not found"
    if isinstance(error, OSError):
        return f"the command {run['command'][0]!r} cannot be run: {error.strerror}"
    return f"the command cannot be run: {error}"


def wait_for(
    pid: int, limit_s: float, grace_s: float, folder: str, has_terminal: bool = False
) -> tuple[int, str, float]:
    """Wait for the command's end; stop it at its limit or on SIGTERM.

    Returns its status, why it ended, and how many seconds the processes that it left may still take.
    """
    deadline = time.monotonic() + limit_s if limit_s > 0 else None
    reason = "exited"
    while True:
        status = reap(pid)
        left = 3600.0 if deadline is None else deadline - time.monotonic()
        if status is not None:
            return status, reason, SWEEP_S if reason == "exited" else max(left, 0.0)
        if left > 0:
            caught = signal.sigtimedwait(WATCHED, left)
            if caught is None or caught.si_signo != signal.SIGTERM or reason != "exited":
                continue
            if (status := reap(pid)) is not None:  # it ended by itself just before
                return status, reason, SWEEP_S
        if reason == "exited":
            reason = "time-limit" if left <= 0 else "stopped"
            if reason == "time-limit":  # lets Kaiwo see why it is being stopped; on a full disk it sees only the end
                with contextlib.suppress(OSError), open(os.path.join(folder, "overdue"), "w"):
                    pass
            signal_command(pid, signal.SIGTERM)
            if has_terminal:
                signal_command(pid, signal.SIGHUP)  # a shell at a terminal ignores SIGTERM
            signal_command(pid, signal.SIGCONT)  # a stopped process cannot end
            deadline = time.monotonic() + grace_s
        else:
            signal_command(pid, signal.SIGKILL)
            deadline = time.monotonic() + SWEEP_S


def reap(pid: int) -> int | None:
    """The command's status when it has ended. Also reaps adopted orphans."""
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if ended == 0:
            return None
        if ended == pid:
            return status


def sweep(pid: int, left_s: float, is_signalled: bool) -> None:
    """End what the command left running: its process group, and adopted orphans."""
    began = time.monotonic()
    if not is_signalled:
        kill_group(pid, signal.SIGTERM)
    for orphan in orphans():
        if group_of(orphan) != pid:
            kill(orphan, signal.SIGTERM)
    while True:
        reap(0)
        left = orphans()
        if not kill_group(pid, 0) and not left:
            return
        waited = time.monotonic() - began
        if waited > left_s + SWEEP_S:
            return  # a zombie whose parent does not reap it: nothing more to do
        if waited > left_s:
            kill_group(pid, signal.SIGKILL)
            for orphan in left:
                kill(orphan, signal.SIGKILL)
        signal.sigtimedwait(WATCHED, 0.02)


def group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def signal_command(pid: int, signum: int) -> None:
    """Signal the command's group, or the command itself while it has not made its group yet."""
    if not kill_group(pid, signum):
        kill(pid, signum)


def kill_group(pid: int, signum: int) -> bool:
    """Signal the command's group. False when there is none."""
    try:
        with contextlib.suppress(PermissionError):
            os.killpg(pid, signum)
    except ProcessLookupError:
        return False
    return True


def kill(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def adopt_orphans() -> None:
    """On Linux, become the parent of processes that leave the command's group; elsewhere only the group is swept."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (ImportError, OSError, AttributeError):
        pass


def orphans() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot: unique together with the pid."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return 0


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def read_all(fd: int) -> str:
    """The child's error; empty once the command has started."""
    with open(fd, "rb") as pipe:
        return pipe.read().decode(errors="replace")


def write_json(folder: str, name: str, value: dict) -> None:
    """Atomic and synced: a run must not begin twice, even after a power cut."""
    temporary = os.path.join(folder, f".{name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, json.dumps(value).encode())
    os.fsync(fd)
    os.close(fd)
    os.rename(temporary, os.path.join(folder, name))
    at = os.open(folder, os.O_RDONLY)
    os.fsync(at)
    os.close(at)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else -1))
