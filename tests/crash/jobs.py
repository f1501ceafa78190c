"""What the crash test submits: real processes that leave traces, gangs, shares, failures, dependencies, cancels."""

import random
from pathlib import Path

from kaiwo.model.program import Program, State
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from tests.clusters.kinds import work

KINDS = ("single", "single", "gang", "share", "share", "failing", "simulated", "after", "endless")
EXPECTED = {"failing": State.FAILED, "endless": State.CANCELLED}


def make_jobs(count: int, seed: int, effects: Path) -> list[tuple[Workload, Program]]:
    """The same jobs for the same seed."""
    chance = random.Random(seed)
    return [_job(index, chance.choice(KINDS), chance, effects) for index in range(count)]


def kind_of(name: str) -> str:
    return name.rpartition("/")[2].rpartition("-")[0]


def expected_state(name: str) -> State:
    return EXPECTED.get(kind_of(name), State.SUCCEEDED)


def _job(index: int, kind: str, chance: random.Random, effects: Path) -> tuple[Workload, Program]:
    name = f"{kind}-{index:04d}"
    one = Request(cpu_milli=1000, gpus=1)
    sleep_s = chance.choice((0.0, 0.02, 0.1, 0.4))
    match kind:
        case "gang":
            return work(name, pods=chance.choice((2, 3)), request=one), _shell(effects, f"sleep {sleep_s}")
        case "share":
            half = Request(cpu_milli=1000, gpus=1, gpu_milli=500)
            return work(name, request=half), _shell(effects, f"sleep {sleep_s}")
        case "failing":
            return work(name, request=one), _shell(effects, f"sleep {sleep_s}; exit 9", retries=1)
        case "simulated":
            return work(name, request=one), Program(simulated_s=chance.randrange(20, 200))
        case "endless":
            return work(name, request=one), _shell(effects, "sleep 600")
        case _:
            return work(name, request=one), _shell(effects, f"sleep {sleep_s}")


def _shell(effects: Path, script: str, retries: int = 0) -> Program:
    """A line in one file for each beginning and each end: a process that runs twice cannot hide."""
    line = f'echo "$KAIWO_WORKLOAD $KAIWO_POD $KAIWO_ATTEMPT $KAIWO_RUN %s" >> {effects}'
    return Program(command=("sh", "-c", f"{line % 'start'}; {script}; {line % 'end'}"), retries=retries)
