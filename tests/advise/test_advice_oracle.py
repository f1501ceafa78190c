"""Advice about free GPUs against an exhaustive search, on 500 generated states."""

import random

import pytest
from msgspec.structs import replace

from kaiwo.advise.advice import Advice, Moves
from kaiwo.advise.candidates import stranded_milli
from kaiwo.advise.find_advice import find_advice
from kaiwo.advise.right_size import SizeRule
from kaiwo.advise.run_uses import RunUses
from kaiwo.advise.verify_advice import AdviceQuestion
from kaiwo.forecast.recent_arrivals import RecentArrivals
from kaiwo.forecast.run_time_forecast import RunTimeForecast
from kaiwo.model.events import NodeChanged
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from tests.advise import oracle
from tests.worlds import World

STATES, BLOCKS = 500, 10
WAITS = "default/wanted"


def question_of(world: World, uses: RunUses | None = None) -> AdviceQuestion:
    arrivals, forecast = RecentArrivals(0), RunTimeForecast()
    return AdviceQuestion(
        world.state, world.policy, world.plugins, world.now_s, forecast, arrivals, uses or RunUses(), SizeRule()
    )


def state_of(seed: int) -> tuple[World, list[Request]]:
    """Two to three nodes of four GPUs, some of whose work has ended, and one workload that may have no room."""
    random_of = random.Random(seed)
    world = World(nodes=0)
    for number in range(random_of.choice((2, 2, 3))):
        world.node(f"node-{number}", gpus=4, cpu_milli=random_of.choice((6_000, 16_000, 64_000)))
    kinds = [
        Request(random_of.choice((0, 1_000, 2_000)), 0, gpus, milli)
        for gpus, milli in random_of.sample([(1, 500), (1, 300), (1, 1000), (1, 1000), (2, 1000)], 3)
    ]
    seen = random_of.choices(kinds, k=random_of.randrange(6, 14))
    for number, request in enumerate(seen):
        kept = random_of.random() < 0.8
        world.submit(f"w{number}", request=request, estimate_s=20_000, preemptible=kept)
    world.settle()
    for name in [each for each in sorted(world.state.workloads) if each not in world.state.pods]:
        world.finish(name)
    for name in sorted(world.state.pods):
        if random_of.random() < 0.4:
            world.finish(name)
    if random_of.random() < 0.1:
        world.tell(NodeChanged(replace(world.state.node_objects["node-0"], cordoned=True)))
    world.now_s = 600
    wanted = Request(random_of.choice((0, 1_000)), 0, random_of.choice((1, 2, 3, 4)))
    world.submit("wanted", request=wanted, estimate_s=5_000)
    world.settle()
    return world, [*seen, wanted]


@pytest.mark.parametrize("block", range(BLOCKS))
def test_advice_is_what_an_exhaustive_search_finds(block: int) -> None:
    size = STATES // BLOCKS
    for seed in range(block * size, (block + 1) * size):
        world, kinds = state_of(seed)
        assert stranded_milli(world.state) == oracle.stranded_milli(oracle.cluster_of(world.state), kinds), seed
        if WAITS in world.state.pods:
            continue
        fewest = oracle.fewest_moves(world.state, world.state.workloads[WAITS], 2)
        advised = [each for each in find_advice(question_of(world)).advice if isinstance(each.change, Moves)]
        assert bool(advised) == (fewest is not None), f"seed {seed}: {fewest} moves, {advised}"
        for each in advised:
            _check(world, each, fewest or 0, seed)


def _check(world: World, advice: Advice, fewest: int, seed: int) -> None:
    """The moves are as few as can be, every place has room, and so has the waiting workload."""
    assert isinstance(advice.change, Moves)
    state, moves = world.state, advice.change.moves
    assert len(moves) == fewest, seed
    assert advice.gain.after.started_now == 1, seed
    leaving = [(state.pods[move.workload][move.pod], move) for move in moves]
    requests = {move: state.workloads[move.workload].roles[0].request for move in moves}
    assert all(state.workloads[move.workload].preemptible for move in moves), seed
    rooms = dict(oracle.cluster_of(state).without([(pod, requests[move]) for pod, move in leaving]).rooms)
    for move in moves:
        left = list(rooms[move.node].milli)
        for share in move.devices:
            left[int(share.gpu.rpartition("-")[2])] -= share.milli
        cpu = rooms[move.node].cpu_milli - requests[move].cpu_milli
        assert min(left) >= 0 <= cpu, seed
        assert not state.node_objects[move.node].cordoned, seed
        rooms[move.node] = oracle.Room(tuple(left), cpu)
    wanted: Workload = state.workloads[WAITS]
    is_open = {name: not node.cordoned for name, node in state.node_objects.items()}
    assert oracle.Cluster(rooms, is_open).fits([wanted.roles[0].request]), seed
