"""Kinds that come with operators: which of them the server has, and in which version, while we run.

In:    a Client.   Out: the objects above pods and Kueue's Workloads in the Books, whatever version serves them.
Never: forgets objects because their version is served no more. An update of an operator moves them to another version,
       and a gang whose number was forgotten meanwhile would start in halves.

Also: Which kinds the API server has: operators bring theirs, and may come while we run.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.cache import kueue_gates as kueue
from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.gang_index import OwnerObject
from kaiwo.clusters.kubernetes.client import ApiError, Client, Informer, Resource, UnreachableError
from kaiwo.clusters.kubernetes.client.backoff import Backoff
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.workload_annotations import keep_settings
from kaiwo.clusters.kubernetes.gangs.kinds.replicaset_statefulset import GROUP as APPS
from kaiwo.clusters.kubernetes.gangs.registry import OWNER_TYPES, read_owner
from kaiwo.clusters.kubernetes.watch.object_handler import KindHandler, ObjectHandler


class _Version(msgspec.Struct, rename="camel"):
    group_version: str


class _Group(msgspec.Struct, rename="camel"):
    name: str
    preferred_version: _Version
    versions: list[_Version] = []

    @property
    def in_order(self) -> list[str]:
        """Every version that is served, the one that the server prefers first."""
        return list(dict.fromkeys(each.group_version for each in (self.preferred_version, *self.versions)))


class _Groups(msgspec.Struct):
    groups: list[_Group]


class _Resource(msgspec.Struct):
    name: str
    kind: str
    verbs: list[str] = []


class _Resources(msgspec.Struct):
    resources: list[_Resource]


class DiscoveredKind(NamedTuple):
    """A kind that is there."""

    group: str
    kind: str
    version: str  # group/version
    path: str


async def discover(client: Client, wanted: Collection[tuple[str, str]]) -> list[DiscoveredKind]:
    """Of these (group, kind), those that can be watched."""
    groups = msgspec.json.decode(await client.read("/apis"), type=_Groups).groups
    found: list[DiscoveredKind] = []
    for group in groups:
        if kinds := {kind for name, kind in wanted if name == group.name}:
            found += await _look_through(client, group, kinds)
    return found


async def _look_through(client: Client, group: _Group, kinds: set[str]) -> list[DiscoveredKind]:
    """Versions of one group have different kinds: an alpha kind is not in the version that the server prefers."""
    found: dict[str, DiscoveredKind] = {}
    for version in group.in_order:
        for item in await _resources(client, version):
            if item.kind in kinds and "watch" in item.verbs and "/" not in item.name:
                found.setdefault(
                    item.kind, DiscoveredKind(group.name, item.kind, version, f"/apis/{version}/{item.name}")
                )
        if found.keys() == kinds:
            break
    return list(found.values())


async def _resources(client: Client, version: str) -> list[_Resource]:
    try:
        return msgspec.json.decode(await client.read(f"/apis/{version}"), type=_Resources).resources
    except ApiError as error:
        if error.is_not_found:  # it went between the two questions
            return []
        raise


LOOK_AGAIN_S = 30.0  # for kinds that an operator may have brought
# Objects above pods: those that the gang recogniser reads, and those whose names and annotations lead on to them.
OWNERS = frozenset({*OWNER_TYPES, ("kaiwo.silogen.ai", "KaiwoJob"), ("ray.io", "RayJob")})
GroupKind = tuple[str, str]
Follow = Callable[[ObjectHandler, Callable[[], None]], Informer[Any]]


class OperatorKinds:
    """Looks for them, and has each followed once. `move` follows a mirror's objects at another path."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        follow: Follow,
        move: Callable[[Informer[Any], str], Awaitable[None]],
        looked: Callable[[], None],
        report: Callable[..., None],
    ) -> None:
        self._client, self._cache, self._report = client, cache, report
        self._follow, self._move, self._looked = follow, move, looked
        self._informers: dict[GroupKind, Informer[Any]] = {}
        self._served: dict[GroupKind, DiscoveredKind] = {}
        self._wake = asyncio.Event()
        self.has_discovered = False  # which kinds there are

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff(most_s=5)
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
            self.has_discovered = True
            self._looked()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK_AGAIN_S)

    async def _update(self, found: dict[GroupKind, DiscoveredKind]) -> None:
        gone, self._served = self._served.keys() - found.keys(), found
        for kind, each in found.items():
            mirror = self._informers.get(kind)
            if mirror is None:
                self._informers[kind] = self._start(kind, each)
            elif mirror.resource.path != each.path:
                self._report("kind-moved", level="info", kind=each.kind, before=mirror.resource.path, now=each.path)
                await self._move(mirror, each.path)
        for kind in gone:
            self._informers[kind].version = ""  # it lists anew: a server that has no such kind has no such objects

    def _start(self, kind: GroupKind, found: DiscoveredKind) -> Informer[Any]:
        reader = self._kueue_reader(found) if found.group == kueue.GROUP else self._owner_reader(found)
        return self._follow(reader, lambda: self._on_not_found(kind))

    def _on_not_found(self, kind: GroupKind) -> None:
        """The server does not know the path any more: where the kind went is looked for at once."""
        if kind in self._served:
            self._wake.set()

    def _owner_reader(self, found: DiscoveredKind) -> ObjectHandler:
        def read(found_item: Any) -> OwnerObject | None:
            item = found_item if isinstance(found_item, dict) else msgspec.to_builtins(found_item)
            # The objects of a list do not say of what kind they are. Every version of a group is read alike.
            owner = read_owner(item | {"kind": found.kind, "apiVersion": found.version})
            if isinstance(owner, str):
                self._report("owner-unreadable", level="warning", kind=found.kind, error=owner)
                return None
            metadata = item["metadata"]
            return OwnerObject(owner, keep_settings(metadata.get("annotations")), keep_settings(metadata.get("labels")))

        resource: Resource[Any] = Resource(
            found.path, wire_objects.Replicated if found.group == APPS else dict[str, Any]
        )
        put, drop = self._cache.gang_index.upsert_owner, self._cache.gang_index.delete_owner
        return KindHandler(resource, read, lambda above: (above.owner.namespace, above.owner.name), put, drop)

    def _kueue_reader(self, found: DiscoveredKind) -> ObjectHandler:
        cache, resource = self._cache, Resource[kueue.WorkloadObject](found.path, kueue.WorkloadObject)
        return KindHandler(
            resource,
            kueue.read_kueue_state,
            lambda standing: (standing.namespace, standing.name),
            lambda standing: cache.touch(cache.kueue.upsert(standing)),
            lambda standing: cache.touch(cache.kueue.delete(standing)),
        )
