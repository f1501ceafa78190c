"""Find the smallest reduction that would start a workload.

In:    a Question.   Out: per role and dimension the largest size that starts.
Nothing is freed by asking for less, so everybody else stays where they are: whether a smaller request starts is read
off one working copy, in a trial that is undone, and only the winner is put to `decide`.
"""

from collections.abc import Callable

from msgspec.structs import replace

from kaiwo.decide.gang import place_workload
from kaiwo.decide.place import Placer
from kaiwo.decide.score import ShapeBook
from kaiwo.explain.change import CPU, GPU_MEMORY, GPUS, MEMORY, PODS, SHARE, UNITS, Change, Kind, resized, size_of
from kaiwo.explain.trial import Question
from kaiwo.model.workload import Workload
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.working import Working

DIMENSIONS = (PODS, GPUS, SHARE, GPU_MEMORY, CPU, MEMORY)
PPM = 1_000_000


def smaller_sizes(question: Question, room: "Room") -> list[Change]:
    """For every role and dimension that helps: the change that gives up least."""
    workload = question.picture.workloads[question.name]
    found = []
    for role in workload.roles:
        for dimension in DIMENSIONS:
            size = size_of(role, dimension)

            def starts(value: int, role_name: str = role.name, dimension: str = dimension) -> bool:
                return room.takes(resized(workload, role_name, dimension, value))

            value = largest_below(size, UNITS[dimension], starts)
            if value:
                given_up = PPM * (size - value) // size
                found.append(Change(Kind.SMALLER_SIZE, "researcher", f"{role.name}:{dimension}", value, given_up))
    return found


def largest_below(size: int, unit: int, starts: Callable[[int], bool]) -> int:
    """The largest value under `size`, in steps of `unit` down from it, that starts; 0 when none does."""
    steps = (size - 1) // unit  # how often it can shrink and still be something
    if steps < 1 or not starts(size - steps * unit):
        return 0
    works, fails = steps, 0
    while works - fails > 1:
        middle = (works + fails) // 2
        if starts(size - middle * unit):
            works = middle
        else:
            fails = middle
    return size - works * unit


class Room:
    """One working copy on which placements are tried and undone; new shapes go to a fork and leave no trace."""

    def __init__(self, question: Question) -> None:
        self._picture = question.picture.fork()
        snapshot = Snapshot(self._picture, question.now_s)
        active = question.plugins.active(question.policy)
        self.working = Working(snapshot)
        book = ShapeBook(self._picture, Working(snapshot), self.working, active)
        self._placer = Placer(self.working, book, active, packs=question.policy.placement == "pack")

    def takes(self, workload: Workload, limits: bool = True) -> bool:
        """The workload would start now, if it were its turn."""
        queues = self.working.queues
        row = queues.row.get(workload.queue)
        if row is None or not queues.is_leaf[row]:
            leaf = next((name for name, is_leaf in zip(queues.names, queues.is_leaf, strict=True) if is_leaf), "")
            if limits or not leaf:
                return False
            workload = replace(workload, queue=leaf)  # only the nodes are asked about
        needs = self._picture.needs_of(workload)
        mark = self.working.mark()
        starts = place_workload(self.working, self._placer, self._picture, workload, needs, limits)
        self.working.back_to(mark)
        return starts is not None

    def takes_anywhere(self, workload: Workload) -> bool:
        """There is room on the nodes, whatever the queues say."""
        return self.takes(workload, limits=False)
