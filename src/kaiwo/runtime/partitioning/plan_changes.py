"""One look at the cluster: who waits for which cut, what the nodes are, and which GPUs should change.

In:    the picture, what is under way, the plans that people gave.   Out: steps, and how each plan stands.
Both run on threads, and change nothing.

Also: Where a waiting pod could go if only the partition modes were others.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.placement.shape_scores import allowed
from kaiwo.gpus.partitioning.demand import GpuModeState, MayStart, node_states, waiting_demands
from kaiwo.gpus.partitioning.planner import plan_partitions
from kaiwo.gpus.partitioning.planner_types import GpuKey, ModeChangeStep, ModeDemand, NodeState, PlannerSettings
from kaiwo.gpus.partitioning.requested_modes import steps_to_modes, why_unreachable
from kaiwo.gpus.partitioning.reserved_gpus import ReservedGpus
from kaiwo.manifests.kinds.partitioning_plan import ChosenRules, choose_rules, mode_of_profile
from kaiwo.model.partition_modes import Mode, Platform
from kaiwo.model.partitioning_plan import PartitioningPlan, PlanRule
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

Nodes = frozenset[str] | None  # None: all


class Reach:
    """Those who are equal in what matters here get one answer."""

    def __init__(self, state: ClusterState, view: View) -> None:
        self._view, self._rows = view, np.arange(len(view.nodes.names))
        self._room = _room(state, view)
        self._filters = BUILTIN.active(DEFAULT_POLICY).static_filters
        self._fields = sorted({field for each in self._filters for field in getattr(each, "depends_on", ())})
        self._allowed: dict[tuple[object, ...], BoolArray] = {}
        self._named: dict[bytes, Nodes] = {}

    def nodes(self, want: Request, pods: int = 1) -> Nodes:
        """The nodes that could hold such a pod; none when together they could not hold so many."""
        key = tuple(getattr(want, field) for field in self._fields)
        if key not in self._allowed:
            self._allowed[key] = allowed(self._view, want, self._rows, self._filters)
        times = np.where(self._allowed[key], self._times(want), 0)
        mask = times > 0 if int(times.sum()) >= pods else np.zeros_like(self._allowed[key])
        marks = mask.tobytes()
        if marks not in self._named:
            names = (self._view.nodes.names[row] for row in np.flatnonzero(mask))
            self._named[marks] = None if mask.all() else frozenset(names)
        return self._named[marks]

    def _times(self, want: Request) -> IntArray:
        """By node: how many such pods find room beside each other."""
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
    """Per node what is free, and what goes with the work on its GPUs."""
    room: IntArray = view.of(np.arange(len(view.nodes.names)))[0].copy()
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


TERMS = PlannerSettings()
GPU = RESOURCES.index("gpu")


class Question(msgspec.Struct, frozen=True):
    """What the picture does not know."""

    now_s: int
    course: Mapping[GpuKey, GpuModeState] = {}
    plans: tuple[PartitioningPlan, ...] = ()
    platforms: Mapping[str, Platform] = {}


class NodeStand(msgspec.Struct, frozen=True):
    """How one node stands to the plan that names it."""

    plan: str
    node: str
    profile: str
    state: str  # done | changing | draining | pending | dry-run | refused
    reason: str = ""


class Look(msgspec.Struct, frozen=True):
    """What was found."""

    at_s: int = 0
    nodes: tuple[NodeState, ...] = ()
    steps: tuple[ModeChangeStep, ...] = ()  # that people want, then those that waiting work needs
    needs: tuple[ModeDemand, ...] = ()  # of waiting work that a change could serve
    unserved: tuple[ModeDemand, ...] = ()
    stands: tuple[NodeStand, ...] = ()
    conflicts: tuple[str, ...] = ()


class Seen(msgspec.Struct, frozen=True):
    """What the planner must know of the picture."""

    nodes: tuple[NodeState, ...] = ()
    labels: Mapping[str, Mapping[str, str]] = {}
    needs: tuple[ModeDemand, ...] = ()


def see(state: ClusterState, asked: Question) -> Seen:
    """Read it off while the picture stands still; planning is done afterwards, from values."""
    state.refresh_tables()
    if not _matters(state, asked):
        return Seen()
    nodes = node_states(state, asked.course, asked.now_s, asked.platforms)
    labels = {node.name: state.node_objects[node.name].labels for node in nodes}
    view = WorkingCopy(Snapshot(state, asked.now_s)).view
    reach, reserved = Reach(state, view), ReservedGpus(view.reservations, nodes)
    needs = waiting_demands(state, asked.now_s, reach.nodes, _has_room(view, state), reserved.reserved_from)
    return Seen(tuple(nodes), labels, tuple(needs))


def make_plan(seen: Seen, asked: Question) -> Look:
    """What people want first; then what waiting work needs of the other nodes."""
    nodes, labels = seen.nodes, seen.labels
    chosen = choose_rules([each for each in asked.plans if not each.is_dry], labels)
    modes = {name: mode for name, (_, rule) in chosen.rules.items() if (mode := mode_of_profile(rule.profile))}
    wanted = _wanted(asked.plans, nodes, chosen, modes)
    pinned = [_pinned(node, asked.now_s) if node.name in chosen.rules else node for node in nodes]
    demand = plan_partitions(asked.now_s, pinned, seen.needs, TERMS)
    steps = (*wanted, *(step for step in demand.steps if step.node not in chosen.rules))
    stands = (*_stands(nodes, chosen, modes, wanted), *_dry(asked.plans, nodes, labels))
    return Look(asked.now_s, nodes, steps, seen.needs, demand.unserved, stands, chosen.conflicts)


def _matters(state: ClusterState, asked: Question) -> bool:
    """Some GPU is cut, or somebody wants one cut. Where nobody ever does, a look costs next to nothing."""
    if asked.plans or asked.course or len(state.nodes.profiles) > 1:
        return True
    shapes = state.backlog.shapes
    return any(shapes[shape].is_partition for each in state.backlog.by_key.values() for shape, _, _ in each.needs)


def _wanted(
    plans: Sequence[PartitioningPlan], nodes: Sequence[NodeState], chosen: ChosenRules, modes: Mapping[str, Mode]
) -> list[ModeChangeStep]:
    steps: list[ModeChangeStep] = []
    for plan in plans:
        mine = {name: mode for name, mode in modes.items() if chosen.rules[name][0] == plan.name}
        most = min(plan.rollout.max_parallel, plan.rollout.max_unavailable)
        steps += steps_to_modes(nodes, mine, most, TERMS)
    return steps


def _pinned(node: NodeState, now_s: int) -> NodeState:
    """What somebody wants so is not changed for others, and what is free there still serves them."""
    return replace(node, gpus=tuple(replace(gpu, since_s=now_s) for gpu in node.gpus))


def _has_room(view: View, state: ClusterState) -> MayStart:
    """Below every limit on the way up: what partitions are charged is not known before there are any."""
    queues = view.queues

    def may_start(waiting: WaitingClass) -> bool:
        wants = [(state.backlog.shapes[shape], needed) for shape, _, needed in waiting.needs]
        milli = sum(want.charge_milli * max(1, needed) for want, needed in wants)
        path = queues.path[queues.row[waiting.queue]] if waiting.queue in queues.row else ()
        return bool(path) and all(view.queue_used[above, GPU] + milli <= queues.limit[above, GPU] for above in path)

    return may_start


def _stands(
    nodes: Sequence[NodeState], chosen: ChosenRules, modes: Mapping[str, Mode], steps: Sequence[ModeChangeStep]
) -> list[NodeStand]:
    moving = {step.node for step in steps}
    found = []
    for node in nodes:
        if node.name in chosen.rules:
            plan, rule = chosen.rules[node.name]
            state, reason = _state(node, rule, modes.get(node.name), node.name in moving)
            found.append(NodeStand(plan, node.name, rule.profile, state, reason))
    return found


def _state(node: NodeState, rule: PlanRule, mode: Mode | None, is_moving: bool) -> tuple[str, str]:
    if mode is None:
        return "refused", f"profile '{rule.profile}' tells no mode; name it like one, such as cpx-nps4"
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


def _dry(
    plans: Sequence[PartitioningPlan], nodes: Sequence[NodeState], labels: Mapping[str, Mapping[str, str]]
) -> list[NodeStand]:
    """What dry plans would do."""
    found = []
    wishes = {plan.name: choose_rules([replace(plan, is_dry=False)], labels).rules for plan in plans}
    for plan in plans if any(plan.is_dry for plan in plans) else ():
        for node in nodes:
            if not plan.is_dry or node.name not in wishes[plan.name]:
                continue
            profile = wishes[plan.name][node.name][1].profile
            mode = mode_of_profile(profile)
            count = sum(1 for gpu in node.gpus if gpu.mode != mode)
            reason = why_unreachable(node, mode) if mode else f"profile '{profile}' tells no mode"
            reason = reason or _rival(wishes, plan.name, node.name) or f"would change {count} GPUs"
            found.append(NodeStand(plan.name, node.name, profile, "dry-run", reason))
    return found


def _rival(wishes: Mapping[str, Mapping[str, tuple[str, PlanRule]]], plan: str, node: str) -> str:
    """Another plan wants the node to be something else; then neither gets it."""
    mine = wishes[plan][node][1]
    for name, rules in sorted(wishes.items()):
        other = rules[node][1] if node in rules else mine
        if (other.profile, other.is_reference) != (mine.profile, mine.is_reference):
            return f"would stay as it is: plan '{name}' wants {other.profile}"
    return ""
