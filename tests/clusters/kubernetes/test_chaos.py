"""What real clusters do to a scheduler and its gangs: no device is given twice and no gang stays there by halves."""

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import scheduling
from kaiwo.clusters.kubernetes.client.informer import Informer
from tests.clusters.kubernetes.broken_server import Line, line_to
from tests.clusters.kubernetes.gang_controller import Gangs, kept
from tests.clusters.kubernetes.kubectl_cluster import Kubectl
from tests.clusters.kubernetes.replicas import replica
from tests.clusters.kubernetes.test_replicas import count_events
from tests.clusters.kubernetes.test_scheduler import CERTIFICATE, audit, bound, prepared
from tests.conftest import SIZE
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, is_in_time, run, until_answer

RESUMES_S = 5.0
GRACE_S = 1
# A gang that lost pods is given back after its grace; who waits for its room comes after that.
SETTLED_S = PATIENCE_S


def write_policy(folder: Path, grace_s: float = GRACE_S) -> str:
    """A short grace, so that a test sees its end."""
    path = folder / "policy.yaml"
    path.write_text(f"staleGangGrace: {grace_s:g}s\n")
    return str(path)


def test_a_killed_scheduler_leaves_nothing_half_done(plane: Plane, tmp_path: Path) -> None:
    """Killed while it binds, each time after another number of Bindings; the next one finishes what it finds.

    There is not room for all, so one that started what it cannot finish would show.
    """
    options = ("--no-leader-elect", "--policy", write_policy(tmp_path))  # an election waits for a Lease: test_replicas

    async def test() -> None:
        async with prepared(plane, nodes=4) as kubectl:
            gangs = Gangs(kubectl, count=4, size=6, alone=14)
            for kills in range(10 * SIZE):
                async with kept(gangs):
                    with replica(plane, tmp_path / "home", *options) as killed:
                        await bound(kubectl, random.Random(kills).randint(1, 28))
                        killed.signal(signal.SIGKILL)
                        audit([pod for pod in await gangs.pods() if pod["spec"].get("nodeName")])
                    with replica(plane, tmp_path / "home", *options):
                        await gangs.until_settled(32, SETTLED_S)

    asyncio.run(asyncio.wait_for(test(), 200 * SIZE))


@asynccontextmanager
async def working(
    plane: Plane, home: Path, nodes: int, kubeconfig: Path | None = None, grace_s: float = GRACE_S
) -> AsyncIterator[Kubectl]:
    async with prepared(plane, nodes) as kubectl:
        options = SchedulerOptions(
            str(home), port=0, kubeconfig=str(kubeconfig or plane.kubeconfig), policy=write_policy(home, grace_s)
        )
        async with scheduling(options) as kaiwo:
            yield kubectl
            assert kaiwo.loop.health.failures == 0


@pytest.mark.parametrize(("nodes", "whole"), [(5, 3), (4, 2)], ids=["room-elsewhere", "no-room"])
def test_a_node_that_vanishes_under_gangs_leaves_none_of_them_by_halves(
    plane: Plane, tmp_path: Path, nodes: int, whole: int
) -> None:
    """Where the rest still fits it is bound elsewhere; where it does not, what is left of a gang goes."""

    async def test() -> None:
        async with working(plane, tmp_path, nodes) as kubectl:
            gangs = Gangs(kubectl, count=3, size=10)  # none of them fits on one node
            async with kept(gangs):
                before = await gangs.until_settled(30, SETTLED_S)
                on = Counter(pod["spec"]["nodeName"] for pod in before)
                lost = on.most_common(1)[0][0]
                await kubectl.delete(f"/api/v1/nodes/{lost}")
                await gangs.until_settled(10 * whole, SETTLED_S, without=lost)
                evicted = await count_events(kubectl, before, "Evicted")
                assert max(evicted.values(), default=0) <= 1  # nobody is told to go twice

    run(test())


def test_a_gang_that_cannot_be_whole_again_is_told_so_before_it_is_stopped(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with working(plane, tmp_path, nodes=2, grace_s=PATIENCE_S) as kubectl:
            gangs = Gangs(kubectl, count=1, size=12)
            async with kept(gangs):
                before = await gangs.until_settled(12, SETTLED_S)
                await kubectl.delete("/api/v1/nodes/node-1")
                rest = [pod for pod in before if pod["spec"]["nodeName"] != "node-1"]
                told = await until_answer(lambda: count_events(kubectl, rest, "GangIncomplete"), bool, "the Event")
                assert list(told.values()) == [1]  # on the first of those that run
                assert not await count_events(kubectl, rest, "Evicted")

    run(test())


def test_scheduling_goes_on_within_seconds_while_every_line_is_cut_every_second(plane: Plane, tmp_path: Path) -> None:
    async def cut(line: Line) -> None:
        while True:
            await asyncio.sleep(1)
            line.cut()

    async def test() -> None:
        async with line_to(plane) as line:
            shaky = plane.write_kubeconfig("shaky", CERTIFICATE, server=f"https://127.0.0.1:{line.port}")
            async with working(plane, tmp_path, 4, shaky) as kubectl:
                task = asyncio.create_task(cut(line))
                try:
                    for number in range(8):
                        began_s = time.monotonic()
                        await kubectl.pod(f"p-{number}")
                        await bound(kubectl, number + 1)
                        took_s = time.monotonic() - began_s
                        assert is_in_time(took_s, RESUMES_S), f"pod {number} waited {took_s:.1f} s"
                        await asyncio.sleep(1.2)  # nothing happens for a cut or two: an idle watch is cut as well
                finally:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
                audit(await bound(kubectl, 8))

    run(test())


def test_a_storm_of_forgotten_places_loses_nothing(
    plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers 410 to every watch that is opened, as after its history was thrown away."""
    mirrors: set[Informer] = set()
    begin = Informer.run
    plane.kill("kube-apiserver")  # after a start it remembers nothing from before
    plane.start_api_server()

    async def run_noted(mirror: Informer) -> None:
        mirrors.add(mirror)
        await begin(mirror)

    monkeypatch.setattr(Informer, "run", run_noted)

    async def forget(line: Line) -> None:
        while True:
            await asyncio.sleep(0.3)
            for mirror in mirrors:
                if mirror.version:
                    mirror.version = "1"  # the server itself says that this is too old
            line.cut()

    async def test() -> None:
        async with line_to(plane) as line:
            shaky = plane.write_kubeconfig("shaky", CERTIFICATE, server=f"https://127.0.0.1:{line.port}")
            async with working(plane, tmp_path, 4, shaky) as kubectl:
                gangs = Gangs(kubectl, count=5, size=6)
                task = asyncio.create_task(forget(line))
                async with kept(gangs):
                    async with asyncio.timeout(PATIENCE_S):
                        while max((mirror.lists for mirror in mirrors), default=0) <= 3:  # until it was a storm
                            await asyncio.sleep(0.1)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                    over_s = time.monotonic()
                    await gangs.until_settled(30, SETTLED_S)
                    assert is_in_time(time.monotonic() - over_s, RESUMES_S + 1)

    run(test())
