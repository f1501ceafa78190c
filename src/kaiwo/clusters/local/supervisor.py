"""Run one command and record its start and its end: the only process that must outlive Kaiwo.

    python -I -S supervisor.py RUN_FOLDER [NOTICE_FD]

In:    RUN_FOLDER/run.json (command, env, workdir, log, time_limit_s, grace_s).
Out:   start.json before the command begins, overdue at its time limit, exit.json after it ended, its output in the log.
       With `console` in run.json the command begins once its client has connected (supervisor_console.py).
       A later limit.json replaces the time limit; SIGUSR1 means: read it now.
       With `groups` the command runs in these cgroups, and its end is recorded when they are empty (run_cgroup.py).
Never: runs twice. The lock is held while this process lives, and a folder with a start or an exit record is left alone.
       Imports more than a little of the standard library: hundreds of these may wait at once.

It has its own session, so neither a signal to Kaiwo nor Kaiwo's death reaches it. SIGTERM means: stop the command.
"""

import contextlib
import errno
import fcntl
import json
import os
import resource
import signal
import sys
import termios
import time

RESERVED = ".exit.reserved"
SECRETS = "KAIWO_SECRET_ENV"  # variables for the command alone, as JSON: they are in no file
MESSAGE_CHARS = 2000  # so that the record fits
BLOCK = 1 << 16  # holes begin and end at the blocks of the file system; this is a multiple of all usual ones
PUNCH_HOLE = 0x03  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
SWEEP_S = 2.0  # how long processes that the command left running may take to end
LOG_CHECK_S, QUIET_LOG_CHECK_S = 1.0, 5.0  # between two looks at the size of a log that grows, or does not
OOM_CHECK_S = 1.0  # between two looks whether the kernel has killed some process of the run for its memory
RECORD_BYTES = 4096  # reserved for the exit record before the command begins
RETRY_S = 1.0
IS_TAKEN = 75  # another supervisor has this run, or had it
WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1}


def main(folder: str, notice: int) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)  # read with sigtimedwait: no handlers, no races
    lock = take_lock(folder)
    if lock is None:
        return IS_TAKEN
    with open(os.path.join(folder, "run.json")) as file:
        run = json.load(file)
    adopt_orphans()
    log = os.open(run["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    console = load("supervisor_console").Console(folder, log) if run.get("console") else None
    cgroup = load("run_cgroup").RunCgroup(run["groups"]) if run.get("groups") else None
    reserve_exit_record(folder)
    if console is not None and (why := console.wait_for_client({signal.SIGTERM})):
        write_exit_record(folder, never_began(why))
        return 0
    has_terminal = console is not None and console.is_terminal
    began = time.time()
    ends = console.ends() if console is not None else (os.open(os.devnull, os.O_RDONLY), log)
    pid, go, error_pipe = fork_command(run, ends, (lock, notice), cgroup)
    own = os.getpid()
    start = {"supervisor": own, "supervisor_ticks": start_ticks(own), "pid": pid, "ticks": start_ticks(pid)}
    write_json(folder, "start.json", {**start, "boot": boot_id(), "started": began, "takes_limit": True})
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
    limit = LogLimit(log, 0 if console is not None else run.get("log_bytes", 0))
    status, reason, left_s = wait_for(pid, run["time_limit_s"], run["grace_s"], folder, has_terminal, limit, cgroup)
    message = read_all(error_pipe)
    if message:
        with contextlib.suppress(OSError):  # the disk is full: the exit record has the message, too
            os.write(log, f"kaiwo: {message}\n".encode())
    sweep(pid, left_s, is_signalled=reason != "exited")
    record = {"code": os.waitstatus_to_exitcode(status), "reason": reason, "message": message}
    if cgroup is not None:
        cgroup.end_all()  # what escaped from the command's session is still in its cgroup
        record |= memory_used(cgroup, record, run.get("memory_mib", 0))
    if console is not None:
        console.drain()
    record |= {"started": began, "ended": time.time()}
    limit.apply()
    write_exit_record(folder, record)
    if cgroup is not None:
        cgroup.remove()
    if console is not None:
        console.finish(record)
    return 0


def memory_used(cgroup, record: dict, limit_mib: int) -> dict:
    """What its cgroup says about its memory, and about its end if that was the reason."""
    peak_mib = cgroup.peak_mib()
    if record["reason"] not in ("exited", "out-of-memory") or not cgroup.oom_kills():
        return {"peak_mib": peak_mib}
    is_own_limit = limit_mib and (not peak_mib or peak_mib >= 0.9 * limit_mib)
    return {
        "code": record["code"] or -signal.SIGKILL,
        "reason": "out-of-memory",
        "message": "" if is_own_limit else "the machine ran out of memory, and the kernel stopped it",
        "peak_mib": peak_mib,
    }


def load(name: str):
    """Load a file next to this one: there is no package to import it from."""
    from importlib.util import module_from_spec, spec_from_file_location

    folder = os.path.dirname(os.path.abspath(__file__))
    spec = spec_from_file_location(name, os.path.join(folder, f"{name}.py"))
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


def fork_command(run: dict, ends: tuple[int, int], private: tuple[int, ...], cgroup) -> tuple[int, int, int]:
    """Fork a child that waits for a byte. Returns its pid, the pipe for that byte, and the pipe with its error."""
    go_read, go = os.pipe()
    error_pipe, error_pipe_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        for fd in (*private, go, error_pipe):
            if fd >= 0:
                os.close(fd)
        try:
            become_command(run, ends, go_read, cgroup)
        except BaseException as error:
            os.write(error_pipe_write, explain(run, error).encode())
        finally:
            os._exit(127)
    os.close(go_read)
    os.close(error_pipe_write)
    return pid, go, error_pipe


def become_command(run: dict, ends: tuple[int, int], go: int, cgroup) -> None:
    """In the child, between the fork and the command. Does not return."""
    os.setsid()
    if os.isatty(ends[0]):
        fcntl.ioctl(ends[0], termios.TIOCSCTTY, 0)  # so that Ctrl-C there reaches it
    if not os.read(go, 1):
        os._exit(127)  # the supervisor died before it wrote its start record, so the command must not run
    if run.get("cgroup"):
        with open(os.path.join(run["cgroup"], "cgroup.procs"), "w") as procs:
            procs.write(str(os.getpid()))
    if run.get("open_files"):  # Kaiwo has raised its own
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (run["open_files"], limits[1]))
    if cgroup is not None:
        cgroup.enter()
    os.dup2(ends[0], 0)
    os.dup2(ends[1], 1)
    os.dup2(ends[1], 2)
    os.chdir(run["workdir"])
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # make or the shell that started Kaiwo may ignore some
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    secrets = json.loads(os.environ.pop(SECRETS, "{}"))
    os.execvpe(run["command"][0], run["command"], {**os.environ, **secrets, **run["env"]})


def explain(run: dict, error: BaseException) -> str:
    """Everybody sees the reason, but not the command: it is for its user alone."""
    if isinstance(error, OSError) and error.filename == run["workdir"]:
        return f"the working directory {run['workdir']} cannot be used: {error.strerror}"
    if isinstance(error, OSError) and str(error.filename).endswith("/cgroup.procs"):
        return f"its cgroup {os.path.dirname(str(error.filename))} cannot be entered: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return "the command was not found"
    if isinstance(error, OSError):
        return f"the command cannot be run: {error.strerror}"
    return f"the command cannot be run: {error}"


def wait_for(
    pid: int, limit_s: float, grace_s: float, folder: str, has_terminal: bool, limit: "LogLimit", cgroup=None
) -> tuple[int, str, float]:
    """Wait for the command's end; stop it at its limit or on SIGTERM.

    Returns its status, why it ended, and how many seconds the processes that it left may still take.
    """
    began = time.monotonic()
    deadline = began + limit_s if limit_s > 0 else None
    reason = "exited"
    must_watch_memory = cgroup is not None and not cgroup.ends_as_a_whole
    while True:
        status = reap(pid)
        left = 3600.0 if deadline is None else deadline - time.monotonic()
        if left <= 0 and reason == "exited":  # Kaiwo may have died between the file and the signal
            deadline = new_deadline(folder, began, deadline)
            left = 3600.0 if deadline is None else deadline - time.monotonic()
        if status is not None:
            return status, reason, SWEEP_S if reason == "exited" else max(left, 0.0)
        if left > 0:
            pause_s = min(left, limit.pause_s) if limit.most else left
            caught = signal.sigtimedwait(WATCHED, min(pause_s, OOM_CHECK_S) if must_watch_memory else pause_s)
            limit.apply()
            if must_watch_memory and reason == "exited" and cgroup.oom_kills():
                reason, deadline = "out-of-memory", time.monotonic() + SWEEP_S
                cgroup.kill()  # it must not go on without the process that the kernel chose
            if caught is not None and caught.si_signo == signal.SIGUSR1 and reason == "exited":
                deadline = new_deadline(folder, began, deadline)
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


def new_deadline(folder: str, began: float, deadline: float | None) -> float | None:
    """The deadline by limit.json; the one that there was if the file is missing or cannot be read."""
    try:
        with open(os.path.join(folder, "limit.json")) as file:
            limit_s = float(json.load(file)["time_limit_s"])
    except (OSError, ValueError, KeyError, TypeError):
        return deadline
    return began + limit_s if limit_s > 0 else None


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
    try:
        write_synced(temporary, json.dumps(value).encode(), os.O_CREAT | os.O_TRUNC)
        os.rename(temporary, os.path.join(folder, name))
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(folder)


def write_synced(path: str, content: bytes, flags: int) -> None:
    fd = os.open(path, os.O_WRONLY | flags, 0o600)
    try:
        if os.write(fd, content) != len(content):  # the disk became full in the middle
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(folder: str) -> None:
    at = os.open(folder, os.O_RDONLY)
    os.fsync(at)
    os.close(at)


def reserve_exit_record(folder: str) -> None:
    """Take the room for the exit record now: a command that ends on a full disk must not look lost, or run twice."""
    write_synced(os.path.join(folder, RESERVED), b" " * RECORD_BYTES, os.O_CREAT | os.O_TRUNC)


def write_exit_record(folder: str, record: dict) -> None:
    """Write into the reserved room. Where even that fails, try again for as long as it takes: the lock is held, so the
    run counts as running and keeps its devices meanwhile."""
    content = json.dumps({**record, "message": record.get("message", "")[:MESSAGE_CHARS]}).encode()
    reserved = os.path.join(folder, RESERVED)
    while True:
        try:
            write_synced(reserved, content.ljust(RECORD_BYTES), 0)
            os.rename(reserved, os.path.join(folder, "exit.json"))
            return sync_folder(folder)
        except OSError:
            if not os.path.isdir(folder):
                return None  # its records were removed while it ran: nobody will read this one
            with contextlib.suppress(OSError):
                return write_json(folder, "exit.json", record)
            time.sleep(RETRY_S)


class LogLimit:
    """Keeps the first and the last part of a log that grows beyond `most` bytes; 0: everything.

    The middle becomes a hole in the file: the command goes on writing, the positions of readers stay right, and the
    blocks are free. A file system without holes keeps everything.
    """

    def __init__(self, log: int, most: int) -> None:
        self._log, self.most = log, most
        self._size, self.pause_s = 0, LOG_CHECK_S
        self._end = most // 2 // BLOCK * BLOCK  # of the hole; it begins where the first part ends

    def apply(self) -> None:
        size = os.fstat(self._log).st_size if self.most else 0
        self.pause_s = LOG_CHECK_S if size > self._size else QUIET_LOG_CHECK_S
        self._size = size
        end = (size - self.most // 2) // BLOCK * BLOCK
        if size <= self.most or end <= self._end:
            return
        try:
            import ctypes

            offset, length = ctypes.c_long(self._end), ctypes.c_long(end - self._end)
            if ctypes.CDLL(None).fallocate(self._log, PUNCH_HOLE, offset, length) == 0:
                self._end = end
                return
        except (ImportError, OSError, AttributeError):
            pass
        self.most = 0  # it does not work here


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else -1))
