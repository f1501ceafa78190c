"""The worker process that decides one cycle again, and who asks it.

In:    the number of a cycle on standard input.   Out: what it saw and decided, on standard output.
It reads the journal itself, with low priority, and ends itself when it has used up its time. Plugins of others take no
part: where they did then, the differences say so.
"""

import asyncio
import os
import resource
import sys

import msgspec

from kaiwo.decide.placement.node_choices import NodeChoice
from kaiwo.model.errors import NotFoundError
from kaiwo.model.plan import Plan
from kaiwo.runtime.loop.replay import replay
from kaiwo.runtime.loop.worker_question import WorkerQuestion, ask_worker

WORKER = WorkerQuestion("kaiwo.runtime.loop.replay_worker", "deciding a cycle again", 60.0)
CPU_S = 45  # then the kernel ends it


class ReplayJob(msgspec.Struct, frozen=True):
    home: str
    cycle: int


class ReplayAnswer(msgspec.Struct, frozen=True):
    """`problem`: why there is nothing; empty: there is."""

    problem: str = ""
    then: Plan | None = None
    is_same: bool = False
    differences: tuple[str, ...] = ()
    nodes: int = 0
    waiting: int = 0
    choices: tuple[tuple[str, str, NodeChoice], ...] = ()  # by workload and pod that started


class ReplayWorker:
    """Decides cycles again, so that neither the event loop nor the scheduler waits for it."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._turn_of_people, self._turn_of_owner = asyncio.Lock(), asyncio.Lock()

    async def decide_again(self, cycle: int, is_owner: bool) -> ReplayAnswer:
        """One at a time; the owner waits for nobody else's question."""
        async with self._turn_of_owner if is_owner else self._turn_of_people:
            answered = await ask_worker(WORKER, msgspec.msgpack.encode(ReplayJob(self._home, cycle)))
        answer = msgspec.msgpack.decode(answered, type=ReplayAnswer)
        if answer.problem:
            raise NotFoundError(answer.problem)
        return answer


def main() -> None:
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=ReplayJob)
    sys.stdout.buffer.write(msgspec.msgpack.encode(_answer(job)))


def _answer(job: ReplayJob) -> ReplayAnswer:
    try:
        found = replay(job.home, job.cycle)
    except NotFoundError as error:
        return ReplayAnswer(str(error))
    return ReplayAnswer(
        "", found.then, found.is_same, found.differences, found.nodes, found.waiting, found.choices
    )  # fmt: skip


if __name__ == "__main__":
    main()
