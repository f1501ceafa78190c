"""Operations of the scheduler for the table in `operations`: ordering, allocation, balancing, speeds of nodes.

Each function makes its cluster ready and yields, round by round, what is to be timed.
"""

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from bench.decide import GPUS, cluster, submitted, take
from bench.defrag import packed_world
from bench.levels import WHOLE, fabric_of
from kaiwo.advise.right_size import SizeRule
from kaiwo.advise.run_uses import KINDS_KEPT, RUNS_KEPT, PodAmounts, RunUse, RunUses
from kaiwo.advise.size_work import resized_workload
from kaiwo.api.presenters.node_view import GpuQuery, gpu_page
from kaiwo.decide.actions.allocate import Allocate
from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.decide.defragment.plan_moves import plan_balance
from kaiwo.decide.planned_starts.keep_planned import keep_planned_starts
from kaiwo.forecast.expected_starts import run_key_of
from kaiwo.model.events import (
    Event,
    NodeSpeedsMeasured,
    PodChanged,
    PodGone,
    ProgressReported,
    QueueChanged,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.performance import NodeSpeed, ProgressReport
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Role, Workload
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.runtime.loop.performance_tracker import PerformanceTracker
from kaiwo.runtime.overview.cluster_overview import ClusterOverview
from kaiwo.snapshot.cluster_state import ClusterState

NODES, WAITING, BATCH, ROUNDS = 1_250, 100_000, 64, 30
QUEUES, SHAPES, PRIORITIES = 200, 50, 10
SPREAD = NODES // 2
ONE_GPU = Request(1_000, 1_024, gpus=1)
Rounds = Iterator[Callable[[], object]]


def priority_ordering() -> Rounds:
    scheduler = CycleRunner(None)
    take(scheduler, [*cluster(NODES), *(QueueChanged(Queue(f"queue-{at:03d}")) for at in range(QUEUES))])
    take(scheduler, waiting_everywhere())
    state = scheduler.state
    for at in range(ROUNDS):
        state.snapshot(at)  # tables are fresh, as before each cycle

        def order(at: int = at) -> None:
            state.patch([_waiting(WAITING + at, f"queue-{at:03d}", priority=1_000)])
            snapshot = state.snapshot(at)
            cycle = CycleInput(state, DEFAULT_POLICY, BUILTIN.active(DEFAULT_POLICY), at)
            cycle_state = CycleState(snapshot, cycle)
            planned = keep_planned_starts(cycle, cycle_state, ())
            turns, _ = Allocate(cycle, cycle_state, planned, ()).line_up(list(state.backlog.by_key.values()))
            for _ in range(BATCH):
                turns.lane.advance(1)
                turns.requeue()

        yield order


def one_allocation() -> Rounds:
    scheduler = busy_beside_waiting()
    for at in range(ROUNDS):
        yield _cycle_that_starts(scheduler, [submitted(f"one-{at}", ONE_GPU, 0)], 1)


def batch_allocation() -> Rounds:
    scheduler = busy_beside_waiting()
    for at in range(ROUNDS):
        yield _cycle_that_starts(scheduler, [submitted(f"batch-{at}-{n}", ONE_GPU, 0) for n in range(BATCH)], BATCH)


def find_gpus() -> Rounds:
    overview = ClusterOverview(cast(Any, SimpleNamespace(state=_half_busy().state)))
    for _ in range(ROUNDS):
        yield lambda: _count(overview.find_gpus(), 10_000) and _count(overview.find_gpus(free=True), 5_000)


def page_of_gpus() -> Rounds:
    overview = ClusterOverview(cast(Any, SimpleNamespace(state=_half_busy().state)))
    for _ in range(ROUNDS):
        yield lambda: _count(gpu_page(overview, GpuQuery(limit=1_000)).items, 1_000)


def load_balancing() -> Rounds:
    quarter = Request(1_000, 1_024, gpus=1, gpu_milli=250)
    for _ in range(5):
        scheduler = CycleRunner(None, Policy(gpu_strategy="load-balanced", placement="spread"))
        take(scheduler, cluster(NODES))
        yield _cycle_that_starts(scheduler, [submitted(f"share-{n}", quarter, n) for n in range(SPREAD)], SPREAD)
        most = max(len(each) for each in scheduler.state.allocations_on.values())
        assert most == 1, f"{most} pods are on one node, and half of the nodes have none"


def memory_optimisation() -> Rounds:
    scheduler = _half_busy()
    asks = Request(1_000, 1_024, gpus=1, gpu_mib=24_000)
    for at in range(ROUNDS):
        names = [f"memory-{at}-{n}" for n in range(BATCH)]
        yield _cycle_that_starts(scheduler, [submitted(name, asks, 0) for name in names], BATCH)
        pods = [pod for name in names for pod in scheduler.state.pods[f"default/{name}"].values()]
        held = {(pod.node, share.gpu) for pod in pods for share in pod.devices}
        assert len(held) <= BATCH // 8 + 1, f"{len(held)} GPUs hold what {BATCH // 8} have the memory for"


def performance_driven() -> Rounds:
    scheduler = CycleRunner(None)
    take(scheduler, fabric_of(NODES, 40))
    take(scheduler, [_speeds(scheduler.state)])
    while scheduler.cycle(now_s=0):
        pass
    for at in range(10):
        name = f"default/gang-{at}"
        gang = Workload(name, (Role(WHOLE, count=16),), required_level="leaf", submitted_s=at)
        yield _cycle_that_starts(scheduler, [WorkloadChanged(gang)], 16)
        pods = scheduler.state.pods[name]
        take(scheduler, [WorkloadGone(name), *(PodGone(name, pod) for pod in list(pods))])
        scheduler.cycle(now_s=1)


def rebalancing_plan() -> Rounds:
    world, pods = packed_world()
    for _ in range(5):
        snapshot = world.state.snapshot(world.now_s)
        yield lambda snapshot=snapshot: plan_balance(snapshot, world.policy, BUILTIN, pods * 5 // 100)  # type: ignore[misc]


def performance_tracking() -> Rounds:
    scheduler = _half_busy()
    state, tracker = scheduler.state, PerformanceTracker()
    take(scheduler, [_speeds(state)])
    running = [pod for pods in state.pods.values() for pod in pods.values()][:ROUNDS]
    take(scheduler, [PodChanged(replace(pod, phase=Phase.RUNNING)) for pod in running])
    for at, pod in enumerate(running):
        report = ProgressReport(pod.workload, 100 + at, pod.name, step_us=900_000, expected_us=1_000_000)

        def track(report: ProgressReport = report) -> None:
            event = ProgressReported(report)
            state.patch([event])
            found = tracker.measure(state, [event])
            assert found is not None, "a report of running work says something about its node"
            state.patch([found])

        yield track


def adjustment() -> Rounds:
    state = _half_busy().state
    share = Request(4_000, 32_768, gpu_milli=800, gpus=1)
    used = PodAmounts(gpu_milli=210, gpu_mib=9_000, cpu_milli=700, memory_mib=5_000)
    asked = PodAmounts(share.gpu_milli, 0, share.cpu_milli, share.memory_mib)
    uses = RunUses()
    for kind in range(KINDS_KEPT):
        for _ in range(RUNS_KEPT):
            uses.add(run_key_of(_shared(kind, share)), RunUse(used, asked, asked, 3_600, 240))
    for at in range(ROUNDS):
        state.nodes.write_node(state.nodes.nodes[at], (), state.version)  # a node changed since the last one
        job = _shared(at, share)

        def size(workload: Workload = job) -> None:
            found = resized_workload(state, workload, uses.of(run_key_of(workload)), SizeRule())
            assert found is not None, "it used a quarter of its share"

        yield size


def _shared(kind: int, request: Request) -> Workload:
    return Workload(f"default/eval-{kind}x", (Role(request),), user=f"user-{kind % 40}")


def waiting_everywhere() -> list[Event]:
    """In all queues, of all shapes and priorities."""
    return [
        _waiting(n, f"queue-{n % QUEUES:03d}", priority=n * 7 % PRIORITIES * 10, user=f"user-{n % 2_000}")
        for n in range(WAITING)
    ]


def busy_beside_waiting() -> CycleRunner:
    """Half of the GPUs are in use, and 100,000 wait in a queue that may use none."""
    scheduler = _half_busy()
    take(scheduler, [QueueChanged(Queue("full", gpu=QueueAmounts(0, 0)))])
    take(scheduler, [_waiting(n, "full", priority=n * 7 % PRIORITIES * 10) for n in range(WAITING)])
    while scheduler.cycle(now_s=0):
        pass
    assert len(scheduler.state.backlog) == WAITING
    return scheduler


def _half_busy() -> CycleRunner:
    scheduler = CycleRunner(None)
    take(scheduler, cluster(NODES))
    take(scheduler, [submitted(f"running-{n:05d}", ONE_GPU, n) for n in range(NODES * GPUS // 2)])
    while scheduler.cycle(now_s=0):
        pass
    return scheduler


def _waiting(number: int, queue: str, priority: int, user: str = "") -> WorkloadChanged:
    request = Request(500 + 20 * (number % SHAPES), 1_024, gpus=8)
    name, roles = f"default/waiting-{number:06d}", (Role(request),)
    return WorkloadChanged(Workload(name, roles, submitted_s=number, priority=priority, queue=queue, user=user))


def _speeds(state: ClusterState) -> NodeSpeedsMeasured:
    return NodeSpeedsMeasured({name: NodeSpeed(900 + at % 200, 50) for at, name in enumerate(state.node_objects)})


def _cycle_that_starts(scheduler: CycleRunner, events: Sequence[Event], pods: int) -> Callable[[], object]:
    take(scheduler, events)

    def cycle() -> None:
        decision = scheduler.cycle(now_s=1)
        started = len(decision.plan.starts) if decision is not None else 0
        assert started == pods, f"{started} pods started, {pods} are due"

    return cycle


def _count(found: Any, due: int) -> bool:
    assert len(found) == due, f"{len(found)} were found, {due} are due"
    return True
