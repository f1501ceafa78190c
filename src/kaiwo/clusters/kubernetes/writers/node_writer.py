"""Write labels, taints and an annotation on Nodes while their GPUs are repartitioned.

Never touches other labels, taints or annotations than those that the caller names.
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
    def __init__(self, client: Client, cache: ClusterCache) -> None:
        self._client, self._cache = client, cache

    @property
    def may_write(self) -> bool:
        return self._client.may_write

    def node(self, name: str) -> Node | None:
        """As Kubernetes has it, without overlays."""
        return self._cache.node_cache.without_overlay.get(name)

    def has_agent(self, name: str) -> bool:
        """Whether an agent reports its devices: a bare count does not show their modes."""
        return name in self._cache.node_cache.with_agent

    def changes(self) -> dict[str, str]:
        return dict(self._cache.node_cache.change_annotations)

    async def write_change(self, name: str, change: str, labels: Mapping[str, str | None] | None = None) -> None:
        """Write the annotation about a change (empty: remove it), and set labels (None: remove)."""
        metadata = {"annotations": {CHANGE_ANNOTATION: change or None}, "labels": labels or {}}
        await self._client.patch(_path(name), msgspec.json.encode({"metadata": metadata}))

    async def write_labels(self, name: str, labels: Mapping[str, str | None]) -> None:
        await self._client.patch(_path(name), msgspec.json.encode({"metadata": {"labels": labels}}))

    async def taint(self, name: str, taint: Taint) -> None:
        """Add this taint, or change its effect."""
        await self._change_taints(name, lambda taints: add_taint(taints, taint))

    async def untaint(self, name: str, key: str) -> None:
        await self._change_taints(name, lambda taints: remove_taint(taints, key))

    async def _change_taints(self, name: str, change: Callable[[Sequence[Taint]], list[Operation]]) -> None:
        """The server treats the list as one value: if it was changed meanwhile, the patch fails and is tried again."""
        for left in reversed(range(TRIES)):
            node = self.node(name)
            operations = change(node.taints) if node is not None else []
            if not operations:
                return
            try:
                await self._client.patch(_path(name), msgspec.json.encode(operations), JSON_PATCH, tries=1)
                return
            except ApiError as error:
                if error.code != UNPROCESSABLE or not left:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def read_config(self, config_map: str) -> dict[str, Any]:
        """The JSON in a ConfigMap, written as `namespace/name`."""
        found = msgspec.json.decode(await self._client.read(_config_path(config_map)), type=dict[str, Any])
        text = (found.get("data") or {}).get(CONFIG_KEY) or "{}"
        return msgspec.json.decode(text, type=dict[str, Any])

    async def write_config(self, config_map: str, config: Mapping[str, Any]) -> None:
        text = msgspec.json.format(msgspec.json.encode(config), indent=2).decode()
        await self._client.patch(_config_path(config_map), msgspec.json.encode({"data": {CONFIG_KEY: text}}))


def add_taint(taints: Sequence[Taint], taint: Taint) -> list[Operation]:
    """A JSON patch; empty if the taint is there already. Every patch tests that the list is as it is known."""
    value = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    at = next((at for at, each in enumerate(taints) if each.key == taint.key), None)
    if at is not None:
        place = f"/spec/taints/{at}"
        is_there = taints[at] == taint
        return [] if is_there else [_test(f"{place}/key", taint.key), {"op": "replace", "path": place, "value": value}]
    if taints:
        return [_test("/spec/taints/0/key", taints[0].key), {"op": "add", "path": "/spec/taints/-", "value": value}]
    return [_test("/spec/taints", None), {"op": "add", "path": "/spec/taints", "value": [value]}]


def remove_taint(taints: Sequence[Taint], key: str) -> list[Operation]:
    at = next((at for at, each in enumerate(taints) if each.key == key), None)
    if at is None:
        return []
    return [_test(f"/spec/taints/{at}/key", key), {"op": "remove", "path": f"/spec/taints/{at}"}]


def _test(path: str, value: str | None) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name)}"


def _config_path(config_map: str) -> str:
    namespace, _, name = config_map.partition("/")
    return f"/api/v1/namespaces/{quote(namespace)}/configmaps/{quote(name)}"
