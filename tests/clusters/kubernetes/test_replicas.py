"""Two schedulers on a real API server: one decides, and when it stops, dies or freezes the other goes on."""

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.clusters.kubernetes.kubectl_cluster import LEASE, Json, Kubectl
from tests.clusters.kubernetes.replicas import Replica, replica
from tests.clusters.kubernetes.test_scheduler import CERTIFICATE, audit, bound, prepared
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, is_in_time, run

TAKE_OVER_S = 15.0


async def until(condition: Callable[[], object], what: str, within_s: float = PATIENCE_S) -> float:
    """The seconds it took."""
    began = time.monotonic()
    while True:
        with contextlib.suppress(OSError):  # a process that just started or just died
            if await asyncio.to_thread(condition):
                return time.monotonic() - began
        assert time.monotonic() - began < within_s, f"waited {within_s:g} s for {what}"
        await asyncio.sleep(0.05)


@asynccontextmanager
async def two(plane: Plane, folder: Path) -> AsyncIterator[tuple[Kubectl, Replica, Replica]]:
    """A leader and a standby with warm caches."""
    async with prepared(plane, nodes=8) as kubectl:
        with replica(plane, folder / "a") as leader, replica(plane, folder / "b", "--leader-elect") as standby:
            await until(lambda: leader.is_up and standby.is_up, "both to serve")
            if leader.metric("kaiwo_leader") == 0:  # the second was faster
                leader, standby = standby, leader
            yield kubectl, leader, standby


async def make_pods(kubectl: Kubectl, first: int, count: int) -> None:
    await asyncio.gather(*(kubectl.pod(f"p-{number:02d}") for number in range(first, first + count)))


async def audit_everything(kubectl: Kubectl, count: int, told: int = 1) -> None:
    """Every device once, no pod announced twice, and so many at least announced: Events come after the Bindings."""
    pods = await bound(kubectl, count)
    audit(pods)
    until_s = time.monotonic() + PATIENCE_S
    while len(said := await count_events(kubectl, pods, "Scheduled")) < told:
        assert time.monotonic() < until_s, f"{len(said)} of {count} bound pods were announced, at least {told} expected"
        await asyncio.sleep(0.1)
    assert set(said.values()) == {1}


async def count_events(kubectl: Kubectl, pods: list[Json], reason: str) -> Counter[str]:
    """By UID, of these pods alone: the server remembers those of other tests."""
    own = {pod["metadata"]["uid"] for pod in pods}
    found = [each for each in (await kubectl.get("/api/v1/events"))["items"] if each["reason"] == reason]
    return Counter(each["involvedObject"]["uid"] for each in found if each["involvedObject"]["uid"] in own)


def test_a_standby_shows_everything_changes_nothing_and_takes_over_at_once_after_an_orderly_stop(
    plane: Plane, tmp_path: Path
) -> None:
    async def test() -> None:
        async with two(plane, tmp_path) as (kubectl, leader, standby):
            assert leader.metric("kaiwo_leader") == 1
            assert standby.metric("kaiwo_leader") == 0
            assert leader.ask("/readyz") == "ok\n"
            assert standby.ask("/healthz") == "ok\n"
            holder = (await kubectl.get(LEASE))["spec"]["holderIdentity"]
            assert f"_{leader.process.pid}_" in holder
            await until(lambda: standby.ask("/readyz") == f"ok, standby; the leader is {holder}\n", "its words")
            await make_pods(kubectl, 0, 8)
            await bound(kubectl, 8)
            await until(
                lambda: (
                    '"p-07"' in standby.ask("/api/v1/workloads") or "default/p-07" in standby.ask("/api/v1/workloads")
                ),
                "the standby to see it",
            )
            refused = standby.change("/api/v1/nodes/node-1/cordon")
            assert refused == 503
            assert "unschedulable" not in (await kubectl.get("/api/v1/nodes/node-1"))["spec"]

            leader.signal(signal.SIGTERM)
            took_s = await until(lambda: standby.metric("kaiwo_leader") == 1, "the standby to lead")
            assert is_in_time(took_s, 5), f"{took_s:.1f} s after an orderly stop"
            assert leader.process.wait(10) == 0
            assert standby.metric("kaiwo_leader_transitions_total") == 1
            await make_pods(kubectl, 8, 8)
            await audit_everything(kubectl, 16, told=16)  # an orderly stop leaves nothing unsaid

    run(test())


def test_after_kill_9_of_the_leader_the_other_binds_within_15_seconds(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with two(plane, tmp_path) as (kubectl, leader, standby):
            await make_pods(kubectl, 0, 32)
            await bound(kubectl, 5)  # killed while it binds
            leader.signal(signal.SIGKILL)
            began = time.monotonic()
            await make_pods(kubectl, 32, 32)
            await audit_everything(kubectl, 64)
            took_s = time.monotonic() - began
            assert is_in_time(took_s, TAKE_OVER_S), f"the last pod was bound {took_s:.1f} s after the leader died"
            assert standby.metric("kaiwo_leader") == 1

    run(test())


def test_a_frozen_leader_that_comes_back_does_no_harm(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with two(plane, tmp_path) as (kubectl, leader, standby):
            await make_pods(kubectl, 0, 24)
            await bound(kubectl, 3)
            leader.signal(signal.SIGSTOP)  # in the middle of its Bindings
            began = time.monotonic()
            await make_pods(kubectl, 24, 24)
            await audit_everything(kubectl, 48)
            assert is_in_time(time.monotonic() - began, TAKE_OVER_S)
            await make_pods(kubectl, 48, 8)
            leader.signal(signal.SIGCONT)  # it believes for a moment that no time has passed
            await make_pods(kubectl, 56, 8)
            await audit_everything(kubectl, 64)
            await until(lambda: leader.ask("/readyz").startswith("ok, standby"), "the old leader to stand by")
            assert leader.metric("kaiwo_leader") == 0
            assert standby.metric("kaiwo_leader") == 1
            # It may lead again when its turn comes, and knows what happened meanwhile.
            standby.signal(signal.SIGTERM)
            await until(lambda: leader.metric("kaiwo_leader") == 1, "it to lead again")
            await kubectl.delete("/api/v1/namespaces/default/pods/p-00")
            await kubectl.pod("one-more")
            await audit_everything(kubectl, 64)
            assert not [line for line in leader.log() if "write-broken" in line or "cycle-failed" in line]

    run(test())


def test_it_can_be_stopped_while_it_waits_for_the_api_server(plane: Plane, tmp_path: Path) -> None:
    nowhere = plane.write_kubeconfig("nowhere", CERTIFICATE, server="https://127.0.0.1:9")

    async def test() -> None:
        with replica(plane, tmp_path / "a", "--kubeconfig", str(nowhere)) as lonely:
            await until(lambda: any("lease-failed" in line for line in lonely.log()), "its first try")
            lonely.signal(signal.SIGTERM)
            assert await asyncio.to_thread(lonely.process.wait, 5) == 0

    run(test())
