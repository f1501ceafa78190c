"""`kaiwo scheduler`: a Kubernetes cluster, the loop, the API and the page in one process.

In:    what the person or the deployment asked for.   Out: a running scheduler, and the address where to look at it.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kaiwo.api.app import context_of, make_app
from kaiwo.api.context import Context
from kaiwo.api.settings import Settings
from kaiwo.api.up import calm_the_interpreter, first_of
from kaiwo.clusters.kubernetes.client import Access, find_access
from kaiwo.clusters.kubernetes.cluster import KubernetesCluster
from kaiwo.clusters.kubernetes.election import Election
from kaiwo.history.journal import Journal
from kaiwo.runtime.leading import ALONE, Leadership, Leading
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop import Loop
from kaiwo.runtime.options import SchedulerOptions
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
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(_run(options))


@contextlib.asynccontextmanager
async def scheduling(options: SchedulerOptions) -> AsyncIterator[Scheduling]:
    """Start everything, and take it down again at the end of the block."""
    access = find_access(options.kubeconfig, options.context)
    leading = Leading(_leadership(options, access))
    cluster = KubernetesCluster(access, options.scheduler, emit, lambda: leading.leadership.left_s)
    loop = Loop(cluster, Journal(Path(options.home) / "journal"), may_decide=leading.may_decide)
    app = make_app(loop, Settings(home=options.home, host=options.host))
    context = context_of(app)
    context.leadership = leading.leadership
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(cluster.close)
        stack.push_async_callback(leading.hand_over, cluster)
        await leading.begin()
        tasks = [asyncio.create_task(loop.run(), name="kaiwo-loop"), *leading.start(cluster, loop)]
        ending = asyncio.create_task(_first_to_end(tasks), name="kaiwo-scheduling")
        stack.push_async_callback(_cancel, [*tasks, ending])
        await first_of(loop.changed(0), ending)  # every cache is warm
        calm_the_interpreter()
        server, url = await serve(app, options.host, options.port, options.home, context.closing.set)
        stack.push_async_callback(server.stop)
        stack.push_async_callback(leading.hand_over, cluster)  # first of all: the next leader need not wait for us
        yield Scheduling(cluster, loop, context, url, ending)


def _leadership(options: SchedulerOptions, access: Access) -> Leadership:
    if not options.leader_elect:
        return ALONE
    namespace = options.lease_namespace or access.namespace
    return Election(access, namespace, options.lease_name or options.scheduler, report=emit)


async def _first_to_end(tasks: "Sequence[asyncio.Task[None]]") -> None:
    """None of them ends by itself unless it failed."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _cancel(tasks: "Sequence[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _run(options: SchedulerOptions) -> None:
    this = asyncio.current_task()
    assert this is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, this.cancel)  # also while the cluster is being read
    async with scheduling(options) as kaiwo:
        _greet(options, kaiwo)
        await kaiwo.scheduling


def _greet(options: SchedulerOptions, kaiwo: Scheduling) -> None:
    nodes = kaiwo.cluster.books.nodes
    gpus = sum(len(node.gpus) for node in nodes.values())
    lines = [
        f"Kaiwo schedules {kaiwo.cluster.name} for pods with schedulerName: {options.scheduler}",
        f"  cluster   {len(nodes)} nodes, {gpus} GPUs at {kaiwo.cluster.client.access.server}",
        f"  role      {_role(options, kaiwo.context.leadership)}",
        f"  page      {kaiwo.url}{kaiwo.context.access.login_path()}   (works once)",
        f"  state     {options.home} (the journal; everything else is in the cluster)",
        "Ctrl-C stops Kaiwo; running work goes on.",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _role(options: SchedulerOptions, leadership: Leadership) -> str:
    if not options.leader_elect:
        return "the only one (--no-leader-elect)"
    if leadership.is_held:
        return "leader; it decides"
    return f"standby; {leadership.holder or 'nobody yet'} leads, and this one takes over when it dies"
