"""The defragmentation run that the cluster state knows, and how far each of its steps is.

The run and its progress are events like all others, so that a journal replays every cycle of a run byte for byte.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kaiwo.model.defragmentation import DefragmentationRun, StepProgress, first_progress
from kaiwo.model.events import DefragmentationChanged, DefragmentationStepChanged, Event

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState


class DefragmentationStatus:
    def __init__(self) -> None:
        self.run: DefragmentationRun | None = None
        self._progress: dict[int, StepProgress] = {}
        self._workloads: frozenset[str] = frozenset()  # whose pods move, or get room; empty once the run is over

    @property
    def is_live(self) -> bool:
        return self.run is not None and not self.run.is_over

    def progress(self, number: int) -> StepProgress:
        assert self.run is not None
        return self._progress.get(number) or first_progress(self.run, number)

    def steps(self) -> Iterator[StepProgress]:
        return map(self.progress, range(len(self.run.steps) if self.run is not None else 0))

    def concerns(self, workload: str) -> bool:
        return workload in self._workloads

    def events(self) -> Iterator[Event]:
        if self.run is not None:
            yield DefragmentationChanged(self.run)
            yield from (DefragmentationStepChanged(self._progress[at]) for at in sorted(self._progress))

    def copy(self) -> "DefragmentationStatus":
        other = DefragmentationStatus()
        other.run, other._progress, other._workloads = self.run, dict(self._progress), self._workloads
        return other

    def put_run(self, run: DefragmentationRun) -> None:
        if self.run is None or self.run.name != run.name:
            self._progress = {}
        self.run = run
        steps = () if run.is_over else run.steps
        names = {move.workload for step in steps for move in step.moves}
        self._workloads = frozenset(names | {place.workload for step in steps for place in step.starts})

    def put_step(self, progress: StepProgress) -> None:
        """Of a run that is not known any more, nothing is kept."""
        if self.run is not None and progress.run == self.run.name and progress.number < len(self.run.steps):
            self._progress[progress.number] = progress


def defragmentation_changed(state: "ClusterState", event: DefragmentationChanged) -> None:
    state.defragmentation.put_run(event.run)
    state.is_cycle_due = state.is_cycle_due or not event.run.is_over


def defragmentation_step_changed(state: "ClusterState", event: DefragmentationStepChanged) -> None:
    state.defragmentation.put_step(event.progress)
