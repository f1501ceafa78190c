"""Find the smallest reduction that would start a workload.

In:    a Question.   Out: per role and dimension the largest size that starts.
Nothing is freed by asking for less, so everybody else stays where they are: whether a smaller request starts is read
off one working copy (see `room`), and only the winner is put to `decide`.
"""

from collections.abc import Callable

from kaiwo.explain.change import (
    CPU,
    GPU_MEMORY,
    GPUS,
    LEAST,
    MEMORY,
    PODS,
    SHARE,
    UNITS,
    Change,
    Kind,
    resized,
    size_of,
)
from kaiwo.explain.room import Room
from kaiwo.explain.trial import Question
from kaiwo.model.workload import Role, Workload

DIMENSIONS = (PODS, GPUS, SHARE, GPU_MEMORY, CPU, MEMORY)
PPM = 1_000_000


def smaller_sizes(question: Question, room: Room) -> list[Change]:
    """For every role and dimension that helps the change that gives up least; the least of them first."""
    workload = question.workload
    found = []
    for role in workload.roles:
        for dimension in DIMENSIONS:
            value = _largest_that_starts(room, workload, role, dimension)
            if value:
                size = size_of(role, dimension)
                given_up = PPM * (size - value) // size
                found.append(Change(Kind.SMALLER_SIZE, "researcher", f"{role.name}:{dimension}", value, given_up))
    return sorted(found, key=lambda change: change.rank)


def _largest_that_starts(room: Room, workload: Workload, role: Role, dimension: str) -> int:
    """Counting rules out most sizes, and costs a hundredth of placing a gang of a thousand pods."""

    def could_start(value: int) -> bool:
        return room.could_take(resized(workload, role.name, dimension, value))

    def starts(value: int) -> bool:
        return room.takes(resized(workload, role.name, dimension, value))

    unit, least = UNITS[dimension], LEAST[dimension]
    value = largest_below(size_of(role, dimension), unit, least, could_start)
    if not value or starts(value):
        return value
    return largest_below(value, unit, least, starts)


def largest_below(size: int, unit: int, least: int, starts: Callable[[int], bool]) -> int:
    """The largest value under `size`, in steps of `unit` down from it, that starts; 0 when none does."""
    steps = (size - least) // unit  # how often it can shrink and still be something
    if steps < 1 or not starts(size - steps * unit):
        return 0
    works, fails = steps, 0
    while works - fails > 1:
        middle = (works + fails) // 2
        if starts(size - middle * unit):
            works = middle
        else:
            fails = middle
    return size - works * unit
