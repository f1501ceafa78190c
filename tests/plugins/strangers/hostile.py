"""Plugins that misbehave, each in its own way, after some good answers. They are loaded into a worker process only."""

# ruff: noqa: B018, SIM115
import ctypes
import gc
import importlib
import os
import pickle
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np

GOOD_ANSWERS = 3


class Hostile:
    version, weight = "1", 50
    calls = 0

    def score(self, view, want, nodes):
        self.calls += 1
        if self.calls <= GOOD_ANSWERS:
            return np.full(len(nodes), 500)
        return self.misbehave(view, want, nodes)


def kind(words):
    """A kind of misbehaviour, and what the report about it says."""

    def make(function):
        cls = type(function.__name__, (Hostile,), {"name": function.__name__, "words": words})
        cls.misbehave = lambda self, view, want, nodes: function(self, view, nodes)
        KINDS[function.__name__] = cls
        return cls

    return make


KINDS: dict = {}


@kind("raised ZeroDivisionError")
def raises(self, view, nodes):
    1 // 0


@kind("expected .* integers")
def returns_nan(self, view, nodes):
    return np.full(len(nodes), np.nan)


@kind("expected .* integers")
def returns_too_few(self, view, nodes):
    return np.zeros(len(nodes) - 1, np.int64)


@kind("expected .* integers")
def returns_a_matrix(self, view, nodes):
    return np.zeros((len(nodes), 2), np.int64)


@kind("expected 0 to 1000")
def returns_too_much(self, view, nodes):
    return np.full(len(nodes), 2**60)


@kind("expected .* integers")
def returns_nothing(self, view, nodes):
    return None


@kind("returned what was not expected|raised")
def returns_objects(self, view, nodes):
    return np.array([object()] * len(nodes))


@kind("raised ValueError: .*read-only")
def writes_to_the_view(self, view, nodes):
    view.free[:] = 0


@kind("raised ValueError")
def makes_the_view_writable(self, view, nodes):
    view.gpus.flags.writeable = True


@kind("SIGSEGV|SIGBUS")
def writes_to_the_memory_of_the_view(self, view, nodes):
    ctypes.memset(view.free.ctypes.data, 0, 64)


@kind("SIGSEGV|SIGBUS")
def makes_the_memory_writable_and_writes(self, view, nodes):
    page = view.free.ctypes.data & ~4095
    ctypes.pythonapi.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(4096), 3)
    ctypes.memset(view.free.ctypes.data, 0, 64)


@kind("did not answer within")
def loops_forever(self, view, nodes):
    while True:
        pass


@kind("did not answer within")
def sleeps(self, view, nodes):
    time.sleep(60)


@kind("status 7")
def exits(self, view, nodes):
    os._exit(7)


@kind("raised SystemExit")
def leaves_by_exception(self, view, nodes):
    sys.exit(0)


@kind("raised RecursionError|SIGSEGV")
def recurses(self, view, nodes):
    return recurses_more(nodes)


def recurses_more(nodes):
    return recurses_more(nodes)


@kind("tried os.fork")
def forks(self, view, nodes):
    while True:
        os.fork()


@kind("system call")
def forks_behind_pythons_back(self, view, nodes):
    ctypes.pythonapi.fork()


@kind("tried subprocess.Popen|tried os.posix_spawn")
def starts_a_program(self, view, nodes):
    subprocess.run(["/bin/true"], check=False)


@kind("tried _thread.start_new_thread|system call")
def starts_a_thread(self, view, nodes):
    threading.Thread(target=time.sleep, args=(60,)).start()


@kind("raised MemoryError|raised .*ArrayMemoryError|raised .*MemoryError")
def takes_ten_gigabytes(self, view, nodes):
    np.ones(10 * 2**30, np.uint8)


@kind("MemoryError|did not answer|SIGKILL")
def leaks(self, view, nodes):
    kept = self.__dict__.setdefault("kept", [])
    while True:
        kept.append(np.ones(8 << 20, np.uint8))


@kind("tried socket")
def opens_a_socket(self, view, nodes):
    socket.socket().connect(("127.0.0.1", 80))


@kind("system call")
def opens_a_socket_behind_pythons_back(self, view, nodes):
    ctypes.pythonapi.socket(2, 1, 0)


@kind("tried to open .*token")
def reads_the_service_account_token(self, view, nodes):
    open("/var/run/secrets/kubernetes.io/serviceaccount/token").read()


@kind("tried to open .*signing.key")
def reads_a_signing_key(self, view, nodes):
    open(os.path.join(os.path.dirname(__file__), "..", "signing.key")).read()


@kind("raised RuntimeError: nothing could be read")
def reads_a_signing_key_behind_pythons_back(self, view, nodes):
    path = os.path.join(os.path.dirname(__file__), "..", "signing.key")
    if ctypes.pythonapi.open(path.encode(), 0) < 0:
        raise RuntimeError("nothing could be read")
    return np.zeros(len(nodes), np.int64)


@kind("raised RuntimeError: nothing could be written")
def writes_a_file_behind_pythons_back(self, view, nodes):
    if ctypes.pythonapi.open(b"/tmp/kaiwo-plugin-was-here", os.O_CREAT | os.O_WRONLY, 0o600) < 0:
        raise RuntimeError("nothing could be written")
    return np.zeros(len(nodes), np.int64)


@kind("tried os.kill")
def signals_the_parent(self, view, nodes):
    os.kill(os.getppid(), signal.SIGTERM)


@kind("system call")
def signals_the_parent_behind_pythons_back(self, view, nodes):
    ctypes.pythonapi.kill(os.getppid(), 9)


@kind("system call")
def looks_into_the_parent(self, view, nodes):
    ctypes.pythonapi.ptrace(16, os.getppid(), 0, 0)


@kind("does not belong to a question|did not answer|cannot be read|expected")
def forges_answers(self, view, nodes):
    for fd in range(3, 1 << 14):
        for _ in range(50):
            try:
                os.write(fd, b"\x01" * 17)
            except OSError:
                break
    return np.zeros(len(nodes), np.int64)


@kind("did not answer within")
def answers_after_the_deadline(self, view, nodes):
    time.sleep(2)
    return np.full(len(nodes), 1000)


@kind("status|ended without an answer|raised OSError|did not answer|made a system call")
def closes_its_pipes(self, view, nodes):
    os.closerange(3, 1 << 14)
    return np.zeros(len(nodes), np.int64)


@kind("raised KeyboardInterrupt")
def pretends_a_ctrl_c(self, view, nodes):
    raise KeyboardInterrupt


def worker_of():
    """The worker's own object: nothing in a process is hidden from the code in it."""
    frame = sys._getframe()
    while "_tables" not in getattr(frame.f_locals.get("self"), "__dict__", {}):
        frame = frame.f_back
    return frame.f_locals["self"]


@kind("took too much time of one cycle|did not answer within")
def eats_the_time_budget(self, view, nodes):
    time.sleep(0.4)  # less than the deadline, again and again
    return np.full(len(nodes), 500)


@kind("did not answer within")
def hangs_when_it_is_told_about_nodes(self, view, nodes):
    worker_of()._tables.define = lambda *arguments: time.sleep(60)
    return np.full(len(nodes), 500)


@kind("does not belong to a question")
def sends_half_an_answer_and_waits(self, view, nodes):
    os.write(worker_of()._answers, b"\x01")
    time.sleep(60)


@kind("does not belong to a question|expected 0 to 1000")
def says_that_its_answer_is_a_gigabyte(self, view, nodes):
    worker = worker_of()
    os.write(worker._answers, struct.pack("<QBQ", worker._number, 1, 1 << 30))
    time.sleep(60)


@kind("raised ValueError: an answer of .* is too long|raised .*MemoryError")
def answers_with_a_gigabyte(self, view, nodes):
    return np.zeros(1 << 27, np.int64)


@kind("returned what was not expected: .* bytes")
def answers_with_millions_of_empty_lists(self, view, nodes):
    worker, data = worker_of(), b"\xdd" + struct.pack(">I", 15_000_000) + b"\x90" * 15_000_000
    worker._answer(2, data)  # 15 MB here, a gigabyte in whoever decodes it
    time.sleep(60)


@kind("returned what was not expected|returned list|RecursionError")
def answers_with_a_deep_nest(self, view, nodes):
    worker_of()._answer(2, b"\x91" * 4_000 + b"\x90")
    time.sleep(60)


@kind("returned what was not expected")
def answers_with_an_impossible_shape(self, view, nodes):
    worker_of()._answer(1, b"\x93\xa3<i8\x91\xcf" + b"\xff" * 8 + b"\xc4\x08" + bytes(8))
    time.sleep(60)


@kind("expected .* integers")
def answers_with_a_pickle(self, view, nodes):
    return pickle.dumps(Hostile)


@kind("raised RuntimeError: the memory has its size")
def truncates_the_shared_memory(self, view, nodes):
    sizes = [ctypes.pythonapi.ftruncate(fd, ctypes.c_long(0)) for fd in range(3, 64)]
    raise RuntimeError("the memory has its size" if set(sizes) == {-1} else "truncated")


@kind("system call")
def signals_the_parent_through_a_pipe(self, view, nodes):
    """The kernel signals the owner of a pipe when there is data: F_SETOWN, F_SETSIG and O_ASYNC."""
    fd = worker_of()._asks
    for command, value in ((8, os.getppid()), (10, 9), (4, 0o20000)):
        ctypes.pythonapi.fcntl(fd, command, value)
    time.sleep(60)


@kind("did not answer within|does not belong")
def answers_and_computes_on(self, view, nodes):
    worker = worker_of()
    worker._reply(np.full(len(nodes), 500))
    while True:
        pass


@kind("raised UnspeakableError, which has no words")
def raises_what_cannot_be_printed(self, view, nodes):
    class UnspeakableError(Exception):
        def __str__(self):
            raise self

    raise UnspeakableError


@kind(r"raised ValueError: \[2J \[31m all is well$")
def writes_on_the_terminal_of_the_administrator(self, view, nodes):
    raise ValueError("\x1b[2J\x1b[31m\nall is well\x00")


@kind("raised ModuleNotFoundError: plugins import Python's own modules, kaiwo.plugins, numpy")
def imports_what_nobody_allowed(self, view, nodes):
    importlib.import_module("yaml")  # installed for Kaiwo, and in no hash


def refused(call, *arguments):
    """The kernel refused it: say so by raising, which is how each of these ends."""
    if getattr(ctypes.pythonapi, call)(*arguments) >= 0:
        raise RuntimeError(f"{call} was possible")
    raise RuntimeError(f"{call} is refused")


@kind("raised RuntimeError: prctl is refused")
def makes_itself_readable_to_others(self, view, nodes):
    refused("prctl", 4, ctypes.c_ulong(1), 0, 0, 0)  # PR_SET_DUMPABLE


@kind("raised RuntimeError: memfd_create is refused")
def makes_a_file_that_nobody_sees(self, view, nodes):
    refused("memfd_create", b"payload", 0)


@kind("system call")
def asks_the_kernel_through_a_ring(self, view, nodes):
    """io_uring opens files and sockets in calls that no filter sees."""
    ctypes.pythonapi.syscall(425, 8, ctypes.create_string_buffer(120))


@kind("raised RuntimeError: syscall is refused")
def handles_the_page_faults_of_others(self, view, nodes):
    refused("syscall", 323 if os.uname().machine == "x86_64" else 282, 0)  # userfaultfd


@kind("raised RuntimeError: open is refused")
def writes_to_its_own_memory_as_a_file(self, view, nodes):
    refused("open", b"/proc/self/mem", os.O_RDWR)


@kind("system call|SIGSEGV|SIGILL")
def speaks_the_32_bit_language_of_the_kernel(self, view, nodes):
    """The numbers of that machine's calls are others: 2 is fork there, and open here."""
    code = b"\xb8\x02\x00\x00\x00\xcd\x80\xc3"  # mov eax, 2; int 0x80; ret
    make = ctypes.pythonapi.mmap
    make.restype = ctypes.c_void_p
    page = make(None, ctypes.c_size_t(4096), 7, 0x22, -1, ctypes.c_long(0))
    ctypes.memmove(page, code, len(code))
    ctypes.CFUNCTYPE(ctypes.c_int)(page)()


@kind("raised RuntimeError: setitimer is refused")
def leaves_a_timer_for_later(self, view, nodes):
    """A handler would run after the answer, in the time of another question."""
    refused("setitimer", 0, struct.pack("4q", 0, 1000, 0, 1000), None)


@kind("did not answer within")
def hangs_in_the_garbage_collector(self, view, nodes):
    gc.callbacks.append(lambda phase, about: time.sleep(60))
    gc.collect()
    return np.full(len(nodes), 500)


@kind(r"raised ValueError: x{400,}$|did not answer within")
def says_a_hundred_megabytes(self, view, nodes):
    raise ValueError("x" * 10**8)


@kind("returned what was not expected|expected .* integers")
def replaces_how_answers_are_written(self, view, nodes):
    messages = sys.modules["kaiwo.runtime.plugin_worker.messages"]
    messages.encode_array = lambda array: pickle.dumps(array)
    return np.full(len(nodes), 500)


@kind("raised ValidationError|raised DecodeError|status 1|SIG")
def puts_other_memory_in_place_of_the_shared_one(self, view, nodes):
    page = view.free.ctypes.data & ~4095
    ctypes.pythonapi.mmap(ctypes.c_void_p(page), ctypes.c_size_t(1 << 20), 3, 0x32, -1, ctypes.c_long(0))
    worker = worker_of()
    worker._reply(np.full(len(nodes), 500))
    worker._next()  # reads the next question, which is not there
    os._exit(1)


@kind("system call")
def takes_a_socket_of_the_scheduler_by_its_number(self, view, nodes):
    whom = ctypes.pythonapi.syscall(434, os.getppid(), 0)  # pidfd_open
    for fd in range(3, 64):
        ctypes.pythonapi.syscall(438, whom, fd, 0)  # pidfd_getfd


@kind("raised RuntimeError: setrlimit is refused")
def raises_its_own_limits(self, view, nodes):
    refused("setrlimit", 9, struct.pack("2Q", 1 << 40, 1 << 40))


@kind("raised RuntimeError: unshare is refused")
def makes_a_world_of_its_own(self, view, nodes):
    refused("unshare", 0x10000000)  # a user namespace, in which it would be root


@kind("did not answer within")
def gives_its_turn_to_others_forever(self, view, nodes):
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            ctypes.pythonapi.signal(number, ctypes.c_void_p(1))  # ignored
    while True:
        ctypes.pythonapi.sched_yield()


@kind("raised RuntimeError: mlockall is refused")
def keeps_memory_from_all_others(self, view, nodes):
    refused("mlockall", 3)


def in_place_of_the_view(view, flags):
    """The view's 256 MiB counted when the limit of addresses was set. Raises, with what could be had for them."""
    make, most = ctypes.pythonapi.mmap, 1_024
    make.restype = ctypes.c_void_p
    ctypes.pythonapi.munmap(ctypes.c_void_p(view.free.ctypes.data & ~4095), ctypes.c_size_t(256 << 20))
    for taken in range(0, most, 16):
        page = make(None, ctypes.c_size_t(16 << 20), 3, flags, -1, ctypes.c_long(0))
        if page in (None, 2**64 - 1):
            raise RuntimeError("within its limit" if taken <= 512 else f"took {taken} MiB")
    raise RuntimeError(f"took {most} MiB")


@kind("raised RuntimeError: within its limit")
def takes_memory_in_place_of_the_view(self, view, nodes):
    in_place_of_the_view(view, 0x22)


@kind("raised RuntimeError: within its limit")
def takes_shared_memory_in_place_of_the_view(self, view, nodes):
    in_place_of_the_view(view, 0x21)


@kind("raised RuntimeError: within its limit")
def takes_stacks_in_place_of_the_view(self, view, nodes):
    in_place_of_the_view(view, 0x122)


@kind("raised RuntimeError: madvise is refused")
def punches_a_hole_into_the_view(self, view, nodes):
    """MADV_REMOVE takes pages out of the file that the scheduler writes to."""
    refused("madvise", ctypes.c_void_p(view.free.ctypes.data & ~4095), ctypes.c_size_t(4096), 9)


@kind("raised RuntimeError: mprotect is refused")
def makes_a_second_map_of_the_view(self, view, nodes):
    move = ctypes.pythonapi.mremap
    move.restype = ctypes.c_void_p
    start = ctypes.c_void_p(view.free.ctypes.data & ~4095)
    page = move(start, ctypes.c_size_t(0), ctypes.c_size_t(4096), 1)
    refused("mprotect", ctypes.c_void_p(page), ctypes.c_size_t(4096), 3)


@kind("raised RuntimeError: sched_setscheduler is refused")
def asks_to_run_before_all_others(self, view, nodes):
    refused("sched_setscheduler", 0, 1, struct.pack("i", 99))


@kind("raised RuntimeError: fcntl is refused")
def makes_its_pipe_large(self, view, nodes):
    refused("fcntl", worker_of()._answers, 1031, 1 << 20)  # F_SETPIPE_SZ


@kind("raised RuntimeError: ioctl is refused")
def types_into_the_terminal(self, view, nodes):
    refused("ioctl", 0, 0x5412, b"x")  # TIOCSTI


@kind("system call")
def stops_itself(self, view, nodes):
    getattr(ctypes.pythonapi, "raise")(signal.SIGSTOP)


@kind("raised RuntimeError: open is refused")
def looks_at_other_processes(self, view, nodes):
    refused("open", b"/proc/1/cmdline", 0)


@kind("raised PermissionError")
def reads_a_file_when_the_audit_is_blind(self, view, nodes):
    worker_of()._may_open = lambda path: True
    return np.frombuffer(open("/etc/passwd", "rb").read(), np.uint8)


@kind("raised PermissionError")
def lists_folders_of_others(self, view, nodes):
    return os.listdir("/etc")


@kind("did not answer within")
def compares_text_for_ever(self, view, nodes):
    """Inside one call of Python's own machine code, where nothing interrupts it."""
    return re.match("(a+)+$", "a" * 64 + "b")


@kind("did not answer within")
def hangs_in_a_destructor(self, view, nodes):
    class Late:
        def __del__(self):
            time.sleep(60)

    Late()
    return np.full(len(nodes), 500)


@kind("answered before it was asked|did not answer within|does not belong to a question")
def answers_the_next_question_in_advance(self, view, nodes):
    worker = worker_of()
    worker._reply(np.full(len(nodes), 500))
    worker._number += 1
    worker._reply(np.full(len(nodes), 500))
    time.sleep(60)


@kind("returned what was not expected|did not answer within|does not belong|expected")
def changes_its_answer_while_it_is_read(self, view, nodes):
    worker = worker_of()
    worker._reply(np.full(len(nodes), 500))
    while True:
        worker._output.put(b"\xc1" * 4096)
