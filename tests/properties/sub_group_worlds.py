"""Random clusters with gangs whose sub-groups form trees, beside plain work that contends with them."""

import random

from kaiwo.model.events import Event, WorkloadChanged
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import ROOT, Role, SubGroup, Workload
from tests.worlds import World

KINDS = (Request(gpus=1), Request(gpus=2), Request(gpus=4), Request(gpus=1, gpu_milli=500), Request(cpu_milli=4000))


def tree_world(seed: int, policy: Policy | None = None) -> World:
    """Work comes in waves, the later more important: so the earlier loses what it can spare, or all."""
    draw = random.Random(seed)
    world = World(nodes=0, policy=policy or Policy(actions=("allocate", "preempt", "consolidate", "stale-gangs")))
    for number in range(draw.randint(1, 4)):
        world.node(f"node-{number}", gpus=draw.choice((2, 4, 8)))
    world.queue("default", gpu_limit=draw.choice((-1, -1, 6_000)))
    return world


def arrivals(seed: int) -> list[list[Event]]:
    """Three waves."""
    draw = random.Random(seed)
    return [
        [WorkloadChanged(_work(f"default/w{wave}-{number}", draw, wave)) for number in range(draw.randint(1, 4))]
        for wave in range(3)
    ]


def _work(name: str, draw: random.Random, wave: int) -> Workload:
    priority = draw.choice((0, 10 * wave))
    if draw.random() < 0.3:
        role = Role(draw.choice(KINDS), count=draw.randint(1, 3))
        return Workload(name, (role,), priority=priority, submitted_s=wave)
    groups, roles = tree(draw)
    return Workload(name, roles, priority=priority, submitted_s=wave, groups=groups)


def tree(draw: random.Random) -> tuple[tuple[SubGroup, ...], tuple[Role, ...]]:
    """Up to two levels below the root, equal and unequal parts."""
    groups: list[SubGroup] = []
    roles: list[Role] = []
    usual = draw.choice(KINDS)
    below = [_part(draw, ROOT, groups, roles, usual, depth=0) for _ in range(draw.randint(1, 4))]
    groups.append(SubGroup(ROOT, minimum=draw.randint(1, len(below))))
    return tuple(groups), tuple(roles)


def _part(
    draw: random.Random, parent: str, groups: list[SubGroup], roles: list[Role], usual: Request, depth: int
) -> str:
    if depth < 2 and draw.random() < 0.4:
        name = f"g{len(groups)}"
        at = len(groups)
        groups.append(SubGroup(name, parent))
        count = draw.randint(1, 3)
        for _ in range(count):
            _part(draw, name, groups, roles, usual, depth + 1)
        groups[at] = SubGroup(name, parent, draw.choice((-1, 1, count)))
        return name
    count = draw.randint(1, 3)
    want = usual if draw.random() < 0.7 else draw.choice(KINDS)
    roles.append(Role(want, f"r{len(roles)}", count, draw.choice((-1, 1, count)), parent))
    return roles[-1].name
