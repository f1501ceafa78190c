"""Cache the objects of the cluster, and publish to the scheduler what follows from them.

In:    pods, nodes, queues, claims and owners as they come, change and go.   Out: events; the first are the whole state.
Each change touches the units that depend on it. `flush` computes those again and publishes the difference, so the same
comparison takes back a decision that could not be carried out.
Never: calls the API server, or reads a clock.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.affinity_index import AffinityIndex
from kaiwo.clusters.kubernetes.cache.checkpoint_annotations import CheckpointTimes
from kaiwo.clusters.kubernetes.cache.device_grants import DeviceGrants, Shares
from kaiwo.clusters.kubernetes.cache.disruption_budgets import DisruptionBudgets
from kaiwo.clusters.kubernetes.cache.foreign_bindings import ForeignBindings
from kaiwo.clusters.kubernetes.cache.gang_index import ForeignMembers, GangIndex, Unit, WorkloadNames
from kaiwo.clusters.kubernetes.cache.in_flight import InFlight
from kaiwo.clusters.kubernetes.cache.kaiwo_object_cache import QueueCache, ReservationCache, TopologyCache
from kaiwo.clusters.kubernetes.cache.kueue_gates import KueueWorkloads
from kaiwo.clusters.kubernetes.cache.lost_places import LostPlaces, UnitMembers
from kaiwo.clusters.kubernetes.cache.node_cache import NodeCache
from kaiwo.clusters.kubernetes.cache.nomination_annotations import NominationAnnotations
from kaiwo.clusters.kubernetes.cache.placed_pods import PlacedPods, SlotIndex
from kaiwo.clusters.kubernetes.cache.planned_start_annotations import PlannedStartAnnotations
from kaiwo.clusters.kubernetes.cache.priority_classes import PriorityClasses
from kaiwo.clusters.kubernetes.cache.progress_annotations import ProgressAnnotations
from kaiwo.clusters.kubernetes.cache.published_state import PublishedState, UnitState
from kaiwo.clusters.kubernetes.cache.start_backoff import GangBackoff, ReleaseTimes, StartBackoff
from kaiwo.clusters.kubernetes.cache.unguarded_status import ClaimedEnds, keep_settled, with_settled
from kaiwo.clusters.kubernetes.cache.workload_unit import build_unit
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.gangs.registry import GangId
from kaiwo.clusters.kubernetes.volumes.volume_cache import ClaimUsers, VolumeCache
from kaiwo.model.affinity import affinity_of_nomination
from kaiwo.model.events import (
    Event,
    NodeChanged,
    NodeGone,
    PodChanged,
    QueueChanged,
    ReservationChanged,
    TopologyChanged,
)
from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination, Start
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.workload import ACTIVE_PHASES, Phase, Pod, Workload

SCHEDULER = "kaiwo-scheduler"
SINGLE_POD_SLOT = "main-0"  # the slot of a pod on its own
LONG_GRACE_S = 60  # whoever takes longer to go is charged until he is gone


class BlockedPods(dict[Key, str]):
    """Why pods cannot be tried, by pod."""

    def __init__(self) -> None:
        super().__init__()
        self._new: dict[Key, str] = {}

    def add(self, reasons: dict[Key, str]) -> None:
        self.update(reasons)
        self._new |= reasons

    def take_new(self) -> dict[Key, str]:
        new, self._new = self._new, {}
        return new


class RunDurations:
    """How long workloads ran, from the times of their pods: some pods of a gang may be gone before the last ends."""

    def __init__(self) -> None:
        self._began_s: dict[str, int] = {}  # by workload: when the first pod that succeeded began
        self._failed: set[str] = set()

    def record_end(self, workload: str, pod: CachedPod) -> None:
        """A pod finished, or is gone before it did."""
        if pod.phase == "Succeeded" and pod.started_s:
            self._began_s[workload] = min(pod.started_s, self._began_s.get(workload, pod.started_s))
        else:
            self._failed.add(workload)

    def take_ran_s(self, workload: str, now_s: int) -> int:
        """The last pod is gone. Returns how long the workload ran if every pod succeeded at the first try, else 0."""
        began_s = self._began_s.pop(workload, 0)
        if workload in self._failed:
            self._failed.discard(workload)
            return 0
        return max(0, now_s - began_s) if began_s else 0


class ClusterCache:
    """The cache of one cluster, made of parts with one task each. Change them, then take the events with `flush`."""

    def __init__(self, scheduler: str = SCHEDULER) -> None:
        self.scheduler = scheduler
        self.report: Callable[..., None] = lambda *_, **__: None
        self.are_users_checked = True  # somebody compares `kaiwo.ai/user` with who submits; else it counts for nothing
        self.left_out = 0  # workloads that could not be published; the log names them
        # Objects of the cluster.
        self.names = WorkloadNames()
        self.gang_index = GangIndex(self.names)
        self.foreign_members = ForeignMembers()
        self.pods: dict[Key, CachedPod] = {}
        self.node_cache = NodeCache()
        self.nodes = self.node_cache.nodes
        self.queue_cache = QueueCache(self.gang_index)
        self.queues, self.queue_history = self.queue_cache.items, self.queue_cache.history
        self.reservation_cache = ReservationCache(self.gang_index)
        self.reservations = self.reservation_cache.items
        self.topology_cache = TopologyCache(self.gang_index)
        self.affinity_index = AffinityIndex(scheduler)
        self.kueue = KueueWorkloads()
        self.budgets = DisruptionBudgets()
        self.priorities = PriorityClasses()
        self.volumes = VolumeCache()
        # Decisions that are not in the objects yet, and what became of them.
        self.in_flight = InFlight(self.gang_index)
        self.claimed_ends = ClaimedEnds()
        self.foreign_bindings = ForeignBindings(self.in_flight)
        self.start_backoff = StartBackoff(self.gang_index)
        self.gang_backoff = GangBackoff()
        self.releases = ReleaseTimes()
        self.nominations = NominationAnnotations()
        self.lost_places = LostPlaces(self.gang_index, lambda: self.grants.signatures)
        self.planned_starts = PlannedStartAnnotations()
        # What follows for the workloads.
        self.claim_users = ClaimUsers(self.volumes, self.pods, self.in_flight.starts)
        self.published = PublishedState()
        self.slots = SlotIndex(self.pods, self.in_flight)
        self.blocked_pods = BlockedPods()
        self.checkpoints, self.progress = CheckpointTimes(), ProgressAnnotations()
        self._run_durations = RunDurations()
        self.grants = DeviceGrants(self.published.ledger)
        self.placed = PlacedPods(scheduler, self.in_flight, self.node_cache, self.grants, self.affinity_index)
        self._events: list[Event] = []
        self.failed_pods = 0  # ours, since the start

    # What comes from the API server.

    def upsert_pod(self, pod: CachedPod) -> None:
        before = self.pods.get(pod.key)
        if before is not None and before.uid == pod.uid and before.version >= pod.version:
            # A pod may be read while a watch lags behind. The older version, without the node that the pod has by now,
            # would free devices that are in use: that was a double allocation, found with a paused etcd.
            return
        if before is not None and before.uid != pod.uid:
            self.delete_pod(before)  # another pod of the same name: the watch did not show the end of the old one
            before = None
        if (settled := self.in_flight.settled.get(pod.uid)) is not None:
            pod = with_settled(pod, settled)
        elif not self.claimed_ends.is_guarded:
            pod = keep_settled(before, pod)
        self._put_pod(before, self.claimed_ends.doubt(before, pod))

    def _put_pod(self, before: CachedPod | None, pod: CachedPod) -> None:
        if pod.phase == "Failed" or pod.is_terminating:
            self._lose_member(pod)
        self.pods[pod.key] = pod
        if pod.is_finished and (before is None or not before.is_finished):
            self._record_end(pod)
            # One that had failed before the first list is no news.
            self.failed_pods += before is not None and pod.phase == "Failed" and pod.scheduler == self.scheduler
        is_ours = pod.scheduler == self.scheduler
        if is_ours:
            self.foreign_bindings.note(before, pod)
        self.in_flight.upsert_pod(pod)
        self.nominations.upsert_pod(pod)
        self.lost_places.upsert_pod(pod)
        self.planned_starts.upsert_pod(pod)
        if pod.spec.claims:
            self.touch(self.claim_users.upsert_pod(pod, is_ours))
        # A pod of another scheduler counts where it is bound or nominated.
        has_place = bool(pod.node or pod.nominated_node or pod.uid in self.in_flight.starts)
        counts = not pod.is_finished and (is_ours or has_place)
        if counts:
            self.affinity_index.upsert_pod(pod)
        else:
            self.affinity_index.delete_pod(pod.uid)
        if is_ours:
            self.kueue.upsert_pod(pod)
            self.gang_index.upsert_pod(pod)
        else:
            self.gang_index.touch_gang(self.foreign_members.upsert_pod(pod))
            self.gang_index.assign(pod.key, pod.key if counts else None)

    def delete_pod(self, pod: CachedPod) -> None:
        known = self.pods.get(pod.key)
        if known is None or known.uid != pod.uid:
            return
        self._lose_member(known)
        del self.pods[pod.key]
        if not known.is_finished:
            self._record_end(known)
        self.in_flight.delete_pod(pod.uid)
        self.claimed_ends.forget(pod.uid)
        self.foreign_bindings.forget(pod.uid)
        self.placed.starts.forget(pod.uid)
        self.nominations.delete_pod(pod.uid)
        self.lost_places.delete_pod(pod.uid)
        self.planned_starts.delete_pod(pod.uid)
        self.grants.delete_pod(known)
        if known.spec.claims:
            self.touch(self.claim_users.delete_pod(known))
        self.gang_index.touch_gang(self.foreign_members.delete_pod(pod.key))
        self.affinity_index.delete_pod(pod.uid)
        self.kueue.delete_pod(pod.key)
        self.blocked_pods.pop(pod.key, None)
        self.gang_index.delete_pod(pod.key)

    def upsert_node(self, wire: wire_objects.Node) -> None:
        self._node_changed(self.nodes.get(wire.metadata.name), self.node_cache.upsert(wire))

    def overlay_node(self, name: str, overlay: Callable[[Node], Node] | None) -> None:
        """Change a node's devices to what its agent reports; None: remove that overlay."""
        self._node_changed(self.nodes.get(name), self.node_cache.overlay(name, overlay))

    def set_holders(self, node: str, holders: Mapping[str, Shares] | None) -> None:
        """Which pods of a node hold which devices, by UID, as its agent says; None: its agent does not say."""
        self.touch(self.grants.set_holders(node, holders))

    def delete_node(self, wire: wire_objects.Node) -> None:
        if (event := self.node_cache.delete(wire.metadata.name)) is not None:
            self._events.append(event)

    def touch(self, keys: Iterable[Key]) -> None:
        """Something that these pods depend on changed."""
        for key in keys:
            self.gang_index.touch(key)

    def touch_claim_users(self) -> None:
        """Claims or volumes changed."""
        self.touch(self.claim_users.waiting)

    def retry_evictions(self, keys: Iterable[Key]) -> None:
        """The disruption budgets of these pods changed: they may be evicted again."""
        for key in keys:
            self.in_flight.retry_eviction(self.pods[key])
            self.gang_index.touch(key)

    # What is decided.

    def keep_new_place(self, pod: CachedPod, nomination: Nomination) -> bool:
        """A gang's pod is stopped, and its replacement gets this place. False: nothing will replace the pod."""
        unit = self.gang_index.unit_of.get(pod.key)
        place = self.published.pods.get(nomination.workload, {}).get(nomination.pod)
        if not isinstance(unit, GangId) or place is None:
            return False
        place = replace(place, node=nomination.node, devices=nomination.devices, phase=Phase.RUNNING)
        self.lost_places.lose(nomination.workload, pod, place)
        return True

    def plan_start(self, name: str, planned_start: PlannedStart | None) -> None:
        """A workload has this planned start from now on, or none. The scheduler knows it already."""
        if name in self.published.workloads:
            self.planned_starts.decide(name, planned_start)
            self.published.assume_planned_start(name, planned_start)
            self.gang_index.touch_workload(name)

    def begin_foreign_start(self, pod: CachedPod, node: str, devices: Shares) -> Pod | str:
        """Assume a pod that another scheduler places and that is being bound. A string: why it does not fit there."""
        name = self.names.find(pod.key) or "{}/{}".format(*pod.key)
        placed = self.placed.at(name, SINGLE_POD_SLOT, pod, Phase.ASSUMED, node, devices)
        if devices and (why := self.published.explain_misfit(placed, self.nodes)):
            return why
        placed = replace(placed, workload=self.names.name(pod.key))
        self.gang_index.assign(pod.key, pod.key)
        self.published.assume_pod(placed)
        self.in_flight.begin_start(Start(placed.workload, placed.name, node, devices), pod)
        return placed

    def end_foreign_start(self, pod: CachedPod) -> None:
        self.in_flight.end_start(pod)
        if not pod.node:
            self.gang_index.assign(pod.key, pod.key if pod.nominated_node else None)

    def discard_decisions(self) -> None:
        """Another replica leads: from now on only what is in the objects counts."""
        self.nominations.discard_decisions()
        self.foreign_bindings.stop()
        for name in self.lost_places.discard():
            self.gang_index.touch_workload(name)
        self.queue_history.discard_decisions()
        for name in self.planned_starts.discard_decisions():
            self.gang_index.touch_workload(name)

    # What is published.

    def queue_events(self, events: Iterable[Event]) -> None:
        """Publish these with the next batch, whatever the comparison says."""
        self._events += events

    def flush(self, now_s: int = 0) -> tuple[Event, ...]:
        """The events since the last call. `now_s`: since when a gang counts as incomplete that was complete before."""
        events, self._events = self._events, []
        self.placed.starts.now_s = now_s
        for name in self.lost_places.clock_at(now_s):
            self.gang_index.touch_workload(name)
        for pod in self.claimed_ends.take_settled(now_s):
            self._put_pod(self.pods.get(pod.key), pod)
        self.touch(self.affinity_index.take_touched(self.pods.values()))
        events += self._publish_touched(now_s)
        changed = {event.pod.node for event in events if isinstance(event, PodChanged) and event.pod.devices}
        if changed:
            self.touch(self.grants.conflicts(self.nodes, changed))
        events += self._publish_touched(now_s)
        return tuple(events)

    def whole_state(self) -> tuple[Event, ...]:
        """Everything as of the last flush, for a new reader."""
        return (
            *(QueueChanged(self.queues[name]) for name in sorted(self.queues)),
            *(NodeChanged(self.nodes[name]) for name in sorted(self.nodes)),
            *(ReservationChanged(found) for _, found in sorted(self.reservations.items())),
            *(TopologyChanged(found) for _, found in sorted(self.topology_cache.items.items())),
            *(NodeGone(name, max(1, self.node_cache.now_s())) for name in self._gone_nodes()),
            *self.published.whole_state(),
            *self.queue_history.all_stops(),
        )

    def leaving_pods_on_fenced_nodes(self) -> list[CachedPod]:
        """Pods that were told to go and that no kubelet is left to stop.

        Without a grace period the server has deleted a pod already: one that is still there has a finalizer, such as
        that of a Job that waits before it makes another one.
        """
        fenced = {name for name in self.node_cache.failed if self.node_cache.is_fenced(name)}
        if not fenced and not self._gone_nodes():
            return []
        is_fenced = self.node_cache.is_fenced
        ours = (pod for pod in self.pods.values() if pod.scheduler == self.scheduler and pod.node)
        return [pod for pod in ours if pod.is_terminating and pod.grace_s and is_fenced(pod.node)]

    def workload_of(self, key: Key) -> str | None:
        unit = self.gang_index.unit_of.get(key)
        return None if unit is None else self.names.find(unit)

    # How it is published.

    def _lose_member(self, pod: CachedPod) -> None:
        """A pod of a gang fails or goes, and the scheduler did not stop it: its place is kept for its replacement."""
        unit = self.gang_index.unit_of.get(pod.key)
        if pod.phase == "Succeeded" or not isinstance(unit, GangId) or pod.uid in self.in_flight.evictions:
            return
        if pod.is_evicted and not self.lost_places.is_leading:
            return  # perhaps by the former leader, who gives its place to others
        name = self.names.find(unit)
        slot = self.slots.units[name].slots.get(pod.uid) if name in self.slots.units else None
        place = self.published.pods.get(name, {}).get(str(slot)) if name is not None else None
        if name is not None and place is not None and place.phase in ACTIVE_PHASES and place.node == pod.node:
            self.lost_places.lose(name, pod, place)

    def foreign_binding_slots(self) -> list[tuple[str, str]]:
        """The workload and the slot of each pod of ours that somebody else bound."""
        found = []
        for pod in self.foreign_bindings.pods():
            name = self.workload_of(pod.key)
            slot = self.slots.units[name].slots.get(pod.uid) if name in self.slots.units else None
            if name is not None and slot is not None:
                found.append((name, str(slot)))
        return sorted(found)

    def _gone_nodes(self) -> list[str]:
        """Nodes that do not exist, and on which published pods are."""
        return sorted(self.published.ledger.nodes_in_use() - self.nodes.keys())

    def _record_end(self, pod: CachedPod) -> None:
        if (name := self.workload_of(pod.key)) is not None:
            self._run_durations.record_end(name, pod)

    def _node_changed(self, before: Node | None, event: NodeChanged | None) -> None:
        if event is None:
            return
        self._events.append(event)
        if before is None or [gpu.id for gpu in before.gpus] != [gpu.id for gpu in event.node.gpus]:
            self.touch(self.grants.take_pods_on(event.node.name))

    def _publish_touched(self, now_s: int) -> list[Event]:
        events: list[Event] = []
        for unit in self.gang_index.take_touched():
            try:
                events += self._publish(unit, now_s)
            except Exception as error:  # one workload must not stop the others: what was published of it stays
                self.left_out += 1
                message = f"{type(error).__name__}: {error}"[:300]
                self.report("workload-left-out", level="error", workload=self.names.name(unit), error=message)
        return events

    def _publish(self, unit: Unit, now_s: int) -> list[Event]:
        keys = self.gang_index.keys_of.get(unit, set())
        for key in keys:
            self.blocked_pods.pop(key, None)
        live = [pod for key in keys if not (pod := self.pods[key]).is_finished]
        if not live:
            return self._publish_gone(unit, bool(keys), now_s)
        name = self.names.name(unit)
        if live[0].scheduler != self.scheduler:  # a foreign pod is always alone
            return self.published.publish_pods(name, None, [self._foreign_pod(name, live[0])])
        events = self.published.publish(self._unit_state(name, unit, live, now_s), now_s)
        by_slot = {slot: self.pods[key] for slot, key in self.slots.units[name].by_slot.items()}
        return events + self.progress.new_reports(name, by_slot, now_s)

    def _foreign_pod(self, name: str, pod: CachedPod) -> Pod:
        """Whoever holds a GPU is charged for it: here the queue of its namespace, because nobody gave it one."""
        placed = self.placed.of(name, SINGLE_POD_SLOT, pod)
        return replace(placed, charged_to=self.queue_cache.queue_of(pod.namespace)) if placed.devices else placed

    def _publish_gone(self, unit: Unit, has_pods: bool, now_s: int) -> list[Event]:
        name = self.names.find(unit)
        if not has_pods:
            self.gang_index.keys_of.pop(unit, None)
        if name is None:
            return []
        self.slots.units.pop(name, None)
        self.lost_places.delete_workload(name)
        self.planned_starts.delete_workload(name)
        self.start_backoff.clear(name)
        self.releases.clear(name)
        self.checkpoints.delete_workload(name)
        self.progress.delete_workload(name)
        self.names.delete(unit)
        return self.published.publish_gone(name, self._run_durations.take_ran_s(name, now_s))

    def _unit_state(self, name: str, unit: Unit, live: list[CachedPod], now_s: int) -> UnitState:
        gang = self.gang_index.gang(unit)
        old_slots = self.slots.units[name].slots if name in self.slots.units else {}
        found = self.slots.units[name] = build_unit(name, live, gang, old_slots, self)
        self.blocked_pods.add(found.blocked_pods)
        by_slot = {slot: self.pods[key] for slot, key in found.by_slot.items()}
        placed = [self.placed.of(name, slot, pod) for slot, pod in by_slot.items() if self.slots.is_fixed(pod)]
        if found.workload is not None and any(pod.grace_s > LONG_GRACE_S for pod in live):
            placed = [_charged_while_it_leaves(each, by_slot[each.name], found.workload.queue) for each in placed]
        workload = self.releases.apply_to(name, self.start_backoff.apply_to(found.workload), now_s)
        if workload is not None:
            workload = self.gang_backoff.apply_to(workload, gang, placed)
        if workload is not None and placed:
            workload = self._with_eviction_facts(workload, live, now_s)
        nominations = self._nominations(name, by_slot, live)
        members = UnitMembers(by_slot, placed, nominations.keys())
        failed = self.node_cache.failed
        working = self.nodes.keys() - failed if failed else self.nodes
        nominations |= self.lost_places.nominations(name, gang, members, working, now_s, self.report)
        planned = self._planned_start(name, live)
        last_stop = None if name in self.published.workloads else self.queue_history.last_stop(name)
        return UnitState(name, workload, placed, found.blocked, nominations, planned, last_stop)

    def _with_eviction_facts(self, workload: Workload, live: list[CachedPod], now_s: int) -> Workload:
        """How many of its pods may be evicted now, why not more, and when it last saved a checkpoint."""
        bound = [pod for pod in live if pod.node]
        may_go, why = self.budgets.count_evictable(bound, self.in_flight.refused_evictions)
        saved_s = self.checkpoints.last_s(workload.name, live, self.gang_index.owner_checkpoints, now_s)
        return replace(workload, may_go=may_go, stays_why=why, checkpoint_s=saved_s)

    def _nominations(self, name: str, by_slot: dict[str, CachedPod], live: list[CachedPod]) -> dict[str, Nomination]:
        """The nominations of the pods that wait in a slot. They come back when a Binding fails."""
        uids = {pod.uid for pod in by_slot.values()}
        self.nominations.expire(pod for pod in live if pod.uid not in uids)
        found: dict[str, Nomination] = {}
        for slot, pod in by_slot.items():
            if pod.node:
                self.nominations.expire_bound(pod)
                continue
            nomination = self.nominations.of(name, slot, pod)
            if nomination is not None and not self.slots.is_fixed(pod):
                affinity = self.affinity_index.affinity_of(pod)
                found[slot] = replace(nomination, neighbours=affinity_of_nomination(affinity))
        return found

    def _planned_start(self, name: str, live: list[CachedPod]) -> PlannedStart | None:
        """The planned start of a workload that has not begun."""
        if not self.planned_starts.concerns(name, live):
            return None
        waiting = self.slots.waiting(name)
        self.planned_starts.check(name, waiting)
        return self.planned_starts.of(name, waiting)


def _charged_while_it_leaves(placed: Pod, pod: CachedPod, queue: str) -> Pod:
    """Nobody keeps GPUs free of charge with a grace period of years, in which his program goes on."""
    is_slow = placed.phase is Phase.RELEASING and pod.grace_s > LONG_GRACE_S
    return replace(placed, charged_to=queue) if is_slow else placed


def move_times(cache: ClusterCache, by_s: int) -> None:
    """The clock was set: what was measured from it stays as long ago. Times of the cluster's objects stay."""
    for part in (cache.lost_places, cache.start_backoff, cache.gang_backoff, cache.releases, cache.claimed_ends):
        part.move_times(by_s)
    cache.queue_events([*cache.node_cache.move_times(by_s), *cache.published.move_times(by_s)])
    cache.gang_index.touch_all()
