"""One short fingerprint a cycle of a story: two runs that decide the same have the same fingerprints.

In:    a seed.   Out: `a3f0 77c1 …`, one word a cycle.
A word covers the whole plan with the facts of its obstacles and, every few cycles, what else the core says of the
cluster: fair shares and their terms, the list of devices, reservations, partition plans.
"""

import hashlib
import json
from typing import Any

import msgspec

from bench._device_list import list_devices
from kaiwo.gpus.partitioning.demand import node_states, waiting_demands
from kaiwo.gpus.partitioning.planner import plan_partitions
from kaiwo.model.plan import Plan
from kaiwo.queues.current_shares import fair_shares_of, queue_demand_of
from kaiwo.queues.fair_share import share_breakdown
from kaiwo.snapshot.reservation_status import reservation_statuses
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.decisions.stories import Story
from tests.worlds import World

CYCLES = 25
EVERY = 5  # cycles between two looks at everything else


def fingerprints(seed: int) -> str:
    """Of one story."""
    story, words = Story(seed), []
    for number, plan in enumerate(story.plans(CYCLES)):
        told: list[Any] = [_encoded(plan)]
        if number % EVERY == EVERY - 1:
            told.append(_everything_else(story.world))
        words.append(hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:4])
    return " ".join(words)


def _encoded(plan: Plan) -> Any:
    found = json.loads(msgspec.json.encode(plan))
    found.pop("notes", None)
    return found


def _everything_else(world: World) -> Any:
    snapshot = world.snapshot()
    view = WorkingCopy(snapshot).view
    wants, shares = queue_demand_of(view), fair_shares_of(view)
    devices = list_devices(world.state.nodes)
    steps = plan_partitions(
        world.now_s, node_states(world.state, {}, world.now_s), waiting_demands(world.state, world.now_s)
    )
    return json.loads(
        msgspec.json.encode(
            [
                [share_breakdown(view.queues, wants, shares, row) for row in range(len(view.queues.names))],
                [devices.ids, devices.free_milli.tolist(), devices.free_mib.tolist(), devices.usable.tolist()],
                reservation_statuses(world.state, world.now_s),
                steps,
            ]
        )
    )
