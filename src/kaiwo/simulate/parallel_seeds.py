"""Run one simulation of the openb trace per seed, each in a process of its own, so that its peak memory is its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kaiwo.simulate.defrag_run import DefragFigures, run_defrag
from kaiwo.simulate.openb_run import OpenbFigures, run_openb
from kaiwo.simulate.openb_trace import read_openb
from kaiwo.simulate.parallel_runs import Progress, run_tasks


@dataclass(frozen=True, slots=True)
class OpenbOrder:
    """What to simulate."""

    folder: Path
    variant: str
    policy: str
    mix: str  # known | learned


@dataclass(frozen=True, slots=True)
class OpenbSeed:
    """One seed of it, as a task."""

    order: OpenbOrder
    seed: int

    def run(self, report: Callable[[float], None]) -> OpenbFigures:
        order = self.order
        trace = read_openb(order.folder, order.variant)
        return run_openb(trace, self.seed, order.policy, order.mix, lambda now: report(now.done / max(1, now.total)))


def run_seeds(
    order: OpenbOrder, seeds: Sequence[int], report: Progress = lambda *_: None, jobs: int = 0
) -> tuple[list[OpenbFigures], bool]:
    """The figures of the runs that finished, by seed, and whether all did. Ctrl-C ends the others."""
    found, is_complete = compare_seeds([order], seeds, report, jobs)
    return found[order.policy], is_complete


def compare_seeds(
    orders: Sequence[OpenbOrder], seeds: Sequence[int], report: Progress = lambda *_: None, jobs: int = 0
) -> tuple[dict[str, list[OpenbFigures]], bool]:
    """The same of several policies, by their names."""
    tasks = [OpenbSeed(order, seed) for order in orders for seed in seeds]
    done, is_complete = run_tasks(tasks, report, jobs)
    found: dict[str, list[OpenbFigures]] = {order.policy: [] for order in orders}
    for number in sorted(done):
        found[tasks[number].order.policy].append(done[number])
    return found, is_complete


@dataclass(frozen=True, slots=True)
class DefragSeed:
    """One seed of the defragmentation protocol, as a task."""

    folder: Path
    variant: str
    max_moved_percent: float
    seed: int

    def run(self, report: Callable[[float], None]) -> DefragFigures:
        trace = read_openb(self.folder, self.variant)
        return run_defrag(trace, self.seed, self.max_moved_percent, lambda now: report(now.done / max(1, now.total)))


def run_defrag_seeds(
    folder: Path, variant: str, max_moved_percent: float, seeds: Sequence[int], report: Progress, jobs: int = 0
) -> tuple[list[DefragFigures], bool]:
    tasks = [DefragSeed(folder, variant, max_moved_percent, seed) for seed in seeds]
    found, is_complete = run_tasks(tasks, report, jobs)
    return [found[number] for number in sorted(found)], is_complete
