"""Waiting states with every kind of obstacle, made from a seed, and what would take each kind of obstacle away.

A world has one workload, `default/new`, that meets a few obstacles at once. `removals` takes every obstacle of a kind
out of a copy of the world, so that a test can leave exactly one kind in place.
"""

import random
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from kaiwo.model.affinity import VENDOR_LABEL, NodeRule
from kaiwo.model.events import (
    Event,
    NodeChanged,
    PodGone,
    QueueChanged,
    ReservationChanged,
    ReservationGone,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node, Taint
from kaiwo.model.obstacle import Reason
from kaiwo.model.policy import Policy
from kaiwo.model.queue import UNBOUNDED, Queue, QueueAmounts
from kaiwo.model.request import Request
from kaiwo.model.reservation import Reservation, ReservationOwner
from kaiwo.model.workload import Role, Workload
from tests.worlds import World

NEW = "default/new"
SIZES = {"MI300X": 196_608, "MI210": 65_536, "L40S": 46_068}
VENDORS = {"MI300X": "amd", "MI210": "amd", "L40S": "nvidia"}


def obstructed_world(seed: int) -> World:
    """A settled world in which `default/new` usually waits."""
    draw = random.Random(seed)
    world = World(nodes=0, policy=Policy(actions=draw.choice([("allocate",), Policy().actions])))
    world.now_s = 1_000
    limit = draw.choice([-1, -1, 2_000, 6_000])
    world.tell(QueueChanged(Queue("lab", gpu=QueueAmounts(draw.choice([0, 2_000]), limit))))
    if draw.random() < 0.1:
        world.tell(QueueChanged(replace(world.state.queue_objects["lab"], users=("bob",))))
    closed = {"cordoned": 0.1, "not ready": 0.1, "tainted": 0.1}
    if draw.random() < 0.2:
        closed[draw.choice(sorted(closed))] = 1.0
    for number in range(draw.randint(1, 4)):
        world.tell(NodeChanged(_node(draw, number, closed)))
    if draw.random() < 0.5:
        owner = ReservationOwner(queue="default")
        ends = draw.choice([0, 9_000])
        world.tell(ReservationChanged(Reservation("night", draw.choice([2, 4, 8]), owner=owner, start_s=1, end_s=ends)))
    for number in range(draw.randint(0, 16)):
        request = Request(1_000, 1_024, gpus=draw.choice([1, 2, 4]))
        queue = draw.choice(["default", "lab"])
        world.tell(
            WorkloadChanged(Workload(f"default/old-{number}", (Role(request),), queue, "bob", submitted_s=number))
        )
    world.settle()
    world.tell(WorkloadChanged(_new(draw)))
    world.settle()
    return world


def _node(draw: random.Random, number: int, closed: dict[str, float]) -> Node:
    model = draw.choice(sorted(SIZES))
    gpus = tuple(Gpu(f"gpu-{at}", model, SIZES[model]) for at in range(draw.choice([2, 4, 8])))
    labels = {VENDOR_LABEL + VENDORS[model]: "", "zone": draw.choice(["a", "b"])}
    return Node(
        f"node-{number}",
        draw.choice([8_000, 64_000]),
        65_536,
        gpus=gpus,
        labels=labels,
        cordoned=draw.random() < closed["cordoned"],
        ready=draw.random() >= closed["not ready"],
        taints=(Taint("closed", "", "NoSchedule"),) if draw.random() < closed["tainted"] else (),
    )


def _new(draw: random.Random) -> Workload:
    rules = []
    if draw.random() < 0.25:
        rules.append(NodeRule("zone", "In", (draw.choice(["a", "b", "nowhere"]),)))
    if draw.random() < 0.3:
        rules.append(NodeRule(VENDOR_LABEL + draw.choice(["amd", "nvidia"]), "Exists"))
    request = Request(
        cpu_milli=draw.choice([500, 500, 500, 4_000, 16_000, 96_000]),
        memory_mib=draw.choice([1_024, 1_024, 1_024, 1_024, 131_072]),
        gpus=draw.choice([1, 2, 2, 4, 4, 8, 16]),
        gpu_models=draw.choice([(), (), (), (), ("MI300X",), ("H100",)]),
        node_rules=tuple(rules),
        extended=draw.choice([(), (), (), (), (), (("rdma/hca", 1),)]),
    )
    gates = draw.random()
    return Workload(
        NEW,
        (Role(request, count=draw.choice([1, 1, 1, 2, 5])),),
        queue=draw.choice(["default", "lab"] * 6 + ["nosuch"]),
        user="ann",
        submitted_s=1_000,
        held=gates < 0.12,
        after=("default/first",) if 0.08 < gates < 0.16 else (),
        not_before_s=5_000 if 0.14 < gates < 0.2 else 0,
        preemptible=draw.random() < 0.9,
    )


# What takes obstacles away. A kind names the reasons that it removes.


def _changed(world: World, **changes: object) -> list[Event]:
    return [WorkloadChanged(replace(world.state.workloads[NEW], **changes))]


def _request(world: World, **changes: object) -> list[Event]:
    workload = world.state.workloads[NEW]
    roles = tuple(replace(role, request=replace(role.request, **changes)) for role in workload.roles)
    return [WorkloadChanged(replace(workload, roles=roles))]


def _open_queues(world: World) -> list[Event]:
    workload = world.state.workloads[NEW]
    queues = [
        replace(each, gpu=replace(each.gpu, quota=1 << 30, limit=-1), cpu=UNBOUNDED, memory=UNBOUNDED, users=())
        for each in world.state.queue_objects.values()
    ]
    made = [] if workload.queue in world.state.queue_objects else [Queue(workload.queue)]
    return [*map(QueueChanged, queues), *map(QueueChanged, made), WorkloadChanged(replace(workload, preemptible=True))]


def _nodes(world: World, **changes: object) -> list[Event]:
    return [NodeChanged(replace(node, **changes)) for node in world.state.node_objects.values()]


def _alone(world: World) -> list[Event]:
    """All other work is gone."""
    others = [name for name in world.state.workloads if name != NEW]
    pods = [PodGone(name, pod) for name in others for pod in list(world.state.pods.get(name, {}))]
    return [*map(WorkloadGone, others), *pods]


def _larger(world: World) -> list[Event]:
    """Nodes that are large enough for it, one for each pod, and otherwise like those that there are.

    Where every node is closed to it, so are these: more room alone would not help.
    """
    request = world.state.workloads[NEW].roles[0].request
    nodes = list(world.state.node_objects.values())
    like = next((node for node in nodes if _is_open(node, request)), nodes[0])
    model = next((gpu.model for gpu in like.gpus if gpu.model in request.gpu_models), like.gpus[0].model)
    gpus = tuple(Gpu(f"gpu-{at}", model, SIZES[model]) for at in range(16))
    offered = {name: 64 for node in nodes for name in node.extended}
    large = replace(like, cpu_milli=1_000_000, memory_mib=1 << 24, gpus=gpus, extended=offered)
    return [NodeChanged(replace(large, name=f"large-{at}")) for at in range(12)]


def _is_open(node: Node, request: Request) -> bool:
    is_usable = node.ready and not node.cordoned and not node.taints
    has_model = not request.gpu_models or any(gpu.model in request.gpu_models for gpu in node.gpus)
    return is_usable and has_model and all(rule.holds(node.labels) for rule in request.node_rules)


REMOVALS: dict[str, tuple[frozenset[Reason], Callable[[World], Iterable[Event]]]] = {
    "gates": (
        frozenset((Reason.HELD, Reason.DEPENDENCY, Reason.DEPENDENCY_FAILED, Reason.NOT_BEFORE)),
        lambda world: _changed(world, held=False, after=(), after_failed=(), not_before_s=0),
    ),
    "queues": (
        frozenset(
            (Reason.NO_QUEUE, Reason.QUEUE_ACCESS, Reason.QUEUE_LIMIT, Reason.QUEUE_QUOTA, Reason.QUEUE_NOT_LEAF)
        ),
        _open_queues,
    ),
    "rules": (frozenset((Reason.NODE_RULES,)), lambda world: _request(world, node_rules=())),
    "model": (frozenset((Reason.GPU_MODEL,)), lambda world: _request(world, gpu_models=())),
    "extended": (frozenset((Reason.NOT_ENOUGH_EXTENDED,)), lambda world: _request(world, extended=())),
    "closed nodes": (
        frozenset((Reason.NODE_CORDONED, Reason.NODE_NOT_READY, Reason.NODE_TAINTED)),
        lambda world: _nodes(world, cordoned=False, ready=True, taints=()),
    ),
    "reservations": (
        frozenset((Reason.RESERVED,)),
        lambda world: [ReservationGone(name) for name in world.state.reservations.objects],
    ),
    "room": (
        frozenset(
            (
                Reason.NOT_ENOUGH_GPUS, Reason.NOT_ENOUGH_GPU_MEMORY, Reason.NOT_ENOUGH_FREE_GPUS,
                Reason.NOT_ENOUGH_CPU, Reason.NOT_ENOUGH_MEMORY, Reason.NOT_ENOUGH_PODS, Reason.GANG, Reason.PROMISED,
                Reason.OVER_FAIR_SHARE, Reason.NOT_ENOUGH_RECLAIMABLE, Reason.NO_WAY_TO_RECLAIM,
                Reason.NO_WAY_TO_PREEMPT, Reason.NOT_ENOUGH_FREE_GPU_SHARE, Reason.NOT_ENOUGH_FREE_GPU_MEMORY,
                Reason.RELEASING, Reason.NOMINATED, Reason.GPU_UNHEALTHY,
            )
        ),
        _larger,
    ),
    "other work": (frozenset(), _alone),
}  # fmt: skip


def kind_of(reason: Reason) -> str:
    return next(kind for kind, (reasons, _) in REMOVALS.items() if reason in reasons)


def starts_without(world: World, *kinds: str) -> bool:
    """On a copy of the world without obstacles of these kinds, `decide` starts the workload."""
    copy = World(nodes=0, policy=world.policy)
    copy.now_s = world.now_s
    copy.tell(*world.state.events())
    for kind in sorted(kinds, key=list(REMOVALS).index):  # the larger nodes are like those that were opened
        copy.tell(*REMOVALS[kind][1](copy))
    copy.settle()
    return copy.is_running(NEW)
