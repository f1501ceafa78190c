"""`kaiwo up`: the local cluster, the loop, the API and the page in one process.

In:    what the person asked for.   Out: a running product, and the address where to look at it.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kaiwo.api.app import context_of, make_app
from kaiwo.api.settings import Settings
from kaiwo.clusters.local import LocalCluster, read_cluster_file, virtual_nodes
from kaiwo.clusters.local.cluster_file import DEFAULT_MODEL, DEFAULT_NODES
from kaiwo.clusters.local.machine import real_node
from kaiwo.history.journal import Journal
from kaiwo.model.node import Node
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop import Loop
from kaiwo.runtime.options import UpOptions
from kaiwo.runtime.server import serve


def run(options: UpOptions) -> None:
    """Until Ctrl-C or SIGTERM. Running work goes on without us."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(options))


async def _run(options: UpOptions) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    cluster = LocalCluster(options.home, _nodes(options), speed=options.speed, default_nodes=_default_nodes)
    loop = Loop(cluster, Journal(Path(options.home) / "journal"))
    app = make_app(loop, Settings(home=options.home, host=options.host))
    tasks = [asyncio.create_task(loop.run(), name="kaiwo-loop")]
    try:
        await loop.changed(0)  # the state is there: the first page that is served is not empty
        context = context_of(app)
        server, url = await serve(app, options.host, options.port, options.home, context.closing.set)
        try:
            if options.demo:
                tasks.append(asyncio.create_task(_demo(cluster), name="kaiwo-demo"))
            _greet(options, cluster, url, url + context.access.login_path())
            await _until(stop, tasks)
        finally:
            await server.stop()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await cluster.close()


def _nodes(options: UpOptions) -> Sequence[Node] | None:
    """The nodes that were asked for; None: those the cluster had."""
    if options.cluster_file:
        return read_cluster_file(Path(options.cluster_file).read_text(), options.cluster_file)
    if options.nodes or options.gpu_model:
        return virtual_nodes(options.nodes or DEFAULT_NODES, options.gpu_model or DEFAULT_MODEL)
    return None


def _default_nodes() -> Sequence[Node]:
    """This machine if it has GPUs, else a virtual cluster."""
    machine = real_node()
    return virtual_nodes() if machine is None else (machine,)


async def _demo(cluster: Any) -> None:
    from kaiwo.clusters.local.demo import keep_alive, submit_demo

    try:
        await submit_demo(cluster)
        await keep_alive(cluster)
    except Exception as error:  # the sample work is a courtesy: without it the product still runs
        emit("demo-failed", level="error", error=f"{type(error).__name__}: {error}")


async def _until(stop: asyncio.Event, tasks: list["asyncio.Task[None]"]) -> None:
    """Until somebody stops us, or the loop ends by itself, which is an error worth seeing."""
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait([waiting, tasks[0]], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if tasks[0].done():
        tasks[0].result()


def _greet(options: UpOptions, cluster: LocalCluster, url: str, login: str) -> None:
    nodes = cluster.world.nodes
    gpus = sum(len(node.gpus) for node in nodes.values())
    kind = "virtual nodes" if cluster.is_virtual else "nodes"
    lines = [
        f"Kaiwo is up at {url}",
        f"  cluster   {len(nodes)} {kind}, {gpus} GPUs" + (f", time x{options.speed:g}" if options.speed != 1 else ""),
        f"  page      {login}   (works once; it lets this browser change things)",
        f"  state     {options.home}",
        "  try       kaiwo submit hello --gpus 1 -- sh -c 'echo hello from $KAIWO_GPUS'",
        "Ctrl-C stops Kaiwo; running work goes on and is found again by the next `kaiwo up`.",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
