"""Waiting states made from a seed: full clusters, tight queues, work on its way out. The same seed, the same state."""

import random

from msgspec.structs import replace

from kaiwo.model.events import NodeChanged, PodChanged, QueueChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.queue import UNBOUNDED, GpuModelAmounts, Queue, QueueAmounts
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Role, Workload
from tests.worlds import World

SIZES = {"MI300X": 196_608, "MI210": 65_536, "L40S": 46_068}


def waiting_world(seed: int, most_nodes: int = 4, most_work: int = 18) -> World:
    """A settled world; `world.picture.backlog` says who waits."""
    rng = random.Random(seed)
    world = World(nodes=0)
    world.tell(QueueChanged(made_queue(rng, "default", "", [-1, 4_000, 8_000])))
    world.tell(QueueChanged(made_queue(rng, "org", "", [-1, 6_000])))
    for name in ("lab", "prod"):
        world.tell(QueueChanged(made_queue(rng, name, "org", [-1, 4_000])))
    if rng.random() < 0.3:
        world.tell(QueueChanged(replace(world.state.queue_objects["prod"], users=("ann",))))
    for name in ("default", "lab"):  # which say that they are for all who submit here
        world.tell(QueueChanged(replace(world.state.queue_objects[name], namespaces=("default",))))
    for number in range(rng.randint(1, most_nodes)):
        model = rng.choice(sorted(SIZES))
        gpus = tuple(Gpu(f"gpu-{at}", model, SIZES[model]) for at in range(rng.choice([2, 4, 8])))
        cpu = rng.choice([8_000, 64_000])
        world.tell(NodeChanged(Node(f"node-{number}", cpu, 65_536, gpus=gpus, cordoned=rng.random() < 0.1)))
    for number in range(rng.randint(2, most_work)):
        world.now_s = number
        world.tell(WorkloadChanged(_work(rng, world, f"default/w{number:02d}", number)))
        if rng.random() < 0.5:
            world.settle()
    world.now_s += 60
    world.settle()
    if world.state.pods and rng.random() < 0.3:
        _let_one_leave(rng, world)
    return world


def contested_world(seed: int) -> World:
    """Full of work that may be stopped; most queues are owed something, some never get more than that."""
    rng = random.Random(seed)
    world = World(nodes=0)
    world.tell(QueueChanged(Queue("org", gpu=QueueAmounts(rng.choice([0, 4_000, 8_000]), rng.choice([-1, 6_000])))))
    for name, parent in (("default", ""), ("guests", ""), ("lab", "org"), ("prod", "org")):
        quota, weight = rng.choice([0, 0, 1_000, 2_000, 4_000]), rng.choice([0, 1, 1, 3])
        limit = rng.choice([-1, -1, -1, max(quota, 3_000)])
        theirs = ("default",) if name in ("default", "lab") else ()
        world.tell(QueueChanged(Queue(name, parent, gpu=QueueAmounts(quota, limit, weight), namespaces=theirs)))
    for number in range(rng.randint(1, 2)):
        model = rng.choice(sorted(SIZES))
        gpus = tuple(Gpu(f"gpu-{at}", model, SIZES[model]) for at in range(rng.choice([2, 4, 8])))
        world.tell(NodeChanged(Node(f"node-{number}", rng.choice([8_000, 64_000]), 65_536, gpus=gpus)))
    filler = rng.choice(["default", "guests", "lab"])
    for number in range(rng.randint(4, 16)):
        role = Role(Request(cpu_milli=500, memory_mib=1_024, gpus=1), count=rng.choice([1, 1, 1, 2]))
        priority, preemptible = rng.choice([0, 10]), rng.random() < 0.8
        name = f"default/r{number:02d}"
        world.tell(WorkloadChanged(Workload(name, (role,), filler, "cyd", priority=priority, preemptible=preemptible)))
    world.settle()
    for number in range(rng.randint(1, 5)):
        world.now_s += rng.choice([0, 10, 700])
        work = _work(rng, world, f"default/w{number:02d}", world.now_s)
        queue, priority = rng.choice(["default", "guests", "lab", "prod"]), rng.choice([0, 5, 50])
        world.tell(WorkloadChanged(replace(work, queue=queue, priority=priority)))
        world.settle()
    return world


def _let_one_leave(rng: random.Random, world: World) -> None:
    """Somebody is told to go and still holds its devices; their space is kept for the first whom it fits."""
    pods = world.state.pods[rng.choice(sorted(world.state.pods))]
    world.tell(*(PodChanged(replace(pods[name], phase=Phase.RELEASING)) for name in sorted(pods)))
    world.settle()
    world.settle()  # for whom space is kept now stands in line anew, not tried yet


def made_queue(rng: random.Random, name: str, parent: str, limits: list[int]) -> Queue:
    """Bounds of all kinds, each of them seldom: a queue with all of them starts nothing."""
    gpu = QueueAmounts(rng.choice([0, 1_000, 4_000]), rng.choice(limits))
    cpu = QueueAmounts(rng.choice([0, 1_000, 8_000]), rng.choice([-1, 8_000])) if rng.random() < 0.2 else UNBOUNDED
    memory = QueueAmounts(rng.choice([0, 16_384]), rng.choice([-1, 65_536])) if rng.random() < 0.1 else UNBOUNDED
    models = {}
    for model in sorted(SIZES):
        if rng.random() < 0.15:
            limit = rng.choice([-1, 1_000, 2_000])
            models[model] = GpuModelAmounts(rng.choice([-1, 0, 1_000]), limit)
    return Queue(name, parent, gpu=gpu, cpu=cpu, memory=memory, gpu_models=models)


def _work(rng: random.Random, world: World, name: str, submitted_s: int) -> Workload:
    kind = rng.choice(["whole", "whole", "fraction", "memory", "cpu"])
    request = Request(
        cpu_milli=rng.choice([500, 1_000, 4_000, 6_000]),
        memory_mib=rng.choice([1_024, 16_384]),
        gpus=rng.choice([1, 1, 2, 4, 8]) if kind == "whole" else 0 if kind == "cpu" else rng.choice([1, 1, 2]),
        gpu_milli=rng.choice([100, 250, 500, 900]) if kind == "fraction" else 1_000,
        gpu_mib=rng.choice([2_000, 30_000, 60_000, 100_000]) if kind == "memory" else 0,
        gpu_models=rng.choice([(), (), ("MI300X",), ("MI210",)]) if kind != "cpu" else (),
    )
    count = rng.choice([1, 1, 1, 2, 4])
    roles = [Role(request, count=count, minimum=rng.choice([-1, -1, 1]) if count > 1 else -1)]
    if rng.random() < 0.1:
        roles.append(Role(Request(cpu_milli=500, memory_mib=1_024, gpus=rng.choice([0, 1])), "side"))
    user = rng.choice(["ann", "bob"])
    queues = [each for each in ("default", "lab", "prod") if _is_welcome(world.state.queue_objects[each], user)]
    return Workload(
        name,
        tuple(roles),
        queue=rng.choice(queues),
        user=user,
        priority=rng.choice([0, 0, 50]),
        preemptible=rng.random() < 0.7,
        submitted_s=submitted_s,
        estimate_s=rng.choice([0, 0, 300, 3_600]),  # where ends are known, starts are planned
    )


def _is_welcome(queue: Queue, user: str) -> bool:
    return not queue.users or user in queue.users
