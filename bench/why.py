"""How long `kaiwo why` takes at 1,000 nodes with 1,000 waiting: every obstacle, and the cheapest change verified.

In:    full clusters with waiting work: of few kinds, of 1,000 different kinds in 50 queues, and of large gangs.
Out:   milliseconds of processor time, with the garbage collector tuned as in the scheduler.
"""

import json
import random
import sys
import time

from bench.decide import cluster, take
from kaiwo.app.interpreter_tuning import tune_interpreter
from kaiwo.explain import why
from kaiwo.model.events import Event, PodGone, QueueChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.obstacle import WhyVerdict
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.runtime.loop.cycle_runner import CycleRunner

NODES, RUNNING, WAITING, ASKED = 1_000, 8_000, 1_000, 300
QUEUES = 50
P99_MS = 100.0


def main() -> int:
    result = {**measure(), **measure_distinct("distinct", [2, 8, 16]), **measure_distinct("gangs", [100, 300, 1_000])}
    print(json.dumps(result))
    missed = [f"{key} is {result[key]}, at most {P99_MS} is due" for key in result if key.endswith("p99_ms")
              and float(str(result[key])) > P99_MS]  # fmt: skip
    for worlds, most in (("", ASKED // 100), ("distinct_", ASKED // 20), ("gangs_", ASKED // 20)):
        undecided = int(str(result[f"{worlds}undecided"]))
        if undecided > most:
            missed.append(f"{worlds}undecided is {undecided} of {ASKED}, at most {most} is due")
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


def measure() -> dict[str, object]:
    """Waiting work of a few kinds in three queues, one of them at its limit."""
    draw = random.Random(11)
    scheduler = CycleRunner(None)
    take(scheduler, [*cluster(NODES), *queues()])
    take(scheduler, [running(number, draw) for number in range(RUNNING)])
    settle(scheduler)
    for name in draw.sample(sorted(scheduler.state.pods), RUNNING // 100):  # a few holes
        take(scheduler, [WorkloadGone(name), *(PodGone(name, pod) for pod in scheduler.state.pods[name])])
    fill(scheduler, [waiting(number, draw) for number in range(WAITING * 2)])
    return {
        "nodes": NODES,
        "running": len(scheduler.state.pods),
        "waiting": len(scheduler.state.backlog),
        **figures(scheduler, draw),
    }


def measure_distinct(name: str, gangs: list[int]) -> dict[str, object]:
    """Every waiting workload asks for something else, in 50 queues, most of them at their limit."""
    draw = random.Random(12)
    scheduler = CycleRunner(None)
    limits = {f"queue-{number:02d}": 150_000 if number < QUEUES - 5 else -1 for number in range(QUEUES)}
    take(scheduler, [*cluster(NODES), *(QueueChanged(Queue(q, gpu=QueueAmounts(limit=n))) for q, n in limits.items())])
    take(scheduler, [distinct_running(number, draw) for number in range(NODES * 4)])
    settle(scheduler)
    take(scheduler, [WorkloadGone(each) for each in sorted(scheduler.state.backlog.queued_names())])
    fill(scheduler, [distinct_waiting(number, draw, gangs) for number in range(WAITING * 2)])
    found = {
        "running": len(scheduler.state.pods),
        "waiting": len(scheduler.state.backlog),
        "classes": len(scheduler.state.backlog.by_key),
        **figures(scheduler, draw),
    }
    return {f"{name}_{key}": value for key, value in found.items()}


def fill(scheduler: CycleRunner, backlog: list[Event]) -> None:
    """Place the backlog, and keep WAITING of the workloads that wait."""
    take(scheduler, backlog)
    settle(scheduler)
    extra = sorted(scheduler.state.backlog.queued_names())[WAITING:]
    take(scheduler, [WorkloadGone(name) for name in extra])
    settle(scheduler)


def figures(scheduler: CycleRunner, draw: random.Random) -> dict[str, object]:
    names = draw.sample(sorted(scheduler.state.backlog.queued_names()), ASKED)
    took_ms: list[float] = []
    kinds: dict[str, int] = {}
    tune_interpreter()
    for name in names:
        began = time.process_time()
        answer = why(scheduler.state, name, DEFAULT_POLICY, 10_000)
        took_ms.append((time.process_time() - began) * 1000)
        kind = answer.change.kind if answer.change else answer.verdict.value
        kinds[kind] = kinds.get(kind, 0) + 1
    took_ms.sort()
    return {
        "p50_ms": round(took_ms[len(took_ms) // 2], 1),
        "p99_ms": round(took_ms[int(len(took_ms) * 0.99)], 1),
        "longest_ms": round(took_ms[-1], 1),
        "changes": kinds,
        "undecided": kinds.get(WhyVerdict.UNDECIDED.value, 0),  # not everything was tried, and the answer says so
    }


def queues() -> list[Event]:
    limits = {"lab": 2_700_000, "prod": -1}
    return [QueueChanged(Queue(name, gpu=QueueAmounts(limit=limit))) for name, limit in limits.items()]


def running(number: int, draw: random.Random) -> Event:
    queue = draw.choice(["default", "lab", "prod"])
    role = Role(Request(1_000, 1_024, gpus=1))
    return WorkloadChanged(
        Workload(f"default/run-{number:05d}", (role,), queue, f"user-{number % 40}", submitted_s=number)
    )


def waiting(number: int, draw: random.Random) -> Event:
    gpus = draw.choice([1, 1, 2, 4, 8])
    kind = draw.choice(["whole", "whole", "whole", "fraction", "gang"])
    milli = draw.choice([250, 500, 700]) if kind == "fraction" else 1_000
    request = Request(1_000, 1_024, gpus=1 if kind == "fraction" else gpus, gpu_milli=milli)
    role = Role(request, count=draw.choice([2, 8, 16]) if kind == "gang" else 1)
    queue = draw.choice(["default", "lab", "prod"])
    return WorkloadChanged(
        Workload(f"default/wait-{number:05d}", (role,), queue, f"user-{number % 40}", submitted_s=9_000 + number)
    )


def distinct_running(number: int, draw: random.Random) -> Event:
    request = Request(1_000 + 100 * draw.randrange(20), 1_024, gpus=draw.choice([1, 1, 1, 2, 4, 8]))
    queue, user = f"queue-{number % QUEUES:02d}", f"user-{draw.randrange(40)}"
    return WorkloadChanged(Workload(f"default/run-{number:05d}", (Role(request),), queue, user, submitted_s=number))


def distinct_waiting(number: int, draw: random.Random, gangs: list[int]) -> Event:
    cpu_milli, memory_mib = 1_000 + number, 1_024 + number
    kind = draw.choice(["whole", "whole", "fraction", "memory", "gang", "gang"])
    match kind:
        case "fraction":
            milli = draw.choice([250, 500, 700, 900])
            request = Request(cpu_milli, memory_mib, gpus=draw.choice([1, 2]), gpu_milli=milli)
        case "memory":
            request = Request(cpu_milli, memory_mib, gpus=1, gpu_mib=draw.randrange(10_000, 190_000))
        case _:
            request = Request(cpu_milli, memory_mib, gpus=draw.choice([1, 2, 4, 8]))
    role = Role(request, count=draw.choice(gangs) if kind == "gang" else 1)
    queue, user = f"queue-{draw.randrange(QUEUES):02d}", f"user-{number % 40}"
    return WorkloadChanged(Workload(f"default/wait-{number:05d}", (role,), queue, user, submitted_s=9_000 + number))


def settle(scheduler: CycleRunner) -> None:
    while scheduler.cycle(now_s=9_500):
        pass


if __name__ == "__main__":
    sys.exit(main())
