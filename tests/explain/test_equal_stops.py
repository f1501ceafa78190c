"""Stops that free the same have the same outcome, and only the first of them is tried."""

import random
from collections import defaultdict
from collections.abc import Hashable

from kaiwo.explain.cheapest_change import cheapest_change
from kaiwo.explain.possible_changes import ChangeKind, PossibleChange
from kaiwo.explain.trials.equal_stops import EqualStops
from kaiwo.explain.verify_change import WhatIf
from kaiwo.model.events import PricesChanged, QueueChanged
from kaiwo.model.obstacle import WhyVerdict
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.model.request_mix import PricedKind, RequestKind, RequestPrices
from tests.conftest import IS_QUICK, SIZE
from tests.worlds import World


def full_world(seed: int) -> World:
    """Full nodes, queues at their limits, and waiting work of many sizes; seldom CPU is short, too."""
    rng = random.Random(seed)
    world = World(nodes=rng.randint(2, 8), gpus_per_node=rng.choice([4, 8]))
    queues = ["default", "lab", "prod", "ai"]
    for name in queues:
        limit = rng.choice([-1, 2_000, 4_000, 6_000])
        world.queue(name, gpu_limit=limit, quota_milli=rng.choice([0, 0, 4_000]))
    cpus = [500, 1_000, 1_500, *([40_000] if rng.random() < 0.2 else [])]
    for number in range(rng.randint(20, 70)):
        world.now_s += rng.choice([0, 1, 60])
        fraction = rng.choice([1_000, 1_000, 1_000, 250, 500, 900])
        world.submit(
            f"w{number:02d}",
            pods=rng.choice([1, 1, 1, 1, 2]),
            gpus_each=rng.choice([1, 1, 1, 2, 4]) if fraction == 1_000 else 1,
            fraction_milli=fraction,
            memory_mib=rng.choice([0, 0, 0, 10_000]) if fraction == 1_000 else 0,
            cpu_milli=rng.choice(cpus),
            queue=rng.choice(queues),
            priority=rng.choice([0, 0, 0, 10]),
            user=rng.choice(["ann", "bob"]),
            preemptible=rng.random() < 0.9,
        )
        if rng.random() < 0.2:
            world.settle()
    world.settle()
    return world


def stops_by_key(world: World, what_if: WhatIf) -> dict[Hashable, list[PossibleChange]]:
    equal, found = EqualStops(what_if), defaultdict[Hashable, list[PossibleChange]](list)
    for name in sorted(world.state.pods):
        if (key := equal.key_of(name)) is not None:
            found[key].append(PossibleChange(ChangeKind.STOP, "admin", name))
    return found


def test_stops_with_equal_keys_have_the_same_outcome() -> None:
    compared = helped = 0
    for seed in range((15 if IS_QUICK else 40) * SIZE):
        world = full_world(seed)
        waiting = [name for name in sorted(world.state.backlog.queued_names()) if name not in world.state.pods]
        for name in waiting[-4:]:
            what_if = WhatIf(world.state, name, world.policy, world.now_s)
            for stops in stops_by_key(world, what_if).values():
                outcomes = [what_if.outcome_after(stop) for stop in stops]
                started = {tuple((start.workload, start.pod) for start in each.starts) for each in outcomes}
                assert len(started) == 1, (seed, name, [stop.subject for stop in stops])
                assert len({each.is_started for each in outcomes}) == 1
                compared += len(stops) - 1
                helped += outcomes[0].is_started and len(stops) > 1
    assert compared > 30 * SIZE
    assert helped


def test_of_equal_stops_only_one_is_tried() -> None:
    world = World(nodes=4, gpus_per_node=8).queue("lab", gpu_limit=16_000).queue("prod")
    for number in range(32):
        queue = "lab" if number % 2 else "prod"
        world.submit(f"run-{number:02d}", gpus_each=1, cpu_milli=1_000 + number, queue=queue, user=f"user-{number}")
    world.settle()
    world.now_s += 60
    # The first takes what a stop frees, and it asks for more than the second, so nothing else rules a stop out.
    world.submit("first", gpus_each=1, cpu_milli=900, queue="lab", user="ann")
    world.now_s += 1
    world.submit("second", fraction_milli=500, cpu_milli=800, queue="lab", user="bob").settle()
    found = cheapest_change(WhatIf(world.state, "default/second", world.policy, world.now_s))
    assert found.verdict is not WhyVerdict.UNDECIDED
    what_if = WhatIf(world.state, "default/second", world.policy, world.now_s)
    assert {len(stops) for stops in stops_by_key(world, what_if).values()} == {16}
    cheapest_change(what_if)
    assert sum(change.kind is ChangeKind.STOP for change in what_if._outcomes) <= 1


def test_where_cpu_counts_stops_are_unlike() -> None:
    for short_of in ("nothing", "node", "queue", "mix"):
        world = World(nodes=2, gpus_per_node=8).queue("lab", gpu_limit=8_000)
        if short_of == "queue":
            world.tell(QueueChanged(Queue("lab", gpu=QueueAmounts(limit=8_000), cpu=QueueAmounts(limit=500_000))))
        if short_of == "mix":
            world.tell(PricesChanged(prices(cpu_price=98)))
        for number in range(8):
            world.submit(f"run-{number}", gpus_each=1, cpu_milli=1_000 + number, queue="lab")
        world.submit("rest", gpus_each=8).settle()
        world.submit("mine", gpus_each=1, cpu_milli=190_000 if short_of == "node" else 1_000, queue="lab").settle()
        what_if = WhatIf(world.state, "default/mine", world.policy, world.now_s)
        found = [len(stops) for stops in stops_by_key(world, what_if).values()]
        assert found == ([8] if short_of == "nothing" else []), short_of


def prices(cpu_price: int) -> RequestPrices:
    return RequestPrices((PricedKind(RequestKind(4_000, 1, 1_000), 4, 1_000),), cpu_price, 100, 100_000)
