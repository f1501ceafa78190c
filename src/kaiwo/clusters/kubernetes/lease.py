"""One Lease of coordination.k8s.io/v1, as the API server has it.

In:    a namespace and a name.   Out: who holds it, and a new holder, if nobody else was first.
Never: writes over a version that it has not read, or reads the times in it: they are other machines' clocks.
"""

import datetime
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client

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
