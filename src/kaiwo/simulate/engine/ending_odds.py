"""How likely a job of some age ends soon, learned from those that ended and those that have not.

In:    sizes and ages of jobs.   Out: a priority by size and age (the Gittins index, per GPU).
Ages are in levels, each twice as long as the one before. By level, the odds are the jobs that ended there out of those
that got there; neighbouring levels and other sizes count, too, as long as there are few jobs to learn from.
"""

import math
from collections.abc import Iterable

import numpy as np

from kaiwo.simulate.typical_requests import FloatArray

FIRST_S, LEVELS = 60, 24  # the first level ends after a minute; the last one begins after 16 years
FIRST_ODDS, FIRST_JOBS = 0.2, 4  # before any job has ended: as four jobs of which one in five ends in each level
BORROWED_JOBS = 20  # the odds of all sizes count as much as 20 jobs of this one
NEIGHBOURS = (0.25, 0.5, 1.0, 0.5, 0.25)  # how much a level and those around it count
LEARN_PART = 10  # learned again when a tenth more jobs have ended
PRIORITIES_PER_OCTAVE = 4  # odds within a factor of 1.19 are equal: then the order of arrival decides
_LENGTHS: FloatArray = np.array([FIRST_S, *(FIRST_S * 2.0**level for level in range(LEVELS - 1))])


def age_level(age_s: int) -> int:
    return min((age_s // FIRST_S).bit_length(), LEVELS - 1)


def level_ends_s(level: int) -> int:
    return FIRST_S << level


class EndingOdds:
    def __init__(self) -> None:
        self._ended: dict[int, FloatArray] = {}  # by size: the jobs that ended in each level
        self._reached: dict[int, FloatArray] = {}  # of those, how many got there
        self._priorities: dict[int, list[int]] = {}
        self._ends, self._learned_at = 0, 0
        self._all = np.zeros(LEVELS), np.zeros(LEVELS)
        self._open: dict[int, FloatArray] = {}

    @property
    def is_due(self) -> bool:
        return self._ends > self._learned_at and self._ends - self._learned_at >= self._learned_at // LEARN_PART

    def ended(self, size: int, level: int) -> None:
        self._ended.setdefault(size, np.zeros(LEVELS))[level] += 1
        self._reached.setdefault(size, np.zeros(LEVELS))[: level + 1] += 1
        self._ends += 1

    def learn(self, active: Iterable[tuple[int, int]]) -> None:
        """From all jobs that ended, and from those that got to their level without an end."""
        self._open = {}
        for size, level in active:
            self._open.setdefault(size, np.zeros(LEVELS))[:level] += 1
        nothing = np.zeros(LEVELS)
        self._all = sum(self._ended.values(), nothing), sum((*self._reached.values(), *self._open.values()), nothing)
        self._learned_at = self._ends
        self._priorities = {}

    def priority(self, size: int, level: int) -> int:
        if size not in self._priorities:
            self._priorities[size] = self._priorities_of(size)
        return self._priorities[size][level]

    def _priorities_of(self, size: int) -> list[int]:
        nothing = np.zeros(LEVELS)
        ended = self._ended.get(size, nothing)
        reached = self._reached.get(size, nothing) + self._open.get(size, nothing)
        common = (_around(self._all[0]) + FIRST_ODDS * FIRST_JOBS) / (_around(self._all[1]) + FIRST_JOBS)
        odds = (_around(ended) + BORROWED_JOBS * common) / (_around(reached) + BORROWED_JOBS)
        per_gpu = gittins_index(np.clip(odds, 1e-4, 0.95)) / max(1, size)
        return [round(PRIORITIES_PER_OCTAVE * math.log2(value)) for value in per_gpu]


def gittins_index(odds: FloatArray) -> FloatArray:
    """By level: the most ends per second of service that serving a job for some time from there on can bring."""
    index: FloatArray = np.zeros(len(odds))
    for level in range(len(odds)):
        ends = odds[level:]
        there = np.concatenate(([1.0], np.cumprod(1 - ends)))[:-1]
        service = there * _LENGTHS[level : len(odds)] * (1 - ends / 2)  # a job that ends in a level does so halfway
        index[level] = (np.cumsum(there * ends) / np.cumsum(service)).max()
    return index


def _around(counts: FloatArray) -> FloatArray:
    found: FloatArray = np.convolve(counts, NEIGHBOURS, "same")
    return found
