"""Sums over the workloads by queue and state, kept along with the rows: asked often, and never counted anew."""

from collections.abc import Collection

Sums = tuple[int, int, int, int]  # workloads, milli-GPU, milli-CPU, MiB
NOTHING: Sums = (0, 0, 0, 0)


class Tally:
    """Exact integers, so what was added can be taken off again."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], Sums] = {}  # by queue and state, as codes

    def add(self, queue: int, state: int, amounts: tuple[int, int, int], sign: int = 1) -> None:
        """Count a workload in, or with sign -1 out."""
        before = self._sums.get((queue, state), NOTHING)
        gpu, cpu, memory = amounts
        after = (before[0] + sign, before[1] + sign * gpu, before[2] + sign * cpu, before[3] + sign * memory)
        self._sums[queue, state] = after

    def by_queue(self, states: Collection[int]) -> dict[int, Sums]:
        """For each queue, the sums over its workloads in these states."""
        found: dict[int, Sums] = {}
        for (queue, state), sums in self._sums.items():
            if state in states:
                a, b, c, d = found.get(queue, NOTHING)
                found[queue] = (a + sums[0], b + sums[1], c + sums[2], d + sums[3])
        return found

    def count(self, state: int) -> int:
        """How many workloads are in this state."""
        return sum(sums[0] for (_, at), sums in self._sums.items() if at == state)

    def copy(self) -> "Tally":
        """An independent one."""
        other = Tally()
        other._sums = dict(self._sums)
        return other
