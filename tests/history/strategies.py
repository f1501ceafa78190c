"""Any value of the model that an event or a plan may carry: for every test that wants odd ones."""

from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kaiwo.model.affinity import NodeRule
from kaiwo.model.defragmentation import (
    DefragmentationGoal,
    DefragmentationRun,
    GoalKind,
    Move,
    MoveStep,
    RunState,
    StepProgress,
)
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
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.network.port import NetworkPort
from kaiwo.model.network.topology import Attachment, Domain, NetworkLink, Topology, TopologyLevel
from kaiwo.model.node import Node, Taint
from kaiwo.model.obstacle import (
    ClosestNode,
    LargerNodes,
    Obstacle,
    ProtectedByMinRunTime,
    Reason,
    ReclaimBound,
    SizeBound,
)
from kaiwo.model.performance import NodeSpeed, ProgressReport
from kaiwo.model.plan import Eviction, EvictionCause, Nomination, Note, Plan, Start, Wait
from kaiwo.model.planned_start import DelayCause, PlannedPod, PlannedStart
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.model.recovery import FailureKind, Recovery, RecoveryWay
from kaiwo.model.request import Request, Toleration
from kaiwo.model.request_mix import PricedKind, RequestKind, RequestPrices, SeenKind
from kaiwo.model.reservation import AtEnd, PhysicalDevice, PickedDevices, Reservation, ReservationOwner
from kaiwo.model.workload import Phase, Pod, Role, Workload

T = TypeVar("T")
names = st.text(min_size=1, max_size=12)
texts = st.text(max_size=20)
amounts = st.integers(0, 2**40)
numbers = st.integers(-(2**63), 2**63 - 1)
labels = st.dictionaries(names, texts, max_size=3)


def _few(elements: SearchStrategy[T]) -> SearchStrategy[tuple[T, ...]]:
    return st.lists(elements, max_size=3).map(tuple)


extended = _few(st.tuples(names, amounts))
shares = st.builds(Share, gpu=names, milli=amounts, mib=amounts, threads_milli=amounts)
gpus = st.builds(Gpu, id=names, model=names, memory_mib=amounts, healthy=st.booleans(), reason=texts)
taints = st.builds(Taint, key=names, value=texts, effect=names)
nodes = st.builds(
    Node,
    name=names,
    cpu_milli=amounts,
    memory_mib=amounts,
    pods=amounts,
    gpus=_few(gpus),
    extended=st.dictionaries(names, amounts, max_size=3),
    labels=labels,
    taints=_few(taints),
    ready=st.booleans(),
    cordoned=st.booleans(),
    reason=texts,
)
queue_amounts = st.builds(QueueAmounts, quota=amounts, limit=numbers, weight=amounts)
queues = st.builds(
    Queue,
    name=names,
    parent=texts,
    display_name=texts,
    priority=numbers,
    gpu=queue_amounts,
    cpu=queue_amounts,
    memory=queue_amounts,
)
requests = st.builds(
    Request,
    cpu_milli=amounts,
    memory_mib=amounts,
    gpus=amounts,
    gpu_milli=amounts,
    gpu_mib=amounts,
    gpu_models=_few(names),
    extended=extended,
    node_rules=_few(st.builds(NodeRule, key=names, operator=names, values=_few(texts))),
    tolerations=_few(st.builds(Toleration, key=texts, operator=names, value=texts, effect=texts)),
    avoid_nodes=_few(names),
)
roles = st.builds(Role, request=requests, name=names, count=amounts, minimum=numbers)
workloads = st.builds(
    Workload,
    name=names,
    roles=_few(roles),
    queue=names,
    user=texts,
    kind=names,
    priority=numbers,
    preemptible=st.booleans(),
    submitted_s=numbers,
    held=st.booleans(),
    after=_few(names),
    after_failed=_few(names),
    not_before_s=numbers,
    not_before_why=texts,
    time_limit_s=amounts,
    estimate_s=amounts,
    labels=labels,
    reservation=texts,
    expires_s=amounts,
)
pods = st.builds(
    Pod,
    workload=names,
    name=names,
    node=names,
    phase=st.sampled_from(Phase),
    devices=_few(shares),
    cpu_milli=amounts,
    memory_mib=amounts,
    extended=extended,
    since_s=numbers,
)
nominations = st.builds(
    Nomination,
    workload=names,
    pod=names,
    node=names,
    devices=_few(shares),
    cpu_milli=amounts,
    memory_mib=amounts,
    extended=extended,
)

promises = st.builds(
    PlannedStart,
    workload=names,
    start_s=amounts,
    places=_few(st.builds(PlannedPod, names, names, _few(shares), amounts, amounts, extended)),
    run_s=amounts,
    made_s=amounts,
    after=_few(names),
    delay=st.none() | st.sampled_from(DelayCause),
    delayed_by=texts,
)
devices = st.builds(PhysicalDevice, names, names)
reservations = st.builds(
    Reservation,
    name=names,
    gpus=amounts,
    gpu_models=_few(names),
    node_selector=_few(st.tuples(names, texts)),
    nodes=_few(names),
    devices=_few(devices),
    owner=st.builds(ReservationOwner, texts, texts, texts),
    start_s=amounts,
    end_s=amounts,
    at_end=st.sampled_from(AtEnd),
    created_s=amounts,
    picked=_few(devices),
)
topologies = st.builds(
    Topology,
    name=names,
    levels=_few(st.builds(TopologyLevel, name=names, node_label=texts)),
    domains=_few(st.builds(Domain, name=names, level=names, parents=_few(names), nodes=_few(names))),
    attachments=_few(st.builds(Attachment, node=names, domain=names, rail=numbers, mb_s=amounts, dead=amounts)),
    links=_few(st.builds(NetworkLink, lower=names, upper=names, mb_s=amounts, count=amounts, used_mb_s=amounts)),
    source=texts,
)

request_kinds = st.builds(RequestKind, amounts, amounts, amounts, _few(names))
recoveries = st.builds(
    Recovery,
    names,
    amounts,
    st.sampled_from(FailureKind),
    _few(texts),
    st.sampled_from(RecoveryWay),
    _few(names),
    amounts,
    _few(names),
    _few(names),
)
moves = st.builds(Move, names, names, names, names, lost_gpu_s=st.integers(0, 9))
move_steps = st.builds(MoveStep, names, st.lists(moves, max_size=2).map(tuple), frees=names)
EVENTS: dict[type, SearchStrategy[Event]] = {
    DefragmentationChanged: st.builds(
        DefragmentationChanged,
        st.builds(
            DefragmentationRun,
            names,
            st.builds(DefragmentationGoal, st.sampled_from(GoalKind), names, st.integers(0, 3)),
            st.lists(move_steps, max_size=2).map(tuple),
            state=st.sampled_from(RunState),
        ),
    ),
    DefragmentationStepChanged: st.builds(
        DefragmentationStepChanged, st.builds(StepProgress, names, st.integers(0, 3), st.just(()), st.booleans())
    ),
    NodeChanged: st.builds(NodeChanged, nodes),
    NodeGone: st.builds(NodeGone, names),
    QueueChanged: st.builds(QueueChanged, queues),
    QueueGone: st.builds(QueueGone, names),
    WorkloadChanged: st.builds(WorkloadChanged, workloads),
    WorkloadGone: st.builds(WorkloadGone, names),
    PodChanged: st.builds(PodChanged, pods),
    PodGone: st.builds(PodGone, names, names),
    NominationChanged: st.builds(NominationChanged, nominations),
    NominationGone: st.builds(NominationGone, names, names),
    PlannedStartChanged: st.builds(PlannedStartChanged, promises),
    PlannedStartGone: st.builds(PlannedStartGone, names),
    ReservationChanged: st.builds(ReservationChanged, reservations),
    ReservationGone: st.builds(ReservationGone, names),
    PastUsageChanged: st.builds(
        PastUsageChanged, st.dictionaries(names, st.tuples(amounts, amounts, amounts), max_size=2), amounts
    ),
    StoppedForOthers: st.builds(StoppedForOthers, names, amounts, _few(names), st.booleans()),
    SharingRulesInUse: st.builds(SharingRulesInUse, _few(names), _few(names)),
    TopologyChanged: st.builds(TopologyChanged, topologies),
    TopologyGone: st.builds(TopologyGone, names),
    ClockMoved: st.builds(ClockMoved, st.integers(-86_400, 86_400)),
    RecoveryChanged: st.builds(RecoveryChanged, recoveries),
    RecoveryGone: st.builds(RecoveryGone, names),
    StartRefused: st.builds(StartRefused, names, names, texts, amounts),
    PoolsChanged: st.builds(PoolsChanged, st.dictionaries(names, amounts, max_size=3)),
    RequestMixChanged: st.builds(
        RequestMixChanged, _few(st.builds(SeenKind, request_kinds, amounts)), amounts, amounts
    ),
    ProgressReported: st.builds(
        ProgressReported, st.builds(ProgressReport, names, amounts, texts, amounts, amounts, amounts, amounts)
    ),
    NodeSpeedsMeasured: st.builds(
        NodeSpeedsMeasured,
        st.dictionaries(
            names, st.builds(NodeSpeed, amounts, amounts, amounts, amounts, st.booleans(), amounts, amounts), max_size=3
        ),
    ),
    PortsMeasured: st.builds(
        PortsMeasured,
        st.dictionaries(
            names,
            _few(st.builds(NetworkPort, names, amounts, st.booleans(), amounts, st.integers(-1, 10**6), st.booleans())),
            max_size=3,
        ),
    ),
    GpuLoadsMeasured: st.builds(
        GpuLoadsMeasured, st.dictionaries(names, st.dictionaries(names, amounts, max_size=3), max_size=3)
    ),
    NodeFailuresSeen: st.builds(NodeFailuresSeen, st.dictionaries(names, amounts, max_size=3)),
    PricesChanged: st.builds(
        PricesChanged,
        st.builds(
            RequestPrices, _few(st.builds(PricedKind, request_kinds, amounts, amounts)), amounts, amounts, amounts
        ),
    ),
}
events: SearchStrategy[Event] = st.one_of(*EVENTS.values())
batches: SearchStrategy[tuple[Event, ...]] = st.lists(events, min_size=1, max_size=4).map(tuple)

facts = st.one_of(
    st.none(),
    st.builds(SizeBound, st.sampled_from(LargerNodes)),
    st.builds(ClosestNode, texts),
    st.builds(ReclaimBound, amounts, protections=_few(st.builds(ProtectedByMinRunTime, texts, amounts, amounts))),
)
obstacles = st.builds(
    Obstacle, st.sampled_from(Reason), amounts, amounts, unit=texts, subject=texts, facts=facts, detail=texts
)
notes = st.builds(Note, names, texts, texts)
plans = st.builds(
    Plan,
    starts=_few(st.builds(Start, names, names, names, _few(shares), amounts)),
    evictions=_few(st.builds(Eviction, names, names, st.sampled_from(EvictionCause), texts, amounts)),
    nominations=_few(nominations),
    waits=_few(st.builds(Wait, names, names, _few(obstacles))),
    unfinished=_few(st.tuples(names, names)),
    promises=_few(promises),
    unpromised=_few(names),
    reserved=_few(st.builds(PickedDevices, names, _few(devices))),
    expired=_few(names),
    notes=_few(notes),
    steps=amounts,
)
policies = st.builds(
    Policy,
    steps=st.integers(1, 2**40),
    gpu_strategy=names,
    placement=st.sampled_from(["pack", "spread"]),
    score_weights=st.dictionaries(names, amounts, max_size=3),
    disabled_plugins=_few(names),
)
