"""Decide a few worlds made from seeds and print the plans' digests: run in processes with different hash seeds."""

import random
import sys

import msgspec

from kaiwo.history.entry import digest_plan
from kaiwo.model.event import Event, PodChanged
from kaiwo.model.plan import encode_plan
from tests.explain.generated import waiting_world
from tests.worlds import World


def main(shuffle_seed: int) -> None:
    for seed in range(20):
        events = list(waiting_world(seed, most_nodes=6, most_work=30).picture.events())
        events = [event for event in events if not isinstance(event, PodChanged)]
        random.Random(shuffle_seed).shuffle(events)
        if shuffle_seed % 2:  # as from a store: equal values, other objects
            events = msgspec.msgpack.decode(msgspec.msgpack.encode(events), type=list[Event])
        world = World(nodes=0)
        world.tell(*events)
        world.now_s = 1_000
        print(" ".join(digest_plan(encode_plan(plan)).hex() for plan in world.settle()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
