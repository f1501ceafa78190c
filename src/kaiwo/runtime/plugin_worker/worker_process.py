"""The scheduler's side of one worker process: start it, ask it with a deadline, and kill it.

In:    messages.   Out: the plugin's answers, or PluginFaultError. Whatever the worker sends is checked: after the
       plugin was loaded, it may come from the plugin.
"""

import contextlib
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from kaiwo.plugins.guarded_calls import PluginFaultError, PluginStoppedError
from kaiwo.runtime.plugin_worker import messages
from kaiwo.runtime.plugin_worker.confinement import Grade
from kaiwo.runtime.plugin_worker.shared_memory import OUTPUT_BYTES, InputWriter, OutputReader

LOAD_MS = 20_000  # to start Python and import the plugin, on a busy machine
DEFINE_MS_PER_NODE = 0.2  # in addition to the deadline, to decode a node
MORE_MS = 1  # for each request that a question asks about beyond the first
END_S = 0.1  # for a process to end whose pipe is closed
MAX_WORDS = 500
# Before the worker clears its environment: one thread for NumPy, or its first import starts one for each core; and the
# same order of sets in every worker, or a plugin that goes through one would give a replay other answers.
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "BLIS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}  # fmt: skip


UNASKED_MS = 500  # what a worker may compute between two looks although nobody asks it
MAX_LATE = 4  # deadlines that a worker may wait for a processor


def run_delay_ns(pid: int) -> int:
    """How long a process was ready to run and waited for a processor, since its start."""
    return _scheduled_ns(pid, 1)


def on_processor_ns(pid: int) -> int:
    """How long a process ran on a processor, since its start."""
    return _scheduled_ns(pid, 0)


def _scheduled_ns(pid: int, field: int) -> int:
    try:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[field])
    except (OSError, ValueError, IndexError):
        return 0  # the kernel does not tell: then only the deadline counts


def waited_ns(pid: int) -> int:
    """How long that process and this thread waited for a processor: what a question took without anybody's fault."""
    return run_delay_ns(pid) + run_delay_ns(threading.get_native_id())


class CallCosts(msgspec.Struct):
    """What the calls of one plugin took, for people and metrics."""

    calls: int = 0
    total_us: int = 0
    longest_us: int = 0

    def add(self, took_us: int) -> None:
        self.calls += 1
        self.total_us += took_us
        self.longest_us = max(self.longest_us, took_us)

    def add_all(self, other: "CallCosts") -> None:
        self.calls += other.calls
        self.total_us += other.total_us
        self.longest_us = max(self.longest_us, other.longest_us)

    @property
    def mean_us(self) -> int:
        return self.total_us // self.calls if self.calls else 0


class WorkerProcess:
    """One worker. It is asked by one thread at a time, and never again after a fault."""

    def __init__(
        self,
        load: messages.Load,
        deadline_ms: int,
        on_fault: Callable[[str], None] = lambda detail: None,
    ) -> None:
        self.name, self.deadline_ms, self.on_fault = load.name, deadline_ms, on_fault
        self.costs = CallCosts()
        self.fault = ""  # why it was stopped
        self.lock = threading.RLock()  # held while it is asked: cycles, arriving workloads and the edge have threads
        self.input, self._output = InputWriter(), OutputReader()
        self._number = messages.LOADED
        self._asked_ns = self._sent_ns = 0  # how long it was asked in all; when the last question was sent
        self._seen: tuple[int, int] | None = (
            None  # at the last look: its time on a processor, and how long it was asked
        )
        self._start()
        self._is_open = True
        self._send(messages.encoder.encode(messages.Confine(load.folder, load.memory_mib)))
        _, confined = self._receive(messages.CONFINED, LOAD_MS)
        self.input.cut()
        self.grade = msgspec.msgpack.decode(confined, type=Grade)
        self._send(messages.encoder.encode(load))
        _, loaded = self._receive(messages.LOADED, LOAD_MS)
        try:
            self.loaded = messages.read_loaded(loaded)
        except (ValueError, RecursionError) as error:
            raise self.stop(f"does not say what it is: {error}") from error

    def _start(self) -> None:
        asks, self._asks = os.pipe()
        self._answers, answers = os.pipe()
        fds = (asks, answers, self.input.fd, self._output.fd)
        module = "kaiwo.runtime.plugin_worker.worker_main"
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-B", "-m", module, *map(str, fds)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=fds,
            env=ENVIRONMENT, cwd="/", start_new_session=True,
        )  # fmt: skip
        os.close(asks)
        os.close(answers)
        os.set_blocking(self._asks, False)  # who reads no questions must not stop who asks
        self._poll = select.poll()
        self._poll.register(self._answers, select.POLLIN)

    @property
    def pid(self) -> int:
        return self._process.pid

    def define(self, new: messages.Define) -> None:
        """The plugin's code may have changed that of the worker: so the time for this depends on the nodes, too."""
        self._send(messages.encoder.encode(new))
        nodes = len(new.nodes) + len(new.names or ())
        self._receive(new.number, self.deadline_ms + math.ceil(DEFINE_MS_PER_NODE * nodes))

    def ask(self, ask: messages.Ask) -> Any:
        """The plugin's answer: an array, or a plain value. The arrays of the question are in `input` already."""
        began = time.perf_counter_ns()
        try:
            self._send(messages.encoder.encode(ask))
            kind, data = self._receive(ask.number, self.deadline_ms, MORE_MS * len(ask.more))
            return messages.decode_array(data) if kind == messages.ARRAY else messages.decode_value(data, ask.point)
        except (ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
            raise self.stop(f"returned what was not expected: {error}"[:MAX_WORDS]) from error
        finally:
            self.costs.add((time.perf_counter_ns() - began) // 1000)

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def put(self, arrays: Mapping[str, np.ndarray[Any, Any]], begin: int = 0) -> dict[str, messages.ArrayPlace]:
        self.check()
        try:
            return self.input.put(arrays, begin)
        except ValueError as error:
            raise self.stop(str(error)) from error

    def check(self) -> None:
        """Raises PluginFaultError when it was stopped before."""
        if not self._is_open:
            raise self._why_it_is_closed()

    def look(self) -> None:
        """Stop it when it computed since the last look for much longer than it was asked."""
        if not self.lock.acquire(blocking=False):
            return  # it is being asked
        try:
            before, self._seen = self._seen, (on_processor_ns(self.pid), self._asked_ns)
            if before is None:
                return
            unasked_ms = (self._seen[0] - before[0] - (self._seen[1] - before[1])) // 1_000_000
            if self._is_open and unasked_ms > UNASKED_MS:
                self.stop(f"computed for {unasked_ms} ms while nobody asked it")
        finally:
            self.lock.release()

    def _send(self, message: bytes) -> None:
        self.check()
        if any(events & select.POLLIN for _, events in self._poll.poll(0)):
            raise self.stop("answered before it was asked")
        self._sent_ns = time.perf_counter_ns()
        try:
            os.write(self._asks, self.input.put_message(message))
        except BlockingIOError as error:
            raise self.stop("answers questions that it has not read") from error
        except (OSError, ValueError) as error:
            raise self.stop(self._how_it_ended() or str(error)) from error

    def _receive(self, number: int, deadline_ms: int, more_ms: int = 0) -> tuple[int, bytes]:
        """The kind of an answer, and a copy of its bytes."""
        if not self._poll.poll(deadline_ms + more_ms) and not self._answers_late(deadline_ms):
            raise self.stop(f"did not answer within {deadline_ms} ms")
        answer = os.read(self._answers, messages.ANSWER.size)
        if not answer:
            raise self.stop(self._how_it_ended() or "ended without an answer")
        if len(answer) < messages.ANSWER.size:
            raise self.stop("sent an answer that does not belong to a question")
        got, kind, length = messages.ANSWER.unpack(answer)
        if kind == messages.FAULT and length <= OUTPUT_BYTES:
            raise self.stop(self._output.copy(min(length, MAX_WORDS)).decode("utf-8", "replace"))
        if got != number or length > OUTPUT_BYTES:
            raise self.stop("sent an answer that does not belong to a question")
        self._asked_ns += time.perf_counter_ns() - self._sent_ns
        return kind, self._output.copy(length)

    def _answers_late(self, deadline_ms: int) -> bool:
        """Wait longer while other work keeps the worker from the processors: a busy machine is not a plugin's fault.

        One that computes or sleeps gets only a quarter of its deadline more.
        """
        slice_ms = max(1, deadline_ms // 4)
        for _ in range(4 * MAX_LATE):
            before_ns = run_delay_ns(self.pid)
            if self._poll.poll(slice_ms):
                return True
            if run_delay_ns(self.pid) - before_ns < slice_ms * 1_000_000 // 2:
                return False
        return False

    def _how_it_ended(self) -> str:
        """Its pipe is closed: it has ended, or it closed the pipe itself, and nobody waits for that one."""
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            return ""
        if code >= 0:
            return f"ended its process with status {code}"
        if -code == signal.SIGSYS:
            return "was killed: it made a system call that plugins may not make"
        return f"was killed by {signal.Signals(-code).name}"

    def stop(self, detail: str) -> PluginFaultError:
        """Kill it for good. Returns the fault, to be raised."""
        if not self._is_open:  # an administrator stopped it while it was asked
            return self._why_it_is_closed()
        fault = PluginFaultError(self.name, detail)
        self.fault = fault.detail
        self.close()
        self.on_fault(fault.detail)
        return fault

    def _why_it_is_closed(self) -> PluginFaultError:
        return PluginFaultError(self.name, self.fault) if self.fault else PluginStoppedError(self.name, "was stopped")

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        with self.lock:  # who waits for an answer sees the end of the pipe first: its number may belong to another soon
            for fd in (self._asks, self._answers):
                os.close(fd)
            self.input.close()
            self._output.close()
