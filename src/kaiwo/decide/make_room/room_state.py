"""The state that the room-making actions of a cycle share: victims, eviction budgets, and what was decided so far."""

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import msgspec

from kaiwo.decide.cycle_state import CycleInput, CycleState, PodKey, earliest_s, nominate, nomination_of
from kaiwo.decide.make_room.candidate_nodes import CandidateNodes
from kaiwo.decide.make_room.victim_filters import victim_filters
from kaiwo.decide.make_room.victim_units import VictimUnit, VictimUnits
from kaiwo.decide.placement.place_pods import Placed, Placer
from kaiwo.decide.placement.place_workload import Placement
from kaiwo.decide.planned_starts.backfill import BackfillMasks
from kaiwo.model.obstacle import EvictionBudgetSpent, Obstacle
from kaiwo.model.plan import DISPLACING_CAUSES, DomainChoice, Eviction, EvictionCause, Nomination, Start
from kaiwo.model.workload import Pod, Workload
from kaiwo.snapshot.backlog import ClassKey, WaitingClass
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.evictions.eviction_history import HOUR_S


class RoomMade(msgspec.Struct):
    placement: Placement
    stopped: list[VictimUnit] = []
    moved: list[tuple[VictimUnit, list[tuple[Pod, Placed]]]] = []
    own: list[tuple[Pod, Placed]] = []  # pods of the beneficiary itself that move


class Attempt(NamedTuple):
    room: RoomMade | None = None
    refusal: Obstacle | None = None  # why room could not be made
    look_again_s: int = 0


class EvictionBudget:
    """How many workloads of a queue may still be stopped within the hour: see Fairness.evictions_per_hour."""

    def __init__(self, state: ClusterState, now_s: int) -> None:
        self._queues, self._now_s = state.queues, now_s
        self._most: dict[int, int] = {}
        self._stopped: dict[int, set[str]] = {}
        self._oldest_s: dict[int, int] = {}
        self.refused: int | None = None  # the queue whose budget was in the way since this was last reset
        for row, queue in enumerate(self._queues.queues):
            if queue.fairness.evictions_per_hour is not None:
                recent = [each for each in state.recent_stops.get(queue.name, ()) if each.at_s > now_s - HOUR_S]
                self._most[row] = queue.fairness.evictions_per_hour
                self._stopped[row] = {f"{each.workload}@{each.at_s}" for each in recent}
                self._oldest_s[row] = min((each.at_s for each in recent), default=now_s)

    def allows(self, workloads: Iterable[Workload]) -> bool:
        if not self._most:
            return True
        more: dict[int, set[str]] = {}
        for workload in workloads:
            for row in self._rows(workload):
                more.setdefault(row, set()).add(self._key(workload))
        for row, keys in more.items():
            if len(self._stopped[row] | keys) > self._most[row]:
                self.refused = row
                return False
        return True

    def count(self, workload: Workload) -> None:
        for row in self._rows(workload) if self._most else ():
            self._stopped[row].add(self._key(workload))

    @property
    def again_s(self) -> int:
        assert self.refused is not None
        return max(self._now_s + 1, self._oldest_s[self.refused] + HOUR_S)

    @property
    def refusal(self) -> EvictionBudgetSpent:
        assert self.refused is not None
        return EvictionBudgetSpent(self._queues.names[self.refused], self._most[self.refused])

    def _rows(self, workload: Workload) -> list[int]:
        row = self._queues.row.get(workload.queue)
        return [above for above in self._queues.path[row] if above in self._most] if row is not None else []

    def _key(self, workload: Workload) -> str:
        return f"{workload.name}@{self._now_s}"


class RoomState:
    """What the actions that make room share, and what they have decided so far."""

    def __init__(
        self,
        cycle: CycleInput,
        cycle_state: CycleState,
        masks: BackfillMasks | None,
        starts: tuple[Start, ...],
        nominations: Iterable[Nomination],
        evicted: Iterable[Eviction],
    ) -> None:
        self.cycle, self.cycle_state, self.masks, self.starts = cycle, cycle_state, masks, starts
        may_stop = victim_filters(cycle_state.working.view, cycle.plugins, cycle.policy)
        self.victims = VictimUnits(cycle.state, cycle.now_s, cycle.policy, starts, may_stop)
        self.victims.evicted.update((each.workload, each.pod) for each in evicted)
        self.budget = EvictionBudget(cycle.state, cycle.now_s)
        # Workloads that start, or for which space is kept.
        self.served = {each.workload for each in starts} | {each.workload for each in nominations}
        self.evictions: list[Eviction] = []
        self.nominations: list[Nomination] = []
        self.given_up: list[PodKey] = []
        self.domains: list[DomainChoice] = []
        self.refusals: dict[ClassKey, Obstacle] = {}  # why room could not be made
        self.look_again_s = 0

    @cached_property
    def candidates(self) -> CandidateNodes:
        return CandidateNodes(self.cycle, self.cycle_state, self.victims)

    def placer_for(self, workload: Workload, waiting_class: WaitingClass) -> Placer:
        """A placer that leaves planned starts of others their space."""
        if self.masks is None:
            return self.cycle_state.placer
        charge = self.cycle_state.charges.queue_charge(waiting_class)
        return self.cycle_state.placer.under(self.masks.mask_for(workload, charge))

    def look_again(self, at_s: int) -> None:
        """The next cycle comes no later than this."""
        self.look_again_s = earliest_s(self.look_again_s, at_s)

    def evict(self, eviction: Eviction) -> None:
        self.evictions.append(eviction)
        if eviction.cause in DISPLACING_CAUSES:
            self.budget.count(self.cycle.state.workloads[eviction.workload])
        self.victims.evicted.add((eviction.workload, eviction.pod))

    def carry_out(self, workload: Workload, room: RoomMade, cause: EvictionCause) -> None:
        """Evict the victims; nominate the beneficiary, and pods that move, for their places."""
        self.served.add(workload.name)
        self.given_up.extend(room.placement.given_up)
        self.domains.extend(room.placement.domains)
        self.nominations.extend(nominate(self.cycle.state, workload, room.placement))
        for unit in room.stopped:
            lost = unit.lost_gpu_s
            for pod in unit.pods:
                self.evict(Eviction(pod.workload, pod.name, cause, workload.name, lost))
                lost = 0  # counted once a unit
        for pod, placed in room.own:
            self.evict(Eviction(pod.workload, pod.name, cause))
            self.nominations.append(nomination_of(pod.workload, pod.name, placed, pod))
        for unit, moves in room.moved:
            lost = unit.lost_gpu_s
            for pod, placed in moves:
                self.evict(Eviction(pod.workload, pod.name, cause, workload.name, lost))
                lost = 0
                self.nominations.append(nomination_of(pod.workload, pod.name, placed, pod))
