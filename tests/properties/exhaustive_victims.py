"""Small crowded clusters with one claim, and whether any legal set of victims would serve it: every one is tried.

In:    a seed; a world.   Out: a world with one waiting claim; whether somebody could go, or move, so that it fits.
Never: asks the search or the sums of `decide`. The rules between queues are asked of `queues` itself.
"""

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from kaiwo.model.events import QueueChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu_models import GPU_MODELS
from kaiwo.model.queue import Fairness, Queue, QueueAmounts
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Role, Workload, role_of
from kaiwo.queues.current_shares import current_shares
from kaiwo.queues.reclaim_rules import (
    QueueShares,
    ReclaimRequest,
    refusal_to_reclaim,
    victim_queues,
)
from kaiwo.snapshot.queue_table import GPU
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.queues.victims import VictimUsage, may_take
from tests.worlds import World

NAME, NIC, MAX_PODS = "default/claim", "example.com/nic", 6
SMALL, LARGE = "MI210", "MI325X"  # 64 and 256 GiB
GIB = 1024


class Place(NamedTuple):
    """What is left on a node, and on each of its devices: (model, milli, MiB, size)."""

    cpu: int
    memory: int
    nics: int
    gpus: tuple[tuple[str, int, int, int], ...]


def crowded_world(seed: int) -> World | None:
    """Work of queues `a` and `b` runs, some of it not to be touched; a claim just came. None: too large to search."""
    draw = random.Random(seed)
    world = World(nodes=0)
    for number in range(draw.randint(1, 3)):
        _node(world, draw, f"n{number}")
    for name in "abc":
        gpu = QueueAmounts(draw.choice((0, 0, 1_000, 2_000, 3_000, 937)), weight=draw.choice((0, 1, 1, 3)))
        cpu = QueueAmounts(draw.choice((0, 2_000, 6_000)))
        fairness = Fairness(min_runtime_s=draw.choice((None, None, 500)))
        world.tell(QueueChanged(Queue(name, gpu=gpu, cpu=cpu, fairness=fairness)))
    for number in range(draw.randint(2, 5)):
        world.now_s += 1
        world.tell(WorkloadChanged(_work(f"default/r{number}", draw, draw.choice("aab"), world.now_s)))
        world.settle()
    world.now_s += draw.choice((10, 1_000))
    for name in list(world.state.workloads):
        if name not in world.state.pods:
            world.tell(WorkloadGone(name))
    world.settle()
    if draw.random() < 0.4:
        _let_only_move(world, draw)
    if sum(len(pods) for pods in world.state.pods.values()) > MAX_PODS:
        return None
    claim = Role(_request(draw), count=draw.choice((1, 1, 2, 3)))
    return world.tell(WorkloadChanged(Workload(NAME, (claim,), "c", submitted_s=world.now_s)))


def shrinking_world(seed: int) -> World:
    """Shares fill small GPUs and cannot be stopped; a large GPU, of which somebody has a part, would take them."""
    draw = random.Random(seed)
    world = World(nodes=0).node("n0", gpus=draw.choice((1, 2)), model=SMALL)
    for number in range(draw.choice((1, 2, 3))):
        world.submit(f"r{number}", memory_mib=draw.choice((30, 60)) * GIB, queue="a")
    world.queue("a").queue("b").queue("c", quota_milli=4_000).queue("fix", quota_milli=1_000).settle()
    for name in [name for name in world.state.workloads if name not in world.state.pods]:
        world.tell(WorkloadGone(name))
    now = current_shares(WorkingCopy(world.snapshot()).view)
    world.queue("a", quota_milli=int(now.used[now.queues.row["a"], GPU]) - draw.choice((0, 0, 1)))
    world.node("late", gpus=1, model=LARGE)
    fraction = draw.choice((300, 500, 600, 800))
    world.submit("fixed", fraction_milli=fraction, models=(LARGE,), queue="fix", preemptible=False).settle()
    claim = Request(gpus=draw.choice((1, 1, 2)), gpu_models=draw.choice(((), (SMALL,))))
    return world.tell(WorkloadChanged(Workload(NAME, (Role(claim),), "c", submitted_s=world.now_s)))


def _node(world: World, draw: random.Random, name: str) -> None:
    world.node(
        name, gpus=draw.choice((1, 2, 3)), model=draw.choice((SMALL, LARGE)), cpu_milli=draw.choice((4_000, 8_000)),
        memory_mib=draw.choice((32, 64)) * GIB, extended={NIC: draw.choice((0, 1, 2))},
    )  # fmt: skip


def _let_only_move(world: World, draw: random.Random) -> None:
    """Who runs has exactly its quota, so that it cannot be stopped; and a node is added to which it could go.

    Somebody who may not be touched has a part of it.
    """
    used = current_shares(WorkingCopy(world.snapshot()).view)
    for name in "ab":
        milli, cpu, _ = used.used[used.queues.row[name]].tolist()
        old = world.state.queue_objects[name]
        world.tell(QueueChanged(replace(old, gpu=QueueAmounts(milli), cpu=QueueAmounts(cpu))))
    world.tell(QueueChanged(Queue("c", gpu=QueueAmounts(3_000), cpu=QueueAmounts(8_000))))
    _node(world, draw, "late")
    if draw.random() < 0.7:
        world.queue("fix", quota_milli=2_000)
        fixed = Request(gpus=1, gpu_milli=draw.choice((300, 600, 1_000)), avoid_nodes=("n0", "n1", "n2"))
        role = Role(fixed, count=draw.choice((1, 2)))
        world.tell(WorkloadChanged(Workload("default/fixed", (role,), "fix", preemptible=False)))
    world.settle()
    if "default/fixed" not in world.state.pods:
        world.tell(WorkloadGone("default/fixed"))


def _work(name: str, draw: random.Random, queue: str, now_s: int) -> Workload:
    count = draw.choice((1, 1, 2, 3))
    role = Role(_request(draw), count=count, minimum=draw.choice((-1, 1)) if count > 1 else -1)
    may_go = draw.choice((-1, -1, -1, 0, 1))
    is_fixed = draw.random() < 0.15
    return Workload(name, (role,), queue, preemptible=not is_fixed, submitted_s=now_s, may_go=may_go)


def _request(draw: random.Random) -> Request:
    cpu, memory = draw.choice((0, 1_000, 2_000, 4_000)), draw.choice((0, 0, 8, 24)) * GIB
    nics = draw.choice(((), (), ((NIC, 1),)))
    models = draw.choice(((), (), (SMALL,), (LARGE,)))
    match draw.choice(("whole", "whole", "share", "none")):
        case "whole":
            return Request(cpu, memory, draw.choice((1, 1, 2)), gpu_models=models, extended=nics)
        case "share":
            return Request(cpu, memory, 1, gpu_mib=draw.choice((30, 60)) * GIB, gpu_models=models, extended=nics)
    return Request(max(cpu, 1_000), memory, extended=nics)


def somebody_could_go(world: World) -> bool:
    """Some of the others, stopped by the rules or moved to other places, leave room for the claim."""
    state = world.state
    want, pods = state.workloads[NAME].roles[0].request, state.workloads[NAME].roles[0].count
    now = current_shares(WorkingCopy(world.snapshot()).view)
    claim = ReclaimRequest(now.queues.row["c"], np.array(_least(want, pods, world)))
    if refusal_to_reclaim(now, claim) is not None:
        return False
    may_lose = victim_queues(now, claim)
    names = [name for name in state.pods if may_lose[now.queues.row[state.workloads[name].queue]]]
    for choice in itertools.product(*(list(_ways(world, name)) for name in names)):
        stopped = [pod for gone, _ in choice for pod in gone]
        moved = [pod for _, moves in choice for pod in moves]
        if may_take(now, claim, _takings(world, now, choice)) is None and _fits(
            _places(world, stopped + moved),
            [want] * pods + [role_of(state.workloads[pod.workload], pod.name).request for pod in moved],
        ):
            return True
    return False


def _ways(world: World, name: str) -> Iterator[tuple[list[Pod], list[Pod]]]:
    """Who of a workload stops and who moves: what it can spare, whichever; or all of it, unless it is too young."""
    workload, pods = world.state.workloads[name], list(world.state.pods[name].values())
    yield [], []
    if not workload.preemptible:
        return
    least_s = world.state.queue_objects[workload.queue].fairness.min_runtime_s or 0
    is_young = world.now_s - min(pod.since_s for pod in pods) < least_s
    spare = max(0, len(pods) - workload.roles[0].needed)
    for fates in itertools.product(("stay", "stop", "move"), repeat=len(pods)):
        stopped = [pod for pod, fate in zip(pods, fates, strict=True) if fate == "stop"]
        moved = [pod for pod, fate in zip(pods, fates, strict=True) if fate == "move"]
        gone = len(stopped) + len(moved)
        is_allowed = gone <= spare or (not is_young and len(stopped) in (*range(spare + 1), len(pods)))
        evicted = gone if gone <= spare else len(pods)  # who loses what it needs begins anew as a whole
        if gone and is_allowed and (workload.may_go < 0 or evicted <= workload.may_go):
            yield stopped, moved


def _takings(world: World, now: QueueShares, choice: tuple[tuple[list[Pod], list[Pod]], ...]) -> list[VictimUsage]:
    """What is stopped, as the rules count it: a surplus pod each, then the rest of a workload."""
    found = []
    for stopped, _ in choice:
        if not stopped:
            continue
        workload = world.state.workloads[stopped[0].workload]
        charges = [(sum(share.milli for share in pod.devices), pod.cpu_milli, pod.memory_mib) for pod in stopped]
        all_pods = len(world.state.pods[workload.name])
        surplus = max(0, all_pods - workload.roles[0].needed)
        # Which of equal pods is called surplus does not matter; of unequal ones the larger first leaves the least rest.
        charges.sort(reverse=True)
        row = now.queues.row[workload.queue]
        found += [VictimUsage(row, np.array(charge)) for charge in charges[:surplus]]
        if charges[surplus:]:
            found.append(VictimUsage(row, np.sum(charges[surplus:], axis=0)))
    return found


def _least(want: Request, pods: int, world: World) -> tuple[int, int, int]:
    sizes = [gpu.memory_mib for node in world.state.node_objects.values() for gpu in node.gpus]
    milli = want.gpus * (want.gpu_mib * 1000 // max(sizes)) if want.is_memory else want.charge_milli
    return milli * pods, want.cpu_milli * pods, want.memory_mib * pods


def _places(world: World, without: list[Pod]) -> list[Place]:
    state, found = world.state, []
    left = {(pod.workload, pod.name) for pod in without}
    for name, node in sorted(state.node_objects.items()):
        here = [
            pod
            for pods in state.pods.values()
            for pod in pods.values()
            if pod.node == name and (pod.workload, pod.name) not in left
        ]
        gpus = []
        for gpu in node.gpus:
            shares = [share for pod in here for share in pod.devices if share.gpu == gpu.id]
            milli, mib = 1000 - sum(each.milli for each in shares), gpu.memory_mib - sum(each.mib for each in shares)
            gpus.append((gpu.model, milli, mib, GPU_MODELS[gpu.model].memory_mib))
        nics = node.extended.get(NIC, 0) - sum(amount for pod in here for _, amount in pod.extended)
        cpu, memory = sum(pod.cpu_milli for pod in here), sum(pod.memory_mib for pod in here)
        found.append(Place(node.cpu_milli - cpu, node.memory_mib - memory, nics, tuple(sorted(gpus))))
    return found


def _fits(places: list[Place], wants: list[Request]) -> bool:
    """All of them find places, in some way."""
    if not wants:
        return True
    for at, place in enumerate(places):
        if place not in places[:at]:  # an equal node has been tried
            for after in _after(place, wants[0]):
                if _fits([*places[:at], after, *places[at + 1 :]], wants[1:]):
                    return True
    return False


def _after(place: Place, want: Request) -> set[Place]:
    """The ways in which a node looks with one pod more."""
    cpu, memory = place.cpu - want.cpu_milli, place.memory - want.memory_mib
    nics = place.nics - sum(amount for _, amount in want.extended)
    if min(cpu, memory, nics) < 0:
        return set()
    found = set()
    for chosen in itertools.combinations(range(len(place.gpus)), want.gpus):
        gpus = list(place.gpus)
        for at in chosen:
            gpus[at] = _with(gpus[at], want)
        if all(milli >= 0 and mib >= 0 for _, milli, mib, _ in gpus):
            found.add(Place(cpu, memory, nics, tuple(sorted(gpus))))
    return found


def _with(gpu: tuple[str, int, int, int], want: Request) -> tuple[str, int, int, int]:
    """A device with one tenant more; below zero where it is not for it."""
    model, milli, mib, size = gpu
    if want.gpu_models and model not in want.gpu_models:
        return model, -1, mib, size
    if want.is_memory:
        return model, milli - want.gpu_mib * 1000 // size, mib - want.gpu_mib, size
    return model, milli - 1000, mib - size, size
