"""Whatever an agent sends, the answer is a sentence: the scheduler never breaks over it, and goes on."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import msgspec

from kaiwo.devices.agent_messages import MEDIA_TYPE, Hello, encode_line
from kaiwo.devices.discover import discover
from kaiwo.devices.sampling.sampler import Sampler
from tests.api.world import world
from tests.devices.amd_trees import Box, write_box
from tests.waiting import run, until

NASTY: tuple[Any, ...] = (
    None, True, "", "x" * 5000, "a\nb", "\u202e", -1, 0, 1, 2**31, 2**63, 2**64, 10**30, 1e308, [], {}, [[]], ["a"],
    {"a": 1}, "failed", "CPX", "MIG", [None],
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        found += places(item, (*path, key))
    return found


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    twin = copy.deepcopy(document)
    at = twin
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return twin


def test_every_field_of_every_line_replaced_by_something_nasty(tmp_path: Path, test_size: int) -> None:
    root = write_box(tmp_path / "tree", Box(gpus=2, compute="DPX"))
    inventory = msgspec.structs.replace(discover(str(root), has_telemetry=False), node="node-0")
    sampler = Sampler(inventory, str(root))
    hello = json.loads(encode_line(Hello("node-0", "1", "boot", inventory)))
    sample = json.loads(encode_line(sampler.sample(0.0)))
    sampler.close()
    draw = random.Random(11)
    spoilt = [(changed(hello, place, value), sample) for place in places(hello) for value in NASTY]
    spoilt += [(hello, changed(sample, place, value)) for place in places(sample) for value in NASTY]

    async def look() -> None:
        async with world(tmp_path / "home", nodes=1) as kaiwo:
            headers = {"Authorization": f"Bearer {kaiwo.context.access.agent_token}", "Content-Type": MEDIA_TYPE}
            for first, second in draw.sample(spoilt, min(len(spoilt), 400 * test_size)):
                body = b"".join(json.dumps(line).encode() + b"\n" for line in (first, second))
                answer = await kaiwo.client.post("/api/agents/node-0/reports", content=body, headers=headers)
                assert answer.status_code in (200, 400), (first, second, answer.text)
                assert (await kaiwo.get("/nodes/node-0")).status_code == 200
            body = json.dumps(hello).encode() + b"\n"
            assert (await kaiwo.client.post("/api/agents/node-0/reports", content=body, headers=headers)).is_success
            await kaiwo.submit("after", gpuPartition="DPX", simulate="1h")
            await until(lambda: kaiwo.cluster.record("default/after").state == "running", "work to start")
            assert kaiwo.context.bugs == 0
            assert kaiwo.loop.health.failures == 0

    run(look())
