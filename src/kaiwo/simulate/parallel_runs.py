"""Run simulations side by side, each in a process of its own, and hand over results as they come.

Ctrl-C ends those that run; the results of the others are kept.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Generic, Protocol, TypeVar

from kaiwo.model.errors import ConfigError, KaiwoError

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Progress = Callable[[int, float], None]  # the number of the task, and the part of it that is done


class Task(Protocol[R_co]):
    """A simulation that another process can run: all that it needs travels with it."""

    def run(self, report: Callable[[float], None]) -> R_co: ...


class _Done(Generic[R]):
    def __init__(self, result: R) -> None:
        self.result = result


class _Fault:
    def __init__(self, message: str, is_input: bool) -> None:
        self.message, self.is_input = message, is_input


def run_tasks(tasks: Sequence[Task[R]], report: Progress = lambda *_: None, jobs: int = 0) -> tuple[dict[int, R], bool]:
    """The results by the number of the task, and whether all have finished. Ctrl-C ends the others."""
    left, found = list(range(len(tasks))), dict[int, R]()
    running: dict[Connection, tuple[int, multiprocessing.process.BaseProcess]] = {}
    most = min(len(left), jobs or os.cpu_count() or 1)
    try:
        while left or running:
            while left and len(running) < most:
                number = left.pop(0)
                connection, process = _begin(tasks[number])
                running[connection] = number, process
            for each in wait(list(running)):
                assert isinstance(each, Connection)
                message: float | _Done[R] | _Fault = _next_message(each)
                if isinstance(message, float):
                    report(running[each][0], message)
                    continue
                number, process = running.pop(each)
                process.join()
                if isinstance(message, _Fault):
                    raise (ConfigError if message.is_input else KaiwoError)(message.message)
                found[number] = message.result
                report(number, 1.0)
    except KeyboardInterrupt:
        return found, False
    finally:
        for _, process in running.values():
            process.terminate()
            process.join()
    return found, True


def _begin(task: Task[R]) -> tuple[Connection, multiprocessing.process.BaseProcess]:
    """A fresh interpreter: a forked one would begin with the memory of this one.

    The task follows by the pipe. As an argument it would block this process for ever if the other one died early.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    with suppress(OSError):  # it died: the next message says so
        ours.send(task)
    return ours, process


def _next_message(connection: Connection) -> "float | _Done[R] | _Fault":
    try:
        message: float | _Done[R] | _Fault = connection.recv()
        return message
    except (EOFError, OSError):
        return _Fault("a run ended without a result; perhaps the machine ran out of memory", is_input=False)


def _run(answers: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    task: Task[object] = answers.recv()
    try:
        answers.send(_Done(task.run(answers.send)))
    except KaiwoError as error:
        answers.send(_Fault(str(error), is_input=isinstance(error, ConfigError)))
