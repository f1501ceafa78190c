"""What the steps of one cycle work on together: the working copy, what was decided so far, and the budget.

In:    one Snapshot, the policy, the active plugins.   Out: starts, and the classes that are stuck.
The budget counts steps that depend on the snapshot alone, never on what was remembered from earlier cycles: a replay
starts without that memory and must spend the same.
"""

from typing import TYPE_CHECKING

from kaiwo.decide.make_room.eviction_budget import EvictionBudget
from kaiwo.decide.make_room.victim_units import VictimUnits
from kaiwo.decide.placement.place_pods import Payer, Placer
from kaiwo.decide.placement.place_workload import Placement
from kaiwo.decide.placement.queue_limits import charge_of, least_by_model, least_charge, within_limits
from kaiwo.decide.placement.shape_scores import ShapeBook
from kaiwo.decide.planned_starts.backfill import BackfillMasks
from kaiwo.decide.planned_starts.future_quota import QueueCharge
from kaiwo.decide.turn_order import Lane
from kaiwo.model.affinity import kept
from kaiwo.model.obstacle import Obstacle
from kaiwo.model.plan import FOR_OTHERS, Eviction, Nomination, Start
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.reservation import Picked
from kaiwo.model.workload import Workload, role_of
from kaiwo.plugins.registry import Active
from kaiwo.queues.current_shares import shares_of
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.backlog import ClassKey, RoleNeeds, WaitingClass, needs_charged_first, needs_of_each_choice
from kaiwo.snapshot.node_table import SIZE, USABLE
from kaiwo.snapshot.queue_table import ResourceVector
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.working_copy import WorkingCopy

if TYPE_CHECKING:
    from kaiwo.decide.make_room.candidate_nodes import CandidateNodes

MOST_PASSED = 256  # of one class, to find one that fits into a gap
NODES_A_STEP = 256  # looking at so many nodes for a new shape costs about as much as placing a pod


class CycleState:
    """The working state of one cycle."""

    def __init__(self, snapshot: Snapshot, policy: Policy, active: Active) -> None:
        self.state, self.policy, self.active = snapshot.read(), policy, active
        self.working = WorkingCopy(snapshot)
        self.book = ShapeBook(self.state, WorkingCopy(snapshot), self.working, active)
        self.placer = Placer(self.working, self.book, active, packs=policy.placement == "pack")
        self.starts: list[Start] = []
        self.given_up: list[tuple[str, str]] = []
        self.evictions: list[Eviction] = []
        self.stopped: set[str] = set()  # the workloads of which some pods have to go
        self.nominations: list[Nomination] = []
        self.promised: dict[str, PlannedStart] = {}  # who waits for a planned start
        self.unpromised: list[str] = []  # and who does no longer
        self.begun: set[str] = set()  # who starts as it was planned: no turn starts it a second time
        self.due_by_turns: list[WaitingClass] = []  # of these, who may start now if it is still free at their turn
        self.shades: BackfillMasks | None = None  # what the others have to mind; None: nothing is promised
        self.dimmed: dict[ClassKey, Obstacle] = {}  # classes that would fit if they did not stay so long
        self.passed_over: dict[ClassKey, int] = {}  # how many of a class wait for a planned start, or stay too long
        self.reserved: list[Picked] = []
        self.expired: list[str] = []
        self.hopeless: set[RoleNeeds] = set()  # do not fit even once everybody who leaves is gone: room only shrinks
        self.verdicts: dict[ClassKey, Obstacle] = {}  # why room could not be made
        self.placed: set[str] = set()  # workloads for which room was made
        self.look_again_s = 0
        self.sieve: CandidateNodes | None = None  # made when first asked for
        self.spared = EvictionBudget(self.state, snapshot.now_s)
        self.roster = VictimUnits(self.state, snapshot.now_s, policy.victim_order)
        self.stuck: dict[ClassKey, WaitingClass] = {}  # tried in this cycle, or barred from a try
        self.steps, self.most_steps = 0, policy.steps
        self._look_steps = 1 + len(self.working.nodes.names) // NODES_A_STEP
        self._looked_at: set[int] = set()
        self._least: dict[RoleNeeds, ResourceVector] = {}
        sizes = self.working.gpus[:, SIZE][self.working.gpus[:, USABLE] > 0]
        self.largest_mib = int(sizes.max(initial=0))
        self._equal_mib = self.largest_mib if (sizes == self.largest_mib).all() else 0

    @property
    def is_spent(self) -> bool:
        """The budget is used up, or the part of it that is meant for what is done now."""
        return self.steps >= self.most_steps

    def room(self, shape: int) -> int:
        """How many pods of a shape the cluster has room for, if nothing else came."""
        if shape not in self._looked_at:
            self._looked_at.add(shape)
            self.steps += self._look_steps
        return self.book.state(shape).room

    def could_fit(self, found: WaitingClass, name: str = "") -> bool:
        """A necessary condition, by shape and not by class: room for what it needs, as if it were alone.

        Where starts are promised to others, from here on the nodes look as they do to this workload of the class.
        """
        if self.shades is not None:
            workload = self.state.workloads[name or found.waiters.at(0)[1]]
            if workload.name in self.promised:
                return False  # it starts when it is planned to
            self.book.shade = None if found.signature.nominated_for else self.shades.of(workload, self.due_of(found))
        if found.signature.nominated_for:
            return True  # space is kept for it
        return self._has_room(found) and self.leaves_dues(found, name)

    def due_of(self, found: WaitingClass) -> QueueCharge:
        """What the queue pays for a workload of this class."""
        queue, is_fixed, _ = self.payer(found)
        return QueueCharge(queue, self.claim_of(found), is_fixed)

    def leaves_dues(self, found: WaitingClass, name: str) -> bool:
        """It takes nothing of what queues must pay for the planned starts of others."""
        if self.shades is None or self.book.shade is None:
            return True
        return self.shades.leave_dues(self.state.workloads[name or found.waiters.at(0)[1]], self.due_of(found))

    def seeks_shorter(self, found: WaitingClass, name: str) -> bool:
        """It did not fit, and only because it stays too long: one behind it in its class may not."""
        if self.shades is None:
            return False
        if name not in self.promised:
            if self.book.shade is None:
                return False
            self.book.shade = None
            if not self._has_room(found):
                return False
            self.dimmed.setdefault(found.key, self.shades.obstacle(self.state.workloads[name], self.due_of(found)))
        passed = self.passed_over[found.key] = self.passed_over.get(found.key, 0) + 1
        return passed <= MOST_PASSED

    def _has_room(self, found: WaitingClass) -> bool:
        if found.choices is not None:
            return any(self._has_room_for(needs) for needs in needs_of_each_choice(found))
        return self._has_room_for(found.needs)

    def _has_room_for(self, needs: RoleNeeds) -> bool:
        if len(needs) == 1:
            shape, _, needed = needs[0]
            return self.room(shape) >= max(needed, 1)
        if any(needed for _, _, needed in needs):
            return all(self.room(shape) >= needed for shape, _, needed in needs)
        return any(self.room(shape) for shape, _, _ in needs)

    def may_start(self, found: WaitingClass) -> bool:
        """Its queue takes work, and its limits leave room for the least that it would pay."""
        queues = self.working.queues
        row = queues.row.get(found.queue)
        if row is None or not queues.is_leaf[row]:
            return False
        is_preemptible = found.signature.is_preemptible
        if found.signature.nominated_for or (is_preemptible and not queues.is_bounded[row]):
            return True  # the space that is kept for it is paid for; and without limits all is allowed
        if found.choices is not None:  # what one way needs too much of, another may need less of
            charges = (least_charge(self.state, way, lambda _: self.largest_mib) for way in needs_of_each_choice(found))
            return any(within_limits(self.working, row, charge, not is_preemptible) for charge in charges)
        return within_limits(self.working, row, self.least(found), not is_preemptible)

    def least(self, found: WaitingClass) -> ResourceVector:
        """The least that its queue pays before a workload of this class has started."""
        if found.least_charge is None or found.least_charge[0] != self.largest_mib:
            needs = needs_charged_first(found)
            charge = self._least.get(needs)
            if charge is None:
                charge = self._least[needs] = least_charge(self.state, needs, lambda _: self.largest_mib)
            found.least_charge = (self.largest_mib, charge)
        return found.least_charge[1]

    def claim_of(self, found: WaitingClass) -> ResourceVector:
        """The same, with what it needs of bounded GPU models."""
        if not self.working.queues.models:
            return self.least(found)
        return (*self.least(found), *least_by_model(self.state, needs_charged_first(found)))

    def known_charge(self, want: Request, pods: int) -> ResourceVector | None:
        """What the queue will pay for such pods, if that does not hang on the devices they get."""
        if want.is_partition or (want.is_memory and not self._equal_mib):
            return None
        return charge_of(want, pods, self._equal_mib)

    def next_of(self, lane: Lane) -> tuple[ResourceVector, int]:
        """What the first workload of a lane needs to start, and since when it waits."""
        name, _, found = lane.first
        return self.least(found), self.state.workloads[name].submitted_s

    def one_pod_of(self, found: WaitingClass, workload: Workload) -> tuple[ResourceVector, int]:
        """What one more pod of a workload needs, and since when it waits."""
        want = self.state.backlog.shapes[found.needs[0].shape]
        return charge_of(want, 1, self.largest_mib), workload.submitted_s

    def payer(self, found: WaitingClass) -> Payer:
        """Who pays for a workload of this class."""
        return Payer(self.working.queues.row[found.queue], not found.signature.is_preemptible)

    def takes_work(self, queue: str) -> bool:
        """The queue exists and has none below it."""
        row = self.working.queues.row.get(queue)
        return row is not None and self.working.queues.is_leaf[row]

    def may_wait_for_release(self, found: WaitingClass) -> bool:
        """Space that comes free soon could be kept for it."""
        return (
            self.working.has_releasing_pods and not found.signature.nominated_for and found.needs not in self.hopeless
        )

    def shares(self) -> IntArray:
        """The fair shares of all queues, by resource."""
        return shares_of(self.working).share

    def evict(self, eviction: Eviction) -> None:
        """Stop a pod; nobody else stops it again in this cycle."""
        self.evictions.append(eviction)
        self.stopped.add(eviction.workload)
        if eviction.cause in FOR_OTHERS:
            self.spared.count(self.state.workloads[eviction.workload])
        self.roster.gone.add((eviction.workload, eviction.pod))

    def keep(self, workload: Workload, placement: Placement) -> None:
        """Keep the space of a placement for a workload that cannot start there yet."""
        self.placed.add(workload.name)
        self.given_up.extend(placement.given_up)
        there = self.state.nominations.get(workload.name, {}) if not placement.given_up else {}
        for start in placement.starts:
            if start.pod in there:
                continue  # where space was kept for it before
            want = role_of(workload, start.pod).request
            amounts = (want.cpu_milli, want.memory_mib, want.extended, kept(want.neighbours), want.beside)
            self.nominations.append(Nomination(workload.name, start.pod, start.node, start.devices, *amounts))

    def look_again(self, at_s: int) -> None:
        """An answer of this cycle may be another one at that time."""
        self.look_again_s = min(self.look_again_s or at_s, at_s)

    def mark_stuck(self, found: WaitingClass) -> None:
        """The class is stuck for this cycle: nobody in it can start. Telling why is a step, too."""
        if found.key not in self.stuck:
            self.stuck[found.key] = found
            self.steps += 1
