"""The worker process that plans a defragmentation: one job on standard input, one plan on standard output.

It runs beside the scheduler with the lowest priority, and ends itself when it has used up its time. Plugins of others
take no part: the cycle asks them before each move.
"""

import os
import resource
import sys

import msgspec

from kaiwo.decide.cycle import BUILTIN
from kaiwo.model.defragmentation import DefragmentationGoal
from kaiwo.model.events import Event
from kaiwo.model.policy import Policy
from kaiwo.runtime.loop.learned_state import unpack_state

CPU_S = 120  # then the kernel ends it


class PlanJob(msgspec.Struct, frozen=True):
    """A cluster state with what it had learned, as in the base of a journal, and what the moves are for."""

    events: tuple[Event, ...]
    learned: bytes
    now_s: int
    policy: Policy
    goal: DefragmentationGoal


def main() -> None:
    from kaiwo.decide.defragment.plan_for_goal import plan_for_goal  # the server reads this module only to ask

    os.nice(10)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=PlanJob)
    state = unpack_state(job.events, job.learned, BUILTIN)
    plan = plan_for_goal(state.snapshot(job.now_s), job.policy, BUILTIN, job.goal)
    sys.stdout.buffer.write(msgspec.msgpack.encode(plan))


if __name__ == "__main__":
    main()
