"""What the core says of a cluster beside its plans, told in plain values so that it can be fingerprinted.

In:    a world at some moment of its story.   Out: fair shares, keys and claims of queues, past usage, devices,
reservations, the line of waiting work, how its GPUs would be partitioned, and what stands in the way of pods that
nobody has submitted. It changes nothing in the world: changes of partition modes are followed here alone, from one
look to the next.
"""

import random
from itertools import permutations
from typing import Any

import numpy as np
from msgspec.structs import replace

from bench._device_list import list_devices
from kaiwo.decide import decide
from kaiwo.decide.cycle import outcome_of
from kaiwo.decide.make_room.victim_units import surplus_of
from kaiwo.decide.obstacles.availability import availability_in
from kaiwo.decide.obstacles.find_obstacles import short_models
from kaiwo.decide.obstacles.partition_obstacles import after_mode_change, no_such_device
from kaiwo.decide.obstacles.reservation_obstacles import beside_reserved, reserved_obstacles
from kaiwo.decide.obstacles.shortages import (
    fits_when_empty,
    is_permanent,
    largest_device_mib,
    most_when_empty,
    pods_when_empty,
    short_of,
    too_large,
)
from kaiwo.decide.placement.node_fit import pods_that_fit
from kaiwo.decide.placement.pod_affinity import (
    missing_topology_label,
    nomination_holds,
    still_holds,
    verdicts_by_reason,
)
from kaiwo.decide.placement.queue_limits import (
    QueueCharge,
    charge_of,
    headroom,
    models_with_room,
    times_within_limits,
    within_limits,
)
from kaiwo.decide.planned_starts.future_quota import FutureQuota
from kaiwo.gpus.device_fit import eligible_devices, pods_per_device
from kaiwo.gpus.device_locality import best_set
from kaiwo.gpus.isolation_grades import closed_by_tenants, tenants_allow_return
from kaiwo.gpus.link_bandwidth import predicted_mb_s
from kaiwo.gpus.partitioning.demand import GpuModeState, node_states, waiting_demands
from kaiwo.gpus.partitioning.if_repartitioned import if_repartitioned
from kaiwo.gpus.partitioning.planner import could_serve, plan_partitions, steps_to_modes
from kaiwo.gpus.partitioning.planner_types import GpuKey, PartitionPlan, PlannerSettings
from kaiwo.gpus.partitioning.reserved_gpus import ReservedGpus
from kaiwo.gpus.partitioning.rollout import (
    change_done,
    changed_nodes,
    changes_starting,
    states_after,
    whole_gpu_mib,
    whole_node_steps,
    with_closed_devices,
    with_modes_applied,
)
from kaiwo.model.events import PodGone, WorkloadGone
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.partition_modes import Mode
from kaiwo.model.node import Node
from kaiwo.model.request import Request
from kaiwo.model.reservation import NEVER_S
from kaiwo.queues.current_shares import current_shares, fair_shares_of, queue_demand_of
from kaiwo.queues.fair_share import share_breakdown
from kaiwo.queues.past_usage import PastUsage, advance
from kaiwo.queues.queue_order import queue_keys
from kaiwo.queues.reclaim_rules import ReclaimRequest, refusal_to_reclaim, victim_queues
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.eligibility import most_pods_when_empty
from kaiwo.snapshot.queue_table import RESOURCES
from kaiwo.snapshot.reservation_status import reservation_statuses
from kaiwo.snapshot.subgroup_choices import choices_of
from kaiwo.snapshot.timed_changes import expired_workloads, next_timed_change_s
from kaiwo.snapshot.view import View
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.decisions.stories import Flavour, random_request
from tests.gpus.plan_sums import ready_in_s
from tests.queues.victims import VictimUsage, may_take
from tests.worlds import World

EAGER = PlannerSettings(compute_s=20, memory_s=45, settle_s=30, starve_s=50)
CUTS = (Mode("CPX", "NPS1"), Mode("SPX", "NPS1"), Mode("CPX", "NPS4"))
CLAIMS = ((1_000, 0, 0), (2_000, 1_000, 1_024), (0, 3_000, 0))  # what a claimant needs
TAKINGS = (1_000, 2_000, 500)  # and what it takes, piece by piece
HALF_LIFE_S = 60
ASKED = 4  # pods at each look
ASKS = Flavour(rules=0.4, shares=0.6)


class Observer:
    """Of one story."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._course: dict[GpuKey, GpuModeState] = {}
        self._past: PastUsage | None = None
        self._looked_s = 0
        self._looks = 0

    def look(self, world: World) -> list[Any]:
        working = WorkingCopy(world.snapshot())
        view = working.view
        self._looks += 1
        told = [
            self._shares(view, world.now_s - self._looked_s),
            _claims(view),
            _devices(world),
            reservation_statuses(world.state, world.now_s),
            _line(world),
            self._partitions(world, view),
            [_answers(working, self._asked()) for _ in range(ASKED)],
            [_room_in_queue(working, row) for row in range(len(view.queues.names))],
            self._pieces(world, view),
            self._links(world),
            self._future_quotas(working, world),
            self._elsewhere(world),
        ]
        self._looked_s = world.now_s
        return told

    def _shares(self, view: View, elapsed_s: int) -> list[Any]:
        wants, shares, rows = queue_demand_of(view), fair_shares_of(view), range(len(view.queues.names))
        totals, used = view.nodes.totals(), view.queue_used[:, : len(RESOURCES)]
        if self._past is None or len(self._past.part) != len(rows):
            self._past = PastUsage(np.zeros((len(rows), len(RESOURCES)), np.int64))
        self._past = advance(self._past, used, totals, elapsed_s, HALF_LIFE_S)
        need = np.array([[1_000 * (row % 3), 500, 1_024 * (row % 2)] for row in rows], np.int64)
        now, padded = current_shares(view), np.append(totals, np.zeros(len(view.queues.models), np.int64))
        keys = queue_keys(now, padded, np.arange(len(rows)), need, view.oldest_submission_s())
        breakdown = [share_breakdown(view.queues, wants, shares, row) for row in rows]
        return [breakdown, self._past.part.tolist(), self._past.parts.tolist(), keys.tolist()]

    def _asked(self) -> Request:
        draw = self._draw
        return replace(
            random_request(draw, ASKS),
            passes=draw.choice(((), ("r0",), ("r1", "r2"))),
            holds_s=draw.choice((0, 30, NEVER_S)),
            reservation=draw.choice(("", "", "", "r0")),
        )

    def _future_quotas(self, working: WorkingCopy, world: World) -> list[Any]:
        """What the bounds of queues leave to charges that are still to come."""
        quotas, now_s, told = FutureQuota(world.state, working), world.now_s, []
        for _ in range(ASKED):
            planned, other = (
                QueueCharge(
                    self._draw.randrange(len(working.queues.names)),
                    (*self._draw.choice(CLAIMS), *(1_000 for _ in working.queues.models)),
                    self._draw.random() < 0.5,
                    now_s + self._draw.choice((0, 10, 60)),
                    now_s + self._draw.choice((10, 60, 200)),
                )
                for _ in range(2)
            )
            told += [
                [planned, other, quotas.is_bounded(planned), quotas.has_precedence(other, planned)],
                [quotas.could_have_precedence(other, planned), quotas.takes_what_others_are_owed(planned)],
                [quotas.may_start(planned, planned.start_s, [other]), quotas.leaves(planned, other)],
            ]
        return told

    def _elsewhere(self, world: World) -> Any:
        """What is decided in a copy in which something else happened, or in a state read from its events."""
        if self._looks % 2:
            other = world.state.fork()
            gone = sorted(other.workloads)[:1] + sorted(other.pods)[-1:]
            other.patch(
                [*map(WorkloadGone, gone), *(PodGone(name, pod) for name in gone for pod in other.pods.get(name, ()))]
            )
        else:
            other = ClusterState(world.plugins.ordering(world.policy))
            other.patch(world.state.events())
        plan = decide(other.snapshot(world.now_s + 5), world.policy, world.plugins)
        return replace(plan, notes=())

    def _pieces(self, world: World, view: View) -> list[Any]:
        """What could stop of workloads of which some pods run, and whether it could come back."""
        told: list[Any] = []
        for name, pods in sorted(world.state.pods.items()):
            workload = world.state.workloads.get(name)
            told += [
                tenants_allow_return(view, pod, view.nodes.row[pod.node])
                for _, pod in sorted(pods.items())
                if pod.devices and pod.node in view.nodes.row
            ]
            running = {pod: each for pod, each in sorted(pods.items()) if self._draw.random() < 0.8}
            if workload is not None and len(pods) > 1:
                surplus, rest = surplus_of(workload, running)
                told.append([[[pod.name for pod in piece] for piece in surplus], [pod.name for pod in rest]])
                told.append(choices_of(workload, running) if workload.groups else None)
        return told

    def _links(self, world: World) -> list[Any]:
        told = []
        for _, node in sorted(world.state.node_objects.items()):
            width = min(len(node.gpus), len(node.wiring.mb_s))
            columns = [column for column in range(width) if self._draw.random() < 0.8]
            if len(columns) > 1:
                count = self._draw.randint(1, len(columns))
                told.append([best_set(node.wiring, tuple(columns), count), predicted_mb_s(node.wiring, columns)])
        return told

    def _partitions(self, world: World, view: View) -> list[Any]:
        state, now_s = world.state, world.now_s
        if self._looks % 2:  # what is being changed takes until the next look but one
            self._course = {
                key: change_done(each, now_s) if each.is_changing else each for key, each in self._course.items()
            }
        nodes = node_states(state, self._course, now_s, {"node-1": "vf"} if self._looks % 3 == 0 else None)
        reserved = ReservedGpus(view.reservations, nodes)
        needs = waiting_demands(state, now_s, barred_to=reserved.reserved_from)
        plan = plan_partitions(now_s, nodes, needs)
        eager = plan_partitions(now_s, nodes, needs, EAGER)
        wished = {node.name: CUTS[at % len(CUTS)] for at, node in enumerate(nodes)}
        asked = [steps_to_modes(nodes, wished, most, EAGER) for most in (1, 2)]
        together = whole_node_steps(nodes, eager.steps, [node.name for node in nodes[::2]])
        before = self._course
        self._course = states_after(nodes, plan if self._looks % 2 else PartitionPlan((*plan.steps, *asked[0])))
        objects = [state.node_objects[node.name] for node in nodes]
        sizes = {(node.name, gpu.parent or gpu.id): whole_gpu_mib(node, gpu.parent or gpu.id)
                 for node in objects for gpu in node.gpus}  # fmt: skip
        sizes |= {key: 196_608 for key in self._course if key not in sizes}
        return [
            nodes,
            needs,
            [plan, ready_in_s(plan), eager, ready_in_s(eager)],
            [could_serve(nodes, need) for need in needs],
            [reserved.reserved_from(self._asked()) for _ in range(ASKED)],
            asked,
            together,
            [changes_starting(before, self._course), changed_nodes(before, self._course)],
            [_as_recorded(with_closed_devices(node, self._course)) for node in objects],
            [_as_recorded(with_modes_applied(node, self._course, sizes)) for node in objects],
        ]


def _as_recorded(node: Node) -> list[Gpu]:
    """The devices without the fields that came after the recording: the reason says the same."""
    return [replace(gpu, next_mode="", is_changing=False) for gpu in node.gpus]


def _claims(view: View) -> list[Any]:
    """What each leaf may take from each other one."""
    now, rows = current_shares(view), view.queues.row
    leaves = [rows[name] for name, is_leaf in zip(view.queues.names, view.queues.is_leaf, strict=True) if is_leaf]
    told: list[Any] = []
    for number, (claimant, victim) in enumerate(permutations(leaves, 2)):
        need = np.zeros(now.used.shape[1], np.int64)
        need[: len(RESOURCES)] = CLAIMS[number % len(CLAIMS)]
        claim = ReclaimRequest(claimant, need, preemptible=number % 4 != 0)
        takings = [VictimUsage(victim, need // 2 + (need > 0) * milli) for milli in TAKINGS[: number % 3 + 1]]
        told.append([refusal_to_reclaim(now, claim), may_take(now, claim, takings, 1_000 + number % 2 * 300)])
        if number % 4 == 0:
            told.append(victim_queues(now, claim).tolist())
    return told


def _devices(world: World) -> list[Any]:
    devices = list_devices(world.state.nodes)
    return [devices.ids, devices.free_milli.tolist(), devices.free_mib.tolist(), devices.usable.tolist()]


def _line(world: World) -> list[Any]:
    """Who waits where and until when, and what would become of the first and the last in line."""
    state, backlog = world.state, world.state.backlog
    names = sorted(backlog.queued_names())
    places = [[name, backlog.position(name), backlog.ahead_in_class(name)] for name in names]
    outcomes = [outcome_of(world.snapshot(), name, world.policy) for name in dict.fromkeys((*names[:1], *names[-1:]))]
    grown = [
        choices_of(each, state.pods.get(name, {})) for name, each in sorted(state.workloads.items()) if each.groups
    ]
    times = [next_timed_change_s(state, world.now_s), expired_workloads(state, world.now_s), backlog.next_due_s]
    return [places, outcomes, grown, times, len(backlog)]


def _answers(working: WorkingCopy, want: Request) -> list[Any]:
    """What the nodes have for one pod, and what stands in its way."""
    view, nodes = working.view, working.nodes
    rows = np.arange(len(nodes.names))
    offer = availability_in(view, want, rows)
    short = short_of(view, want, rows[::2], offer)
    told = [
        want,
        [short, too_large(view, want, offer), short_of(view, want, rows, offer), beside_reserved(view, want, short)],
        [fits_when_empty(view, want, offer).tolist(), pods_when_empty(view, want, offer).tolist()],
        sorted(most_when_empty(view, want, rows % 3 > 0, offer).items()),
        [
            [each[:2] for each in reserved_obstacles(view, want, np.ones(len(nodes.names), np.bool_))],
            charge_of(want, 2, 100_000),
            most_pods_when_empty(nodes, want),
        ],
        [pods_that_fit(view, want, rows).tolist(), [is_permanent(each) for each in short]],
        [short_models(view, row, row % 2 > 0, [(want, 2, rows)]) for row in range(len(view.queues.names))],
    ]
    if want.neighbours:
        told += [
            [[reason, mask.tolist(), why] for reason, mask, why in verdicts_by_reason(working, want)],
            [[still_holds(working, want, row), nomination_holds(working, want.neighbours, row)] for row in rows],
            missing_topology_label(view, want),
        ]
    if want.gpus:
        closed = closed_by_tenants(view, want, rows)
        told += [
            [no_such_device(view, want), after_mode_change(view, want, rows), largest_device_mib(view, want)],
            [eligible_devices(view, want, rows).tolist(), pods_per_device(view, want, rows).tolist()],
            None if closed is None else closed.tolist(),
            list(if_repartitioned(nodes.nodes, want)),
        ]
    return told


def _room_in_queue(working: WorkingCopy, row: int) -> list[Any]:
    charges = ((1_000, 500, 0), (2_500, 0, 1_024), (0, 4_000, 0))
    return [
        [models_with_room(working, row, is_fixed, milli) for is_fixed in (False, True) for milli in (1, 1_000, 2_000)],
        [times_within_limits(working, row, charge, 9, is_fixed) for charge in charges for is_fixed in (False, True)],
        [within_limits(working, row, charge, is_fixed) for charge in charges for is_fixed in (False, True)],
        [headroom(working, row, resource) for resource in range(len(RESOURCES))],
    ]
