"""Hold the priorities of workloads to what their queues allow, whoever let them into the cluster.

In:    workloads as they were submitted.   Out: the same with the priority that counts; what was asked for is kept.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from kaiwo.model.priority_cap import DEFAULT_CAP, PriorityCap, priority_cap
from kaiwo.model.queue import Queue
from kaiwo.model.workload import Workload


class CappedPriorities:
    def __init__(self) -> None:
        self._asked: dict[str, int] = {}  # by workload: the priority that was asked for, where less counts
        self._caps: dict[str, PriorityCap] = {}  # by queue

    def capped(self, workload: Workload, queues: Mapping[str, Queue]) -> Workload:
        """The workload with the priority that counts."""
        cap = self._caps.get(workload.queue) or self._cap(workload.queue, queues)
        if workload.priority <= cap.most or workload.priority <= (most := cap.most_for(workload)):
            if self._asked:
                self._asked.pop(workload.name, None)
            return workload
        self._asked[workload.name] = workload.priority
        return replace(workload, priority=most)

    def as_asked(self, workload: Workload) -> Workload:
        """The workload as it was submitted."""
        asked = self._asked.get(workload.name)
        return workload if asked is None else replace(workload, priority=asked)

    def all_as_asked(self, workloads: Mapping[str, Workload]) -> Iterable[Workload]:
        """All of them as they were submitted, by name."""
        found = map(workloads.__getitem__, sorted(workloads))
        return map(self.as_asked, found) if self._asked else found

    def forget(self, workload: str) -> None:
        self._asked.pop(workload, None)

    def forget_queues(self) -> None:
        self._caps.clear()

    def copy(self) -> "CappedPriorities":
        other = CappedPriorities()
        other._asked, other._caps = dict(self._asked), dict(self._caps)
        return other

    def _cap(self, queue: str, queues: Mapping[str, Queue]) -> PriorityCap:
        if queue not in queues:  # anybody may write any name: those are not kept
            return DEFAULT_CAP
        cap = self._caps[queue] = priority_cap(queues, queue)
        return cap


def may_change_caps(before: Queue | None, after: Queue | None, queues: Mapping[str, Queue]) -> bool:
    """Whether a change of this queue may change the highest priority in it or below it."""
    old, new = ((each.max_priority, each.parent) if each is not None else (None, "") for each in (before, after))
    if old == new:
        return False
    return old[0] != new[0] or any(queue.max_priority is not None for queue in queues.values())
