"""The last runs of each kind of workload, and how long the next one is expected to take at most.

In:    the run times of ended workloads.   Out: a time that nine of ten recent runs of the same kind did not exceed.
Memory is bounded: the last runs of the kinds that ended last. Fewer than three runs say nothing.
"""

import re
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

FEWEST_RUNS = 3  # fewer are not enough to predict the next one
RUNS_KEPT = 20  # the last runs of one kind
KINDS_KEPT = 2_000  # the kinds that ended last
# A number, or the letters that Kubernetes and `kaiwo run` append to a name.
_is_number = re.compile(r"[0-9]+|[bcdfghjklmnpqrstvwxz2456789]{5}").fullmatch


class WorkloadKind(NamedTuple):
    owner: str  # user, queue, and the name without its number
    pods: str  # a digest of what its pods ask for


class RecentRuns:
    """The kind that ended last comes last."""

    def __init__(self) -> None:
        self._runs: dict[WorkloadKind, deque[int]] = {}
        self._owners: dict[str, int] = {}  # number of kinds by owner: a quick check, since most workloads have none

    @property
    def is_empty(self) -> bool:
        return not self._owners

    def knows(self, owner: str) -> bool:
        return owner in self._owners

    def add(self, kind: WorkloadKind, run_s: int) -> WorkloadKind | None:
        """Count a run. The answer is the kind that was forgotten for it."""
        runs = self._runs.pop(kind, None)
        if runs is None:
            runs = deque(maxlen=RUNS_KEPT)
            self._owners[kind.owner] = self._owners.get(kind.owner, 0) + 1
        runs.append(run_s)
        self._runs[kind] = runs
        if len(self._runs) <= KINDS_KEPT:
            return None
        oldest = next(iter(self._runs))
        del self._runs[oldest]
        self._owners[oldest.owner] -= 1
        if not self._owners[oldest.owner]:
            del self._owners[oldest.owner]
        return oldest

    def expected_s(self, kind: WorkloadKind) -> int:
        """Nine of ten recent runs of this kind took at most this long; 0: too few are known."""
        return conservative_s(self._runs.get(kind, ()))


def conservative_s(runs: Sequence[int]) -> int:
    """The ninth of ten in ascending order; of fewer, the longest. 0: too few runs are known."""
    if len(runs) < FEWEST_RUNS:
        return 0
    return sorted(runs)[-(-9 * len(runs) // 10) - 1]


def name_without_numbers(name: str) -> str:
    """The name up to its trailing numbers. One part at a time: a single pattern for all tries every way to divide."""
    end = len(name)
    while True:
        at = max(name.rfind("-", 0, end), name.rfind("_", 0, end), name.rfind(".", 0, end))
        if at < 0 or not _is_number(name, at + 1, end):
            return name[:end] or name
        end = at
