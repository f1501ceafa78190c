"""Worlds whose work says how fast it is, as the scheduling loop treats such reports."""

from typing import Any

from kaiwo.model.events import Event, ProgressReported
from kaiwo.model.performance import ProgressReport
from kaiwo.runtime.loop.performance_tracker import PerformanceTracker
from tests.worlds import World


def started(world: World, name: str, **asked: Any) -> World:
    world.submit(name, **asked).settle()
    assert world.is_running(name)
    return world


def report(world: World, tracker: PerformanceTracker, workload: str, pod: str = "", **said: Any) -> list[Event]:
    """One report now. Returns what reached the state."""
    told: list[Event] = [
        ProgressReported(
            ProgressReport(workload if "/" in workload else f"default/{workload}", world.now_s, pod, **said)
        )
    ]
    world.tell(*told)
    measured = tracker.measure(world.state, told)
    if measured is not None:
        world.tell(measured)
        told.append(measured)
    return told


def report_steps(
    world: World, tracker: PerformanceTracker, workload: str, steps_ms: dict[str, int], for_s: int, every_s: int = 30
) -> None:
    """Each pod reports the time of its steps, again and again."""
    for _ in range(0, for_s + 1, every_s):
        for pod, step_ms in steps_ms.items():
            report(world, tracker, workload, pod, step_us=step_ms * 1000, expected_us=1_000_000)
        world.now_s += every_s
