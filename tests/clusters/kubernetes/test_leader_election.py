"""Who leads, on a real API server: never two at once, whatever clocks and lines do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kaiwo.clusters.kubernetes.client import ApiError, Client, StandbyError
from kaiwo.clusters.kubernetes.client.kubeconfig import read_kubeconfig
from kaiwo.clusters.kubernetes.leader_election import ElectionTimes, LeaderElection, clock_s
from tests.clusters.kubernetes.api_client import client_for, notes_path
from tests.clusters.kubernetes.broken_server import line_to, server_that
from tests.clusters.kubernetes.kubectl_cluster import Kubectl
from tests.controlplane.plane import Plane
from tests.waiting import is_in_time, run, until

QUICK = ElectionTimes(lease_s=1, give_up_s=0.6, renew_s=0.2, poll_s=0.1, try_s=0.4)
CERTIFICATE = "client-certificate: admin.crt\n    client-key: admin.key"


class Candidate:
    """One replica's election, as a process would run it."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.election = LeaderElection(read_kubeconfig(kubeconfig), namespace, "lead", QUICK)
        self._task = asyncio.create_task(self.election.run())

    @property
    def leads(self) -> bool:
        return self.election.is_held

    async def die(self) -> None:
        """Renews no more; the Lease stays as it is."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def leave(self) -> None:
        self.election.stop()
        await self.die()
        await self.election.release()


@asynccontextmanager
async def candidates(kubeconfig: Path, namespace: str, count: int) -> AsyncIterator[list[Candidate]]:
    found = [Candidate(kubeconfig, namespace) for _ in range(count)]
    try:
        yield found
    finally:
        for each in found:
            await each.die()
            await each.election.close()


def lease_path(namespace: str, name: str = "lead") -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases" + (f"/{name}" if name else "")


def a_lease(renewed: str, **metadata: Any) -> dict[str, Any]:
    spec = {"holderIdentity": "ghost", "leaseDurationSeconds": 1, "renewTime": renewed, "leaseTransitions": 6}
    return {"metadata": {"name": "lead", **metadata}, "spec": spec}


def test_of_five_one_leads_and_when_it_goes_the_next_never_overlaps(plane: Plane, namespace: str) -> None:
    async def test() -> None:
        async with candidates(plane.kubeconfig, namespace, 5) as field:
            most = 0

            async def count() -> None:
                nonlocal most
                while True:
                    most = max(most, sum(each.leads for each in field))
                    await asyncio.sleep(0.002)

            counting = asyncio.create_task(count())
            for turn in range(4):
                await until(lambda: any(each.leads for each in field), "somebody to lead")
                leader = next(each for each in field if each.leads)
                await asyncio.sleep(0.3)
                assert leader.leads  # it renews
                began_s = clock_s()
                await (leader.leave() if turn % 2 else leader.die())
                others = [each for each in field if each is not leader]
                await until(lambda others=others: any(each.leads for each in others), "another one")
                if turn % 2:
                    assert is_in_time(clock_s() - began_s, 0.5)  # it was released: nobody waits for it to run out
                else:
                    assert not leader.leads
                    assert clock_s() - began_s > 0.6
            counting.cancel()
            assert most == 1

    run(test())


def test_the_times_in_a_lease_are_other_peoples_clocks(plane: Plane, namespace: str) -> None:
    async def test() -> None:
        async with client_for(plane.kubeconfig) as client, contextlib.AsyncExitStack() as stack:
            kubectl = Kubectl(client)
            lease = a_lease("1999-01-01T00:00:00.000000Z", labels={"mine": "kept"})
            await kubectl.create(lease_path(namespace, ""), lease)
            (one,) = await stack.enter_async_context(candidates(plane.kubeconfig, namespace, 1))
            for number in range(12):  # its holder lives, and its clock stands in another century
                await kubectl.patch(lease_path(namespace), {"metadata": {"annotations": {"beat": str(number)}}})
                await asyncio.sleep(0.15)
                assert not one.leads
            assert one.election.holder == "ghost"
            ahead = {"spec": {"renewTime": "2099-01-01T00:00:00.000000Z"}}
            await kubectl.patch(lease_path(namespace), ahead)  # its last word, from the future
            began_s = clock_s()
            await until(lambda: one.leads, "the silent one to be followed")
            took_s = clock_s() - began_s
            assert took_s > 0.9
            assert is_in_time(took_s, 3)
            taken = await kubectl.get(lease_path(namespace))
            assert taken["metadata"]["labels"] == {"mine": "kept"}
            assert taken["spec"]["leaseTransitions"] == one.election.transitions == 7

    run(test())


def test_a_leader_that_is_cut_off_gives_up_before_another_leads(plane: Plane, namespace: str) -> None:
    async def test() -> None:
        async with contextlib.AsyncExitStack() as stack:
            async with line_to(plane) as line:
                cut = plane.write_kubeconfig("cut", CERTIFICATE, server=f"https://127.0.0.1:{line.port}")
                (old,) = await stack.enter_async_context(candidates(cut, namespace, 1))
                await until(lambda: old.leads, "the first to lead")
                (new,) = await stack.enter_async_context(candidates(plane.kubeconfig, namespace, 1))
                term = old.election.term
                lost = asyncio.create_task(old.election.lost(term))
                await asyncio.sleep(0.3)
            while old.leads:
                assert not new.leads
                await asyncio.sleep(0.002)
            async with asyncio.timeout(0.2):
                await lost
            await until(lambda: new.leads, "the other to lead")
            assert old.election.left_s <= 0

    run(test())


def test_a_standby_reads_and_never_writes(plane: Plane, namespace: str) -> None:
    async def test() -> None:
        left_s = 30.0
        client = Client(read_kubeconfig(plane.kubeconfig), may_write_s=lambda: left_s)
        try:
            note = msgspec.json.encode({"metadata": {"name": "a"}})
            await client.write("POST", notes_path(namespace), note)
            left_s = 0.0
            for method, path, body in (
                ("POST", notes_path(namespace), msgspec.json.encode({"metadata": {"name": "b"}})),
                ("PATCH", notes_path(namespace, "a"), b'{"data":{"x":"y"}}'),
                ("DELETE", notes_path(namespace, "a"), None),
            ):
                with pytest.raises(StandbyError):
                    await client.write(method, path, body)
            there = msgspec.json.decode(await client.read(notes_path(namespace)))["items"]
            assert [each["metadata"]["name"] for each in there if each["metadata"]["name"] in "ab"] == ["a"]
            assert "data" not in next(each for each in there if each["metadata"]["name"] == "a")
        finally:
            await client.close()

    run(test())


def test_a_write_ends_with_the_time_that_is_left_and_is_waited_for_before_the_lease_is_released() -> None:
    async def test() -> None:
        from aiohttp import web

        async def never(request: web.Request) -> web.StreamResponse:
            await asyncio.sleep(20)
            return web.Response()

        async with server_that(never) as address:
            from kaiwo.clusters.kubernetes.client import ClusterAccess, Credential
            from kaiwo.clusters.kubernetes.client.credentials import FixedCredential, Trust

            until_s = clock_s() + 0.5
            access = ClusterAccess(address, Trust(), FixedCredential(Credential()))
            client = Client(access, may_write_s=lambda: until_s - clock_s())
            try:
                writing = asyncio.create_task(client.write("POST", "/slow", b"{}"))
                await asyncio.sleep(0.1)
                assert not await client.wait_for_writes(0.05)
                with pytest.raises(ApiError):  # not tried again: the time is over
                    await writing
                assert is_in_time(clock_s() - until_s, 0.5)
                assert await client.wait_for_writes(0)
            finally:
                await client.close()

    run(test())
