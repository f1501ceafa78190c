"""`kaiwo up`: the local cluster, the loop, the API and the page in one process.

In:    what the person asked for.   Out: a running product, and the address where to look at it.
"""

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kaiwo.api.app import context_of, make_app
from kaiwo.api.context import Context
from kaiwo.api.settings import Settings
from kaiwo.clusters.local import LocalCluster, read_cluster_file, virtual_nodes
from kaiwo.clusters.local.cluster_file import DEFAULT_MODEL, DEFAULT_NODES
from kaiwo.history.journal import Journal
from kaiwo.model.node import Node
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop import Loop
from kaiwo.runtime.machine import real_node
from kaiwo.runtime.options import UpOptions
from kaiwo.runtime.server import serve
from kaiwo.runtime.shares import MachineShares

# Both were measured with bench/loop.py on two busy cores, as the event loop's lag in the 99th percentile.
# The collector visits every entry of the large tables at each full collection: by default 33 times in half a minute,
# 50 ms each; with the loaded state frozen and these thresholds, once. The model's structs are not collected at all.
GC_THRESHOLD = (2_000, 10, 100)
# So long a thread that computes keeps the interpreter from the event loop: a lag of 42 to 74 ms with Python's own 5 ms,
# of 22 to 25 ms with this.
SWITCH_S = 0.0005


def run(options: UpOptions) -> None:
    """Until Ctrl-C or SIGTERM. Running work goes on without us."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(options))


class Running(NamedTuple):
    """The product while it runs."""

    cluster: LocalCluster
    loop: Loop
    context: Context
    url: str
    scheduling: "asyncio.Task[None]"  # ends only when it fails


@contextlib.asynccontextmanager
async def running(options: UpOptions) -> AsyncIterator[Running]:
    """Start everything, and take it down again at the end of the block."""
    cluster = LocalCluster(
        options.home,
        _nodes(options),
        speed=options.speed,
        default_nodes=_default_nodes,
        shares=MachineShares(Path(options.home) / "sharing"),
    )
    loop = Loop(cluster, Journal(Path(options.home) / "journal"))
    app = make_app(loop, Settings(home=options.home, host=options.host))
    context = context_of(app)
    scheduling = asyncio.create_task(loop.run(), name="kaiwo-loop")
    try:
        await first_of(loop.changed(0), scheduling)  # the state is there: the first page that is served is not empty
        calm_the_interpreter()
        server, url = await serve(app, options.host, options.port, options.home, context.closing.set)
        try:
            yield Running(cluster, loop, context, url, scheduling)
        finally:
            await server.stop()
    finally:
        scheduling.cancel()
        await asyncio.gather(scheduling, return_exceptions=True)
        await cluster.close()


async def _run(options: UpOptions) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(options) as kaiwo:
        demo = asyncio.create_task(_demo(kaiwo.cluster), name="kaiwo-demo") if options.demo else None
        try:
            _greet(options, kaiwo)
            await first_of(stop.wait(), kaiwo.scheduling)
        finally:
            if demo is not None:
                demo.cancel()
                await asyncio.gather(demo, return_exceptions=True)


def calm_the_interpreter() -> None:
    """Keep the garbage collector and busy threads from stopping the event loop."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    sys.setswitchinterval(SWITCH_S)


async def first_of(event: Coroutine[Any, Any, object], scheduling: "asyncio.Task[None]") -> None:
    """Until it happens, or the loop ends by itself, which is an error worth seeing."""
    waiting = asyncio.ensure_future(event)
    await asyncio.wait([waiting, scheduling], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if scheduling.done():
        scheduling.result()


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


def _greet(options: UpOptions, kaiwo: Running) -> None:
    nodes = kaiwo.cluster.world.nodes
    gpus = sum(len(node.gpus) for node in nodes.values())
    kind = "virtual nodes" if kaiwo.cluster.is_virtual else "nodes"
    access = kaiwo.context.access
    login = kaiwo.url + access.login_path()
    lines = [
        f"Kaiwo is up at {kaiwo.url}",
        f"  cluster   {len(nodes)} {kind}, {gpus} GPUs" + (f", time x{options.speed:g}" if options.speed != 1 else ""),
        f"  page      {login}   (works once; it lets this browser change things)",
        f"  state     {options.home}",
        *([f"  note      {access.told}"] if access.told else []),
        "  try       kaiwo submit hello --gpus 1 -- sh -c 'echo hello from $KAIWO_GPUS'",
        "Ctrl-C stops Kaiwo; running work goes on and is found again by the next `kaiwo up`.",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
