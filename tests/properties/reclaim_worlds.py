"""Random clusters with queues in a tree, running and waiting work: what the laws of reclaim are checked on."""

import random

from kaiwo.model.events import QueueChanged, WorkloadChanged
from kaiwo.model.policy import Policy
from kaiwo.model.queue import UNLIMITED, Fairness, Queue, QueueAmounts, ReclaimStrategy, SharePolicy
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from tests.worlds import World

KINDS = (
    Request(gpus=1, cpu_milli=1000),
    Request(gpus=2, cpu_milli=1000),
    Request(gpus=4, cpu_milli=2000),
    Request(gpus=1, gpu_milli=500, cpu_milli=500),
    Request(gpus=1, gpu_mib=49_152, cpu_milli=500),
    Request(cpu_milli=4000),
)


def contended_world(seed: int, policy: Policy | None = None) -> World:
    """Queues in a tree; work arrives in waves, so that early work has more than its share. The last wave just came."""
    draw = random.Random(seed)
    world = World(nodes=0, policy=policy or Policy())
    for number in range(draw.randint(1, 4)):
        world.node(f"node-{number}", gpus=4, cpu_milli=draw.choice((192_000, 192_000, 9_000, 6_000)))
    leaves = _queues(world, draw)
    for wave in range(4):
        chosen = draw.sample(leaves, min(len(leaves), 1 + wave))
        for number in range(draw.randint(1, 10)):
            world.now_s += draw.choice((0, 0, 1, 30))
            world.tell(WorkloadChanged(_work(f"default/w{wave}-{number}", draw, chosen, world.now_s)))
        if wave < 3:
            world.settle()
    return world


def tight_world(seed: int) -> World:
    """Few nodes where processors, not GPUs, run out, and work of two priorities: whoever goes makes room for somebody
    else than it went for. The last work just came."""
    draw = random.Random(seed)
    world = World(nodes=0)
    for number in range(draw.randint(1, 2)):
        world.node(f"node-{number}", gpus=4, cpu_milli=draw.choice((6_000, 8_000, 10_000)))
    for name in "abc":
        world.tell(QueueChanged(Queue(name, gpu=QueueAmounts(draw.choice((0, 1_000, 1_000, 2_000))))))
    for number in range(draw.randint(6, 18)):
        if draw.random() < 0.4:
            world.settle()
        world.now_s = number
        world.tell(WorkloadChanged(_tight_work(f"default/w{number:02d}", draw, number)))
    return world


def _tight_work(name: str, draw: random.Random, now_s: int) -> Workload:
    cpu_milli, count = draw.choice((500, 1_000, 2_000, 4_000, 6_000)), draw.choice((1, 1, 1, 2))
    gpus, gpu_milli = draw.choice(((0, 1_000), (1, 1_000), (1, 500), (1, 100), (2, 1_000)))
    request = Request(cpu_milli, gpus=gpus, gpu_milli=gpu_milli)
    role = Role(request, count=count, minimum=draw.choice((-1, 1)) if count > 1 else -1)
    return Workload(name, (role,), draw.choice("abc"), priority=draw.choice((0, 0, 50)), submitted_s=now_s)


def _queues(world: World, draw: random.Random) -> list[str]:
    total = 4 * len(world.state.node_objects)
    leaves = ["default"]
    for top in range(draw.randint(1, 3)):
        name = f"t{top}"
        world.tell(QueueChanged(_queue(name, "", draw, total)))
        children = draw.randint(0, 3)
        for child in range(children):
            world.tell(QueueChanged(_queue(f"{name}-{child}", name, draw, total)))
            leaves.append(f"{name}-{child}")
        if not children:
            leaves.append(name)
    return leaves


def _queue(name: str, parent: str, draw: random.Random, total: int) -> Queue:
    quota = draw.choice((0, 1, 2, total // 2)) * 1000
    limit = draw.choice((UNLIMITED, UNLIMITED, UNLIMITED, max(quota, 2000)))
    fairness = Fairness(
        policy=draw.choice((None, None, *SharePolicy)),
        reclaim_strategy=draw.choice((None, None, None, *ReclaimStrategy)),
        min_runtime_s=draw.choice((None, None, None, 60)),
    )
    amounts = QueueAmounts(quota, limit, draw.choice((0, 1, 1, 2)))
    return Queue(name, parent, priority=draw.choice((100, 100, 200)), gpu=amounts, fairness=fairness)


def _work(name: str, draw: random.Random, leaves: list[str], now_s: int) -> Workload:
    count = draw.choice((1, 1, 1, 2, 3))
    minimum = draw.choice((-1, -1, 1)) if count > 1 else -1
    return Workload(
        name,
        (Role(draw.choice(KINDS), count=count, minimum=minimum),),
        draw.choice(leaves),
        priority=draw.choice((0, 0, 0, 50)),
        preemptible=draw.random() < 0.85,
        submitted_s=now_s,
    )
