"""Watch the Leases of nodes, and notice nodes that stop renewing them, long before their conditions say so.

In:    the Leases of `kube-node-lease`.   Out: the names of nodes that have missed two renewals.
A kubelet renews its Lease every quarter of its duration (10 of 40 s). A node is silent only if another one renewed its
Lease after this one should have: where the API server or the watch stands still, no Lease is renewed at all.
"""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.client import Client, Informer, Resource
from kaiwo.clusters.kubernetes.client.informer import KindHandler, as_is
from kaiwo.clusters.kubernetes.decode.wire_objects import Meta, Wire

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
DEFAULT_DURATION_S = 40
MISSED_PART = 0.3  # of the duration: by then the next renewal should have been seen
SILENT_PART = 0.55  # of the duration: two renewals are missed, even if the kubelet is a little late
CHECK_S = 1.0


class LeaseSpec(Wire):
    renew_time: str = ""
    lease_duration_seconds: int | None = None


class NodeLease(Wire):
    metadata: Meta
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class _Renewal(NamedTuple):
    text: str  # what the node wrote
    at: float  # when we saw it
    duration_s: int


class LeaseTimes:
    """When the renewal of each node was last seen, by our own clock: those of the nodes may differ from it."""

    def __init__(self) -> None:
        self._renewed: dict[str, _Renewal] = {}  # by node
        self._latest = 0.0

    def upsert(self, lease: NodeLease, at: float) -> None:
        before = self._renewed.get(lease.metadata.name)
        if before is None or before.text != lease.spec.renew_time:
            duration_s = lease.spec.lease_duration_seconds or DEFAULT_DURATION_S
            self._renewed[lease.metadata.name] = _Renewal(lease.spec.renew_time, at, duration_s)
            self._latest = max(self._latest, at)

    def delete(self, lease: NodeLease) -> None:
        self._renewed.pop(lease.metadata.name, None)

    def silent(self, now: float) -> frozenset[str]:
        """Nodes that did not renew while others did."""
        return frozenset(
            name
            for name, (_, at, duration_s) in self._renewed.items()
            if now - at > duration_s * SILENT_PART and self._latest - at > duration_s * MISSED_PART
        )


class NodeLeases:
    """`changed` is called with the silent nodes whenever there are others than before."""

    def __init__(
        self,
        client: Client,
        changed: Callable[[frozenset[str]], None],
        report: Callable[..., None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._times, self._changed, self._report = LeaseTimes(), changed, report
        handler = KindHandler(
            Resource(LEASES, NodeLease), as_is, lambda lease: self._times.upsert(lease, clock()), self._times.delete
        )
        self._informer = Informer(client, handler, report=report, is_optional=True)
        self._clock = clock
        self._known: frozenset[str] = frozenset()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Leases are not waited for before the first decision: without them, conditions count."""
        self._tasks = [asyncio.create_task(self._informer.run()), asyncio.create_task(self._check())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            silent = self._times.silent(self._clock())
            if silent != self._known:
                for name in sorted(silent - self._known):
                    self._report("node-silent", level="warning", node=name)
                self._known = silent
                self._changed(silent)
