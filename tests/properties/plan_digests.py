"""Decide a few worlds made from seeds and print the plans' digests: run in processes with different hash seeds."""

import random
import sys

import msgspec

from kaiwo.history.journal_entries import digest_plan
from kaiwo.model.events import Event, PodChanged
from kaiwo.model.plan import encode_plan
from tests.explain.generated_worlds import waiting_world
from tests.properties.reclaim_worlds import contended_world
from tests.properties.reserved_worlds import ReservedWorld
from tests.worlds import World


def main(shuffle_seed: int) -> None:
    for seed in range(20):
        events = waiting_world(seed, most_nodes=6, most_work=30).state.events()
        tell([event for event in events if not isinstance(event, PodChanged)], 1_000, shuffle_seed)
    for seed in range(20):  # with work that runs, and is stopped for others
        world = contended_world(seed)
        tell(list(world.state.events()), world.now_s, shuffle_seed)
    for seed in range(10):  # with reservations that begin, hold and end
        story = ReservedWorld(seed)
        for _ in range(30):
            story.step()
        tell(list(story.world.state.events()), story.world.now_s, shuffle_seed)


def tell(events: list[Event], now_s: int, shuffle_seed: int) -> None:
    random.Random(shuffle_seed).shuffle(events)
    if shuffle_seed % 2:  # as from a store: equal values, other objects
        events = msgspec.msgpack.decode(msgspec.msgpack.encode(events), type=list[Event])
    world = World(nodes=0)
    world.tell(*events)
    world.now_s = now_s
    print(" ".join(digest_plan(encode_plan(plan)).hex() for plan in world.settle()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
