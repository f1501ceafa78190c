"""Run one openb simulation per seed, each in a process of its own, and hand over results as they come.

A run has its own process so that its peak memory is its own. An interrupted comparison keeps what has finished.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from kaiwo.model.errors import ConfigError, KaiwoError
from kaiwo.simulate.openb_run import OpenbFigures, OpenbProgress, run_openb
from kaiwo.simulate.openb_trace import read_openb


@dataclass(frozen=True, slots=True)
class OpenbOrder:
    """What to simulate."""

    folder: Path
    variant: str
    policy: str
    mix: str  # known | learned


@dataclass(frozen=True, slots=True)
class RunFault:
    seed: int
    message: str
    is_input: bool  # the trace or an option is wrong, not this program


Message = OpenbProgress | OpenbFigures | RunFault


def run_seeds(
    order: OpenbOrder,
    seeds: Sequence[int],
    report: Callable[[OpenbProgress], None] = lambda _: None,
    jobs: int = 0,
) -> tuple[list[OpenbFigures], bool]:
    """The figures of the runs that finished, by seed, and whether all did. Ctrl-C ends the others."""
    left, running = list(seeds), dict[Connection, multiprocessing.process.BaseProcess]()
    found: dict[int, OpenbFigures] = {}
    most = min(len(left), jobs or os.cpu_count() or 1)
    try:
        while left or running:
            while left and len(running) < most:
                connection, process = _begin(order, left.pop(0))
                running[connection] = process
            for each in wait(list(running)):
                assert isinstance(each, Connection)
                message = _next_message(each)
                if isinstance(message, OpenbProgress):
                    report(message)
                    continue
                running.pop(each).join()
                if isinstance(message, RunFault):
                    raise (ConfigError if message.is_input else KaiwoError)(message.message)
                found[message.seed] = message
    except KeyboardInterrupt:
        return [found[seed] for seed in seeds if seed in found], False
    finally:
        for process in running.values():
            process.terminate()
            process.join()
    return [found[seed] for seed in seeds], True


def _begin(order: OpenbOrder, seed: int) -> tuple[Connection, multiprocessing.process.BaseProcess]:
    """A fresh interpreter: a forked one would begin with the memory of this one."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(order, seed, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _next_message(connection: Connection) -> Message:
    try:
        message: Message = connection.recv()
        return message
    except EOFError:
        return RunFault(-1, "a run ended without a result; perhaps the machine ran out of memory", is_input=False)


def _run(order: OpenbOrder, seed: int, answers: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    try:
        trace = read_openb(order.folder, order.variant)
        answers.send(run_openb(trace, seed, order.policy, order.mix, answers.send))
    except KaiwoError as error:
        answers.send(RunFault(seed, str(error), is_input=isinstance(error, ConfigError)))
