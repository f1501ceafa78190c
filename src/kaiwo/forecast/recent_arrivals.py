"""The workloads that arrived lately, and those that would arrive if the last day came again.

In:    each workload as it arrives.   Out: copies of them with later times, in the order of these times.
Never: counts a workload that had arrived before anybody looked, or keeps more than a day.
"""

from collections import deque
from collections.abc import Iterator
from heapq import merge

import msgspec
from msgspec.structs import replace

from kaiwo.model.workload import Workload

PERIOD_S = 86_400  # what came in the last day comes again in the next one
SHORTEST_S = 3_600  # who has looked for less time than this does not know how much comes
TOGETHER_S = 300  # copies of one such span arrive at once: each instant costs a cycle
MOST = 4_000  # of so many workloads the newest


class SavedArrivals(msgspec.Struct, frozen=True):
    workloads: tuple[Workload, ...] = ()
    since_s: int = 0


class RecentArrivals:
    """`since_s`: when somebody began to look."""

    def __init__(self, since_s: int, workloads: tuple[Workload, ...] = ()) -> None:
        self._since_s = since_s
        self._workloads = deque(workloads, maxlen=MOST)

    def add(self, workload: Workload) -> None:
        if workload.submitted_s < self._since_s:
            return
        self._workloads.append(workload)
        while workload.submitted_s - self._workloads[0].submitted_s > PERIOD_S:
            self._workloads.popleft()

    def save(self) -> SavedArrivals:
        return SavedArrivals(tuple(self._workloads), self._since_s)

    def expected(self, now_s: int, turn_permille: int, horizon_s: int) -> Iterator[Workload]:
        """What arrives until `horizon_s` from now. Copies of one workload differ by a number at the end of their name.

        The last day begins again at the part `turn_permille` of itself, so that several turns are several futures.
        """
        begin_s = max(self._since_s, now_s - PERIOD_S)
        if len(self._workloads) == MOST:
            begin_s = max(begin_s, self._workloads[0].submitted_s)
        period_s = now_s - begin_s
        if period_s < SHORTEST_S:
            return
        turn_s = period_s * turn_permille // 1000
        due = [
            (now_s + (each.submitted_s - begin_s - turn_s) % period_s, each)
            for each in self._workloads
            if each.submitted_s >= begin_s
        ]
        due = _with_names_of_their_own(sorted(due, key=_by_time_and_name))
        rounds = (
            [(at_s + number * period_s, each.name, number, each) for at_s, each in due]
            for number in range(-(-horizon_s // period_s))
        )
        for at_s, name, number, each in merge(*rounds):
            at_s += -at_s % TOGETHER_S
            if at_s > now_s + horizon_s:
                return
            yield replace(each, name=f"{name}-{number}", submitted_s=at_s, after=())


def _by_time_and_name(due: tuple[int, Workload]) -> tuple[int, str]:
    return due[0], due[1].name


def _with_names_of_their_own(due: list[tuple[int, Workload]]) -> list[tuple[int, Workload]]:
    """A name that was submitted again within the day is another workload, which may be larger."""
    seen: dict[str, int] = {}
    found = []
    for at_s, each in due:
        times = seen[each.name] = seen.get(each.name, 0) + 1
        found.append((at_s, each if times == 1 else replace(each, name=f"{each.name}-{times}")))
    return found
