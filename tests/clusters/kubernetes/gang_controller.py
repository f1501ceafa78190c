"""Gangs on a real API server with somebody who looks after them: what vanishes is made anew.

In:    a Kubectl.   Out: pods in gangs, and how many of each gang have a node.
The test plays the controller above the pods and the collector of pods whose node is gone: the real ones take a minute.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kaiwo.clusters.kubernetes.client import ApiError
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, pod_path
from tests.clusters.kubernetes.test_scheduler import audit

GANG = "kaiwo.ai/gang"
LOOK_S = 0.05


class Gangs:
    """`count` gangs of `size` pods with one GPU each, and pods that stand alone."""

    def __init__(self, kubectl: Kubectl, count: int, size: int, alone: int = 0) -> None:
        self.kubectl, self.count, self.size = kubectl, count, size
        self.names = [f"g{gang}-{pod}" for gang in range(count) for pod in range(size)]
        self.names += [f"alone-{number}" for number in range(alone)]

    async def make(self, name: str) -> None:
        gang = name.partition("-")[0]
        notes = {} if gang == "alone" else {GANG: gang, "kaiwo.ai/gang-size": str(self.size)}
        try:
            # Without a kubelet nobody ends what was evicted, unless it may go at once.
            await self.kubectl.pod(name, annotations=notes, terminationGracePeriodSeconds=0)
        except ApiError as error:
            if not error.is_conflict:
                raise

    async def make_all(self) -> None:
        await asyncio.gather(*(self.make(name) for name in self.names))

    async def delete_all(self) -> None:
        await asyncio.gather(*(self.kubectl.delete(pod_path(name)) for name in self.names))

    async def pods(self) -> list[Json]:
        return (await self.kubectl.get("/api/v1/pods"))["items"]

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            with contextlib.suppress(ApiError):
                nodes = {node["metadata"]["name"] for node in (await self.kubectl.get("/api/v1/nodes"))["items"]}
                there = await self.pods()
                for pod in there:
                    if pod["spec"].get("nodeName", "") not in {"", *nodes}:
                        await self.kubectl.delete(pod_path(pod["metadata"]["name"]))
                missing = set(self.names) - {pod["metadata"]["name"] for pod in there}
                await asyncio.gather(*(self.make(name) for name in sorted(missing)))
            await asyncio.sleep(LOOK_S)

    async def until_settled(self, bound: int, within_s: float, without: str = "") -> list[Json]:
        """So many pods have a node, but not that one, and no gang is there by halves."""
        halves: dict[str, int] = {}
        there: list[Json] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while True:
                    there = [pod for pod in await self.pods() if pod["spec"].get("nodeName")]
                    halves = {gang: up for gang, up in count_by_gang(there).items() if up != self.size}
                    is_left = all(pod["spec"]["nodeName"] != without for pod in there)
                    if len(there) == bound and not halves and is_left:
                        audit(there)
                        return there
                    await asyncio.sleep(LOOK_S)
        raise AssertionError(f"after {within_s:g} s {len(there)} of {bound} pods have a node; by halves: {halves}")


def count_by_gang(pods: list[Json]) -> Counter[str]:
    found = (pod["metadata"].get("annotations", {}).get(GANG, "") for pod in pods)
    return Counter(gang for gang in found if gang)


@asynccontextmanager
async def kept(gangs: Gangs) -> AsyncIterator[None]:
    """Made, and made anew whenever one vanishes."""
    await gangs.make_all()
    task = asyncio.create_task(gangs.keep())
    try:
        yield
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await gangs.delete_all()
