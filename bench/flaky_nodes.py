"""How much work is lost on nodes that fail often, with and without the score for steady nodes.

In:    a cluster where one node of twenty fails fifty times as often, at 70 % load.   Out: lost GPU-hours with each.
Work on a node that fails starts again from the beginning. The shipped scheduler decides on a virtual clock.
"""

import argparse
import heapq
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from kaiwo.model.events import Event, NodeChanged, PodGone, QueueChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.runtime.loop.cycle_runner import CycleRunner

NODES, GPUS, FLAKY_PART, TIMES, LOAD = 60, 8, 20, 50, 0.7
DAYS, MEAN_RUN_H, FAILS_EVERY_H, REPAIR_H = 60, 24, 100 * 24, 1
LEAST_SAVED = 0.5
SIZES = (1, 1, 2, 4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    without = lost_gpu_hours(options.days, options.seed, Policy(score_weights={"steady-nodes": 0}))
    with_it = lost_gpu_hours(options.days, options.seed, Policy())
    saved = 1 - with_it / without
    figures = {"lost_without": round(without, 1), "lost_with": round(with_it, 1), "saved": round(saved, 3)}
    print(json.dumps(figures, indent=None if options.json else 2))
    if saved < LEAST_SAVED:
        print(f"saved is {saved:.3f}, at least {LEAST_SAVED} is due", file=sys.stderr)
    return 0 if saved >= LEAST_SAVED else 1


@dataclass
class _World:
    """What happens when, by a heap of (second, number, kind, subject)."""

    draw: random.Random
    runner: CycleRunner
    nodes: dict[str, Node]
    happenings: list[tuple[int, int, str, str]] = field(default_factory=list)
    runs_s: dict[str, int] = field(default_factory=dict)  # by workload
    began_s: dict[str, int] = field(default_factory=dict)  # by workload that runs
    attempt: dict[str, int] = field(default_factory=dict)  # of each workload: the end of an earlier one counts no more
    lost_s: int = 0  # GPU-seconds
    number: int = 0

    def plan(self, at_s: int, kind: str, subject: str) -> None:
        self.number += 1
        heapq.heappush(self.happenings, (at_s, self.number, kind, subject))

    def decide(self, now_s: int) -> None:
        decision = self.runner.cycle(now_s)
        for start in decision.plan.starts if decision is not None else ():
            name = start.workload
            self.began_s[name] = now_s
            self.attempt[name] = self.attempt.get(name, 0) + 1
            self.plan(now_s + self.runs_s[name], "end", f"{name} {self.attempt[name]}")

    def patch(self, *events: Event) -> None:
        self.runner.state.patch(events)


def lost_gpu_hours(days: int, seed: int, policy: Policy) -> float:
    draw = random.Random(seed)
    nodes = {name: _node(name) for name in (f"node-{number:03d}" for number in range(NODES))}
    world = _World(draw, CycleRunner(None, policy), nodes)
    world.patch(QueueChanged(Queue("default")), *(NodeChanged(node) for node in nodes.values()))
    flaky = set(sorted(nodes)[::FLAKY_PART])
    # What fails and what arrives is drawn first, so that both runs see the same.
    for name in sorted(nodes):
        _draw_failures(world, name, FAILS_EVERY_H * 3600 / (TIMES if name in flaky else 1), days * 86_400)
    _draw_arrivals(world, days * 86_400)
    while world.happenings:
        now_s, _, kind, subject = heapq.heappop(world.happenings)
        _HAPPENINGS[kind](world, now_s, subject)
        world.decide(now_s)
    return world.lost_s / 3600


def _draw_failures(world: _World, name: str, every_s: float, until_s: int) -> None:
    at_s = world.draw.expovariate(1 / every_s)
    while at_s < until_s:
        world.plan(int(at_s), "fail", name)
        world.plan(int(at_s) + REPAIR_H * 3600, "repair", name)
        at_s += REPAIR_H * 3600 + world.draw.expovariate(1 / every_s)


def _draw_arrivals(world: _World, until_s: int) -> None:
    mean_gpus = sum(SIZES) / len(SIZES)
    every_s = MEAN_RUN_H * 3600 * mean_gpus / (LOAD * NODES * GPUS)
    at_s = world.draw.expovariate(1 / every_s)
    while at_s < until_s:
        name = f"default/job-{len(world.runs_s):06d}-{world.draw.choice(SIZES)}"
        world.runs_s[name] = 1 + int(world.draw.expovariate(1 / (MEAN_RUN_H * 3600)))
        world.plan(int(at_s), "arrive", name)
        at_s += world.draw.expovariate(1 / every_s)


def _arrive(world: _World, now_s: int, name: str) -> None:
    request = Request(4_000, 16_000, _gpus(name))
    world.patch(WorkloadChanged(Workload(name, (Role(request),), submitted_s=now_s)))


def _end(world: _World, now_s: int, subject: str) -> None:
    name, attempt = subject.split()
    if name in world.began_s and world.attempt[name] == int(attempt):
        del world.began_s[name]
        world.patch(*_pods_gone(world, name), WorkloadGone(name))


def _fail(world: _World, now_s: int, name: str) -> None:
    world.nodes[name] = replace(world.nodes[name], ready=False)
    hit = sorted({each.workload for each in world.runner.state.allocations_on.get(name, {}).values()})
    for workload in hit:
        world.lost_s += _gpus(workload) * (now_s - world.began_s.pop(workload))
    gone = [event for workload in hit for event in _pods_gone(world, workload)]
    world.patch(NodeChanged(world.nodes[name]), *gone)


def _repair(world: _World, now_s: int, name: str) -> None:
    world.nodes[name] = replace(world.nodes[name], ready=True)
    world.patch(NodeChanged(world.nodes[name]))


_HAPPENINGS = {"arrive": _arrive, "end": _end, "fail": _fail, "repair": _repair}


def _pods_gone(world: _World, workload: str) -> Sequence[Event]:
    return [PodGone(workload, pod) for pod in sorted(world.runner.state.pods.get(workload, ()))]


def _gpus(workload: str) -> int:
    return int(workload.rpartition("-")[2])


def _node(name: str) -> Node:
    gpus = tuple(Gpu(f"gpu-{number}", "MI300X", 196_608) for number in range(GPUS))
    return Node(name, 192_000, 2**21, 110, gpus)


if __name__ == "__main__":
    sys.exit(main())
