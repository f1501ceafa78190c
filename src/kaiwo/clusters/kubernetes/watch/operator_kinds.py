"""Discover the kinds that operators install, even while we run, and watch them in the version that the server has.

The owners of pods and Kueue's Workloads go to the cache.
Never: forgets objects because their version is no longer served. An update of an operator moves them to another
       version, and a gang whose size was forgotten meanwhile would start incomplete.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.cache import kueue_gates as kueue
from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.gang_index import OwnerMetadata, OwnerObject
from kaiwo.clusters.kubernetes.client import ApiError, Client, Informer, Resource, UnreachableError
from kaiwo.clusters.kubernetes.client.backoff import Backoff
from kaiwo.clusters.kubernetes.client.informer import KindHandler, ObjectHandler
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.workload_annotations import keep_settings
from kaiwo.clusters.kubernetes.gangs.kinds.replicaset_statefulset import GROUP as APPS
from kaiwo.clusters.kubernetes.gangs.registry import OWNER_TYPES, read_owner
from kaiwo.clusters.kubernetes.watch.informer_set import InformerSet

DISCOVER_EVERY_S = 30.0  # an operator may be installed at any time
# Owners of pods: those that the gang tracker reads, and those whose names and annotations lead to them.
OWNERS = frozenset({*OWNER_TYPES, ("kaiwo.silogen.ai", "KaiwoJob"), ("ray.io", "RayJob")})
GroupKind = tuple[str, str]


class DiscoveredKind(NamedTuple):
    group: str
    kind: str
    version: str  # group/version
    path: str


class OperatorKinds:
    """Discovers the kinds periodically, and adds an informer for each new one."""

    def __init__(
        self, client: Client, cache: ClusterCache, informers: InformerSet, report: Callable[..., None]
    ) -> None:
        self._client, self._cache, self._set, self._report = client, cache, informers, report
        self._informers: dict[GroupKind, Informer] = {}
        self._served: dict[GroupKind, DiscoveredKind] = {}
        self._wake = asyncio.Event()

    async def run(self) -> None:
        backoff = Backoff(longest_s=5)
        while True:
            self._wake.clear()
            try:
                found = await discover(self._client, OWNERS | {(kueue.GROUP, kueue.KIND)})
            except (ApiError, UnreachableError) as error:
                self._report("kubernetes-discovery-failed", level="warning", error=str(error)[:300])
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            await self._update({(each.group, each.kind): each for each in found})
            self._set.complete()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DISCOVER_EVERY_S):
                    await self._wake.wait()

    async def _update(self, found: dict[GroupKind, DiscoveredKind]) -> None:
        gone, self._served = self._served.keys() - found.keys(), found
        for kind, each in found.items():
            informer = self._informers.get(kind)
            if informer is None:
                self._informers[kind] = self._start(kind, each)
            elif informer.resource.path != each.path:
                self._report("kind-moved", level="info", kind=each.kind, before=informer.resource.path, now=each.path)
                await self._set.relist_at(informer, each.path)
        for kind in gone:
            self._informers[kind].version = ""  # it lists again: a server without the kind has no such objects

    def _start(self, kind: GroupKind, found: DiscoveredKind) -> Informer:
        handler = self._kueue_handler(found) if found.group == kueue.GROUP else self._owner_handler(found)
        return self._set.add(handler, is_optional=True, on_not_found=lambda: self._on_not_found(kind))

    def _on_not_found(self, kind: GroupKind) -> None:
        """The server no longer knows the path: discover at once where the kind went."""
        if kind in self._served:
            self._wake.set()

    def _owner_handler(self, found: DiscoveredKind) -> ObjectHandler:
        def read(found_item: Any) -> OwnerObject | None:
            item = found_item if isinstance(found_item, dict) else msgspec.to_builtins(found_item)
            # The objects of a list do not name their kind. Every version of a group is read alike.
            owner = read_owner(item | {"kind": found.kind, "apiVersion": found.version})
            if isinstance(owner, str):
                self._report("owner-unreadable", level="warning", kind=found.kind, error=owner)
                return None
            metadata = item["metadata"]
            settings = keep_settings(metadata.get("annotations")), keep_settings(metadata.get("labels"))
            return OwnerObject(owner, OwnerMetadata(*settings))

        kind: Any = wire_objects.Replicated if found.group == APPS else dict[str, Any]
        index = self._cache.gang_index
        return KindHandler(Resource(found.path, kind), read, index.upsert_owner, index.delete_owner)

    def _kueue_handler(self, found: DiscoveredKind) -> ObjectHandler:
        cache = self._cache
        return KindHandler(
            Resource(found.path, kueue.KueueWorkload),
            kueue.read_kueue_state,
            lambda state: cache.touch(cache.kueue.upsert(state)),
            lambda state: cache.touch(cache.kueue.delete(state)),
        )


class _Version(msgspec.Struct, rename="camel"):
    group_version: str


class _Group(msgspec.Struct, rename="camel"):
    name: str
    preferred_version: _Version
    versions: list[_Version] = []


class _Groups(msgspec.Struct):
    groups: list[_Group]


class _Resource(msgspec.Struct):
    name: str
    kind: str
    verbs: list[str] = []


class _Resources(msgspec.Struct):
    resources: list[_Resource]


async def discover(client: Client, wanted: Collection[tuple[str, str]]) -> list[DiscoveredKind]:
    """Of these (group, kind), those that can be watched."""
    groups = msgspec.json.decode(await client.read("/apis"), type=_Groups).groups
    found: list[DiscoveredKind] = []
    for group in groups:
        if kinds := {kind for name, kind in wanted if name == group.name}:
            found += await _kinds_of_group(client, group, kinds)
    return found


async def _kinds_of_group(client: Client, group: _Group, kinds: set[str]) -> list[DiscoveredKind]:
    """Versions of one group have different kinds: the server's preferred version lacks an alpha kind."""
    found: dict[str, DiscoveredKind] = {}
    for version in dict.fromkeys(each.group_version for each in (group.preferred_version, *group.versions)):
        for item in await _resources(client, version):
            if item.kind in kinds and "watch" in item.verbs and "/" not in item.name:
                path = f"/apis/{version}/{item.name}"
                found.setdefault(item.kind, DiscoveredKind(group.name, item.kind, version, path))
        if found.keys() == kinds:
            break
    return list(found.values())


async def _resources(client: Client, version: str) -> list[_Resource]:
    try:
        return msgspec.json.decode(await client.read(f"/apis/{version}"), type=_Resources).resources
    except ApiError as error:
        if error.is_not_found:  # it was removed between the two calls
            return []
        raise
