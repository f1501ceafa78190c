"""A cycle's step budget: every class has a turn in the end, and what earlier cycles remember changes no count."""

import random

import pytest

from bench.decide import mixed_shape
from kaiwo.decide import decide
from kaiwo.model.affinity import NodeRule
from kaiwo.model.errors import ConfigError
from kaiwo.model.events import PodChanged, PodGone
from kaiwo.model.plan import encode_plan
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.snapshot.cluster_state import ClusterState
from tests.worlds import World


def stir(world: World, number: int) -> None:
    """Something is freed: every class deserves another try."""
    world.tell(PodChanged(Pod("f/x", f"p-{number}", "node-0")), PodGone("f/x", f"p-{number}"))


def test_classes_at_their_limit_do_not_use_up_the_turns_of_others() -> None:
    world = (
        World(policy=Policy(steps=200)).queue("full", gpu_limit=0).queue("open").running("old", gpus=1, queue="open")
    )
    for number in range(300):
        world.submit(f"a{number}", gpus_each=1, cpu_milli=number + 1, queue="full")
    world.submit("b", gpus_each=1, queue="open").decide()
    assert world.is_running("b")


def test_what_the_budget_did_not_reach_goes_first_however_often_something_is_freed() -> None:
    world = World(nodes=2, gpus_per_node=1, policy=Policy(steps=20))
    for number in range(60):  # each looks possible and is not: two GPUs on one node
        rules = (NodeRule("kubernetes.io/x", "DoesNotExist"), NodeRule(f"k{number}", "DoesNotExist"))
        world.submit(f"doomed{number:02}", pods=3, request=Request(gpus=1, node_rules=rules), priority=5)
    world.submit("possible", gpus_each=1)
    for number in range(12):
        stir(world, number)
        world.decide()
        if world.is_running("possible"):
            break
    assert world.is_running("possible")


@pytest.mark.parametrize("seed", [0, 2])
def test_classes_that_a_batch_finds_stuck_are_not_tried_for_ever(seed: int) -> None:
    """A batch that was put back had used up the budget, and every later cycle did the same again."""
    draw, world = random.Random(seed), World(nodes=5, policy=Policy(steps=100))
    scheduler = CycleRunner(None, world.policy, is_budget_fixed=True)
    scheduler.state = world.state  # what it starts stays assumed: nothing is stopped for other queues
    for number in range(50):
        world.queue(f"team-{number:03}")
    shapes = [mixed_shape(number) for number in range(50)]
    for number in range(400):
        shape = draw.choice(shapes)
        world.submit(f"w{number:03}", request=shape, queue=f"team-{draw.randrange(50):03}", submitted_s=number)
    cycles = 0
    while scheduler.cycle(now_s=10) is not None:
        cycles += 1
        assert cycles < 30, f"{len(world.state.backlog.to_try)} classes are still to be tried"


def test_a_cycle_without_a_step_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        Policy(steps=0)


def test_a_picture_without_memory_spends_the_same_steps() -> None:
    world = World(nodes=4, policy=Policy(steps=10))
    for number in range(40):
        world.submit(f"w{number}", gpus_each=1, cpu_milli=number + 1)
    world.decide()
    for number in range(40, 60):
        world.submit(f"w{number}", gpus_each=2, cpu_milli=number + 1)
    fresh = ClusterState(world.plugins.ordering(world.policy))
    fresh.patch(world.state.events())
    for state in (world.state, fresh):
        state.backlog.try_all, state.backlog.resumed, state.rules_digest = True, frozenset(), ""
        for found in state.backlog.by_key.values():
            found.obstacles = ()
    plans = [encode_plan(decide(state.snapshot(0), world.policy)) for state in (world.state, fresh)]
    assert plans[0] == plans[1]


def test_shapes_that_nobody_waits_with_are_forgotten() -> None:
    world = World()
    for number in range(1_000):
        world.submit("brief", gpus_each=1, cpu_milli=number + 1).decide()
        world.finish("brief")
    world.decide()
    assert len(world.state.backlog.shapes._numbers) < 300
    assert max(len(kept) for kept in world.state.caches.values()) < 300
    world.submit("new", gpus_each=8, cpu_milli=5_000).settle()
    assert world.devices_of("new") == [f"node-0/gpu-{number}" for number in range(8)]
