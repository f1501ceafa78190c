"""Find the smallest reduction of a request that would start the workload.

Asking for less frees nothing, so nothing else moves: whether a smaller request fits is checked on one working copy (see
`placement_check`), and only the winner is verified by `decide`.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from kaiwo.decide.obstacles.shortages import largest_device_mib
from kaiwo.explain.placement_check import PlacementCheck
from kaiwo.explain.possible_changes import (
    CPU,
    GPU_MEMORY,
    GPUS,
    LEAST,
    MEMORY,
    PODS,
    SHARE,
    UNITS,
    ChangeKind,
    PossibleChange,
    RoleSize,
    resized,
    size_of,
)
from kaiwo.explain.verify_change import WhatIf
from kaiwo.model.gpus.gpu import SMALL_MILLI, WHOLE_MILLI
from kaiwo.model.workload import Role, Workload

DIMENSIONS = (PODS, GPUS, SHARE, GPU_MEMORY, CPU, MEMORY)
PPM = 1_000_000
MANY_PODS = 64
FEW = 6


def smaller_sizes(what_if: WhatIf, check: PlacementCheck, is_small: bool) -> Iterator[PossibleChange | None]:
    """For every role and dimension that helps, the change that gives up the least; the smallest of these first.

    Counting rules out most sizes, and costs a hundredth of placing a gang of a thousand pods. What passes is placed
    when it is its turn, and large gangs only by `decide`: a caller that asks for the next change was refused this one.
    Where the check is lenient, that refusal does not rule out smaller sizes: in small clusters `decide` tries them.
    """
    workload = what_if.workload
    # If it fits as it is, something else than room keeps it waiting.
    is_lenient = check.is_lenient or check.fits(workload)
    sizes = [
        _Size(workload, role, dimension, small_below(what_if, role, dimension))
        for role in workload.roles
        for dimension in DIMENSIONS
    ]
    counted = [(at, size.largest(size.checked_by(check.might_fit))) for at, size in enumerate(sizes)]
    turns = [(change.rank, at, change, False) for at, change in counted if change is not None]
    heapify(turns)
    while turns:
        _, at, change, is_placed = heappop(turns)
        is_placed = is_placed or (workload.pods < MANY_PODS and check.fits(sizes[at].with_value(change.value)))
        if is_placed or workload.pods >= MANY_PODS:
            yield change
        if is_placed and is_lenient and not is_small:
            yield None
        elif not is_placed or is_lenient:
            starts = sizes[at].verified_by(what_if) if is_placed else sizes[at].checked_by(check.fits)
            less = sizes[at].largest(starts, change.value)
            if less is not None:
                heappush(turns, (less.rank, at, less, True))


def small_below(what_if: WhatIf, role: Role, dimension: str) -> int:
    """Smaller shares may be too small to isolate as they or other tenants demand; 0: no share is."""
    want, view = role.request, what_if.view
    if dimension not in (SHARE, GPU_MEMORY) or not (want.least_grade or want.isolation or view.tenants.demanding):
        return 0
    return SMALL_MILLI if dimension == SHARE else 1 + SMALL_MILLI * largest_device_mib(view, want) // WHOLE_MILLI


def smaller_size(role: Role, dimension: str, value: int) -> PossibleChange:
    """The change to a smaller size; its cost is the part of the size that it gives up."""
    size = size_of(role, dimension)
    cost = PPM * (size - value) // size
    return PossibleChange(ChangeKind.SMALLER_SIZE, "researcher", RoleSize(role.name, dimension), value, cost)


class _Size(NamedTuple):
    """One role in one dimension."""

    workload: Workload
    role: Role
    dimension: str
    small: int = 0  # a size below this may be refused where a larger one is taken

    def with_value(self, value: int) -> Workload:
        return resized(self.workload, self.role.name, self.dimension, value)

    def checked_by(self, takes: Callable[[Workload], bool]) -> Callable[[int], bool]:
        return lambda value: takes(self.with_value(value))

    def verified_by(self, what_if: WhatIf) -> Callable[[int], bool]:
        return lambda value: what_if.starts_after(smaller_size(self.role, self.dimension, value))

    def largest(self, starts: Callable[[int], bool], below: int = 0) -> PossibleChange | None:
        """The change after which it starts that gives up the least."""
        most, unit = below or size_of(self.role, self.dimension), UNITS[self.dimension]
        found = (largest_below(most, unit, floor, starts) for floor in self._floors())
        value = next(filter(None, found), 0)
        return smaller_size(self.role, self.dimension, value) if value else None

    def _floors(self) -> Iterator[int]:
        """Sizes from which on larger is harder to place. The smallest shares may be refused for their size."""
        least = LEAST[self.dimension]
        yield least
        if self.small > least:
            yield self.small
            yield from reversed(range(least, self.small, max(UNITS[self.dimension], (self.small - least) // FEW)))


def largest_below(size: int, unit: int, least: int, starts: Callable[[int], bool]) -> int:
    """The largest value under `size`, in steps of `unit` down from it, that starts; 0 when none does."""
    steps = (size - least) // unit  # how often it can shrink and stay above zero
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
