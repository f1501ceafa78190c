"""What could be stopped by the rules of queues, and is kept by a disruption budget or a minimum run time.

In:    running work that does not go.   Out: words with numbers, for those who wait for it.
"""

from collections.abc import Iterable

import numpy as np

from kaiwo.model.workload import Pod, Workload
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.queue_table import QueueTable

MOST_NAMED = 3


class ProtectedWork:
    """The work of a cycle of which disruption budgets keep some, by queue."""

    def __init__(self) -> None:
        self._kept: dict[str, list[tuple[Workload, int]]] = {}  # each with its milli-GPU

    def keep(self, workload: Workload, pods: Iterable[Pod]) -> None:
        """These pods of a workload do not go."""
        milli = [sum(share.milli for share in pod.devices) for pod in pods]
        if milli:
            self._kept.setdefault(workload.queue, []).append((workload, sum(milli)))

    def rows(self, queues: QueueTable) -> Rows:
        """The queues with such work."""
        return np.array(sorted(queues.row[name] for name in self._kept if name in queues.row), np.intp)

    def words(self, queue: str, below: int | None = None) -> str:
        """What budgets keep in a queue; of the work below a priority, if one is given."""
        kept = [each for each in self._kept.get(queue, ()) if below is None or each[0].priority < below]
        if not kept:
            return ""
        names = sorted(workload.name for workload, _ in kept)
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        shown, gpus = f"{', '.join(names[:MOST_NAMED])}{more}", gpu_words(sum(milli for _, milli in kept))
        why = min((workload.stays_why for workload, _ in kept if workload.stays_why), default="")
        if why:
            return f"{gpus} in {queue} cannot be taken back ({shown}): {why}"
        return f"disruption budgets keep {gpus} in {queue} ({shown})"


def words_of_young(queues: QueueTable, queue: IntArray, is_young: BoolArray, milli: IntArray) -> list[str]:
    """What minimum run times keep, in words for each queue. `queue`, `is_young` and `milli` stand beside each other."""
    found = []
    for row in np.unique(queue[is_young]).tolist():
        kept = int(milli[is_young & (queue == row)].sum())
        least_s = int(queues.tree.min_runtime_s[row])
        found.append(f"minimum run times of {least_s} s keep {gpu_words(kept)} in {queues.names[row]}")
    return found


def gpu_words(milli: int) -> str:
    """As people count them: 32 GPUs, 0.5 GPUs."""
    return f"{milli / 1000:g} GPU{'' if milli == 1000 else 's'}"
