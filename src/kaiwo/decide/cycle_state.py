"""The state of one cycle: its input, and what changes while it tries (working copy, scores and step budget).

The budget counts steps that depend on the snapshot alone, never on what earlier cycles left in caches: a replay starts
without those caches and must spend the same.
"""

from typing import TypeAlias

import msgspec

from kaiwo.decide.placement.node_choices import NodeChoices
from kaiwo.decide.placement.node_fit import CapacityMask, pods_in_pools
from kaiwo.decide.placement.place_pods import Placed, Placer
from kaiwo.decide.placement.place_workload import Placement
from kaiwo.decide.placement.queue_limits import ClassCharges
from kaiwo.decide.placement.shape_scores import ShapeScores
from kaiwo.model.affinity import affinity_of_nomination
from kaiwo.model.plan import Nomination, Start
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Workload, role_of
from kaiwo.plugins.registry import ActivePlugins
from kaiwo.snapshot.backlog import RoleNeeds, WaitingClass, needs_of_each_choice
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.working_copy import WorkingCopy, start_view

NODES_PER_STEP = 256  # examining this many nodes for a new shape costs about as much as placing a pod

PodKey: TypeAlias = tuple[str, str]  # the workload and the pod


class CycleInput(msgspec.Struct, frozen=True):
    """What a cycle decides about; never changed."""

    state: ClusterState
    policy: Policy
    plugins: ActivePlugins
    now_s: int


class StepBudget:
    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.used, self.limit = 0, limit

    @property
    def is_spent(self) -> bool:
        """The budget is used up, or the part of it that is meant for the current step."""
        return self.used >= self.limit


class CycleState:
    """What changes while a cycle tries. What it decides is returned by each step, and not kept here."""

    def __init__(self, snapshot: Snapshot, cycle: CycleInput, choices: NodeChoices | None = None) -> None:
        self.snapshot, self.working = snapshot, WorkingCopy(snapshot)
        self.scores = ShapeScores(cycle.state, start_view(snapshot), self.working, cycle.plugins)
        if choices is not None:
            choices.clear()
            self.scores.choices = choices
        self.placer = Placer(self.working, self.scores, cycle.plugins, cycle.policy)
        self.charges = ClassCharges(cycle.state, self.working)
        self.budget = StepBudget(cycle.policy.steps)
        self._steps_per_shape = 1 + len(self.working.nodes.names) // NODES_PER_STEP
        self._examined: set[int] = set()
        self._shapes = cycle.state.backlog.shapes

    def pods_with_room(self, shape: int, mask: CapacityMask | None = None) -> int:
        if shape not in self._examined:
            self._examined.add(shape)
            self.budget.used += self._steps_per_shape
        room = self.scores.state(shape, mask).room
        return room if not self.working.view.pools else pods_in_pools(self.working.view, self._shapes[shape], room)

    def has_room(self, waiting_class: WaitingClass, mask: CapacityMask | None = None) -> bool:
        """A necessary condition: each shape of the class finds room, as if it were alone."""
        if waiting_class.choices is not None:
            return any(self._has_room_for(needs, mask) for needs in needs_of_each_choice(waiting_class))
        return self._has_room_for(waiting_class.needs, mask)

    def _has_room_for(self, needs: RoleNeeds, mask: CapacityMask | None) -> bool:
        if len(needs) == 1:
            return self.pods_with_room(needs[0].shape, mask) >= max(needs[0].needed, 1)
        if any(need.needed for need in needs):
            return all(self.pods_with_room(need.shape, mask) >= need.needed for need in needs)
        return any(self.pods_with_room(need.shape, mask) for need in needs)


def nominate(state: ClusterState, workload: Workload, placement: Placement) -> list[Nomination]:
    """Nominate a workload for the places that it cannot start on yet, unless it holds them already."""
    known = state.nominations.get(workload.name, {}) if not placement.given_up else {}
    found = []
    for start in placement.starts:
        if start.pod not in known:
            found.append(nomination_of(workload.name, start.pod, start, role_of(workload, start.pod).request))
    return found + places_of_followers(workload.name, placement)


def places_of_followers(workload: str, placement: Placement) -> list[Nomination]:
    """Kept for pods that are made only when their leader runs: nothing else gets their room meanwhile."""
    return [nomination_of(workload, each.pod, each.place, each.want) for each in placement.followers]


def nomination_of(workload: str, pod: str, place: Start | Placed, amounts: Request | Pod) -> Nomination:
    """One pod's nomination for a place, with what it asks for or holds now."""
    affinity = affinity_of_nomination(amounts.neighbours)
    needs = (amounts.cpu_milli, amounts.memory_mib, amounts.extended, affinity, amounts.beside)
    return Nomination(workload, pod, place.node, place.devices, *needs, share_with=amounts.share_with)


def earliest_s(*times_s: int) -> int:
    """The first of these times; 0 means never."""
    return min(filter(None, times_s), default=0)
