"""`kaiwo scheduler`: a Kubernetes cluster, the loop, the API and the page in one process.

In:    what the person or the deployment asked for.   Out: a running scheduler, and the address where to look at it.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from kaiwo.api.app import context_of, make_app
from kaiwo.api.context import Context
from kaiwo.api.settings import Settings
from kaiwo.api.up import calm_the_interpreter, first_of
from kaiwo.clusters.kubernetes.client import find_access
from kaiwo.clusters.kubernetes.cluster import KubernetesCluster
from kaiwo.history.journal import Journal
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop import Loop
from kaiwo.runtime.options import SchedulerOptions
from kaiwo.runtime.saying import Sayer
from kaiwo.runtime.server import serve


class Scheduling(NamedTuple):
    """The scheduler while it runs."""

    cluster: KubernetesCluster
    loop: Loop
    context: Context
    url: str
    scheduling: "asyncio.Task[None]"  # ends only when it fails


def run(options: SchedulerOptions) -> None:
    """Until Ctrl-C or SIGTERM. Running work goes on without us."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(options))


@contextlib.asynccontextmanager
async def scheduling(options: SchedulerOptions) -> AsyncIterator[Scheduling]:
    """Start everything, and take it down again at the end of the block."""
    access = find_access(options.kubeconfig, options.context)
    cluster = KubernetesCluster(access, options.scheduler, emit)
    loop = Loop(cluster, Journal(Path(options.home) / "journal"))
    app = make_app(loop, Settings(home=options.home, host=options.host))
    context = context_of(app)
    tasks = [
        asyncio.create_task(loop.run(), name="kaiwo-loop"),
        asyncio.create_task(Sayer().run(loop, cluster.voice), name="kaiwo-saying"),
    ]
    try:
        await first_of(loop.changed(0), tasks[0])  # every cache is warm
        calm_the_interpreter()
        server, url = await serve(app, options.host, options.port, options.home, context.closing.set)
        try:
            yield Scheduling(cluster, loop, context, url, tasks[0])
        finally:
            await server.stop()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await cluster.close()


async def _run(options: SchedulerOptions) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with scheduling(options) as kaiwo:
        _greet(options, kaiwo)
        await first_of(stop.wait(), kaiwo.scheduling)


def _greet(options: SchedulerOptions, kaiwo: Scheduling) -> None:
    nodes = kaiwo.cluster.books.nodes
    gpus = sum(len(node.gpus) for node in nodes.values())
    lines = [
        f"Kaiwo schedules {kaiwo.cluster.name} for pods with schedulerName: {options.scheduler}",
        f"  cluster   {len(nodes)} nodes, {gpus} GPUs at {kaiwo.cluster.client.access.server}",
        f"  page      {kaiwo.url}{kaiwo.context.access.login_path()}   (works once)",
        f"  state     {options.home} (the journal; everything else is in the cluster)",
        "Ctrl-C stops Kaiwo; running work goes on.",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
