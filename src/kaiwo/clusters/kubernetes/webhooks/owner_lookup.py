"""Look up whether the controller that is written on an object exists, once for each owner.

A trusted controller makes pods for objects that were reviewed. One that does not exist was not.
Never: keeps an answer of "no": the owner may be created a moment later.
"""

import asyncio
from urllib.parse import quote

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.decode.wire_objects import Wire
from kaiwo.clusters.kubernetes.webhooks.workload_objects import Json

ANSWER_S = 2.0
MAX_KNOWN = 50_000


class _Meta(Wire):
    uid: str = ""


class _Owner(Wire):
    metadata: _Meta


class _Owners(Wire):
    items: list[_Owner] = []


class OwnerLookup:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: set[tuple[str, ...]] = set()  # with UIDs, which are never used again

    async def exists(self, namespace: str, owner: Json) -> bool:
        """`owner`: an ownerReference. A kind that Kaiwo may not list does not exist for it."""
        uid = str(owner.get("uid") or "")
        version, kind, name = (str(owner.get(key) or "") for key in ("apiVersion", "kind", "name"))
        wanted = (namespace, version, kind, name, uid)
        if wanted in self._known:
            return True
        if not (uid and kind and name and version.count("/") == 1):
            return False
        group = "/".join(quote(part, safe="") for part in version.split("/"))
        path = f"/apis/{group}/namespaces/{quote(namespace, safe='')}/{quote(kind.lower(), safe='')}s"
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._client.read(path, {"fieldSelector": f"metadata.name={name}"}, tries=1)
        except (ApiError, UnreachableError, TimeoutError):
            return False
        if all(item.metadata.uid != uid for item in msgspec.json.decode(answer, type=_Owners).items):
            return False
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known.add(wanted)
        return True
