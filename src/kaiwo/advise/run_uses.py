"""What the last runs of recurring work used: of one kind are runs of the same user, queue, name, image and size.

In:    the use of each run that has ended.   Out: the last runs of a kind, the newest last.
Memory is bounded: the last runs of the kinds that ended last.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from kaiwo.forecast.run_time_forecast import RunKey

RUNS_KEPT = 10  # the last ones of one kind
KINDS_KEPT = 2_000
UNKNOWN = -1


class PodAmounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one pod. UNKNOWN: nobody measured it, or it has none. Of processors, a peak is the mean of a minute."""

    gpu_milli: int = UNKNOWN  # of each device
    gpu_mib: int = UNKNOWN  # of each device
    cpu_milli: int = UNKNOWN
    memory_mib: int = UNKNOWN


class RunUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The most that any pod of one run used, and what it was given."""

    peak: PodAmounts
    given: PodAmounts
    asked: PodAmounts  # what its owner asked for: less was given where Kaiwo had adjusted it
    run_s: int
    top_gpu_milli: int = UNKNOWN  # the highest sample: what counts where a share is also the most that a run gets
    failed: bool = False

    @property
    def is_adjusted(self) -> bool:
        return self.given != self.asked


class KindUse(msgspec.Struct, frozen=True):
    """As it is stored."""

    key: RunKey
    runs: tuple[RunUse, ...]


class RunUses:
    """The kind that ended last comes last."""

    def __init__(self, kinds: Iterable[KindUse] = ()) -> None:
        self._runs: dict[RunKey, deque[RunUse]] = {each.key: deque(each.runs, RUNS_KEPT) for each in kinds}

    def add(self, key: RunKey, run: RunUse) -> None:
        runs = self._runs.pop(key, None)
        self._runs[key] = runs = deque(maxlen=RUNS_KEPT) if runs is None else runs
        runs.append(run)
        if len(self._runs) > KINDS_KEPT:
            del self._runs[next(iter(self._runs))]

    def of(self, key: RunKey) -> Sequence[RunUse]:
        return tuple(self._runs.get(key, ()))

    def __len__(self) -> int:
        """How many kinds of work are known."""
        return len(self._runs)

    def save(self) -> tuple[KindUse, ...]:
        return tuple(KindUse(key, tuple(runs)) for key, runs in self._runs.items())
