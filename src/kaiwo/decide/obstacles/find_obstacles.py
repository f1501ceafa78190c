"""Find everything that keeps a class of waiting workloads from starting, in numbers: the most telling first."""

from collections.abc import Callable, Sequence

import numpy as np

from kaiwo.decide.obstacles.availability import AvailabilityCache, NodeAvailability, availability_in
from kaiwo.decide.obstacles.partition_obstacles import no_such_device
from kaiwo.decide.obstacles.reservation_obstacles import beside_reserved, reserved_obstacles
from kaiwo.decide.obstacles.share_bounds import over_share_bound
from kaiwo.decide.obstacles.shortages import (
    fits_when_empty,
    is_permanent,
    most_when_empty,
    pods_when_empty,
    short_of,
    too_large,
    unreserved,
)
from kaiwo.decide.placement.level_room import (
    level_obstacle,
    packing_obstacle,
    rows_by_part,
    tightest_room,
    wanted_by_role,
)
from kaiwo.decide.placement.links import bandwidth_obstacle
from kaiwo.decide.placement.node_fit import left_in_pool, pods_that_fit
from kaiwo.decide.placement.pod_affinity import NodeVerdict, missing_topology_label, verdicts_by_reason
from kaiwo.decide.placement.queue_limits import UsageBound, bounds_on, least_by_model, least_charge
from kaiwo.decide.placement.shape_scores import ShapeScores
from kaiwo.gpus.device_fit import eligible_devices, pods_per_device
from kaiwo.model.affinity import VENDOR_LABEL
from kaiwo.model.obstacle import (
    BandwidthShort,
    ClosedDomains,
    Facts,
    FloatingPool,
    GangBound,
    GangLimit,
    NodesExcluded,
    Obstacle,
    QueueBound,
    Reason,
    TopologyLabelMissing,
    VendorMissing,
)
from kaiwo.model.plan import Nomination
from kaiwo.model.request import Request
from kaiwo.plugins.guarded_calls import call_plugin
from kaiwo.plugins.registry import ActivePlugins
from kaiwo.snapshot.array_types import BoolArray, Rows
from kaiwo.snapshot.backlog import RoleNeeds, WaitingClass, needs_of_each_choice, needs_to_make_room_for
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.eligibility import pods_by_node_when_empty
from kaiwo.snapshot.node_table import CPU, MEMORY, MIB, MILLI, PODS, SIZE
from kaiwo.snapshot.subgroup_choices import SubGroupChoices
from kaiwo.snapshot.view import View

Wants = Sequence[tuple[Request, int, Rows]]  # a kind of pod, how many of it must start, and nodes with room for one
MAX_NAMED = 3  # sub-groups that are short
_UNITS = ("milli-gpu", "milli-cpu", "mib")  # of resources


def with_verdicts(
    waiting_class: WaitingClass, now: tuple[Obstacle, ...], verdicts: tuple[Obstacle, ...]
) -> tuple[Obstacle, ...]:
    """Add why no room is made, unless making room would not help."""
    must_start = any(needed for _, _, needed in waiting_class.needs)
    return now if must_start and any(is_permanent(each) for each in now) else now + verdicts


class ObstacleFinder:
    """Finds obstacles in one state of the cluster; equal needs are examined once."""

    def __init__(self, state: ClusterState, active: ActivePlugins, scores: ShapeScores) -> None:
        self._view, self._state, self._active, self._scores = scores.view, state, active, scores
        self._availability = AvailabilityCache(state, scores.start, scores.view)
        self._rows: Rows = scores.view.all_rows
        self._by_needs: dict[RoleNeeds, tuple[Obstacle, ...]] = {}

    def obstacles(self, waiting_class: WaitingClass, too_long: Obstacle | None = None) -> tuple[Obstacle, ...]:
        """Obstacles of the queue, then of the nodes; or `too_long` instead of those, if only that is in its way."""
        if too_long is not None and self._fits(waiting_class):
            return (*self._queue_obstacles(waiting_class, self._largest_mib), too_long)
        needs, kept = waiting_class.needs, self._state.nominations.get(waiting_class.signature.nominated_for, {})
        held = sum(1 for each in kept.values() if is_overdrawn(self._scores.start, each))
        leaving = [Obstacle(Reason.RELEASING, held, 0, "pods")] if held else []
        if leaving and len(kept) >= sum(needed for _, _, needed in needs):
            return tuple(leaving)
        by_nodes = self._by_needs.get(needs)
        if by_nodes is None:
            by_nodes = self._by_needs[needs] = tuple(self._node_obstacles(needs))
        if waiting_class.choices is not None:
            by_nodes = self._subgroup_obstacles(waiting_class, waiting_class.choices, by_nodes)
        by_nodes = (*self._level_obstacles(waiting_class), *self._bandwidth_obstacles(waiting_class), *by_nodes)
        if every := (*leaving, *self._queue_obstacles(waiting_class, self._largest_mib), *by_nodes):
            return every
        return tuple(self._queue_obstacles(waiting_class, self._largest_free_mib)) or self._model_obstacles(
            waiting_class
        )

    def _subgroup_obstacles(
        self, waiting_class: WaitingClass, choices: SubGroupChoices, by_nodes: tuple[Obstacle, ...]
    ) -> tuple[Obstacle, ...]:
        """The sub-groups that are short, of those that the cheapest way must start; then the other obstacles."""
        room = {shape: self._scores.state(shape).room for shape, _, _ in waiting_class.needs}
        need: dict[str, int] = {}
        have: dict[str, int] = {}
        for title, (shape, _, needed) in zip(choices.display_names, needs_to_make_room_for(waiting_class), strict=True):
            need[title] = need.get(title, 0) + needed
            have[title] = have.get(title, 0) + min(needed, room[shape])
            room[shape] -= min(needed, room[shape])
        rest = tuple(each for each in by_nodes if each.reason is not Reason.GANG)
        short = [title for title in need if have[title] < need[title]]
        obstacles = [Obstacle(Reason.GANG, need[title], have[title], "pods", title) for title in short[:MAX_NAMED]]
        return (*obstacles, *rest) if short else by_nodes

    def _level_obstacles(self, waiting_class: WaitingClass) -> tuple[Obstacle, ...]:
        """The required level of which no domain has room, first of all that the nodes lack."""
        levels = waiting_class.signature.levels
        if levels is None or not levels.requires or not len(self._rows):
            return ()
        state, nodes = self._state, self._view.nodes
        workload = state.workloads[waiting_class.waiters.name_at(0)]
        wanted = wanted_by_role(state, workload, needs_to_make_room_for(waiting_class))
        homes = rows_by_part(state, nodes, workload, levels)
        shapes = state.backlog.shapes
        if not homes:
            empty = tightest_room(nodes, levels, wanted, lambda at: pods_by_node_when_empty(nodes, shapes[at]), {})
            if empty is not None:
                return (level_obstacle(levels, empty, is_too_small=empty.domain >= 0),)
        room = tightest_room(nodes, levels, wanted, lambda shape: self._scores.state(shape).slots, homes)
        return () if room is None else (level_obstacle(levels, room),)

    def _bandwidth_obstacles(self, waiting_class: WaitingClass) -> tuple[Obstacle, ...]:
        """The links between its pods have too little left, whatever the nodes have."""
        levels = waiting_class.signature.levels
        if levels is None or not levels.bandwidth_mb_s or not len(self._rows):
            return ()
        workload = self._state.workloads[waiting_class.waiters.name_at(0)]
        wanted = wanted_by_role(self._state, workload, needs_to_make_room_for(waiting_class))
        if not wanted:
            return ()
        largest = max(wanted, key=lambda each: each.pods)  # the others need bandwidth as well: it is a bound
        slots = self._scores.state(largest.shape).slots
        found = bandwidth_obstacle(self._scores.working, workload.name, levels, slots, largest.pods)
        return () if found is None else (found,)

    def _fits(self, waiting_class: WaitingClass) -> bool:
        ways = needs_of_each_choice(waiting_class) if waiting_class.choices is not None else (waiting_class.needs,)
        return any(self._has_room(needs) for needs in ways)

    def _has_room(self, needs: RoleNeeds) -> bool:
        if not any(needed for _, _, needed in needs):
            return any(self._scores.state(shape).room for shape, _, _ in needs)
        return all(self._scores.state(shape).room >= needed for shape, _, needed in needs)

    def _queue_obstacles(self, waiting_class: WaitingClass, largest_mib: Callable[[int], int]) -> list[Obstacle]:
        queues, name = self._view.queues, waiting_class.queue
        row = queues.row.get(name)
        if row is None:
            return [Obstacle(Reason.NO_QUEUE, 1, 0, "queues", name)]
        if not queues.is_leaf[row]:
            return [Obstacle(Reason.QUEUE_NOT_LEAF, 1, 0, "queues", name)]
        is_non_preemptible = not waiting_class.signature.is_preemptible
        if waiting_class.signature.nominated_for or not (is_non_preemptible or queues.is_bounded[row]):
            return []  # nominations are charged already
        needs = waiting_class.needs
        charge = least_charge(self._state, needs, largest_mib) + least_by_model(self._state, needs)
        bounds = bounds_on(self._view, row, is_non_preemptible)
        short = [bound for bound in bounds if 0 < charge[bound.column] > bound.left]
        short.sort(key=lambda bound: (queues.path[row].index(bound.queue), bound.column, bound.is_quota))
        return [_over_bound(self._view, bound, charge[bound.column]) for bound in short]

    def _model_obstacles(self, waiting_class: WaitingClass) -> tuple[Obstacle, ...]:
        """Nodes have room, but bounds leave too little of the GPU models there; else pods exclude each other."""
        row, shapes = self._view.queues.row.get(waiting_class.queue), self._state.backlog.shapes
        if row is not None and self._view.queues.is_model_bounded[row]:
            rooms = {shape: self._scores.state(shape).slots.nonzero()[0] for shape, _, _ in waiting_class.needs}
            wants = [(shapes[shape], needed, rooms[shape]) for shape, _, needed in waiting_class.needs]
            if short := short_models(self._view, row, not waiting_class.signature.is_preemptible, wants):
                return tuple(short)
        levels = waiting_class.signature.levels
        if levels is not None and levels.bandwidth_mb_s:
            pods = sum(need.needed for need in needs_to_make_room_for(waiting_class))
            return (Obstacle(Reason.BANDWIDTH, pods, pods, "pods", "", BandwidthShort(levels.bandwidth_mb_s, 0)),)
        if levels is not None and levels.requires:
            needs = needs_to_make_room_for(waiting_class)
            return (packing_obstacle(levels, sum(need.needed for need in needs)),)
        return (self._gang(waiting_class.needs),)

    def _largest_mib(self, shape: int) -> int:
        return self._availability.of(shape).most_mib

    def _largest_free_mib(self, shape: int) -> int:
        """The size of device on which its memory would be charged least, where it fits now."""
        want = self._state.backlog.shapes[shape]
        fits = (pods_per_device(self._view, want, self._rows) > 0) & (self._scores.state(shape).slots > 0)[:, None]
        sizes = np.sort(self._view.of(self._rows).gpus[:, SIZE] * fits, axis=1)
        return int(sizes[:, -want.gpus].max(initial=0)) if 0 < want.gpus <= sizes.shape[1] else 0

    def _node_obstacles(self, needs: RoleNeeds) -> list[Obstacle]:
        if not len(self._rows):
            return [Obstacle(Reason.NO_NODES, 1, 0, "nodes")]
        found: list[Obstacle] = []
        must_start = any(needed for _, _, needed in needs)
        for shape in dict.fromkeys(shape for shape, _, needed in needs if needed or not must_start):
            for obstacle in self._with_reserved(shape, sum(needed for at, _, needed in needs if at == shape)):
                if obstacle not in found:
                    found.append(obstacle)
        found += self._pool_obstacles(needs)
        if sum(needed for _, _, needed in needs) > 1:
            gang = self._gang(needs)
            if gang.have < gang.need:
                found.insert(0, gang)
        return found

    def _pool_obstacles(self, needs: RoleNeeds) -> list[Obstacle]:
        """Resources that are counted over all nodes together, and of which too little is left."""
        need: dict[str, int] = {}
        for shape, _, needed in needs if self._view.pools else ():
            for name, amount in self._state.backlog.shapes[shape].extended:
                if name in self._view.pools:
                    need[name] = need.get(name, 0) + max(1, needed) * amount
        left = {name: left_in_pool(self._view, name) for name in need}
        return [
            Obstacle(Reason.NOT_ENOUGH_EXTENDED, need[name], left[name], "", name, FloatingPool(self._view.pools[name]))
            for name in sorted(need)
            if left[name] < need[name]
        ]

    def _with_reserved(self, shape: int, needed: int) -> list[Obstacle]:
        """Reservations come first where they keep enough free devices from it, else last.

        One whose nodes are all too small for a pod is named only where nothing else is in the way.
        """
        blocking = []
        state = self._scores.state(shape)
        if state.room < max(needed, 1):
            blocking = reserved_obstacles(self._view, self._state.backlog.shapes[shape], state.allowed, max(needed, 1))
        others = self._shape_obstacles(shape, max(needed, 1))
        if not blocking:
            return others
        others = beside_reserved(self._view, self._state.backlog.shapes[shape], others)
        if others:
            blocking = [each for each in blocking if each.could_serve]
        reserved = [each.obstacle for each in blocking]
        return [*reserved, *others] if any(each.would_do for each in blocking) else [*others, *reserved]

    def _shape_obstacles(self, shape: int, needed: int) -> list[Obstacle]:
        """Filters that matter, then resources that are short on the nodes that pass the filters.

        Where one pod fits, what is missing is room for the gang, and only filters that take some of it matter.
        """
        want, state = self._state.backlog.shapes[shape], self._scores.state(shape)
        fits_one = bool(state.slots.any())
        if fits_one and (state.room >= needed or state.allowed.all()):
            return []
        offer = self._offer(shape)
        if want.gpus and not offer.devices.any():
            if not state.allowed.any() and self._is_all_reserved(want):
                # What is reserved on nodes that it may not use is not in its way.
                verdicts = [each for each in self._verdicts(want) if not each.mask.all()]
                return self._exclusions(want, [each for each in verdicts if not each.mask.any()] or verdicts)
            if (too_large_share := over_share_bound(self._view, want, self._rows)) is not None:
                return [*too_large(self._view, want, offer), too_large_share]
            return [*too_large(self._view, want, offer), no_such_device(self._view, want)]
        # Calling each filter for each node would take a millisecond.
        if state.allowed.all() and not self._active.free_filters and want.neighbours is None:
            return short_of(self._view, want, self._rows, offer)
        verdicts = self._verdicts(want)
        passing = self._rows[np.logical_and.reduce([mask for _, mask, _ in verdicts])]
        could = fits_when_empty(self._view, want, offer)
        room = int(pods_when_empty(self._view, want, offer)[passing].sum())
        could &= not could[passing].any() or room < needed
        would_do = could | (pods_that_fit(self._view, want, self._rows) > 0)
        if not room and needed > 1 and would_do.any():
            everywhere = most_when_empty(self._view, want, np.ones_like(could), offer)[GangLimit.ALLOWED_NODES]
            would_do &= everywhere >= needed  # else all nodes together are too few: opening some does not help
        blocking = self._blocking_filters(want, verdicts, would_do)
        if not blocking and len(passing) and want.gpus and not offer.devices[passing].any():
            # Several filters exclude each node with such GPUs: none matters alone, but all of them together do.
            blocking = self._exclusions(want, [each for each in verdicts if (~each.mask & would_do).any()])
        if fits_one:
            return blocking
        if not len(passing) and not blocking:
            # Every node is excluded by some filter, but none matters alone: name all of them, and what is short anyway.
            blocking = self._exclusions(want, [each for each in verdicts if not each.mask.all()])
            passing = self._rows
        short = short_of(self._view, want, passing, offer) if len(passing) else []
        return [*blocking, *short] or [Obstacle(Reason.PLUGIN, 1, 0, "nodes")]

    def _is_all_reserved(self, want: Request) -> bool:
        """There are devices for it, and all of them are reserved for others."""
        open_want = unreserved(self._view, want)
        return open_want != want and bool(availability_in(self._view, open_want, self._rows).devices.any())

    def _verdicts(self, want: Request) -> list[NodeVerdict]:
        rows, by_filters = self._rows, []
        for plugin in self._active.filters:
            mask = call_plugin(plugin.name, plugin.filter, len(rows), self._view, want, rows).astype(np.bool_)
            by_filters.append(NodeVerdict(plugin.name, mask, plugin.reason))
        return [*_without_implied_taints(by_filters), *verdicts_by_reason(self._scores.working, want)]

    def _blocking_filters(self, want: Request, verdicts: list[NodeVerdict], would_do: BoolArray) -> list[Obstacle]:
        """A filter matters if it excludes every node, or one that `would_do`, now or once it is empty."""
        if (of_vendor := self._nodes_of_vendor(want)) is not None:
            would_do = would_do & of_vendor  # no selector keeps it from GPUs that it cannot use
        against = np.sum([~mask for _, mask, _ in verdicts], axis=0)
        return [
            self._exclusion_obstacle(want, each)
            for each in verdicts
            if not each.mask.all() and (not each.mask.any() or (~each.mask & (against == 1) & would_do).any())
        ]

    def _exclusions(self, want: Request, verdicts: list[NodeVerdict]) -> list[Obstacle]:
        """Those that exclude a node whose GPUs it could use."""
        found = [self._exclusion_obstacle(want, each) for each in verdicts]
        return [each for each in found if not isinstance(each.facts, NodesExcluded) or each.facts.excluded]

    def _exclusion_obstacle(self, want: Request, verdict: NodeVerdict) -> Obstacle:
        name, mask, reason = verdict
        subject = (self._unmatched_label(want) if reason is Reason.NODE_RULES and not mask.any() else "") or name
        need = int(not mask.any())  # where some nodes may be used, it is unknown how many more would do
        return Obstacle(reason, need, 0, "nodes", subject, self._exclusion_facts(want, subject, mask, reason))

    def _exclusion_facts(self, want: Request, subject: str, mask: BoolArray, reason: Reason) -> Facts:
        """How many nodes are excluded, or what every node lacks."""
        if want.vendor and subject == VENDOR_LABEL + want.vendor:
            return VendorMissing(want.vendor, len(mask))
        if reason is Reason.PODS_UNEVEN and (label := missing_topology_label(self._view, want)):
            return TopologyLabelMissing(label)
        if reason is Reason.DOMAIN_CLOSED:
            names = sorted({key.partition("/")[2] for key in want.closed_domains})
            return ClosedDomains(
                tuple(names[:MAX_NAMED]), max(0, len(names) - MAX_NAMED), int((~mask).sum()), len(mask)
            )
        excluded = ~mask
        if reason is Reason.NODE_RULES and (of_vendor := self._nodes_of_vendor(want)) is not None:
            excluded &= of_vendor
        return NodesExcluded(int(excluded.sum()), len(mask))

    def _unmatched_label(self, want: Request) -> str:
        """The label of a rule that no node satisfies; empty: there is no such rule."""
        labels = [node.labels for node in self._view.nodes.nodes]
        return next((rule.key for rule in want.node_rules if not any(map(rule.holds, labels))), "")

    def _gang(self, needs: RoleNeeds) -> Obstacle:
        """How many of the pods that must start together would fit, each shape as if it were alone."""
        if not any(needed for _, _, needed in needs):
            return Obstacle(Reason.GANG, 1, int(any(self._scores.state(shape).room for shape, _, _ in needs)), "pods")
        need = sum(needed for _, _, needed in needs)
        bounds = [(self._most_when_empty(shape), needed) for shape, _, needed in needs if needed]
        most = {limit: sum(min(needed, found[limit]) for found, needed in bounds) for limit in GangLimit}
        tightest = GangLimit.ALLOWED_NODES
        if most[GangLimit.CLUSTER] < need:
            tightest = GangLimit.CLUSTER
        elif most[GangLimit.UNRESERVED] < most[GangLimit.ALLOWED_NODES]:
            tightest = GangLimit.UNRESERVED
        if most[tightest] < need:
            return Obstacle(Reason.GANG, need, most[tightest], "pods", "", GangBound(tightest))
        have = sum(min(needed, self._scores.state(shape).room) for shape, _, needed in needs)
        return Obstacle(Reason.GANG, need, have, "pods")

    def _most_when_empty(self, shape: int) -> dict[GangLimit, int]:
        want, allowed = self._state.backlog.shapes[shape], self._scores.state(shape).allowed
        return most_when_empty(self._view, want, allowed, self._offer(shape))

    def _offer(self, shape: int) -> NodeAvailability:
        """What nodes could give to a shape; those without a GPU of its vendor give nothing, if any other node does."""
        offer, of_vendor = self._availability.of(shape), self._nodes_of_vendor(self._state.backlog.shapes[shape])
        if of_vendor is None or not (offer.devices * of_vendor).any():
            return offer
        return NodeAvailability(
            offer.version, offer.now * of_vendor, offer.devices * of_vendor, offer.largest_mib * of_vendor
        )

    def _nodes_of_vendor(self, want: Request) -> BoolArray | None:
        """None: any vendor will do, or no node has a GPU of it, which is an obstacle of its own."""
        if not want.vendor:
            return None
        found: BoolArray = np.array([VENDOR_LABEL + want.vendor in node.labels for node in self._view.nodes.nodes])
        return found if found.any() else None


def short_models(view: View, row: int, is_non_preemptible: bool, wants: Wants) -> list[Obstacle]:
    """The GPU models of which bounds leave too little for these pods."""
    found = []
    for bound in bounds_on(view, row, is_non_preemptible):
        if model := bound.model(view.queues):
            need = sum(max(1, needed) * _milli_of(view, want, model, rows) for want, needed, rows in wants)
            found += [_over_bound(view, bound, need)] if need > bound.left else []
    return found


def _over_bound(view: View, bound: UsageBound, need: int) -> Obstacle:
    model, reason = bound.model(view.queues), Reason.QUEUE_QUOTA if bound.is_quota else Reason.QUEUE_LIMIT
    unit, facts = "milli-gpu" if model else _UNITS[bound.column], QueueBound(bound.most, model)
    return Obstacle(reason, need, max(0, bound.left), unit, view.queues.names[bound.queue], facts)


def _milli_of(view: View, want: Request, model: str, rows: Rows) -> int:
    """What one pod takes of a GPU model on these nodes; 0 if it cannot use it."""
    if not want.gpus or model not in view.nodes.models:
        return 0
    usable = eligible_devices(view, want, rows) & (view.nodes.gpu_model[rows] == view.nodes.models.index(model))
    if not usable.any():
        return 0
    if want.is_memory:
        return want.gpus * want.charge_on(int(view.of(rows).gpus[:, SIZE][usable].max()))
    if want.is_partition:
        return int(want.gpus * view.nodes.device_milli[rows][usable].max())
    return want.charge_milli


def _without_implied_taints(verdicts: list[NodeVerdict]) -> list[NodeVerdict]:
    """Kubernetes also taints nodes that are cordoned or not ready: that is not a second obstacle."""
    closed = [~each.mask for each in verdicts if each.reason in (Reason.NODE_CORDONED, Reason.NODE_NOT_READY)]
    return [
        each._replace(mask=np.logical_or.reduce([each.mask, *closed])) if each.reason is Reason.NODE_TAINTED else each
        for each in verdicts
    ]


def is_overdrawn(view: View, kept: Nomination) -> bool:
    """Another pod still holds what is nominated."""
    row = view.nodes.row.get(kept.node)
    if row is None:
        return False
    columns = [column for share in kept.devices if (column := view.nodes.column[row].get(share.gpu)) is not None]
    is_device_held = (view.gpus[row][[MILLI, MIB]][:, columns] < 0).any()
    return bool(is_device_held or (view.free[row, [CPU, MEMORY, PODS]] < 0).any())
