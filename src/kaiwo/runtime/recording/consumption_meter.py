"""Add up what queues and users hold, from the table of workloads: thousandths of a GPU times seconds."""

import numpy as np

from kaiwo.history.past.past_writer import GpuHolder
from kaiwo.runtime.overview.workload_table import GPU, HOLDS, QUEUE, USER, WorkloadRows
from kaiwo.runtime.recording.gpu_use_meter import MOST_S


class ConsumptionMeter:
    def __init__(self) -> None:
        self._held: dict[GpuHolder, int] = {}
        self._sampled_s = 0

    def add(self, rows: WorkloadRows, now_s: int) -> None:
        """What is held now was held since the sample before; not while nobody looked."""
        before_s, self._sampled_s = self._sampled_s, now_s
        span_s = min(MOST_S, now_s - before_s)
        if not before_s or span_s <= 0:
            return
        holds = rows.in_states(HOLDS)
        users = len(rows.users)
        pairs = rows.table[QUEUE, holds] * users + rows.table[USER, holds]
        found, places = np.unique(pairs, return_inverse=True)
        sums = np.zeros(len(found), np.int64)
        np.add.at(sums, places, rows.table[GPU, holds])
        for pair, milli in zip(found.tolist(), sums.tolist(), strict=True):
            if milli:
                owner = GpuHolder(rows.queues.names[pair // users], rows.users.names[pair % users])
                self._held[owner] = self._held.get(owner, 0) + milli * span_s

    def take(self) -> dict[GpuHolder, int]:
        """What was added since the last time."""
        held, self._held = self._held, {}
        return held
