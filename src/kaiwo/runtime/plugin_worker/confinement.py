"""Take rights away from this process for good: seccomp, Landlock, capabilities and resource limits.

In:    the folders that may still be read.   Out: which measures the kernel took. None of them can be undone.
A measure that the kernel lacks is left out, and the grade says so: see `Grade`.
"""

import contextlib
import ctypes
import errno
import os
import platform
import resource
import struct
from collections.abc import Sequence

import msgspec

MEMORY_MIB = 512  # that the plugin may add to what the worker uses before it loads the plugin
MAX_FILES = 64
FIRST_TO_END = 1_000  # the most that a process can say of itself
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_SET_PDEATHSIG = 4, 38, 22, 1
SECCOMP_MODE_FILTER = 2
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
LANDLOCK_CREATE, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_VERSION_FLAG, LANDLOCK_PATH_BENEATH = 1, 1
READ_FILE, READ_DIR = 1 << 2, 1 << 3
# How many rights over files each version of Landlock knows; the last entry holds for all later ones.
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
SIGKILL = 9

_COMMON_KILL = {"clone3": 435, "pidfd_open": 434, "pidfd_getfd": 438, "pidfd_send_signal": 424, "io_uring_setup": 425}
# The system calls that a loaded interpreter needs to compute, and to import modules from the allowed folders.
_ALLOWED = {
    "x86_64": (
        0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 17, 19, 20, 21, 23, 24, 25, 26, 27, 28, 32, 35, 39,
        60, 63, 78, 79, 89, 96, 98, 99, 100, 102, 104, 107, 108, 110, 131, 186, 201, 202, 204, 217, 218, 228, 229,
        230, 231, 257, 262, 267, 269, 270, 271, 273, 274, 318, 324, 332, 334, 437, 439,
    ),
    "aarch64": (
        17, 23, 48, 56, 57, 61, 62, 63, 64, 65, 66, 67, 72, 73, 78, 79, 80, 93, 94, 96, 98, 99, 100, 101, 113,
        114, 115, 123, 124, 132, 134, 135, 139, 153, 160, 165, 169, 172, 173, 174, 175, 176, 177, 178, 179, 214, 215,
        216, 226, 227, 232, 233, 278, 283, 291, 293, 437, 439,
    ),
}  # fmt: skip
# New processes, sockets, signals and looks into other processes: nobody does this by mistake, so the worker is killed.
_KILLED = {
    "x86_64": (41, 42, 43, 44, 46, 49, 50, 53, 56, 57, 58, 59, 62, 101, 129, 200, 234, 288, 297, 310, 311, 322),
    "aarch64": (198, 199, 200, 201, 202, 203, 206, 211, 117, 129, 130, 131, 138, 220, 221, 240, 242, 270, 271, 281),
}
# Calls that depend on their second argument: by machine the number, and what is allowed and what kills.
# fcntl can tell the kernel to signal any process when a pipe has data (F_SETFL with O_ASYNC, F_SETOWN, F_SETSIG): only
# the newest Landlock would stop that. What is left looks at a descriptor, or copies it.
F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETOWN, F_SETSIG, F_SETOWN_EX = 0, 1, 2, 3, 8, 10, 15
F_DUPFD_CLOEXEC, F_GET_SEALS = 1030, 1034
FIONCLEX, FIOCLEX, TCGETS = 0x5450, 0x5451, 0x5401
_BY_ARGUMENT = (
    ({"x86_64": 72, "aarch64": 25},
     (F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC, F_GET_SEALS), (F_SETOWN, F_SETSIG, F_SETOWN_EX)),
    ({"x86_64": 16, "aarch64": 29}, (FIONCLEX, FIOCLEX, TCGETS), ()),
)  # fmt: skip
# Memory that the limits do not count is not given: shared memory takes the address space of the view once that is
# unmapped, and what grows downwards counts as a stack.
_MMAP = {"x86_64": 9, "aarch64": 222}
MAP_SHARED, MAP_GROWSDOWN, MAP_HUGETLB = 0x1, 0x100, 0x40000
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_X32 = 0x40000000
# Their lower halves, in the data that a filter sees; the kernel looks at no more of these commands and flags.
SECOND_ARGUMENT, FOURTH_ARGUMENT = 24, 40

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class Grade(msgspec.Struct, frozen=True):
    """The measures that hold for a worker, and those that its kernel lacks."""

    measures: tuple[str, ...]
    missing: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """`full`, or what is missing."""
        return "full" if not self.missing else f"weaker: without {', '.join(self.missing)}"


def confine(readable: Sequence[str], memory_mib: int = MEMORY_MIB, listed: Sequence[str] = ()) -> Grade:
    """Folders of which only the names may be read are `listed`. Seccomp comes last: it forbids the calls that the other
    measures need."""
    steps = {
        "no-new-privileges": _forbid_new_privileges,
        "no-capabilities": _drop_capabilities,
        "limits": lambda: _limit_resources(memory_mib),
        "landlock": lambda: _restrict_files(readable, listed),
        "seccomp": _filter_system_calls,
    }
    done, missing = [], []
    _volunteer_to_end_first()
    for name, step in steps.items():
        try:
            step()
            done.append(name)
        except (OSError, KeyError, ValueError):
            missing.append(name)
    return Grade(tuple(done), tuple(missing))


def _volunteer_to_end_first() -> None:
    """When memory runs short, the kernel ends the worker and not the scheduler. Any process may ask for that while its
    files in /proc are its own: later they are root's."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(FIRST_TO_END))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _prctl(option: int, value: object, last: object = 0) -> None:
    zero = ctypes.c_ulong(0)
    _check(_libc.prctl(option, value, last, zero, zero))


def _forbid_new_privileges() -> None:
    """No setuid program gives rights back, and the worker dies with the thread that started it."""
    _prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1))
    _prctl(PR_SET_DUMPABLE, ctypes.c_ulong(0))
    _prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(SIGKILL))


def _drop_capabilities() -> None:
    head = struct.pack("Ii", 0x20080522, 0)
    _check(_libc.syscall(_CAPSET[platform.machine()], head, bytes(24)))


def _limit_resources(memory_mib: int) -> None:
    with open("/proc/self/statm", "rb") as file:
        sizes = [int(pages) * resource.getpagesize() for pages in file.read().split()]
    more = memory_mib << 20
    limits = {
        resource.RLIMIT_AS: sizes[0] + more,
        resource.RLIMIT_DATA: sizes[5] + more,  # what was mapped for the view is no room for other memory
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: MAX_FILES,
        resource.RLIMIT_NPROC: 1,
    }
    for which, value in limits.items():
        resource.setrlimit(which, (value, value))


def _be_alone() -> None:
    """Landlock and seccomp hold for the thread that asks for them, and code in one thread can use any other."""
    if len(os.listdir("/proc/self/task")) != 1:
        raise OSError(errno.EBUSY, "the worker has several threads")


def _restrict_files(readable: Sequence[str], listed: Sequence[str]) -> None:
    """Nothing can be written, and only these folders can be read; no TCP, and no signal leaves the worker."""
    _be_alone()
    version = _check(_libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), LANDLOCK_VERSION_FLAG))
    rights = FILE_RIGHTS.get(version, max(FILE_RIGHTS.values()))
    attributes = struct.pack("<Q", (1 << rights) - 1)
    if version >= 4:
        attributes += struct.pack("<Q", 0b11)  # bind and connect
    if version >= 6:
        attributes += struct.pack("<Q", 0b11)  # abstract sockets and signals
    ruleset = _check(_libc.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0))
    for path in (*readable, *listed):
        try:
            folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # what is not there needs no right
        allowed = READ_DIR if path in listed else READ_FILE | READ_DIR if os.path.isdir(path) else READ_FILE
        rule = struct.pack("<Qi", allowed, folder)
        _check(_libc.syscall(LANDLOCK_ADD_RULE, ruleset, LANDLOCK_PATH_BENEATH, rule, 0))
        os.close(folder)
    _check(_libc.syscall(LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)


def _filter_system_calls() -> None:
    program = filter_program(platform.machine())
    instructions = ctypes.create_string_buffer(program, len(program))

    class _Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    whole = _Program(len(program) // 8, ctypes.cast(instructions, ctypes.c_void_p))
    _prctl(PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), ctypes.byref(whole))


def filter_program(machine: str) -> bytes:
    """A BPF program over the number of the call, and of some an argument: some are allowed, some kill, and all
    others are refused (EPERM)."""
    load, jump_equal, jump_at_least, jump_any_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    killed = (*_KILLED[machine], *_COMMON_KILL.values())
    lines = [
        (load, 0, 0, 4),  # the architecture
        (jump_equal, 1, 0, _ARCHITECTURE[machine]),
        (answer, 0, 0, KILL),
        (load, 0, 0, 0),  # the number
        (jump_at_least, 0, 1, _X32),
        (answer, 0, 0, KILL),
    ]
    for number, verdict in (*((each, ALLOW) for each in _ALLOWED[machine]), *((each, KILL) for each in killed)):
        lines += [(jump_equal, 0, 1, number), (answer, 0, 0, verdict)]
    for numbers, allowed, deadly in _BY_ARGUMENT:
        rules = (*((each, ALLOW) for each in allowed), *((each, KILL) for each in deadly))
        inner = [(load, 0, 0, SECOND_ARGUMENT)]
        for value, verdict in rules:
            inner += [(jump_equal, 0, 1, value), (answer, 0, 0, verdict)]
        inner.append((answer, 0, 0, REFUSE))  # the number is no longer loaded: this call ends here
        lines += [(jump_equal, 0, len(inner), numbers[machine]), *inner]
    lines += [
        (jump_equal, 0, 3, _MMAP[machine]),
        (load, 0, 0, FOURTH_ARGUMENT),
        (jump_any_bit, 1, 0, MAP_SHARED | MAP_GROWSDOWN | MAP_HUGETLB),
        (answer, 0, 0, ALLOW),
        (answer, 0, 0, REFUSE),
    ]
    return b"".join(struct.pack("<HBBI", *line) for line in lines)
