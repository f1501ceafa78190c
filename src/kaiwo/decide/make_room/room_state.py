"""What the actions that make room share in one cycle: possible victims, eviction budgets, and what was decided so far.

In:    what the cycle has placed and evicted by then.   Out: evictions, nominations, and why no room could be made.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from kaiwo.decide.cycle_state import CycleInput, CycleState, PodKey, earliest_s, nominate
from kaiwo.decide.make_room.candidate_nodes import CandidateNodes
from kaiwo.decide.make_room.eviction_budget import EvictionBudget
from kaiwo.decide.make_room.victim_units import VictimUnit, VictimUnits
from kaiwo.decide.placement.place_pods import Placed, Placer
from kaiwo.decide.placement.place_workload import Placement
from kaiwo.decide.planned_starts.backfill import BackfillMasks
from kaiwo.model.affinity import affinity_of_nomination
from kaiwo.model.obstacle import Obstacle
from kaiwo.model.plan import DISPLACING_CAUSES, Eviction, EvictionCause, Nomination, Start
from kaiwo.model.workload import Pod, Workload
from kaiwo.snapshot.backlog import ClassKey, WaitingClass


@dataclass(slots=True)
class RoomMade:
    """How room is made for a preemptor."""

    placement: Placement
    stopped: list[VictimUnit] = field(default_factory=list)
    moved: list[tuple[VictimUnit, list[tuple[Pod, Placed]]]] = field(default_factory=list)


class Attempt(NamedTuple):
    """What one action found for one workload."""

    room: RoomMade | None = None
    refusal: Obstacle | None = None  # why room could not be made
    look_again_s: int = 0


class RoomState:
    """One cycle's evictions and nominations, while room is being made."""

    def __init__(
        self,
        cycle: CycleInput,
        free: CycleState,
        masks: BackfillMasks | None,
        starts: tuple[Start, ...],
        nominations: Iterable[Nomination],
        evicted: Iterable[Eviction],
    ) -> None:
        self.cycle, self.free, self.masks, self.starts = cycle, free, masks, starts
        self.victims = VictimUnits(cycle.state, cycle.now_s, cycle.policy.victim_order, starts)
        self.victims.evicted.update((each.workload, each.pod) for each in evicted)
        self.budget = EvictionBudget(cycle.state, cycle.now_s)
        # Workloads that start, or for which space is kept.
        self.served = {each.workload for each in starts} | {each.workload for each in nominations}
        self.evictions: list[Eviction] = []
        self.nominations: list[Nomination] = []
        self.given_up: list[PodKey] = []
        self.refusals: dict[ClassKey, Obstacle] = {}  # why room could not be made
        self.look_again_s = 0

    @cached_property
    def candidates(self) -> CandidateNodes:
        """The nodes on which evictions could make room."""
        return CandidateNodes(self.cycle, self.free, self.victims)

    def placer_for(self, workload: Workload, found: WaitingClass) -> Placer:
        """Places a workload as planned starts of others leave the nodes to it: making room does not change that."""
        if self.masks is None:
            return self.free.placer
        return self.free.placer.under(self.masks.of(workload, self.free.charges.queue_charge(found)))

    def look_again(self, at_s: int) -> None:
        """An answer of this cycle may be another one at that time."""
        self.look_again_s = earliest_s(self.look_again_s, at_s)

    def evict(self, eviction: Eviction) -> None:
        """Stop a pod; it is not stopped again in this cycle."""
        self.evictions.append(eviction)
        if eviction.cause in DISPLACING_CAUSES:
            self.budget.count(self.cycle.state.workloads[eviction.workload])
        self.victims.evicted.add((eviction.workload, eviction.pod))

    def carry_out(self, workload: Workload, room: RoomMade, cause: EvictionCause) -> None:
        """Evict the victims, and keep the space for the beneficiary and for pods that move."""
        self.served.add(workload.name)
        self.given_up.extend(room.placement.given_up)
        self.nominations.extend(nominate(self.cycle.state, workload, room.placement))
        for unit in room.stopped:
            lost = unit.lost_gpu_s
            for pod in unit.pods:
                self.evict(Eviction(pod.workload, pod.name, cause, workload.name, lost))
                lost = 0  # counted once a unit
        for unit, moves in room.moved:
            lost = unit.lost_gpu_s
            for pod, placed in moves:
                self.evict(Eviction(pod.workload, pod.name, cause, workload.name, lost))
                lost = 0
                amounts = (
                    pod.cpu_milli,
                    pod.memory_mib,
                    pod.extended,
                    affinity_of_nomination(pod.neighbours),
                    pod.beside,
                )
                self.nominations.append(Nomination(pod.workload, pod.name, placed.node, placed.devices, *amounts))
