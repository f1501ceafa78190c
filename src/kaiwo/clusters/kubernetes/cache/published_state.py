"""Keep the state that was published to the scheduler or that it assumes, and publish what differs from it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.workload_unit import BlockedWorkload
from kaiwo.clusters.ledger import Ledger
from kaiwo.clusters.recent_changes import RecentChanges
from kaiwo.model.events import (
    Event,
    NominationChanged,
    NominationGone,
    PlannedStartChanged,
    PlannedStartGone,
    PodChanged,
    PodGone,
    StoppedForOthers,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.workload import Phase, Pod, Workload, breaks_gang


class UnitState(NamedTuple):
    """Everything that the scheduler and people should know about one unit."""

    name: str
    workload: Workload | None  # None: nothing to schedule
    pods: Sequence[Pod]  # those that hold a slot
    blocked: BlockedWorkload | None  # shown to people, unknown to the scheduler
    nominations: Mapping[str, Nomination]  # by slot
    planned_start: PlannedStart | None
    last_stop: StoppedForOthers | None  # the last eviction for another workload


class PublishedState:
    """Workloads and the pods that hold a slot, with the ledger of what they hold."""

    def __init__(self) -> None:
        self.workloads: dict[str, Workload] = {}
        self.pods: dict[str, dict[str, Pod]] = {}
        self.nominations: dict[str, dict[str, Nomination]] = {}  # by workload and slot
        self.planned_starts: dict[str, PlannedStart] = {}  # by workload
        self.blocked: dict[str, BlockedWorkload] = {}
        self.ledger = Ledger()
        self.version = 0
        self.recent = RecentChanges()  # which workloads changed recently

    def publish(self, state: UnitState, now_s: int) -> list[Event]:
        """The difference from what was published before. `now_s`: from when a gang counts as incomplete."""
        name = state.name
        self._set_blocked(name, state.blocked)
        workload = self._with_broken_since(state.workload, state.pods, now_s)
        is_back = workload is not None and name not in self.workloads
        events = self.publish_pods(name, workload, state.pods)
        events += self._publish_nominations(name, state.nominations)
        if is_back and state.last_stop is not None:
            # Queues counted the stop already; the scheduler forgot it with the workload.
            events.append(replace(state.last_stop, queues=()))
        return events + self._publish_planned_start(name, state.planned_start)

    def publish_gone(self, name: str, ran_s: int) -> list[Event]:
        """A workload ended. The scheduler forgets its nominations and planned start with it."""
        self._set_blocked(name, None)
        self.nominations.pop(name, None)
        self.planned_starts.pop(name, None)
        return self.publish_pods(name, None, (), ran_s)

    def publish_pods(self, name: str, workload: Workload | None, pods: Sequence[Pod], ran_s: int = 0) -> list[Event]:
        """The difference of a workload and its pods; for pods of another scheduler the workload is None."""
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
            self._record_change(name)
        return events

    # What follows needs no event: the scheduler decided it, and knows it already.

    def assume_planned_start(self, name: str, planned_start: PlannedStart | None) -> None:
        self.planned_starts.pop(name, None)
        if planned_start is not None:
            self.planned_starts[name] = planned_start

    def assume_nomination(self, nomination: Nomination) -> None:
        self.nominations.setdefault(nomination.workload, {})[nomination.pod] = nomination

    def assume_nomination_gone(self, workload: str, slot: str) -> None:
        own = self.nominations.get(workload, {})
        own.pop(slot, None)
        if not own:
            self.nominations.pop(workload, None)

    def assume_pod(self, pod: Pod) -> None:
        self._put(pod.workload, pod.name, pod)
        self._record_change(pod.workload)

    def explain_misfit(self, pod: Pod, nodes: Mapping[str, Node]) -> str:
        """Why a pod does not fit on its node; what it already holds does not count against it."""
        before = self.pods.get(pod.workload, {}).get(pod.name)
        if before is not None:
            self.ledger.give_back(before)
        try:
            return self.ledger.refusal(nodes, [pod])
        finally:
            if before is not None:
                self.ledger.take(before)

    def take_back(self, workload: str, slots: Iterable[str]) -> list[Event]:
        """The scheduler assumed starts that are not carried out: what it gave up for them is there again."""
        kept = self.nominations.get(workload, {})
        events: list[Event] = []
        for slot in slots:
            events.append(PodGone(workload, slot))
            if slot in kept:
                events.append(NominationChanged(kept[slot]))
        return events

    def assume_releasing(self, workload: str, slot: str) -> None:
        pod = self.pods.get(workload, {}).get(slot)
        if pod is not None:
            self._put(workload, slot, replace(pod, phase=Phase.RELEASING))
            self._record_change(workload)

    def move_times(self, by_s: int) -> list[Event]:
        """The clock was set: gangs are incomplete for as long as before."""
        broken = [workload for workload in self.workloads.values() if workload.broken_since_s]
        moved = [replace(workload, broken_since_s=max(1, workload.broken_since_s + by_s)) for workload in broken]
        self.workloads |= {workload.name: workload for workload in moved}
        return [WorkloadChanged(workload) for workload in moved]

    def whole_state(self) -> Iterable[Event]:
        """Everything, sorted by name."""
        yield from (WorkloadChanged(workload) for _, workload in sorted(self.workloads.items()))
        for _, pods in sorted(self.pods.items()):
            yield from (PodChanged(pod) for _, pod in sorted(pods.items()))
        for _, nominations in sorted(self.nominations.items()):
            yield from (NominationChanged(nomination) for _, nomination in sorted(nominations.items()))
        yield from (PlannedStartChanged(planned_start) for _, planned_start in sorted(self.planned_starts.items()))

    def _set_blocked(self, name: str, blocked: BlockedWorkload | None) -> None:
        if self.blocked.get(name) != blocked:
            self.blocked.pop(name, None)
            if blocked is not None:
                self.blocked[name] = blocked
            self._record_change(name)

    def _with_broken_since(self, workload: Workload | None, pods: Sequence[Pod], now_s: int) -> Workload | None:
        """A gang that is only partly up, because a start failed or pods left, may not stay so for long."""
        up = [pod.name for pod in pods if pod.phase in (Phase.ASSUMED, Phase.RUNNING)]
        if workload is None or not up or not breaks_gang(workload, up):
            return workload
        before = self.workloads.get(workload.name)
        return replace(workload, broken_since_s=(before.broken_since_s if before else 0) or now_s)

    def _publish_nominations(self, name: str, nominations: Mapping[str, Nomination]) -> list[Event]:
        before = self.nominations.pop(name, {})
        if nominations:
            self.nominations[name] = dict(nominations)
        events: list[Event] = [NominationGone(name, slot) for slot in before if slot not in nominations]
        return events + [NominationChanged(each) for slot, each in nominations.items() if before.get(slot) != each]

    def _publish_planned_start(self, name: str, planned_start: PlannedStart | None) -> list[Event]:
        """The scheduler forgets a planned start with its workload."""
        before = self.planned_starts.pop(name, None)
        if name not in self.workloads:
            return []
        if planned_start is not None:
            self.planned_starts[name] = planned_start
            return [PlannedStartChanged(planned_start)] if planned_start != before else []
        return [PlannedStartGone(name)] if before is not None else []

    def _record_change(self, workload: str) -> None:
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
