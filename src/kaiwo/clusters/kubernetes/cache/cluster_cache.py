"""Everything known of the cluster, and what the scheduler has been told of it.

In:    pods, nodes, queues, claims and owners as they come, change and go.   Out: events; the first are the whole state.
What is told follows from what is known: after each change the workloads that it touched are worked out anew and
compared with what was told before, so a decision that could not be carried out is taken back by the same comparison.
Never: speaks to the API server, or reads a clock.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.affinity_index import AffinityIndex
from kaiwo.clusters.kubernetes.cache.checkpoint_annotations import CheckpointTimes
from kaiwo.clusters.kubernetes.cache.device_grants import DeviceGrants, Shares, fills_until_s
from kaiwo.clusters.kubernetes.cache.disruption_budgets import DisruptionBudget, DisruptionBudgets
from kaiwo.clusters.kubernetes.cache.finished_runs import FinishedRuns
from kaiwo.clusters.kubernetes.cache.gang_index import ForeignMembers, GangIndex, Metadata
from kaiwo.clusters.kubernetes.cache.in_flight import GangBackoff, InFlight
from kaiwo.clusters.kubernetes.cache.kueue_gates import KueueWorkloads
from kaiwo.clusters.kubernetes.cache.last_readable_version import LastReadable
from kaiwo.clusters.kubernetes.cache.node_cache import NodeCache
from kaiwo.clusters.kubernetes.cache.nomination_annotations import NominationAnnotations
from kaiwo.clusters.kubernetes.cache.planned_start_annotations import PlannedStartAnnotations
from kaiwo.clusters.kubernetes.cache.priority_classes import PriorityClasses
from kaiwo.clusters.kubernetes.cache.published_state import PublishedState
from kaiwo.clusters.kubernetes.cache.queue_history import QueueHistory, QueueStatusObject
from kaiwo.clusters.kubernetes.cache.workload_names import Unit, WorkloadNames
from kaiwo.clusters.kubernetes.cache.workload_unit import (
    Inquiry,
    UnitPods,
    build_unit,
    count_evictable,
    explain_fault_above,
    explain_kueue,
)
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.decode.workload_annotations import read_valid_settings, read_workload_settings
from kaiwo.clusters.kubernetes.gangs import GangId
from kaiwo.clusters.kubernetes.volumes.claim_users import ClaimUsers
from kaiwo.clusters.kubernetes.volumes.volume_cache import VolumeCache
from kaiwo.model.affinity import kept as kept_neighbours
from kaiwo.model.events import (
    Event,
    NodeChanged,
    PodChanged,
    QueueChanged,
    QueueGone,
    ReservationChanged,
    ReservationGone,
)
from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination, Start
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.queue import DEFAULT_QUEUE, THE_DEFAULT, Queue
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Phase, Pod

SCHEDULER = "kaiwo-scheduler"


class ClusterCache:
    """One cluster's state. Change it, then take the events with `settle`."""

    def __init__(self, scheduler: str = SCHEDULER) -> None:
        self.scheduler = scheduler
        self.extended_scheduler = ""  # the scheduler whose pods get their devices from us when they are bound
        self.pods: dict[Key, CachedPod] = {}
        self.published = PublishedState()
        self.names = WorkloadNames()
        self.gang_index = GangIndex()
        self.node_cache = NodeCache()
        self.nodes = self.node_cache.nodes
        self.queue_versions: LastReadable[Queue] = LastReadable(self.gang_index.touch_all)
        self.queues = self.queue_versions.items
        self.queues[DEFAULT_QUEUE] = THE_DEFAULT
        self.queue_generations: dict[str, int] = {}  # of those that are objects of the cluster
        self.reservation_versions: LastReadable[Reservation] = LastReadable(self.gang_index.touch_all)
        self.reservations = self.reservation_versions.items
        self.in_flight = InFlight(self.gang_index, self.names, self.published)
        self.nominations = NominationAnnotations()
        self.planned_starts = PlannedStartAnnotations()
        self._finished_runs = FinishedRuns()
        self.gang_backoff = GangBackoff()
        self.queue_history = QueueHistory()
        self.checkpoints = CheckpointTimes()
        self.blocked_pods: dict[Key, str] = {}  # pods that the scheduler is not told of, and why
        self.affinity_index = AffinityIndex()
        self.kueue = KueueWorkloads()
        self.budgets = DisruptionBudgets()
        self.priorities = PriorityClasses()
        self.volumes = VolumeCache()
        self.foreign_members = ForeignMembers()
        self.claim_users = ClaimUsers(self.volumes, self.pods, self.in_flight.starts)
        self._grants = DeviceGrants(self.published.ledger)
        self._views: dict[str, UnitPods] = {}
        self._waiting_for_claims: set[Key] = set()
        self._events: list[Event] = []
        self._newly_blocked: dict[Key, str] = {}
        self.report: Callable[..., None] = lambda *_, **__: None
        self.left_out = 0  # workloads that could not be told; the log names them
        self._ask = Inquiry(
            lambda pod: read_workload_settings(*self._said(pod)),
            lambda pod: read_valid_settings(*self._said(pod)),
            self.claim_users.rules,
            self.affinity_index.affinity_of,
            self.in_flight.starts.__contains__,
            lambda pod: explain_kueue(pod, self.kueue, isinstance(self.gang_index.unit_of.get(pod.key), GangId)),
            lambda wishes: explain_fault_above(wishes, self.queue_versions, self.reservation_versions),
            self.foreign_members.of,
        )

    # What comes from the API server.

    def upsert_pod(self, pod: CachedPod) -> None:
        """A pod is there, or different."""
        before = self.pods.get(pod.key)
        if before is not None and before.uid == pod.uid and before.version >= pod.version:
            # A pod may be read while a watch lags behind. Its older word, without the node that the pod has by now,
            # would free devices that are in use: that was a double allocation, found with a paused etcd.
            return
        if before is not None and before.uid != pod.uid:
            self.delete_pod(before)  # another pod of the same name: the old one's end was not seen
        self.pods[pod.key] = pod
        if pod.is_finished and (before is None or not before.is_finished):
            self._note_end(pod)
        self.in_flight.upsert_pod(pod)
        self.nominations.upsert_pod(pod)
        self.planned_starts.upsert_pod(pod)
        if pod.spec.claims:
            self.touch(self.claim_users.upsert_pod(pod))
        is_ours = pod.scheduler == self.scheduler
        # A foreign pod counts where it is, or where its own scheduler keeps space for it.
        is_somewhere = bool(pod.node or pod.nominated_node or pod.uid in self.in_flight.starts)
        counts = not pod.is_finished and (is_ours or is_somewhere)
        if counts:
            self.affinity_index.upsert_pod(pod)
        else:
            self.affinity_index.delete_pod(pod.uid)
        if not is_ours:
            self._touch_gang(self.foreign_members.see(pod))
            self.gang_index.assign(pod.key, pod.key if counts else None)
            return
        self.kueue.upsert_pod(pod)
        if pod.spec.claims and not pod.node:
            self._waiting_for_claims.add(pod.key)
        else:
            self._waiting_for_claims.discard(pod.key)
        self.gang_index.upsert_pod(pod)

    def delete_pod(self, pod: CachedPod) -> None:
        """A pod is gone."""
        seen = self.pods.get(pod.key)
        if seen is None or seen.uid != pod.uid:
            return
        del self.pods[pod.key]
        if not seen.is_finished:
            self._note_end(seen)
        self.in_flight.delete_pod(pod.uid)
        self.nominations.delete_pod(pod.uid)
        self.planned_starts.delete_pod(pod.uid)
        self._grants.forget(seen)
        if seen.spec.claims:
            self.touch(self.claim_users.delete_pod(seen))
        self._touch_gang(self.foreign_members.forget(pod.key))
        self.affinity_index.delete_pod(pod.uid)
        self.kueue.delete_pod(pod.key)
        self.blocked_pods.pop(pod.key, None)
        self._waiting_for_claims.discard(pod.key)
        self.gang_index.delete_pod(pod.key)

    def _touch_gang(self, place: GangId | None) -> None:
        if place in self.gang_index.keys_of:
            self.gang_index.touch_unit(place)

    def _note_end(self, pod: CachedPod) -> None:
        unit = self.gang_index.unit_of.get(pod.key)
        name = self.names.find(unit) if unit is not None else None
        if name is not None:
            self._finished_runs.note(name, pod)

    def upsert_node(self, wire: wire_objects.Node) -> None:
        """A node is there, or different."""
        self._tell_node(wire.metadata.name, lambda: self.node_cache.upsert(wire))

    def overlay_node(self, name: str, how: Callable[[Node], Node] | None) -> None:
        """What somebody else knows of a node's devices, until it is None."""
        self._tell_node(name, lambda: self.node_cache.overlay(name, how))

    def delete_node(self, name: str) -> None:
        """A node is gone."""
        if (event := self.node_cache.delete(name)) is not None:
            self._events.append(event)

    def upsert_queue(self, queue: Queue) -> None:
        """A queue is there, or different."""
        was_there = queue.name in self.queues
        if self.queue_versions.upsert(queue.name, queue):
            self._events.append(QueueChanged(queue))
            if not was_there:
                self.gang_index.touch_all()  # a label of Kueue's may have meant it

    def delete_queue(self, name: str) -> None:
        """A queue is gone; `default` always exists."""
        self.queue_generations.pop(name, None)
        self.queue_history.delete(name)
        if name == DEFAULT_QUEUE:
            self.upsert_queue(THE_DEFAULT)
        elif self.queue_versions.delete(name):
            self.gang_index.touch_all()
            self._events.append(QueueGone(name))

    def upsert_queue_status(self, queue: str, status: QueueStatusObject) -> None:
        """What a queue's object says of the past."""
        self._events += self.queue_history.upsert(queue, status)

    def upsert_budget(self, budget: DisruptionBudget) -> None:
        """A disruption budget is there, or different: whom it covers may be asked to go again."""
        self._budget_changed(self.budgets.upsert(budget, self.pods.values()))

    def delete_budget(self, budget: DisruptionBudget) -> None:
        """A disruption budget is gone."""
        self._budget_changed(self.budgets.delete(budget, self.pods.values()))

    def _budget_changed(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.in_flight.retry_eviction(self.pods[key])
            self.gang_index.touch(key)

    def upsert_reservation(self, reservation: Reservation) -> None:
        """GPUs are reserved, or reserved differently."""
        if self.reservation_versions.upsert(reservation.name, reservation):
            self._events.append(ReservationChanged(reservation))

    def delete_reservation(self, name: str) -> None:
        """A reservation is gone."""
        if self.reservation_versions.delete(name):
            self._events.append(ReservationGone(name))

    def touch(self, keys: Iterable[Key]) -> None:
        """Somebody else says something new of these pods."""
        for key in keys:
            self.gang_index.touch(key)

    def change_volumes(self, change: Callable[[VolumeCache], bool]) -> None:
        """Claims or volumes changed: pods that wait for one are looked at again."""
        if change(self.volumes):
            for key in self._waiting_for_claims:
                self.gang_index.touch(key)

    # What is decided.

    def plan_start(self, name: str, promise: PlannedStart | None) -> None:
        """A workload has this planned start from now on, or none. The scheduler knows it by itself."""
        if name in self.published.workloads:
            self.planned_starts.decide(name, promise)
            self.published.assume_planned_start(name, promise)
            self.gang_index.touch_unit(self.names.unit_of[name])

    def discard_decisions(self) -> None:
        """Somebody else leads: what is in the objects is what counts."""
        self.nominations.discard_decisions()
        self.queue_history.discard_decisions()
        for name in self.planned_starts.discard_decisions():
            if name in self.names.unit_of:
                self.gang_index.touch_unit(self.names.unit_of[name])

    # What is told.

    def queue_event(self, event: Event) -> None:
        """Say it with the next batch, whatever the comparison says."""
        self._events.append(event)

    def flush(self, now_s: int = 0) -> tuple[Event, ...]:
        """The events since the last time. `now_s`: since when a gang is broken that was whole the last time."""
        events, self._events = self._events, []
        for key in self.affinity_index.take_touched(self.pods.values()):
            self.gang_index.touch(key)
        for unit in self.gang_index.take_touched():
            events += self._tell_if_possible(unit, now_s)
        busy = {event.pod.node for event in events if isinstance(event, PodChanged) and event.pod.devices}
        self.touch(self._grants.clashes(self.nodes, busy) if busy else ())
        for unit in self.gang_index.take_touched():
            events += self._tell_if_possible(unit, now_s)
        return tuple(events)

    def take_newly_blocked(self) -> dict[Key, str]:
        """Of `sentences`, those that were found since the last time."""
        fresh, self._newly_blocked = self._newly_blocked, {}
        return fresh

    def whole_state(self) -> tuple[Event, ...]:
        """For a reader that knows nothing; as of the last time that the books were settled."""
        return (
            *(QueueChanged(self.queues[name]) for name in sorted(self.queues)),
            *(NodeChanged(self.nodes[name]) for name in sorted(self.nodes)),
            *(ReservationChanged(found) for _, found in sorted(self.reservations.items())),
            *self.published.whole_state(),
            *self.queue_history.all_stops(),
        )

    def find_pod(self, workload: str, slot: str) -> CachedPod | None:
        """The pod that has a place in a workload."""
        view = self._views.get(workload)
        return None if view is None else self.pods.get(view.by_slot.get(slot, ("", "")))

    def pods_by_slot(self, workload: str) -> dict[str, CachedPod]:
        """Every place of a workload with its pod."""
        view = self._views.get(workload)
        return {} if view is None else {slot: self.pods[key] for slot, key in view.by_slot.items() if key in self.pods}

    def waiting_pods(self, workload: str) -> list[CachedPod]:
        """Those of its pods that have no place yet, in the order of their places."""
        placed = sorted(self.pods_by_slot(workload).items())
        return [pod for _, pod in placed if not pod.node and pod.uid not in self.in_flight.starts]

    def begin_foreign_start(self, pod: CachedPod, node: str, devices: Shares) -> Pod | str:
        """A Binding of a pod that another scheduler placed is under way; a sentence: it cannot be there."""
        name = self.names.find(pod.key) or "{}/{}".format(*pod.key)
        held = self.placed_pod(name, "main-0", pod, Phase.ASSUMED, node, devices)
        if devices and (why := self.published.explain_misfit(held, self.nodes)):
            return why
        held = replace(held, workload=self.names.name(pod.key))
        self.gang_index.assign(pod.key, pod.key)
        self.in_flight.begin_start(Start(held.workload, held.name, node, devices), pod, held)
        return held

    def end_foreign_start(self, pod: CachedPod) -> None:
        """It came to nothing."""
        self.in_flight.end_start(pod)
        if not pod.node:
            self.gang_index.assign(pod.key, pod.key if pod.nominated_node else None)

    def workload_of(self, key: Key) -> str | None:
        """The workload of a pod."""
        unit = self.gang_index.unit_of.get(key)
        return None if unit is None else self.names.find(unit)

    # How.

    def _tell_node(self, name: str, change: Callable[[], NodeChanged | None]) -> None:
        before = self.nodes.get(name)
        if (event := change()) is None:
            return
        self._events.append(event)
        if before is None or [gpu.id for gpu in before.gpus] != [gpu.id for gpu in event.node.gpus]:
            self.touch(self._grants.changed(name))

    def _tell_if_possible(self, unit: Unit, now_s: int) -> list[Event]:
        try:
            return self._tell(unit, now_s)
        except Exception as error:  # one workload must not keep the others from being told: what was told of it stays
            self.left_out += 1
            words = f"{type(error).__name__}: {error}"[:300]
            self.report("workload-left-out", level="error", workload=self.names.name(unit), error=words)
            return []

    def _tell(self, unit: Unit, now_s: int) -> list[Event]:
        keys = self.gang_index.keys_of.get(unit, set())
        pods = [self.pods[key] for key in keys]
        for key in keys:
            self.blocked_pods.pop(key, None)
        living = [pod for pod in pods if not pod.is_finished]
        if not living:
            return self._forget(unit, bool(keys), now_s)
        name = self.names.name(unit)
        if living[0].scheduler != self.scheduler:  # a foreign pod is always alone
            return self.published.publish_workload(name, None, [self._holding_pod(name, "main-0", living[0])])
        group = self.gang_index.gang(unit) if isinstance(unit, GangId) else None
        had = self._views[name].slots if name in self._views else {}
        view = self._views[name] = build_unit(name, living, group, had, self._ask)
        self.blocked_pods |= view.blocked_pods
        self._newly_blocked |= view.blocked_pods
        self.published.publish_blocked(name, view.blocked)
        holding = [
            self._holding_pod(name, slot, self.pods[key])
            for slot, key in view.by_slot.items()
            if self.pods[key].node or self.pods[key].uid in self.in_flight.starts
        ]
        workload = self.published.since_broken(self.in_flight.apply_to(view.workload), holding, now_s)
        if workload is not None:
            workload = self.gang_backoff.apply_to(workload, group, holding)
        if workload is not None and holding:
            saved_s = self.checkpoints.last_s(name, living, self.gang_index.owner_checkpoints, now_s)
            bound = [pod for pod in living if pod.node]
            may_go, why = count_evictable(bound, self.budgets, self.in_flight.refused_evictions)
            workload = replace(workload, may_go=may_go, stays_why=why, checkpoint_s=saved_s)
        is_back = workload is not None and name not in self.published.workloads
        events = self.published.publish_workload(name, workload, holding) + self._tell_kept(name, view, living)
        if is_back and (stop := self.queue_history.last_stop(name)) is not None:
            events.append(replace(stop, queues=()))  # they counted it; the scheduler forgot it with the workload
        return events + self._tell_planned(name, living)

    def _forget(self, unit: Unit, has_pods: bool, now_s: int) -> list[Event]:
        name = self.names.find(unit)
        if not has_pods:
            self.gang_index.keys_of.pop(unit, None)
        if name is None:
            return []
        self._views.pop(name, None)
        self.published.publish_blocked(name, None)
        self.published.nominations.pop(name, None)  # the scheduler forgets it with the workload
        self.published.assume_planned_start(name, None)
        self.planned_starts.delete_workload(name)
        self.in_flight.clear_refusals(name)
        self.checkpoints.forget(name)
        self.names.forget(unit)
        return self.published.publish_workload(name, None, (), self._finished_runs.ran_s(name, now_s))

    def _tell_kept(self, name: str, view: UnitPods, pods: Sequence[CachedPod]) -> list[Event]:
        """The space of those that wait in a place. When a Binding comes to nothing, it is kept again."""
        placed = {slot: self.pods[key] for slot, key in view.by_slot.items()}
        uids = {pod.uid for pod in placed.values()}
        self.nominations.expire(pod for pod in pods if pod.uid not in uids)
        kept: dict[str, Nomination] = {}
        for slot, pod in placed.items():
            space = self.nominations.of(name, slot, pod)
            if space is not None and not pod.node and pod.uid not in self.in_flight.starts:
                kept[slot] = replace(space, neighbours=kept_neighbours(self.affinity_index.affinity_of(pod)))
        return self.published.publish_nominations(name, kept)

    def _tell_planned(self, name: str, pods: Sequence[CachedPod]) -> list[Event]:
        """The planned start of a workload that has not begun."""
        if not self.planned_starts.concerns(name, pods):
            return self.published.publish_planned_start(name, None)
        waiting = self.waiting_pods(name)
        self.planned_starts.check(name, waiting)
        return self.published.publish_planned_start(name, self.planned_starts.of(name, waiting))

    def _holding_pod(self, workload: str, slot: str, pod: CachedPod) -> Pod:
        """What a pod holds that is bound, or about to be."""
        start = self.in_flight.starts.get(pod.uid)
        if not pod.node and start is not None:
            assumed = self.placed_pod(workload, slot, pod, Phase.ASSUMED, start.node, start.devices)
            return replace(assumed, until_s=start.until_s)
        if not pod.node:  # a foreign one: nobody is near it yet
            there = replace(pod, node=pod.nominated_node)
            held = self._holding_pod(workload, slot, there)
            return replace(held, neighbours=kept_neighbours(held.neighbours))
        is_ours = pod.scheduler == self.scheduler
        is_leaving = pod.is_terminating or pod.uid in self.in_flight.evictions
        phase = Phase.RELEASING if is_ours and is_leaving else Phase.RUNNING
        is_granted = is_ours or pod.scheduler == self.extended_scheduler
        is_listed = pod.node in self.node_cache.with_agent
        devices = self._grants.of(pod, self.nodes.get(pod.node), is_granted, is_listed)
        return self.placed_pod(workload, slot, pod, phase, pod.node, devices)

    def placed_pod(
        self, workload: str, slot: str, pod: CachedPod, phase: Phase, node: str, devices: Sequence | Shares
    ) -> Pod:
        """A pod in its place."""
        ask = pod.spec.request
        since_s = pod.started_s or pod.created_s
        return Pod(
            workload, slot, node, phase, tuple(devices), ask.cpu_milli, ask.memory_mib, ask.extended, since_s,
            self.affinity_index.affinity_of(pod), fills_until_s(pod) if pod.scheduler == self.scheduler else 0,
            ask.beside,
        )  # fmt: skip

    def _said(self, pod: CachedPod) -> tuple[str, list[Metadata], int, bool, Callable[[str], bool]]:
        """What the readers of wishes take."""
        said = [(pod.annotations, pod.labels), *self.gang_index.owner_metadata(pod)]
        return f"Pod '{pod.name}'", said, *self.priorities.of(pod), self.queues.__contains__
