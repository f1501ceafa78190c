"""Who starts sooner rules changes out, and only those that do not work."""

import random

import pytest

from kaiwo.explain import workload_to_stop
from kaiwo.explain.cheapest_change import cheapest_change
from kaiwo.explain.possible_changes import PossibleChange
from kaiwo.explain.trials.earlier_turns import started_earlier
from kaiwo.explain.verify_change import WhatIf
from kaiwo.model.request import Request
from tests.conftest import IS_QUICK, SIZE
from tests.worlds import World


def asked(world: World, name: str) -> WhatIf:
    return WhatIf(world.state, f"default/{name}", world.policy, world.now_s)


def test_those_who_stand_before_it_and_ask_for_no_more_start_sooner() -> None:
    world = World(gpus_per_node=4).running("first", gpus=3).running("last", gpus=1)
    for name, gpus, cpu_milli in (("small", 1, 500), ("large", 4, 500), ("hungry", 1, 2_000), ("mine", 2, 1_000)):
        world.now_s += 1
        world.submit(name, gpus_each=gpus, cpu_milli=cpu_milli)
    world.submit("other", gpus_each=1, queue="lab", stops_others=False).queue("lab")
    world.now_s += 1
    world.submit("later", gpus_each=1)
    world.settle()
    assert started_earlier(asked(world, "mine")) == [(Request(500, 0, 1), 1)]


def test_a_stop_that_frees_too_little_for_them_all_is_not_tried() -> None:
    world = World(gpus_per_node=4).running("first", gpus=2).running("last", gpus=2)
    for number in range(2):
        world.now_s += 1
        world.submit(f"small-{number}", gpus_each=1, cpu_milli=100 + number)
    world.now_s += 1
    world.submit("mine", gpus_each=1, cpu_milli=500).settle()
    what_if = asked(world, "mine")
    assert list(workload_to_stop.StopCandidates(what_if).cheapest_first("admin")) == []
    assert cheapest_change(what_if).change is None


def test_who_keeps_the_order_of_no_line_is_said_to_start_sooner_by_nobody() -> None:
    world = World(gpus_per_node=4).running("first", gpus=4, estimate_s=600)
    world.submit("planned", gpus_each=4, estimate_s=600).settle()
    world.now_s += 1
    world.submit("small", gpus_each=1).submit("mine", gpus_each=2).settle()
    assert world.state.planned_starts
    assert started_earlier(asked(world, "mine")) == []  # who fits before a planned start may pass one who does not


def test_what_is_ruled_out_does_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    ruled_out = 0
    for seed in range((20 if IS_QUICK else 120) * SIZE):
        world = crowded_world(seed)
        for name in sorted(world.state.backlog.queued_names())[-3:]:
            with_it = WhatIf(world.state, name, world.policy, world.now_s)
            found = cheapest_change(with_it).change
            with monkeypatch.context() as patch:
                patch.setattr(workload_to_stop, "started_earlier", lambda _: [])
                without = WhatIf(world.state, name, world.policy, world.now_s)
                assert cheapest_change(without).change == found, (seed, name)
            ruled_out += len(tried(without)) > len(tried(with_it))
    assert ruled_out


def tried(what_if: WhatIf) -> list[PossibleChange]:
    return list(what_if._outcomes)


def crowded_world(seed: int) -> World:
    """Few queues, in which many wait who ask for more and less of the same."""
    rng = random.Random(seed)
    world = World(nodes=rng.randint(1, 3), gpus_per_node=4)
    world.queue("default", gpu_limit=rng.choice([-1, 4_000, 8_000])).queue("lab", gpu_limit=rng.choice([-1, 4_000]))
    for number in range(rng.randint(6, 16)):
        world.now_s += rng.choice([0, 1])
        fraction = rng.choice([1_000, 1_000, 1_000, 250, 500])
        world.submit(
            f"w{number:02d}",
            pods=rng.choice([1, 1, 1, 2, 3]),
            gpus_each=rng.choice([1, 1, 2, 4]) if fraction == 1_000 else 1,
            fraction_milli=fraction,
            cpu_milli=rng.choice([500, 1_000, 30_000]),
            minimum=rng.choice([-1, -1, 1]),
            queue=rng.choice(["default", "default", "lab"]),
            priority=rng.choice([0, 0, 10]),
            preemptible=rng.random() < 0.9,
        )
        if rng.random() < 0.3:
            world.settle()
    world.settle()
    return world
