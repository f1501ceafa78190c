"""Turns that are taken together start exactly the workloads that turns one by one would start."""

import random

import pytest

from kaiwo.decide.actions import allocate
from kaiwo.model.policy import Policy
from tests.worlds import World

POLICY = Policy(steps=1_000_000, promises=0)


def contest(seed: int) -> World:
    """One-GPU pods that differ in CPU alone, of which there is plenty: how they are packed decides nothing."""
    draw = random.Random(seed)
    world = World(nodes=draw.randint(2, 12), policy=POLICY)
    queues = [f"q{number}" for number in range(draw.choice((1, 2, 30)))]
    for name in queues:
        world.queue(name, gpu_limit=draw.choice((-1, -1, 3_000, 20_000)))
    for number in range(draw.randint(50, 400)):
        kind = draw.randint(1, 6)
        priority = draw.choice((0, 0, 0, 100))
        world.submit(f"w{number}", gpus_each=1, cpu_milli=kind * 10, queue=draw.choice(queues), priority=priority,
                     submitted_s=number)  # fmt: skip
    return world


@pytest.mark.parametrize("seed", range(12))
def test_together_as_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    together = {start.workload for start in contest(seed).decide().starts}
    monkeypatch.setattr(allocate.Allocate, "_take_batch", lambda self, run: False)
    assert together == {start.workload for start in contest(seed).decide().starts}
    assert together


def test_a_window_is_cut_where_one_does_not_fit() -> None:
    """Two kinds fill 80 GPUs: each would have room alone, so the window is too long, and only the first 80 start."""
    world = World(nodes=10, policy=POLICY)
    for number in range(300):
        world.submit(f"w{number:03d}", gpus_each=1, cpu_milli=10 + number % 2, submitted_s=number)
    starts = world.decide().starts
    assert sorted(start.workload for start in starts) == [f"default/w{number:03d}" for number in range(80)]


def test_nobody_is_refused_for_the_sake_of_somebody_behind() -> None:
    """A whole node is asked for first; the small ones behind it, gathered with it, do not take its room."""
    world = World(nodes=3, policy=POLICY)
    world.submit("small-before", gpus_each=1, submitted_s=0)
    for number in range(2):
        world.submit(f"whole-{number}", gpus_each=8, submitted_s=1 + number)
    for number in range(20):
        world.submit(f"small-{number}", gpus_each=1, submitted_s=10 + number)
    world.decide()
    assert world.is_running("whole-0")
    assert world.is_running("whole-1")
    assert sum(world.is_running(f"small-{number}") for number in range(20)) == 7


def doomed_before_owed(above: bool) -> World:
    """The first of queue `a` asks for a model that is not there, and the next would take `a` over its quota."""
    world = World(policy=Policy(promises=0)).queue("c", quota_milli=4_000, created_s=0)
    world.queue("a", quota_milli=1_000, created_s=1)
    first, next_one = ("a1", "a2") if above else ("a", "a")
    if above:
        world.queue("a1", "a", quota_milli=1_000, created_s=2).queue("a2", "a", created_s=3)
    world.queue("b", quota_milli=4_000, created_s=4)
    world.submit("c1", gpus_each=1, queue="c", submitted_s=1)
    world.submit("doomed", gpus_each=1, models=("MI250X",), queue=first, submitted_s=2)
    world.submit("big", gpus_each=4, queue=next_one, submitted_s=3)
    world.submit("owed", gpus_each=4, queue="b", submitted_s=4)
    return world


@pytest.mark.parametrize("above", [False, True])
def test_who_stands_behind_a_doomed_one_does_not_get_its_turn(above: bool) -> None:
    """The window finds too little room for all and is put back; the doomed one stays away, and its place with it."""
    world = doomed_before_owed(above)
    plan = world.decide()
    assert [start.workload for start in plan.starts] == ["default/c1", "default/owed"]
    assert not world.decide().evictions


def mixed_contest(seed: int) -> World:
    """One node, a tree of queues, sizes of all kinds, some of a model that is not there: the order of turns decides."""
    draw = random.Random(seed)
    world = World(policy=POLICY)
    for number in range(draw.randint(1, 3)):
        world.queue(f"top-{number}", quota_milli=draw.choice((0, 1_000, 3_000)))
    tops = list(world.state.queue_objects)
    leaves = []
    for number in range(draw.randint(2, 6)):
        world.queue(f"q{number}", draw.choice(("", *tops)), quota_milli=draw.choice((0, 0, 1_000, 2_000)))
        leaves.append(f"q{number}")
    for number in range(draw.randint(5, 40)):
        size = draw.choice((1, 1, 1, 2, 4))
        models = ("MI250X",) if draw.random() < 0.2 else ()
        world.submit(f"w{number}", gpus_each=size, models=models, queue=draw.choice(leaves), submitted_s=number)
    return world


@pytest.mark.parametrize("seed", range(60))
def test_sizes_of_all_kinds_together_as_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    together = {start.workload for start in mixed_contest(seed).decide().starts}
    monkeypatch.setattr(allocate.Allocate, "_take_batch", lambda self, run: False)
    assert together == {start.workload for start in mixed_contest(seed).decide().starts}
