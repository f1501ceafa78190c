"""What the scheduler knows of the workloads, because it was told or because it assumes it.

In:    what is true of one workload.   Out: the events that make the scheduler know it.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.workload_unit import BlockedWorkload
from kaiwo.clusters.ledger import Ledger
from kaiwo.clusters.recent_changes import Recent
from kaiwo.model.events import (
    Event,
    NominationChanged,
    NominationGone,
    PlannedStartChanged,
    PlannedStartGone,
    PodChanged,
    PodGone,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.workload import Phase, Pod, Workload, breaks_gang


class PublishedState:
    """Workloads and the pods that hold a place, with the ledger of what they hold."""

    def __init__(self) -> None:
        self.workloads: dict[str, Workload] = {}
        self.pods: dict[str, dict[str, Pod]] = {}
        self.nominations: dict[str, dict[str, Nomination]] = {}  # space, by workload and place
        self.planned_starts: dict[str, PlannedStart] = {}  # planned starts, by workload
        self.blocked: dict[str, BlockedWorkload] = {}  # work that the scheduler is not told of, for people who ask
        self.ledger = Ledger()
        self.version = 0
        self.recent = Recent()  # which workloads changed lately, for those who look again and again

    def since_broken(self, workload: Workload | None, pods: Sequence[Pod], now_s: int) -> Workload | None:
        """A gang of which only a part is up, because a start broke off or pods went: it may not stay so for long."""
        up = [pod.name for pod in pods if pod.phase in (Phase.ASSUMED, Phase.RUNNING)]
        if workload is None or not up or not breaks_gang(workload, up):
            return workload
        before = self.workloads.get(workload.name)
        return replace(workload, broken_since_s=(before.broken_since_s if before else 0) or now_s)

    def publish_workload(
        self, name: str, workload: Workload | None, pods: Sequence[Pod], ran_s: int = 0
    ) -> list[Event]:
        """The difference to what was told before; of a workload that came to its end, how long it ran."""
        events: list[Event] = []
        before, now = self.pods.get(name, {}), {pod.name: pod for pod in pods}
        for slot in before.keys() - now.keys():
            self._put(name, slot, None)
            events.append(PodGone(name, slot))
        # The workload comes before its pods, so that its queue is charged for them at once.
        if workload is None and self.workloads.pop(name, None) is not None:
            events.append(WorkloadGone(name, ran_s))
        elif workload is not None and self.workloads.get(name) != workload:
            self.workloads[name] = workload
            events.append(WorkloadChanged(workload))
        for slot, pod in now.items():
            if before.get(slot) != pod:
                self._put(name, slot, pod)
                events.append(PodChanged(pod))
        if events:
            self._note(name)
        return events

    def publish_blocked(self, name: str, held: BlockedWorkload | None) -> None:
        """It waits, and the scheduler is not told of it; None: that is over."""
        if self.blocked.get(name) != held:
            self.blocked.pop(name, None)
            if held is not None:
                self.blocked[name] = held
            self._note(name)

    def publish_nominations(self, name: str, kept: Mapping[str, Nomination]) -> list[Event]:
        """The difference to the space that was told before."""
        before = self.nominations.pop(name, {})
        if kept:
            self.nominations[name] = dict(kept)
        events: list[Event] = [NominationGone(name, slot) for slot in before if slot not in kept]
        return events + [NominationChanged(each) for slot, each in kept.items() if before.get(slot) != each]

    def publish_planned_start(self, name: str, promise: PlannedStart | None) -> list[Event]:
        """The difference to the planned start that was told before. With its workload the scheduler forgets it."""
        before = self.planned_starts.pop(name, None)
        if name not in self.workloads:
            return []
        if promise is not None:
            self.planned_starts[name] = promise
            return [PlannedStartChanged(promise)] if promise != before else []
        return [PlannedStartGone(name)] if before is not None else []

    def assume_planned_start(self, name: str, promise: PlannedStart | None) -> None:
        """The scheduler knows this by itself: it decided it."""
        self.planned_starts.pop(name, None)
        if promise is not None:
            self.planned_starts[name] = promise

    def assume_nomination(self, nomination: Nomination) -> None:
        """The scheduler knows this by itself: it decided it."""
        self.nominations.setdefault(nomination.workload, {})[nomination.pod] = nomination

    def assume_nomination_gone(self, workload: str, slot: str) -> None:
        """The scheduler knows by itself that the space is kept no longer."""
        own = self.nominations.get(workload, {})
        own.pop(slot, None)
        if not own:
            self.nominations.pop(workload, None)

    def assume_pod(self, pod: Pod) -> None:
        """The scheduler knows this by itself: it decided it."""
        self._put(pod.workload, pod.name, pod)
        self._note(pod.workload)

    def explain_misfit(self, pod: Pod, nodes: Mapping[str, Node]) -> str:
        """Why a pod cannot be where it is said to be; what it holds already does not stand in its way."""
        before = self.pods.get(pod.workload, {}).get(pod.name)
        if before is not None:
            self.ledger.give_back(before)
        try:
            return self.ledger.refusal(nodes, [pod])
        finally:
            if before is not None:
                self.ledger.take(before)

    def assume_releasing(self, workload: str, slot: str) -> None:
        """The scheduler knows by itself that this pod was told to go."""
        pod = self.pods.get(workload, {}).get(slot)
        if pod is not None:
            self._put(workload, slot, replace(pod, phase=Phase.RELEASING))
            self._note(workload)

    def whole_state(self) -> Iterable[Event]:
        """Everything, in the order of names."""
        for name in sorted(self.workloads):
            yield WorkloadChanged(self.workloads[name])
        for name in sorted(self.pods):
            for slot in sorted(self.pods[name]):
                yield PodChanged(self.pods[name][slot])
        for name in sorted(self.nominations):
            for slot in sorted(self.nominations[name]):
                yield NominationChanged(self.nominations[name][slot])
        for name in sorted(self.planned_starts):
            yield PlannedStartChanged(self.planned_starts[name])

    def _note(self, workload: str) -> None:
        self.version += 1
        self.recent.note(workload, self.version)

    def _put(self, workload: str, slot: str, pod: Pod | None) -> None:
        own = self.pods.setdefault(workload, {})
        before = own.pop(slot, None)
        if before is not None:
            self.ledger.give_back(before)
        if pod is not None:
            own[slot] = pod
            self.ledger.take(pod)
        elif not own:
            del self.pods[workload]
