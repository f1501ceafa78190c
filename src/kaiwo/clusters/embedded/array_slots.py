"""How many tasks of an array may run at once: `--array 0-999%50` gives the array 50 slots.

A task that has not ended and is not held uses a slot, or waits for one. Slots go to the tasks in the order of their
index. Without a limit, a task neither uses nor waits for one.
"""

from heapq import heappop, heappush

from kaiwo.clusters.embedded.lifecycle import TrackedWorkload, array_of, with_workload
from kaiwo.manifests.values.names import INDEX_LABEL, SLOTS_LABEL
from kaiwo.model.workload import Workload


def slots_of(workload: Workload) -> int:
    """The slots of a task's array; 0: as many as there are tasks, or it is no task."""
    text = workload.labels.get(SLOTS_LABEL, "") if workload.labels else ""
    return int(text) if text.isdecimal() and len(text) < 9 else 0


def uses_slot(tracked: TrackedWorkload | None) -> bool:
    return _competes(tracked) and not (tracked is not None and tracked.workload.array_slots)


def waits_for_slot(tracked: TrackedWorkload | None) -> bool:
    return _competes(tracked) and not uses_slot(tracked)


def _competes(tracked: TrackedWorkload | None) -> bool:
    return (
        tracked is not None
        and bool(slots_of(tracked.workload))
        and not tracked.is_over
        and not tracked.workload.held
        and bool(array_of(tracked.workload))
    )


class ArraySlots:
    """For each array with a limit, how many slots are used, and which tasks wait for one."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}
        self._waiting: dict[str, list[tuple[int, str]]] = {}  # heaps of index and name; some no longer wait

    def index(self, before: TrackedWorkload | None, after: TrackedWorkload | None) -> None:
        """Note that a workload has changed."""
        if before is not None and uses_slot(before):
            self._used[array_of(before.workload)] -= 1
        if after is not None and uses_slot(after):
            array = array_of(after.workload)
            self._used[array] = self._used.get(array, 0) + 1
        if after is not None and waits_for_slot(after) and not waits_for_slot(before):
            workload = after.workload
            index = workload.labels.get(INDEX_LABEL, "")
            entry = (int(index) if index.isdecimal() else 0, workload.name)
            heappush(self._waiting.setdefault(array_of(workload), []), entry)

    def next_waiting(self, array: str, workloads: dict[str, TrackedWorkload]) -> TrackedWorkload | None:
        """The task that a free slot is for; None: no slot is free, or no task waits."""
        heap = self._waiting.get(array, [])
        while heap:
            tracked = workloads.get(heap[0][1])
            if tracked is not None and waits_for_slot(tracked) and array_of(tracked.workload) == array:
                return tracked if self._used.get(array, 0) < slots_of(tracked.workload) else None
            heappop(heap)
        return None

    def seated(self, tracked: TrackedWorkload) -> TrackedWorkload:
        """A task that begins to wait, with a slot if one is free and else marked as waiting for one; held, neither."""
        slots = slots_of(tracked.workload)
        if not slots or not array_of(tracked.workload):
            return tracked
        is_full = not tracked.workload.held and self._used.get(array_of(tracked.workload), 0) >= slots
        return with_workload(tracked, array_slots=slots if is_full else 0)
