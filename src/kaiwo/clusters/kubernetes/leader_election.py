"""Elect one of several replicas as the leader: the one that holds a Lease of coordination.k8s.io/v1 and renews it.

In:    a Lease.   Out: whether this replica leads, for how much longer, and in which term.
Never: compares the clocks of two machines. A leader steps down when by its own clock it has not renewed the Lease for
       `give_up_s`; others take over when by their own clock the Lease has not changed for its whole duration, which is
       longer and begins later.
"""

import asyncio
import contextlib
import datetime
import os
import socket
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client, ClusterAccess, UnreachableError

RELEASED_S = 1  # the server requires a duration above zero


class LeaseState(NamedTuple):
    version: str  # changes with every renewal
    holder: str  # empty: none
    duration_s: int  # after this time without a renewal any replica may take it
    transitions: int
    document: dict[str, Any]  # whole: labels and fields of others are kept


class Lease:
    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client, self.namespace, self.name = client, namespace, name
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    async def read(self) -> LeaseState | None:
        """None: it does not exist yet."""
        try:
            return _read(await self._client.read(f"{self._path}/{self.name}", tries=1))
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def take(self, state: LeaseState | None, holder: str, duration_s: int) -> LeaseState:
        """Take or renew the Lease as it was just read. An ApiError with `is_conflict`: another replica was faster."""
        if state is None:
            metadata = {"name": self.name, "namespace": self.namespace}
            document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
            document["spec"] = _spec({}, holder, duration_s)
            return _read(await self._client.write("POST", self._path, msgspec.json.encode(document), tries=1))
        document = state.document | {"spec": _spec(state.document.get("spec") or {}, holder, duration_s)}
        body = msgspec.json.encode(document)
        return _read(await self._client.write("PUT", f"{self._path}/{self.name}", body, tries=1))


def _spec(before: dict[str, Any], holder: str, duration_s: int) -> dict[str, Any]:
    """The times are for people who read the Lease."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = before | {"holderIdentity": holder, "leaseDurationSeconds": duration_s, "renewTime": now}
    if holder and holder != before.get("holderIdentity"):
        spec["acquireTime"] = now
        spec["leaseTransitions"] = int(before.get("leaseTransitions") or 0) + 1 if before else 0
    return spec


def _read(body: bytes) -> LeaseState:
    document = msgspec.json.decode(body, type=dict[str, Any])
    spec = document.get("spec") or {}
    return LeaseState(
        document["metadata"]["resourceVersion"],
        spec.get("holderIdentity") or "",
        int(spec.get("leaseDurationSeconds") or 0),
        int(spec.get("leaseTransitions") or 0),
        document,
    )


NEVER = float("-inf")


class ElectionTimes(NamedTuple):
    """After a crash another replica leads within lease_s + 2 x poll_s + try_s: 12 s at the very worst."""

    lease_s: int = 8  # how long others wait after the last renewal that they saw
    give_up_s: float = 5.0  # how long the leader writes after its last renewal began; the gap covers writes in flight
    renew_s: float = 1.5
    poll_s: float = 1.0  # how often a standby reads the Lease, and a leader tries again
    try_s: float = 2.0  # the longest that one read or renewal may take


TIMES = ElectionTimes()


def clock_s() -> float:
    """A clock that never runs backwards, and also runs while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def make_identity() -> str:
    """Different for each process: writes of a former process on this machine are not ours to continue."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"


class LeaderElection:
    def __init__(
        self,
        access: ClusterAccess,
        namespace: str,
        name: str,
        times: ElectionTimes = TIMES,
        report: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self._client = Client(access)  # with its own connections: a renewal never waits behind a thousand Bindings
        self.lease = Lease(self._client, namespace, name)
        self.identity = make_identity()
        self.holder = ""  # the identity of the leader, as last read
        self.term = 0  # how often this replica began to lead
        self.transitions = 0  # as the Lease counts them
        self._times, self._report = times, report
        self._until_s = NEVER
        self._version, self._version_at_s = "", 0.0  # when this version of the Lease was first read
        self._failures = 0
        self._is_stopped = False
        self._changed = asyncio.Event()

    @property
    def left_s(self) -> float:
        """How long this replica still leads if no further renewal succeeds; zero or less: it does not lead."""
        return self._until_s - clock_s()

    @property
    def is_held(self) -> bool:
        return self.left_s > 0

    async def run(self) -> None:
        """Renew the Lease, or try to take it, until cancelled."""
        while True:
            await self.step()
            is_fine = self.is_held and not self._failures
            await asyncio.sleep(self._times.renew_s if is_fine else self._times.poll_s)

    async def step(self) -> None:
        try:
            async with asyncio.timeout(self._times.try_s):
                await self._renew_or_take()
            self._failures = 0
        except (ApiError, UnreachableError, TimeoutError) as error:
            if isinstance(error, ApiError) and error.is_conflict:
                return  # another replica was faster; the next read shows which
            self._failures += 1
            if self._failures & (self._failures - 1) == 0:
                message = str(error)[:300] or "no answer in time"
                self._report("lease-failed", level="warning", error=message, failures=self._failures)

    async def won(self) -> int:
        """Wait until this replica leads. Returns the number of the term."""
        while not self.is_held:
            self._changed.clear()
            await self._changed.wait()
        return self.term

    async def lost(self, term: int) -> None:
        while self.is_held and self.term == term:
            self._changed.clear()
            # Not `wait_for`: when the event is set in the same turn, Python 3.11's swallows a cancellation.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(self.left_s, 0.001)):
                    await self._changed.wait()
        if not self.is_held:
            self._step_down()

    def stop(self) -> None:
        self._is_stopped = True
        self._step_down()

    async def release(self) -> None:
        """Let another replica lead before the Lease expires. Only after `stop`, once no write is in flight."""
        try:
            async with asyncio.timeout(self._times.try_s):
                state = await self.lease.read()
                if state is not None and state.holder == self.identity:
                    await self.lease.take(state, "", RELEASED_S)
        except (ApiError, UnreachableError, TimeoutError) as error:
            self._report("lease-not-released", level="warning", error=str(error)[:300])

    async def close(self) -> None:
        await self._client.close()

    async def _renew_or_take(self) -> None:
        began_s = clock_s()
        state = await self.lease.read()
        if state is None or state.holder in ("", self.identity) or self._is_expired(state):
            self._hold(began_s, await self.lease.take(state, self.identity, self._times.lease_s))
        else:
            self._step_down()
            self._note_holder(state)

    def _is_expired(self, state: LeaseState) -> bool:
        """Whether by our clock its holder has not renewed it for its whole duration."""
        if state.version != self._version:
            self._version, self._version_at_s = state.version, clock_s()
        return clock_s() - self._version_at_s >= (state.duration_s or self._times.lease_s)

    def _hold(self, began_s: float, state: LeaseState) -> None:
        """Lead for `give_up_s` from before the renewal was sent: the time that it took only shortens the term."""
        if self._is_stopped or began_s + self._times.give_up_s <= clock_s():
            return
        was_held, self._until_s = self.is_held, began_s + self._times.give_up_s
        self._note_holder(state)
        if not was_held:
            self.term += 1
            self._report("leading", lease=f"{self.lease.namespace}/{self.lease.name}", identity=self.identity)
            self._changed.set()

    def _step_down(self) -> None:
        if self._until_s != NEVER:
            self._until_s = NEVER
            self._report("not-leading", identity=self.identity)
            self._changed.set()

    def _note_holder(self, state: LeaseState) -> None:
        self.holder, self.transitions = state.holder, state.transitions
