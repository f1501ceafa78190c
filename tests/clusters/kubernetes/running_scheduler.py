"""A scheduler on the real API server, and waiting for what it says and does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import scheduling
from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S


@asynccontextmanager
async def scheduled(plane: Plane, home: Path) -> AsyncIterator[Kubectl]:
    async with client_for(plane.kubeconfig) as client:
        kubectl = Kubectl(client)
        await kubectl.clean()
        options = SchedulerOptions(str(home), port=0, kubeconfig=str(plane.kubeconfig), leader_elect=False)
        async with scheduling(options):
            yield kubectl
        await kubectl.clean()


async def until_said(kubectl: Kubectl, name: str, words: str) -> None:
    said = ""
    for _ in range(int(PATIENCE_S / 0.05)):
        said = (await kubectl.condition(name)).get("message", "")
        if words in said:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} says: {said}")


async def until_bound(kubectl: Kubectl, name: str) -> Json:
    for _ in range(int(PATIENCE_S / 0.05)):
        pod = await kubectl.read_pod(name)
        if pod["spec"].get("nodeName"):
            return pod
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} waits: {pod['status']}")
