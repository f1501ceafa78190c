"""At the size to live up to: 10,000 GPUs and 100,000 waiting workloads. The bounds are generous."""

import asyncio
import gc
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kaiwo.api.application import context_of, make_app
from kaiwo.api.context import Context
from kaiwo.api.presenters.cluster_view import status_view
from kaiwo.api.presenters.list_pages import LISTINGS
from kaiwo.api.presenters.node_view import GpuQuery, NodeQuery, gpu_page, node_page
from kaiwo.api.presenters.queue_view import queue_page
from kaiwo.api.presenters.workload_view import workload_page
from kaiwo.api.settings import Settings
from kaiwo.model.events import PodChanged
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.workload import Pod
from kaiwo.model.workload_record import WorkloadState
from kaiwo.runtime.loop.loop_metrics import LoopLag
from kaiwo.runtime.overview.workload_pages import SORTS, WorkloadQuery
from tests.api.fake_loop import FakeLoop, record
from tests.waiting import is_in_time, run

pytestmark = [pytest.mark.serial, pytest.mark.slow]
NODES, WAITING = 1250, 100_000


def large_loop() -> FakeLoop:
    loop = FakeLoop(nodes=NODES)
    share = [Share(f"gpu-{column}", 500, 98_304) for column in range(8)]
    names = loop.state.nodes.names
    loop.patch([PodChanged(Pod(f"default/r{row}-{column}", "main-0", names[row], devices=(share[column],)))
                for row in range(NODES) for column in range(8)])  # fmt: skip
    loop.put(*(record(f"w{n:06d}", submitted_s=n % 977, priority=n % 7, user=f"u{n % 50}") for n in range(WAITING)))
    return loop


def took_ms(work: Callable[[], object], times: int = 5) -> float:
    best = float("inf")
    for _ in range(times):
        began = time.process_time()  # other work on the machine hardly changes what we compute
        work()
        best = min(best, time.process_time() - began)
    return best * 1000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Context:
    async def build() -> Context:
        context = context_of(make_app(large_loop(), Settings(home=str(tmp_path_factory.mktemp("home")))))
        await context.overview.fresh_queues()
        return context

    return run(build())


def test_pages_are_quick(large: Context) -> None:
    board, encode = large.overview, msgspec.json.encode
    times = {
        "1000 gpus": took_ms(lambda: encode(gpu_page(board, GpuQuery(limit=1000)))),
        "50 gpus": took_ms(lambda: encode(gpu_page(board, GpuQuery(limit=50)))),
        "500 nodes": took_ms(lambda: encode(node_page(board, NodeQuery(limit=500)))),
        "status": took_ms(lambda: encode(status_view(board))),
        "queues": took_ms(lambda: encode(queue_page(board))),
        "labels": took_ms(lambda: encode(workload_page(board, WorkloadQuery(labels=(("a", "b"),))))),
        "text": took_ms(lambda: encode(workload_page(board, WorkloadQuery(text="99")))),
    }
    for sort in SORTS:
        times[f"by {sort}"] = took_ms(lambda sort=sort: encode(workload_page(board, WorkloadQuery(sort=sort))))  # type: ignore[misc]
    print({name: round(value, 1) for name, value in times.items()})
    assert times["1000 gpus"] < 40  # 10 on a machine of one's own
    assert times["500 nodes"] < 150
    assert all(value < 50 for name, value in times.items() if name not in ("500 nodes", "1000 gpus")), times


def test_the_loop_stays_alive_while_everybody_looks(large: Context) -> None:
    loop = large.live
    assert isinstance(loop, FakeLoop)

    async def work() -> LoopLag:
        large.overview._lock = asyncio.Lock()  # of this event loop
        gc.freeze()  # a full collection over 100,000 workloads stops all threads for 77 ms; not measured here
        lag = LoopLag()
        watch = asyncio.create_task(lag.run())
        listing = LISTINGS["workloads"]
        for turn in range(40):
            loop.put(record(f"w{turn:06d}", WorkloadState.RUNNING, submitted_s=turn))
            await large.overview.fresh()
            listing.page(large.overview, WorkloadQuery(sort="-submitted"))
            await asyncio.sleep(0.05)
        watch.cancel()
        return lag

    try:
        lag = run(work())
    finally:
        gc.unfreeze()
    print({name: round(seconds * 1000, 1) for name, seconds in lag.quantiles().items()})
    assert is_in_time(lag.quantile(0.99), 0.1)


def test_a_start_with_100000_workloads_does_not_stop_the_loop(tmp_path: Path) -> None:
    loop = large_loop()

    async def work() -> LoopLag:
        context = context_of(make_app(loop, Settings(home=str(tmp_path))))
        lag = LoopLag()
        watch = asyncio.create_task(lag.run())
        await asyncio.sleep(0.2)
        rows = await context.overview.fresh()
        assert len(rows) == WAITING
        watch.cancel()
        return lag

    lag = run(work())
    print({name: round(seconds * 1000, 1) for name, seconds in lag.quantiles().items()})
    assert is_in_time(lag.worst_s, 0.5)
