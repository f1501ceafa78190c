"""Runs one command and writes down its start and its end: the only thing that must outlive Kaiwo.

    python -I -S supervisor.py RUN_FOLDER [NOTICE_FD]

In:    RUN_FOLDER/run.json (command, env, workdir, log, time_limit_s, grace_s).
Out:   start.json before the command begins, overdue when its time is up, exit.json after it ended, its output in the
       log. With `console` in run.json it begins when the person who runs it is there, and talks to them
       (supervisor_console.py).
Never: runs twice. The lock is held as long as this process lives, and a folder with a start or an exit record is left
       alone. Nothing but the standard library, and little of that: hundreds of these may wait at once.

It sits in its own session, so neither a signal to Kaiwo nor Kaiwo's death reaches it. SIGTERM means: stop the command.
"""

import contextlib
import fcntl
import json
import os
import signal
import sys
import termios
import time

SWEEP_S = 2.0  # for what the command left running
IS_TAKEN = 75  # another supervisor has this run, or had it
WATCHED = {signal.SIGCHLD, signal.SIGTERM}


def main(folder: str, notice: int) -> int:
    """Run the folder's command once."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)  # read with sigtimedwait: no handlers, no races
    lock = take_lock(folder)
    if lock is None:
        return IS_TAKEN
    run = read_json(folder, "run.json")
    adopt_orphans()
    log = os.open(run["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    console = load_console().Console(folder, log) if run.get("console") else None
    if console is not None and (why := console.meet({signal.SIGTERM})):
        write_json(folder, "exit.json", never_began(why))
        return 0
    has_terminal = console is not None and console.is_terminal
    began = time.time()
    ends = console.ends() if console is not None else (os.open(os.devnull, os.O_RDONLY), log)
    pid, go, trouble = fork_command(run, ends, (lock, notice))
    start = {
        "supervisor": os.getpid(),
        "supervisor_ticks": start_ticks(os.getpid()),
        "pid": pid,
        "ticks": start_ticks(pid),
        "boot": boot_id(),
        "started": began,
    }
    write_json(folder, "start.json", start)
    if console is not None:
        for fd in set(ends):
            os.close(fd)
        console.connect(pid)
    os.write(go, b"1")
    os.close(go)
    tell(notice)
    status, reason, patience_s = wait_for(pid, run["time_limit_s"], run["grace_s"], folder, has_terminal)
    message = read_all(trouble)
    if message:
        os.write(log, f"kaiwo: {message}\n".encode())
    sweep(pid, patience_s, is_told=reason != "exited")
    if console is not None:
        console.drain()
    code = os.waitstatus_to_exitcode(status)
    record = {"code": code, "reason": reason, "message": message, "started": began, "ended": time.time()}
    write_json(folder, "exit.json", record)
    if console is not None:
        console.finish(record)
    return 0


def load_console():
    """The file beside this one: no package is there to import it from."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(
        "console", os.path.join(os.path.dirname(os.path.abspath(__file__)), "supervisor_console.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def never_began(why: str) -> dict:
    """The exit record of a command that had nobody to talk to."""
    if why == "stopped":
        return {"code": -signal.SIGTERM, "reason": "stopped"}
    return {"code": -signal.SIGHUP, "reason": "exited", "message": "whoever ran it went away before it began"}


def take_lock(folder: str) -> int | None:
    """The folder's lock, or None when the run is somebody else's or is over."""
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(40):  # Kaiwo holds it for a moment when it looks at the run
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
    """A child that waits for the word to go: its pid, where to write the word, and where it says what went wrong."""
    go_read, go = os.pipe()
    trouble, trouble_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        for fd in (*private, go, trouble):
            if fd >= 0:
                os.close(fd)
        try:
            become_command(run, ends, go_read)
        except BaseException as error:
            os.write(trouble_write, explain(run, error).encode())
        finally:
            os._exit(127)
    os.close(go_read)
    os.close(trouble_write)
    return pid, go, trouble


def become_command(run: dict, ends: tuple[int, int], go: int) -> None:
    """In the child: everything between the fork and the command. Does not return."""
    os.setsid()
    if os.isatty(ends[0]):
        fcntl.ioctl(ends[0], termios.TIOCSCTTY, 0)  # its own: Ctrl-C there reaches it
    if not os.read(go, 1):
        os._exit(127)  # the supervisor died before it had written its start record: then this never ran
    if run.get("cgroup"):
        with open(os.path.join(run["cgroup"], "cgroup.procs"), "w") as procs:
            procs.write(str(os.getpid()))
    os.dup2(ends[0], 0)
    os.dup2(ends[1], 1)
    os.dup2(ends[1], 2)
    os.chdir(run["workdir"])
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # whoever started Kaiwo (make, a shell) may have ignored some
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execvpe(run["command"][0], run["command"], {**os.environ, **run["env"]})


def explain(run: dict, error: BaseException) -> str:
    """Why the command did not begin, in one sentence."""
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
    """Wait for the command's end; stop it at its limit or when told to.

    Returns its status, why it ended, and how many seconds what it left running may still take.
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
            if reason == "time-limit":
                mark_overdue(folder)
            signal_command(pid, signal.SIGTERM)
            if has_terminal:
                signal_command(pid, signal.SIGHUP)  # a shell at a terminal does not listen to the other one
            signal_command(pid, signal.SIGCONT)  # a stopped process cannot end
            deadline = time.monotonic() + grace_s
        else:
            signal_command(pid, signal.SIGKILL)
            deadline = time.monotonic() + SWEEP_S


def mark_overdue(folder: str) -> None:
    """Let Kaiwo see why the command is being stopped; on a full disk it hears only of the end."""
    with contextlib.suppress(OSError), open(os.path.join(folder, "overdue"), "w"):
        pass


def reap(pid: int) -> int | None:
    """The command's status when it has ended; orphans that fell to us are reaped on the way."""
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if ended == 0:
            return None
        if ended == pid:
            return status


def sweep(pid: int, patience_s: float, is_told: bool) -> None:
    """End what the command left running: its group, and whatever of it fell to us as orphans."""
    began = time.monotonic()
    if not is_told:
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
        if waited > patience_s + SWEEP_S:
            return  # a zombie whose parent does not look after it: nothing more to do
        if waited > patience_s:
            kill_group(pid, signal.SIGKILL)
            for orphan in left:
                kill(orphan, signal.SIGKILL)
        signal.sigtimedwait(WATCHED, 0.02)


def group_of(pid: int) -> int:
    """A process's group; 0 when it is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def signal_command(pid: int, signum: int) -> None:
    """Signal the command's group, or the command itself while it has not made its group yet."""
    if not kill_group(pid, signum):
        kill(pid, signum)


def kill_group(pid: int, signum: int) -> bool:
    """Signal the command's group; tells whether there is one."""
    try:
        os.killpg(pid, signum)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def kill(pid: int, signum: int) -> None:
    """Signal one process, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def adopt_orphans() -> None:
    """Processes that leave the command's group fall to us, not to init (Linux). Without it only the group is swept."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (ImportError, OSError, AttributeError):
        pass


def orphans() -> list[int]:
    """Our children that live."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def start_ticks(pid: int) -> int:
    """When a process began, in clock ticks since the machine started: with the pid it is unique."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return 0


def boot_id() -> str:
    """Differs after every start of the machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def tell(notice: int) -> None:
    """Let Kaiwo know that the start is on record."""
    if notice >= 0:
        with contextlib.suppress(BrokenPipeError):  # Kaiwo died meanwhile; the record will tell the next one
            os.write(notice, b"1")
        os.close(notice)


def read_all(fd: int) -> str:
    """What the child says went wrong; nothing once the command has begun."""
    parts = []
    while part := os.read(fd, 4096):
        parts.append(part)
    os.close(fd)
    return b"".join(parts).decode(errors="replace")


def read_json(folder: str, name: str) -> dict:
    """One of the folder's records."""
    with open(os.path.join(folder, name)) as file:
        return json.load(file)


def write_json(folder: str, name: str, value: dict) -> None:
    """Whole or not at all, and on disk: a run must not begin twice even after a power cut."""
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
