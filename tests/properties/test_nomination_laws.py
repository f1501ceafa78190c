"""A workload that room was made for starts, whatever happens to the nodes while its victims leave."""

import random

from msgspec.structs import replace

from kaiwo.model.events import NominationChanged, PodGone, WorkloadChanged
from kaiwo.model.plan import EvictionCause, Nomination
from kaiwo.model.policy import Policy
from tests.conftest import IS_QUICK, SIZE
from tests.worlds import World, audit

STATES = 60 if IS_QUICK else 600 * SIZE


def test_a_gang_within_its_quota_runs_whatever_nodes_are_lost_while_its_victims_leave() -> None:
    for seed in range(STATES):
        try:
            _lose_nodes_while_victims_leave(seed)
        except AssertionError as error:
            raise AssertionError(f"state {seed}: {error}") from error


def _lose_nodes_while_victims_leave(seed: int) -> None:
    dice = random.Random(seed)
    nodes, gpus, pods = dice.randint(2, 6), dice.choice((1, 2, 4)), dice.randint(2, 5)
    each = dice.choice([size for size in (1, 2, 4) if size <= gpus])
    world = World(nodes=nodes, gpus_per_node=gpus).queue("theirs").queue("ours", quota_milli=nodes * gpus * 1000)
    small = dice.choice((1, each))
    for number in range(nodes * (gpus // small)):
        world.submit(f"theirs-{number}", gpus_each=small, queue="theirs")
    world.settle()
    world.submit("gang", pods=pods, gpus_each=each, queue="ours")
    left = nodes
    for _ in range(dice.randint(1, 3)):
        plan = world.decide()
        if dice.random() < 0.5 and (left - 1) * (gpus // each) >= pods:
            wanted = sorted({kept.node for kept in plan.nominations} & set(world.state.node_objects))
            world.lose_node(dice.choice(wanted or sorted(world.state.node_objects)))
            left -= 1
        leaving = sorted(world.state.releasing)
        world.tell(*(PodGone(*pod) for pod in leaving if dice.random() < 0.5))
    if left * (gpus // each) < pods:
        return
    for _ in range(12):
        world.let_go().decide()
    assert len(world.nodes_of("gang")) == pods, world.why("gang")
    assert not world.state.nominations
    assert not audit(world.state)


def test_nothing_is_in_the_way_of_a_replacement_when_it_is_due() -> None:
    """Whatever waits, arrives and ends: the place of a lost gang member is free for it when it comes."""
    for seed in range(STATES):
        try:
            _lose_members(seed)
        except AssertionError as error:
            raise AssertionError(f"state {seed}: {error}") from error


def _lose_members(seed: int) -> None:
    dice = random.Random(seed)
    pods, gpus = dice.randint(2, 4), dice.choice((1, 2, 4))
    world = World(nodes=pods, gpus_per_node=gpus, policy=Policy(actions=("allocate", "reclaim")))
    world.queue("ours", quota_milli=pods * gpus * 1000).queue("theirs")
    world.now_s = 1000
    world.submit("gang", pods=pods, gpus_each=gpus, queue="ours").settle()
    gang = world.state.workloads["default/gang"]
    lost = [f"main-{number}" for number in range(dice.randint(1, pods - 1), pods)]
    due_s = dice.choice((0, 1000 + dice.randint(20, 200)))
    for name in lost:
        pod = world.state.pods[gang.name][name]
        kept = Nomination(gang.name, name, pod.node, pod.devices, lost_s=1000, due_s=due_s)
        world.tell(NominationChanged(kept), PodGone(gang.name, name))
    world.tell(WorkloadChanged(replace(gang, roles=(replace(gang.roles[0], count=pods - len(lost)),))))
    came_s = max(due_s, 1000 + dice.randint(1, 250))
    for number in range(dice.randint(2, 8)):
        estimate_s, priority = dice.choice((0, 10, 40, 100)), dice.choice((0, 0, 9))
        each, queue = dice.randint(1, gpus), dice.choice(("ours", "theirs"))
        world.submit(f"w{number}", gpus_each=each, queue=queue, priority=priority, estimate_s=estimate_s)
    while world.now_s < came_s:
        plan = world.decide()
        assert not [each for each in plan.evictions if each.cause is not EvictionCause.DEADLINE], plan.evictions
        assert not plan.given_up
        assert not audit(world.state)
        world.let_go()
        world.now_s = min(came_s, world.now_s + dice.randint(5, 40))
        for name, found in list(world.state.workloads.items()):
            since_s = min((pod.since_s for pod in world.state.pods.get(name, {}).values()), default=world.now_s)
            if found.estimate_s and world.now_s >= since_s + found.estimate_s and dice.random() < 0.8:
                world.finish(name)  # the others take longer than they said
    world.tell(WorkloadChanged(gang))
    world.decide()
    world.let_go().decide()
    assert len(world.state.pods[gang.name]) == pods, world.why("gang")
