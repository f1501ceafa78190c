"""The live state of a cluster: each event costs only as much as it changes.

In:    events, in any order between objects.   Out: a Snapshot for one cycle.
Never: reads a clock. The same objects give the same state, whatever the order in which they arrived.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any

from msgspec.structs import replace

from kaiwo.model.events import (
    ClockMoved,
    DefragmentationChanged,
    DefragmentationStepChanged,
    Event,
    GpuLoadsMeasured,
    NodeChanged,
    NodeFailuresSeen,
    NodeGone,
    NodeSpeedsMeasured,
    NominationChanged,
    NominationGone,
    PastUsageChanged,
    PlannedStartChanged,
    PlannedStartGone,
    PodChanged,
    PodGone,
    PoolsChanged,
    PortsMeasured,
    PricesChanged,
    ProgressReported,
    QueueChanged,
    QueueGone,
    RecoveryChanged,
    RecoveryGone,
    RequestMixChanged,
    ReservationChanged,
    ReservationGone,
    SharingRulesInUse,
    StartRefused,
    StoppedForOthers,
    TopologyChanged,
    TopologyGone,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.network.port import NetworkPort
from kaiwo.model.network.topology import Topology
from kaiwo.model.node import Node
from kaiwo.model.plan import DomainChoice, Nomination, Plan
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.queue import Queue, queue_path
from kaiwo.model.request import Request
from kaiwo.model.request_mix import RequestPrices
from kaiwo.model.workload import Pod, Role, Workload, pod_name
from kaiwo.snapshot.allocations import (
    PreemptibleWork,
    nomination_changed,
    nomination_gone,
    pod_changed,
    pod_gone,
)
from kaiwo.snapshot.backlog import Backlog, OrderFault, OrderKeys, RoleNeed, RoleNeeds, WorkloadOrder, with_required
from kaiwo.snapshot.capped_priorities import CappedPriorities
from kaiwo.snapshot.eligibility import gate_obstacles, is_impossible
from kaiwo.snapshot.evictions.defragmentation_run import (
    DefragmentationStatus,
    defragmentation_changed,
    defragmentation_step_changed,
)
from kaiwo.snapshot.evictions.eviction_history import record_stop, recorded_stops
from kaiwo.snapshot.failed_places import FailedPlaces, end_rests, recovery_changed, recovery_gone
from kaiwo.snapshot.gpu_model_usage import usage_by_model
from kaiwo.snapshot.learned.gpu_loads import gpu_loads_event, gpu_loads_measured
from kaiwo.snapshot.learned.measured_speeds import (
    MeasuredSpeeds,
    end_slow_times,
    node_speeds_measured,
    progress_reported,
)
from kaiwo.snapshot.learned.node_failures import NodeFailures
from kaiwo.snapshot.learned.seen_requests import SeenRequests, prices_changed, request_mix_changed
from kaiwo.snapshot.network.domain_access import AccessRules
from kaiwo.snapshot.network.measured_ports import live_topology, ports_event, ports_measured
from kaiwo.snapshot.node_table import Allocation, EditableNodeTable
from kaiwo.snapshot.patches.nodes import node_changed, node_failures_seen, node_gone
from kaiwo.snapshot.patches.queues import past_usage_changed, queue_changed, queue_gone
from kaiwo.snapshot.patches.topologies import topology_changed, topology_gone
from kaiwo.snapshot.patches.workloads import (
    planned_start_changed,
    planned_start_gone,
    workload_changed,
    workload_gone,
)
from kaiwo.snapshot.pod_affinity_counts import AffinityCounts
from kaiwo.snapshot.queue_table import EditableQueueTable, ResourceVector
from kaiwo.snapshot.reserved_devices import ReservationIndex, reservation_changed, reservation_gone
from kaiwo.snapshot.shared_devices import SharedDevices
from kaiwo.snapshot.sharing_rules import (
    SharingRules,
    rules_of_policy_changed,
    tenant_of,
)
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.subgroup_choices import choices_of
from kaiwo.snapshot.timed_changes import apply_timed_changes, clock_moved, is_gate_over, pools_changed, start_refused


def by_priority_then_age(workload: Workload) -> tuple[OrderKeys, tuple[OrderFault, ...]]:
    """The order of workloads when no plugin registry provides one."""
    return ((-workload.priority, workload.submitted_s),), ()


class ClusterState:
    """One writer; a Snapshot is valid until the next patch."""

    def __init__(self, order: WorkloadOrder = by_priority_then_age) -> None:
        self.version = 0
        self.node_objects: dict[str, Node] = {}
        self.queue_objects: dict[str, Queue] = {}
        self.topology_objects: dict[str, Topology] = {}
        self.domain_choices: dict[str, tuple[DomainChoice, ...]] = {}  # by workload: the last plan's for each part
        self.topologies_stale: set[str] = set()  # those whose domains are not in `nodes.topologies` yet
        self.workloads: dict[str, Workload] = {}
        self.pods: dict[str, dict[str, Pod]] = {}  # by workload, then pod
        self.allocations_on: dict[str, dict[tuple[str, str, str], Allocation]] = {}  # by node: pods and nominations
        self.nominations: dict[str, dict[str, Nomination]] = {}  # by workload, then pod
        self.lost_places: set[tuple[str, str]] = set()  # nominations (workload, pod) that wait for a replacement
        self.planned_starts: dict[str, PlannedStart] = {}  # by workload
        self.used: dict[str, ResourceVector] = {}  # by leaf queue: pods and nominations
        self.non_preemptible: dict[str, ResourceVector] = {}  # the non-preemptible part
        self.preemptible = PreemptibleWork()
        self.priorities = CappedPriorities()
        self.backlog = Backlog(order)
        self.affinity_counts = AffinityCounts()
        self.nodes = EditableNodeTable()
        self.queues = EditableQueueTable()
        self.past_usage: PastUsageChanged | None = None
        self.seen_requests, self.node_failures = SeenRequests(), NodeFailures()
        self.ports: dict[str, tuple[NetworkPort, ...]] = {}  # by node: what its agent measured
        self.gpu_loads: dict[str, dict[str, int]] = {}  # by node and GPU: how busy it is, as agents measure it
        self.speeds = MeasuredSpeeds()  # how fast work runs on each node, as it reports
        self.prices: RequestPrices | None = None  # None: too little was seen, or there is nothing to protect
        self.last_stop: dict[str, StoppedForOthers] = {}  # by workload
        self.started_overdue: set[str] = set()  # workloads that started where a place was kept for them: see Plan
        self.recent_stops: dict[str, tuple[StoppedForOthers, ...]] = {}  # by queue: within its last hour
        self.releasing: set[tuple[str, str]] = set()  # (workload, pod) whose space comes free soon
        self.below_minimum: set[str] = set()  # workloads that run below their minimum
        self.refused_starts: dict[str, StartRefused] = {}  # by workload: by a plugin, until some time
        self.pools: dict[str, int] = {}  # extended resources that are counted over all nodes together
        self.reservations = ReservationIndex()
        self.sharing = SharingRules()  # who may share a GPU with whom
        self.domain_access = AccessRules()  # who may use which domains of the network
        self.has_queue_strategies = False  # some queue says how nodes and devices are chosen
        self.failures = FailedPlaces()  # what does not work, and who lost pods there
        self.defragmentation = DefragmentationStatus()
        self.expiring: dict[str, int] = {}  # by workload: when its allocation expires
        self.ended_expired: set[str] = set()  # of those, the workloads that a plan has ended
        self.is_cycle_due = False  # see needs_cycle
        self.look_again_s = 0  # when time alone may change an answer; 0: never
        self.rules_digest = ""  # of the last cycle: see Plan.rules
        self.caches: dict[Any, dict[Any, Any]] = {}  # what decide derived per shape; never part of the state
        self.nodes_stale = self.queues_stale = False
        self._shared_with_original: dict[int, set[str]] = {}  # of a fork: inner dicts that the original still owns
        self.to_requeue: dict[str, None] = {}  # workloads whose place in the backlog may have changed

    def patch(self, events: Iterable[Event]) -> None:
        """Apply events. A gang whose pods change together is requeued once, not once per pod."""
        self.apply_events(events)
        self.requeue_moved()

    def apply_events(self, events: Iterable[Event]) -> None:
        """The first half of `patch`, for applying a large batch piece by piece."""
        for event in events:
            self.version += 1
            _PATCHES[type(event)](self, event)

    def requeue_moved(self, most: int | None = None) -> bool:
        """The second half: requeue at most `most` of the workloads that the events affected. True: some are left."""
        names = list(islice(self.to_requeue, most))
        for name in names:
            del self.to_requeue[name]
            self._requeue(name)
        return bool(self.to_requeue)

    def use_order(self, order: WorkloadOrder) -> None:
        """Line all waiting workloads up in another order, and try every class again."""
        self.backlog.order = order
        self.to_requeue |= dict.fromkeys(self.backlog.queued_names())
        self.requeue_moved()
        self.retry_all_classes()
        self.is_cycle_due = True

    def snapshot(self, now_s: int) -> Snapshot:
        """The frozen state for one cycle. `decide` refuses it once the state was patched."""
        for name in self.backlog.pop_due(now_s):
            if name in self.backlog.gated and is_gate_over(self, name, now_s):
                self.version += 1
                self._requeue(name, now_s)
        if 0 < self.look_again_s <= now_s:
            self.version += 1
            self.look_again_s = 0
            self.retry_all_classes()
            # Even where nothing waits, the place of a lost gang member is given up when its time is over.
            self.is_cycle_due = self.is_cycle_due or bool(self.lost_places) or self.defragmentation.is_live
        if self.failures.resting:
            end_slow_times(self, now_s)
            end_rests(self, now_s)
        if self.reservations.objects or self.reservations.live or self.expiring:
            apply_timed_changes(self, now_s, self._requeue)
        self.refresh_tables()
        return Snapshot(self, now_s)

    @property
    def needs_cycle(self) -> bool:
        """Time or a reservation gives a cycle something to do, even if nothing waits."""
        has_reserved = self.reservations.live or self.reservations.evicting
        return self.is_cycle_due or bool(has_reserved and self.backlog.try_all)

    def record_cycle(self, plan: Plan) -> None:
        """Record which classes are stuck, why, and under which rules that was found."""
        self.version += 1
        self.rules_digest = plan.rules or self.rules_digest
        self.is_cycle_due = False
        self.ended_expired.update(plan.expired)
        self.started_overdue.update(plan.overdue)
        self.look_again_s = min(filter(None, (self.look_again_s, plan.look_again_s)), default=0)
        for choice in plan.domains:
            others = [each for each in self.domain_choices.get(choice.workload, ()) if each.part != choice.part]
            self.domain_choices[choice.workload] = (*others, choice)
        for wait in plan.waits:
            found = self.backlog.by_key.get((wait.queue, wait.shape))
            if found is not None:
                found.obstacles = wait.obstacles
        self.backlog.end_cycle(plan.unfinished, plan.first, plan.unclaimed)
        for shape in self.backlog.shapes.retire():
            for kept in self.caches.values():
                kept.pop(shape, None)

    def events(self) -> tuple[Event, ...]:
        """The whole state as events: what a journal's base holds."""
        return (
            *(QueueChanged(self.queue_objects[name]) for name in sorted(self.queue_objects)),
            *(NodeChanged(self.node_objects[name]) for name in sorted(self.node_objects)),
            *(TopologyChanged(self.topology_objects[name]) for name in sorted(self.topology_objects)),
            *(ReservationChanged(found) for _, found in sorted(self.reservations.objects.items())),
            *map(WorkloadChanged, self.priorities.all_as_asked(self.workloads)),
            *(PodChanged(pods[name]) for _, pods in sorted(self.pods.items()) for name in sorted(pods)),
            *(NominationChanged(kept[pod]) for _, kept in sorted(self.nominations.items()) for pod in sorted(kept)),
            *(PlannedStartChanged(planned) for _, planned in sorted(self.planned_starts.items())),
            *([self.past_usage] if self.past_usage is not None else ()),
            *recorded_stops(self),
            *self.seen_requests.as_events(),
            *self.node_failures.as_events(),
            *self.speeds.events(),
            *ports_event(self),
            *gpu_loads_event(self),
            *([PricesChanged(self.prices)] if self.prices is not None else ()),
            *(refused for _, refused in sorted(self.refused_starts.items())),
            *([PoolsChanged(self.pools)] if self.pools else ()),
            *self.failures.events(),
            *self.defragmentation.events(),
            *([SharingRulesInUse(rules.everywhere, rules.in_use)] if (rules := self.sharing).in_use else ()),
        )

    def fork(self) -> "ClusterState":
        """An independent copy, for what-if questions. Valid while this state does not change.

        The dicts inside `pods`, `allocations_on` and `nominations` are shared until they are changed: copying 8,000 of
        them was two thirds of the cost of a question.
        """
        self.refresh_tables()
        other = object.__new__(ClusterState)
        other.__dict__.update(self.__dict__)
        for name in (
            "node_objects", "queue_objects", "topology_objects", "domain_choices", "workloads", "used",
            "non_preemptible", "pods", "allocations_on", "nominations", "last_stop", "recent_stops",
            "planned_starts", "expiring", "refused_starts", "pools", "ports", "gpu_loads",
        ):  # fmt: skip
            setattr(other, name, dict(getattr(self, name)))
        other._shared_with_original = {
            id(inner): set(inner) for inner in (other.pods, other.allocations_on, other.nominations)
        }
        other.backlog, other.nodes, other.queues = self.backlog.copy(), self.nodes.copy(), self.queues.copy()
        other.affinity_counts, other.priorities = self.affinity_counts.copy(), self.priorities.copy()
        other.to_requeue, other.below_minimum, other.releasing = {}, set(self.below_minimum), set(self.releasing)
        other.lost_places, other.topologies_stale = set(self.lost_places), set(self.topologies_stale)
        other.reservations, other.ended_expired = self.reservations.copy(), set(self.ended_expired)
        other.sharing, other.seen_requests = self.sharing.copy(), self.seen_requests.copy()
        other.node_failures, other.speeds = self.node_failures.copy(), self.speeds.copy()
        other.sharing, other.domain_access = self.sharing.copy(), self.domain_access.copy()
        other.preemptible = self.preemptible.copy()
        other.failures, other.defragmentation = self.failures.copy(), self.defragmentation.copy()
        other.started_overdue = set(self.started_overdue)
        other.caches = {key: dict(value) for key, value in self.caches.items()}
        return other

    def refresh_tables(self) -> None:
        """Rebuild the tables when the set of nodes or queues changed."""
        shared = self.nodes.tenants.shared
        if self.nodes_stale or (shared is not None and shared.is_full):
            self.nodes = EditableNodeTable(self.node_objects, self.nodes.models, self.nodes.profiles)
            if self.sharing.in_use:
                self.nodes.tenants.shared = SharedDevices(len(self.nodes.names), self.nodes.width)
            for name, node in self.node_objects.items():
                held = self.allocations_on.get(name, {}).values()
                self.nodes.write_node(node, held, self.version, partial(tenant_of, self))
            self.topologies_stale.update(self.topology_objects)
            self.caches.clear()
            self.reservations.forget_positions()
            self.backlog.recheck_impossible()
            self.nodes_stale = False
        if self.topologies_stale:
            live = {
                name: live_topology(topology, self.ports, self.node_objects)
                for name, topology in self.topology_objects.items()
                if name in self.topologies_stale
            }
            self.nodes.write_topologies(sorted(self.topologies_stale), live)
            if self.ports or self.failures.islands:
                for name, topology in live.items():
                    self.failures.topology_changed(name, topology)
            self.topologies_stale.clear()
            self.caches.clear()  # places that were computed for the domains of before
        if self.queues_stale:
            self.queues = EditableQueueTable(self.queue_objects, self.used, self.non_preemptible, usage_by_model(self))
            self.queues_stale = False
            self.backlog.recheck_impossible()
        if self.backlog.unchecked:
            self.backlog.check_impossible(partial(is_impossible, self.nodes, self.queues, self.backlog.shapes))

    def _requeue(self, name: str, now_s: int = 0) -> None:
        """Put a workload into its class, gate it, or neither when it needs nothing."""
        limited_others = self.limits_other_queues(name)
        self.backlog.remove(name)
        workload = self.workloads.get(name)
        if workload is None:
            return
        needs = self.needs_of(workload)
        if not needs:
            return
        obstacles = gate_obstacles(self, workload, now_s)
        if obstacles:
            if limited_others:
                self.retry_all_classes()
            self.backlog.add_gated(workload, obstacles)
        else:
            choices = choices_of(workload, self.pods.get(name, ())) if workload.groups else None
            unnominated = self._needs_without_nominations(workload, needs)
            self.backlog.add(workload, needs, choices, unnominated, has_pods=bool(self.pods.get(name)))
            if (
                self.planned_starts or self.lost_places
            ):  # it may be short enough to backfill, when others of its class are not
                self.backlog.retry(name)

    def limits_other_queues(self, name: str) -> bool:
        """Its demand lowers the shares of other queues: when that ends, they may be entitled to more."""
        return self.backlog.is_queued(name) and len(self.queue_objects) > 1

    def needs_of(self, workload: Workload) -> RoleNeeds:
        """For each role with missing pods: how many, and how many of them are needed to start."""
        pods = self.pods.get(workload.name)
        needs = []
        number = self.backlog.shapes.shape_of
        # Without reservations, and rules about sharing and shares, this costs nothing.
        has_access = (
            self.reservations.live
            or workload.reservation
            or self.sharing.in_use
            or self.sharing.has_limits
            or self.domain_access.in_use
            or self.has_queue_strategies
            or workload.strategy
            or self.failures.concerns(workload.name)
        )
        for role in workload.roles:
            present = 0 if not pods else sum([pod_name(role, i) in pods for i in range(role.count)])
            missing = role.count - present
            if missing:
                is_plain = not has_access and not role.request.threads_milli
                want = role.request if is_plain else self.request_of(workload, role)
                needs.append(RoleNeed(number(want), missing, max(0, role.needed - present)))
        if workload.groups:
            choices = choices_of(workload, pods or ())
            return with_required(tuple(needs), [0] * len(needs) if choices.is_running else choices.needed[0])
        return tuple(needs)

    def _needs_without_nominations(self, workload: Workload, needs: RoleNeeds) -> RoleNeeds | None:
        """What is missing besides its nominations."""
        kept = self.nominations.get(workload.name)
        if not kept:
            return None
        pods = self.pods.get(workload.name, ())
        missing = [[n for i in range(role.count) if (n := pod_name(role, i)) not in pods] for role in workload.roles]
        left = [sum(name not in kept for name in names) for names in missing if names]
        return tuple(need._replace(missing=count) for need, count in zip(needs, left, strict=True))

    def request_of(self, workload: Workload, role: Role) -> Request:
        request = self.failures.with_memory(workload.name, role.request)
        request = self.reservations.with_access(workload, request, self.queue_objects)
        request = self.sharing.with_tenant(workload, request, self.queue_objects)
        request = self.domain_access.with_closed(workload, request, self.queue_objects)
        if workload.strategy:
            return replace(request, strategy=workload.strategy)
        if self.has_queue_strategies:
            strategies = (queue.strategy for queue in queue_path(self.queue_objects, workload.queue) if queue.strategy)
            return replace(request, strategy=next(strategies, ""))
        return request

    def writable(self, outer: dict[str, dict[Any, Any]], key: str) -> dict[Any, Any]:
        """The inner dict, copied first if a fork shares it."""
        inner = outer.get(key)
        if inner is None:
            inner = outer[key] = {}
        elif self._shared_with_original and key in self._shared_with_original.get(id(outer), ()):
            inner = outer[key] = dict(inner)
            self._shared_with_original[id(outer)].discard(key)
        return inner

    def retry_all_classes(self) -> None:
        """Something became possible: every class is tried again."""
        self.backlog.try_all = True


_PATCHES: dict[type, Callable[[ClusterState, Any], None]] = {
    NodeChanged: node_changed,
    NodeGone: node_gone,
    QueueChanged: queue_changed,
    QueueGone: queue_gone,
    WorkloadChanged: workload_changed,
    WorkloadGone: workload_gone,
    DefragmentationChanged: defragmentation_changed,
    DefragmentationStepChanged: defragmentation_step_changed,
    PodChanged: pod_changed,
    PodGone: pod_gone,
    NominationChanged: nomination_changed,
    NominationGone: nomination_gone,
    PlannedStartChanged: planned_start_changed,
    PlannedStartGone: planned_start_gone,
    ReservationChanged: reservation_changed,
    ReservationGone: reservation_gone,
    PastUsageChanged: past_usage_changed,
    RequestMixChanged: request_mix_changed,
    PricesChanged: prices_changed,
    NodeFailuresSeen: node_failures_seen,
    ProgressReported: progress_reported,
    NodeSpeedsMeasured: node_speeds_measured,
    PortsMeasured: ports_measured,
    GpuLoadsMeasured: gpu_loads_measured,
    StoppedForOthers: record_stop,
    SharingRulesInUse: rules_of_policy_changed,
    TopologyChanged: topology_changed,
    TopologyGone: topology_gone,
    RecoveryChanged: recovery_changed,
    RecoveryGone: recovery_gone,
    ClockMoved: clock_moved,
    StartRefused: start_refused,
    PoolsChanged: pools_changed,
}
