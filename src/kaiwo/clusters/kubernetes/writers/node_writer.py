"""Write on Nodes for changes of their GPUs: labels, taints, and an annotation about the change under way.

Never touches labels, taints or annotations that are not named.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import ApiError, Client
from kaiwo.clusters.kubernetes.decode.node_decoder import CHANGE_ANNOTATION
from kaiwo.model.node import Node, Taint

CONFIG_KEY = "config.json"
JSON_PATCH = "application/json-patch+json"
UNPROCESSABLE = 422  # the test in a JSON patch failed
TRIES, PAUSE_S = 20, 0.25  # a watch seldom lags longer
Operation = dict[str, Any]


class NodeWriter:
    """Changes Nodes while this replica leads."""

    def __init__(self, client: Client, cache: ClusterCache) -> None:
        self._client, self._cache = client, cache

    @property
    def may_write(self) -> bool:
        return self._client.may_write

    def node(self, name: str) -> Node | None:
        """As Kubernetes has it, without overlays."""
        return self._cache.node_cache.without_overlay.get(name)

    def is_listed(self, name: str) -> bool:
        """Whether an agent lists its devices: a bare count does not show their modes."""
        return name in self._cache.node_cache.with_agent

    def notes(self) -> dict[str, str]:
        """The changes under way, by node."""
        return dict(self._cache.node_cache.change_annotations)

    async def mark(self, name: str, note: str = "", labels: Mapping[str, str | None] | None = None) -> None:
        """Write the annotation about a change, and set labels (None: remove)."""
        metadata: dict[str, Any] = {"labels": labels} if labels else {}
        if note:
            metadata["annotations"] = {CHANGE_ANNOTATION: note}
        await self._client.patch(_path(name), msgspec.json.encode({"metadata": metadata}))

    async def unmark(self, name: str) -> None:
        """The change is over: remove its annotation."""
        body = {"metadata": {"annotations": {CHANGE_ANNOTATION: None}}}
        await self._client.patch(_path(name), msgspec.json.encode(body))

    async def taint(self, name: str, taint: Taint) -> None:
        """Add this taint, or change its effect."""
        await self._change_taints(name, lambda taints: adding(taints, taint))

    async def untaint(self, name: str, key: str) -> None:
        await self._change_taints(name, lambda taints: removing(taints, key))

    async def _change_taints(self, name: str, how: Callable[[Sequence[Taint]], list[Operation]]) -> None:
        """To the server the list is one value: if others change it meanwhile, the patch fails and is tried again."""
        for left in reversed(range(TRIES)):
            node = self.node(name)
            operations = how(node.taints) if node is not None else []
            if not operations:
                return
            try:
                await self._client.patch(_path(name), msgspec.json.encode(operations), JSON_PATCH, tries=1)
                return
            except ApiError as error:
                if error.code != UNPROCESSABLE or not left:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def read_config(self, place: str) -> dict[str, Any]:
        """The JSON in a ConfigMap, written as `namespace/name`."""
        found = msgspec.json.decode(await self._client.read(_config_path(place)), type=dict[str, Any])
        text = (found.get("data") or {}).get(CONFIG_KEY) or "{}"
        return msgspec.json.decode(text, type=dict[str, Any])

    async def write_config(self, place: str, config: Mapping[str, Any]) -> None:
        text = msgspec.json.format(msgspec.json.encode(config), indent=2).decode()
        await self._client.patch(_config_path(place), msgspec.json.encode({"data": {CONFIG_KEY: text}}))


def adding(taints: Sequence[Taint], taint: Taint) -> list[Operation]:
    """Empty if it is there already. Every operation tests the list as it is known."""
    value = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    at = next((at for at, each in enumerate(taints) if each.key == taint.key), None)
    if at is not None:
        place = f"/spec/taints/{at}"
        is_there = taints[at] == taint
        return [] if is_there else [_test(f"{place}/key", taint.key), {"op": "replace", "path": place, "value": value}]
    if taints:
        return [_test("/spec/taints/0/key", taints[0].key), {"op": "add", "path": "/spec/taints/-", "value": value}]
    return [_test("/spec/taints", None), {"op": "add", "path": "/spec/taints", "value": [value]}]


def removing(taints: Sequence[Taint], key: str) -> list[Operation]:
    """Empty if it is not there."""
    at = next((at for at, each in enumerate(taints) if each.key == key), None)
    if at is None:
        return []
    return [_test(f"/spec/taints/{at}/key", key), {"op": "remove", "path": f"/spec/taints/{at}"}]


def _test(path: str, value: str | None) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name)}"


def _config_path(place: str) -> str:
    namespace, _, name = place.partition("/")
    return f"/api/v1/namespaces/{quote(namespace)}/configmaps/{quote(name)}"
