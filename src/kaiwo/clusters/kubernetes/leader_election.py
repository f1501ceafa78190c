"""Who of several replicas leads: the one that holds the Lease, and renews it in time.

In:    a Lease.   Out: whether we lead, for how long yet, and since which term.
Never: compares clocks of two machines. A leader gives up when its own clock says that it has not renewed for
       `give_up_s`; others take over when their own clock says that the Lease has not changed for its whole duration,
       which is longer and begins later.

Also: One Lease of coordination.k8s.io/v1, as the API server has it.
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

from kaiwo.clusters.kubernetes.client import Access, ApiError, Client, UnreachableError

RELEASED_S = 1  # the server wants a duration above zero


class Seen(NamedTuple):
    """The Lease at one moment."""

    version: str  # changes with every renewal
    holder: str  # empty: it was released
    duration_s: int  # after so long without a renewal anybody may take it
    transitions: int
    document: dict[str, Any]  # as it was read: labels and fields of others are kept


class Lease:
    """A named place in the cluster that one of many holds."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client, self.namespace, self.name = client, namespace, name
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    async def read(self) -> Seen | None:
        """None: there is none yet."""
        try:
            return _read(await self._client.read(f"{self._path}/{self.name}", tries=1))
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def take(self, seen: Seen | None, holder: str, duration_s: int) -> Seen:
        """Take or renew what was just read. An ApiError with `is_conflict`: somebody was faster."""
        if seen is None:
            metadata = {"name": self.name, "namespace": self.namespace}
            document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
            document["spec"] = _spec({}, holder, duration_s)
            return _read(await self._client.write("POST", self._path, msgspec.json.encode(document), tries=1))
        document = seen.document | {"spec": _spec(seen.document.get("spec") or {}, holder, duration_s)}
        body = msgspec.json.encode(document)
        return _read(await self._client.write("PUT", f"{self._path}/{self.name}", body, tries=1))

    async def release(self, seen: Seen) -> None:
        """Nobody holds it: the next one need not wait."""
        await self.take(seen, "", RELEASED_S)


def _spec(before: dict[str, Any], holder: str, duration_s: int) -> dict[str, Any]:
    """The times are for people who look at it."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = before | {"holderIdentity": holder, "leaseDurationSeconds": duration_s, "renewTime": now}
    if holder and holder != before.get("holderIdentity"):
        spec["acquireTime"] = now
        spec["leaseTransitions"] = int(before.get("leaseTransitions") or 0) + 1 if before else 0
    return spec


def _read(body: bytes) -> Seen:
    document = msgspec.json.decode(body, type=dict[str, Any])
    spec = document.get("spec") or {}
    return Seen(
        document["metadata"]["resourceVersion"],
        spec.get("holderIdentity") or "",
        int(spec.get("leaseDurationSeconds") or 0),
        int(spec.get("leaseTransitions") or 0),
        document,
    )


NEVER = float("-inf")


class Times(NamedTuple):
    """After a crash another replica leads within lease_s + 2 x look_s + try_s: 12 s at the very worst."""

    lease_s: int = 8  # others wait so long after the last renewal that they saw
    give_up_s: float = 5.0  # so long after its last renewal began the leader writes; the gap is for what is on its way
    renew_s: float = 1.5
    look_s: float = 1.0  # how often a standby looks, and a leader tries again
    try_s: float = 2.0  # the longest that one look or renewal may take


TIMES = Times()


def now_s() -> float:
    """A clock that only goes forward, and also while the machine sleeps: a lid that was closed is time that passed."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def make_identity() -> str:
    """Another one for each process: what a former one on this machine left under way is not ours to continue."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"


class Election:
    """One replica's part in it. `run` it; close it."""

    def __init__(
        self,
        access: Access,
        namespace: str,
        name: str,
        times: Times = TIMES,
        report: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self._client = Client(access)  # connections of its own: a renewal never waits behind a thousand Bindings
        self.lease = Lease(self._client, namespace, name)
        self.identity = make_identity()
        self.holder = ""  # who leads, as far as we know
        self.term = 0  # counts the times that we began to lead
        self.transitions = 0  # as the Lease counts them
        self._times, self._report = times, report
        self._until_s = NEVER
        self._version, self._version_at_s = "", 0.0  # when we first saw this version of the Lease
        self._failures = 0
        self._is_over = False
        self._moved = asyncio.Event()

    @property
    def left_s(self) -> float:
        """How long we lead for certain, if no renewal succeeds any more; zero or less: we do not lead."""
        return self._until_s - now_s()

    @property
    def is_held(self) -> bool:
        return self.left_s > 0

    async def run(self) -> None:
        """Renew, or look whether it is our turn, until cancelled."""
        while True:
            await self.step()
            is_fine = self.is_held and not self._failures
            await asyncio.sleep(self._times.renew_s if is_fine else self._times.look_s)

    async def step(self) -> None:
        """Look once."""
        try:
            async with asyncio.timeout(self._times.try_s):
                await self._look()
            self._failures = 0
        except (ApiError, UnreachableError, TimeoutError) as error:
            if isinstance(error, ApiError) and error.is_conflict:
                return  # somebody was faster; who it was is seen the next time
            self._failures += 1
            if self._failures & (self._failures - 1) == 0:
                words = str(error)[:300] or "no answer in time"
                self._report("lease-failed", level="warning", error=words, failures=self._failures)

    async def won(self) -> int:
        """Until we lead. The number of the term."""
        while not self.is_held:
            self._moved.clear()
            await self._moved.wait()
        return self.term

    async def lost(self, term: int) -> None:
        """Until this term is over."""
        while self.is_held and self.term == term:
            self._moved.clear()
            # Not `wait_for`: when the event is set in the same turn, Python 3.11's swallows a cancellation.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(self.left_s, 0.001)):
                    await self._moved.wait()
        if not self.is_held:
            self._let_go()

    def stop(self) -> None:
        """We lead no longer, from this moment on, and never again."""
        self._is_over = True
        self._let_go()

    async def release(self) -> None:
        """Let the next one lead at once. Only after `stop`, when nothing that we wrote is on its way any more."""
        try:
            async with asyncio.timeout(self._times.try_s):
                seen = await self.lease.read()
                if seen is not None and seen.holder == self.identity:
                    await self.lease.release(seen)
        except (ApiError, UnreachableError, TimeoutError) as error:
            self._report("lease-not-released", level="warning", error=str(error)[:300])

    async def close(self) -> None:
        await self._client.close()

    async def _look(self) -> None:
        began_s = now_s()
        seen = await self.lease.read()
        if seen is None or seen.holder in ("", self.identity) or self._is_silent(seen):
            self._hold(began_s, await self.lease.take(seen, self.identity, self._times.lease_s))
        else:
            self._let_go()
            self._notice(seen)

    def _is_silent(self, seen: Seen) -> bool:
        """Whether its holder has not renewed it for its whole duration, by our clock, while we looked."""
        if seen.version != self._version:
            self._version, self._version_at_s = seen.version, now_s()
        return now_s() - self._version_at_s >= (seen.duration_s or self._times.lease_s)

    def _hold(self, began_s: float, seen: Seen) -> None:
        """Counted from before the renewal was sent: whatever the server and the line took is on the safe side."""
        if self._is_over or began_s + self._times.give_up_s <= now_s():
            return
        was_held, self._until_s = self.is_held, began_s + self._times.give_up_s
        self._notice(seen)
        if not was_held:
            self.term += 1
            self._report("leading", lease=f"{self.lease.namespace}/{self.lease.name}", identity=self.identity)
            self._moved.set()

    def _let_go(self) -> None:
        if self._until_s != NEVER:
            self._until_s = NEVER
            self._report("not-leading", identity=self.identity)
            self._moved.set()

    def _notice(self, seen: Seen) -> None:
        self.holder, self.transitions = seen.holder, seen.transitions
