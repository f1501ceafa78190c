"""What waiting pods say on the real API server: true a few seconds later, too, and with few writes."""

import asyncio
import re
import time
from collections import Counter
from pathlib import Path

from kaiwo.clusters.kubernetes.writers.event_writer import FLOOD_EVENTS
from tests.clusters.kubernetes.kubectl_cluster import Kubectl
from tests.clusters.kubernetes.running_scheduler import scheduled, until_bound, until_said
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run

OLDEST_S = 10.0
NODES, PODS_PER_NODE = 4, 8
_REQUESTS = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<count>[0-9.e+]+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def test_the_numbers_of_a_condition_stay_true_while_others_start(plane: Plane, tmp_path: Path) -> None:
    """A gang that waits is not tried again when other pods start: its condition said `room for only 8` for good."""

    async def test() -> None:
        async with scheduled(plane, tmp_path) as kubectl:
            await kubectl.node("one", gpus=8)
            await kubectl.node("two", gpus=8)
            await kubectl.pod("first", gpus=5)
            await until_bound(kubectl, "first")
            for index in range(12):
                gang = {"kaiwo.ai/gang": "large", "kaiwo.ai/gang-size": "12"}
                await kubectl.pod(f"large-{index}", annotations=gang)
            await until_said(kubectl, "large-0", "room for only 11")
            for number, room in enumerate((9, 7, 5)):
                await kubectl.pod(f"more-{number}", gpus=2)
                await until_bound(kubectl, f"more-{number}")
                began = time.monotonic()
                await until_said(kubectl, "large-0", f"room for only {room}")
                assert time.monotonic() - began < OLDEST_S

    run(test())


def test_of_pods_that_start_at_once_nothing_is_said_but_where_they_run(plane: Plane, tmp_path: Path) -> None:
    """One Binding and one Event for each; those that find no room get one condition, and few of them an Event."""
    starting = waiting = NODES * PODS_PER_NODE

    async def test() -> None:
        async with scheduled(plane, tmp_path) as kubectl:
            for number in range(NODES):
                await kubectl.node(f"n-{number}", gpus=PODS_PER_NODE)
            before = await writes(kubectl)
            await asyncio.gather(*(kubectl.pod(f"p-{number:03d}") for number in range(starting + waiting)))
            await until_quiet(kubectl)
            made = await writes(kubectl) - before
            assert made["POST pods/binding"] == starting
            assert made["POST events"] <= 1.05 * starting + FLOOD_EVENTS, made
            assert waiting <= made["PATCH pods/status"] <= 1.1 * waiting, made

    run(test())


async def writes(kubectl: Kubectl) -> Counter[str]:
    """The writes that the server has answered so far, by verb and resource."""
    found: Counter[str] = Counter()
    for line in (await kubectl.client.read("/metrics")).decode().splitlines():
        if match := _REQUESTS.match(line):
            labels = dict(_LABEL.findall(match["labels"]))
            if labels["verb"] in ("POST", "PATCH", "PUT") and labels["code"].startswith("2"):
                what = "/".join(filter(None, (labels["resource"], labels["subresource"])))
                found[f"{labels['verb']} {what}"] += int(float(match["count"]))
    return found


async def until_quiet(kubectl: Kubectl) -> None:
    """Until nothing has been written for as long as a condition may be old."""
    seen, since = await _about_pods(kubectl), time.monotonic()
    async with asyncio.timeout(4 * PATIENCE_S):
        while time.monotonic() - since < OLDEST_S:
            await asyncio.sleep(0.5)
            if (now := await _about_pods(kubectl)) != seen:
                seen, since = now, time.monotonic()


async def _about_pods(kubectl: Kubectl) -> int:
    made = await writes(kubectl)
    return made["POST pods/binding"] + made["POST events"] + made["PATCH pods/status"]
