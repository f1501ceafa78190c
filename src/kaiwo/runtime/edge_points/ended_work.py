"""Find out which workloads have ended since the last look, each end once.

In:    the cluster's records.   Out: the records of what ended. What was over at the first look is no news, unless it
       ended after a given time.
"""

from collections.abc import Sequence

from kaiwo.clusters.protocol import Cluster
from kaiwo.model.workload_record import WorkloadRecord

NEVER_S = 2**62
STOPPED_CODES = (-15, -9)  # it was told to stop: that is no failure


class EndedWork:
    def __init__(self, cluster: Cluster, since_s: int = NEVER_S) -> None:
        self._cluster, self._since_s = cluster, since_s
        self._version = -1
        self._over: dict[str, int] = {}  # submissions that are known to be over, by workload
        self._failed: dict[str, tuple[int, int]] = {}  # submission and attempt of the last failure, by workload
        self.failed_attempts = 0  # since the first look

    def news(self) -> Sequence[WorkloadRecord]:
        is_first = self._version < 0
        changes = self._cluster.records_since(self._version)
        self._version = changes.version
        found = []
        for record in changes.records:
            name = record.workload.name
            self._count_failure(record, is_first)
            if not record.state.is_over:
                self._over.pop(name, None)
            elif self._over.get(name) != record.submission:
                self._over[name] = record.submission
                if not is_first or record.ended_s > self._since_s:
                    found.append(record)
        for name in changes.gone:
            self._over.pop(name, None)
            self._failed.pop(name, None)
        return found

    def _count_failure(self, record: WorkloadRecord, is_first: bool) -> None:
        if not record.exit_code or record.exit_code in STOPPED_CODES:
            return
        name, attempt = record.workload.name, (record.submission, record.attempt)
        if self._failed.get(name) != attempt:
            self._failed[name] = attempt
            self.failed_attempts += not is_first
