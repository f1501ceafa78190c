"""Plan which GPUs change their partition mode: what people's plans ask for, then what waiting work needs.

Both functions run on threads and change nothing.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.placement.shape_scores import allowed
from kaiwo.gpus.partitioning.demand import GpuModeState, MayStart, node_states, waiting_demands
from kaiwo.gpus.partitioning.planner import plan_partitions, steps_to_modes, why_unreachable
from kaiwo.gpus.partitioning.planner_types import GpuKey, ModeChangeStep, ModeDemand, NodeState, PlannerSettings
from kaiwo.gpus.partitioning.reserved_gpus import ReservedGpus
from kaiwo.manifests.kinds.partitioning_plan import ChosenRule, ChosenRules, choose_rules, mode_of_profile
from kaiwo.model.gpus.partition_modes import Mode, Platform
from kaiwo.model.gpus.partitioning_plan import PartitioningPlan, PlanRule
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.request import Request
from kaiwo.snapshot.array_types import BoolArray, IntArray
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import CPU, EXTENDED, MEMORY, PODS
from kaiwo.snapshot.queue_table import RESOURCES
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.view import View
from kaiwo.snapshot.working_copy import WorkingCopy

SETTINGS = PlannerSettings()
GPU = RESOURCES.index("gpu")
Nodes = frozenset[str] | None  # None: all


class CandidateNodesByRequest:
    """The nodes that could hold a pod if their GPUs had other modes. Equal requests share one answer."""

    def __init__(self, state: ClusterState, view: View) -> None:
        self._view, self._rows = view, np.arange(len(view.nodes.names))
        self._room = _room(state, view)
        self._filters = BUILTIN.active(DEFAULT_POLICY).static_filters
        self._fields = sorted({field for each in self._filters for field in getattr(each, "depends_on", ())})
        self._allowed: dict[tuple[object, ...], BoolArray] = {}
        self._named: dict[bytes, Nodes] = {}

    def nodes(self, want: Request, pods: int = 1) -> Nodes:
        """The candidate nodes; an empty set if together they cannot hold this many pods."""
        key = tuple(getattr(want, field) for field in self._fields)
        if key not in self._allowed:
            self._allowed[key] = allowed(self._view, want, self._rows, self._filters)
        times = np.where(self._allowed[key], self._times(want), 0)
        mask = times > 0 if int(times.sum()) >= pods else np.zeros_like(self._allowed[key])
        marks = mask.tobytes()
        if marks not in self._named:
            names = (self._view.nodes.names[row] for row in np.flatnonzero(mask).tolist())
            self._named[marks] = None if mask.all() else frozenset(names)
        return self._named[marks]

    def _times(self, want: Request) -> IntArray:
        """How many such pods fit on each node at once."""
        room, names = self._room, self._view.nodes.extended_names
        times = np.maximum(room[:, PODS], 0)
        for column, amount in ((CPU, want.cpu_milli), (MEMORY, want.memory_mib)):
            if amount > 0:
                times = np.minimum(times, room[:, column] // amount)
        for name, amount in want.extended:
            if amount > 0:
                found = room[:, EXTENDED + names.index(name)] if name in names else np.zeros_like(times)
                times = np.minimum(times, found // amount)
        return np.maximum(times, 0)


def _room(state: ClusterState, view: View) -> IntArray:
    """The resources of each node that are free once the work on its GPUs has ended."""
    room: IntArray = view.of(np.arange(len(view.nodes.names))).free.copy()
    for name, held in state.allocations_on.items():
        row = view.nodes.row.get(name)
        if row is None:
            continue
        for each in held.values():
            if each.devices:
                room[row, [CPU, MEMORY, PODS]] += (each.cpu_milli, each.memory_mib, 1)
                for resource, amount in each.extended:
                    if resource in view.nodes.extended_names:
                        room[row, EXTENDED + view.nodes.extended_names.index(resource)] += amount
    return room


class PlanRequest(msgspec.Struct, frozen=True):
    """What the planner needs besides the cluster state."""

    now_s: int
    states: Mapping[GpuKey, GpuModeState] = {}
    plans: tuple[PartitioningPlan, ...] = ()
    platforms: Mapping[str, Platform] = {}


class NodePlanStatus(msgspec.Struct, frozen=True):
    plan: str
    node: str
    profile: str
    state: str  # done | changing | draining | pending | dry-run | refused
    reason: str = ""


class PlannedChanges(msgspec.Struct, frozen=True):
    at_s: int = 0
    nodes: tuple[NodeState, ...] = ()
    steps: tuple[ModeChangeStep, ...] = ()  # for people's plans, then for waiting work
    demands: tuple[ModeDemand, ...] = ()  # of waiting work that a change could serve
    unserved: tuple[ModeDemand, ...] = ()
    statuses: tuple[NodePlanStatus, ...] = ()
    conflicts: tuple[str, ...] = ()


class PlannerInput(msgspec.Struct, frozen=True):
    nodes: tuple[NodeState, ...] = ()
    labels: Mapping[str, Mapping[str, str]] = {}
    demands: tuple[ModeDemand, ...] = ()


def read_planner_input(state: ClusterState, request: PlanRequest) -> PlannerInput:
    """Call while the cluster state does not change; planning then uses values only."""
    state.refresh_tables()
    if not _is_needed(state, request):
        return PlannerInput()
    nodes = node_states(state, request.states, request.now_s, request.platforms)
    labels = {node.name: state.node_objects[node.name].labels for node in nodes}
    view = WorkingCopy(Snapshot(state, request.now_s)).view
    candidates, reserved = CandidateNodesByRequest(state, view), ReservedGpus(view.reservations, nodes)
    demands = waiting_demands(
        state, request.now_s, candidates.nodes, _within_limits(view, state), reserved.reserved_from
    )
    return PlannerInput(tuple(nodes), labels, tuple(demands))


def make_plan(facts: PlannerInput, request: PlanRequest) -> PlannedChanges:
    """People's plans come first; waiting work gets the nodes that no plan names."""
    nodes, labels = facts.nodes, facts.labels
    chosen = choose_rules([each for each in request.plans if not each.is_dry], labels)
    modes = {name: mode for name, (_, rule) in chosen.rules.items() if (mode := mode_of_profile(rule.profile))}
    wanted = _wanted(request.plans, nodes, chosen, modes)
    pinned = [_pinned(node, request.now_s) if node.name in chosen.rules else node for node in nodes]
    demand = plan_partitions(request.now_s, pinned, facts.demands, SETTINGS)
    steps = (*wanted, *(step for step in demand.steps if step.node not in chosen.rules))
    statuses = (*_statuses(nodes, chosen, modes, wanted), *_dry_run(request.plans, nodes, labels))
    return PlannedChanges(request.now_s, nodes, steps, facts.demands, demand.unserved, statuses, chosen.conflicts)


def _is_needed(state: ClusterState, request: PlanRequest) -> bool:
    """True if a GPU is partitioned, or a plan or a workload asks for it; otherwise a round costs next to nothing."""
    if request.plans or request.states or len(state.nodes.profiles) > 1:
        return True
    shapes = state.backlog.shapes
    return any(shapes[shape].is_partition for each in state.backlog.by_key.values() for shape, _, _ in each.needs)


def _wanted(
    plans: Sequence[PartitioningPlan], nodes: Sequence[NodeState], chosen: ChosenRules, modes: Mapping[str, Mode]
) -> list[ModeChangeStep]:
    steps: list[ModeChangeStep] = []
    for plan in plans:
        mine = {name: mode for name, mode in modes.items() if chosen.rules[name].plan == plan.name}
        most = min(plan.rollout.max_parallel, plan.rollout.max_unavailable)
        steps += steps_to_modes(nodes, mine, most, SETTINGS)
    return steps


def _pinned(node: NodeState, now_s: int) -> NodeState:
    """The node as if just changed, so that the planner keeps its modes; its free devices still serve waiting work."""
    return replace(node, gpus=tuple(replace(gpu, since_s=now_s) for gpu in node.gpus))


def _within_limits(view: View, state: ClusterState) -> MayStart:
    """Check queue limits by what a workload asks for: the charge of partitions is unknown before they exist."""
    queues = view.queues

    def may_start(waiting: WaitingClass) -> bool:
        wants = [(state.backlog.shapes[shape], needed) for shape, _, needed in waiting.needs]
        milli = sum(want.charge_milli * max(1, needed) for want, needed in wants)
        path = queues.path[queues.row[waiting.queue]] if waiting.queue in queues.row else ()
        return bool(path) and all(view.queue_used[above, GPU] + milli <= queues.limit[above, GPU] for above in path)

    return may_start


def _statuses(
    nodes: Sequence[NodeState], chosen: ChosenRules, modes: Mapping[str, Mode], steps: Sequence[ModeChangeStep]
) -> list[NodePlanStatus]:
    moving = {step.node for step in steps}
    found = []
    for node in nodes:
        if node.name in chosen.rules:
            plan, rule = chosen.rules[node.name]
            state, reason = _state(node, rule, modes.get(node.name), node.name in moving)
            found.append(NodePlanStatus(plan, node.name, rule.profile, state, reason))
    return found


def _state(node: NodeState, rule: PlanRule, mode: Mode | None, is_moving: bool) -> tuple[str, str]:
    if mode is None:
        return "refused", f"profile '{rule.profile}' names no partition mode; use a name such as cpx-nps4"
    if reason := why_unreachable(node, mode):
        return "refused", reason
    if any(gpu.is_changing for gpu in node.gpus):
        return "changing", ""
    if all(gpu.mode == mode for gpu in node.gpus):
        return "done", ""
    if not is_moving:
        return "pending", "other nodes of the plan come first"
    used = sum(1 for gpu in node.gpus if gpu.used)
    return ("draining", f"{used} of {len(node.gpus)} GPUs are in use") if used else ("changing", "")


def _dry_run(
    plans: Sequence[PartitioningPlan], nodes: Sequence[NodeState], labels: Mapping[str, Mapping[str, str]]
) -> list[NodePlanStatus]:
    found = []
    rules_of = {plan.name: choose_rules([replace(plan, is_dry=False)], labels).rules for plan in plans}
    for plan in (plan for plan in plans if plan.is_dry):
        for node in nodes:
            if node.name not in rules_of[plan.name]:
                continue
            profile = rules_of[plan.name][node.name].rule.profile
            mode = mode_of_profile(profile)
            count = sum(1 for gpu in node.gpus if gpu.mode != mode)
            reason = why_unreachable(node, mode) if mode else f"profile '{profile}' names no partition mode"
            reason = reason or _conflicting_plan(rules_of, plan.name, node.name) or f"would change {count} GPUs"
            found.append(NodePlanStatus(plan.name, node.name, profile, "dry-run", reason))
    return found


def _conflicting_plan(rules_of: Mapping[str, Mapping[str, ChosenRule]], plan: str, node: str) -> str:
    """A plan that wants another profile on the node; then neither gets it."""
    mine = rules_of[plan][node].rule
    for name, rules in sorted(rules_of.items()):
        other = rules[node].rule if node in rules else mine
        if (other.profile, other.is_reference) != (mine.profile, mine.is_reference):
            return f"would stay as it is: plan '{name}' wants {other.profile}"
    return ""
