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
from kaiwo.clusters.kubernetes.cache.gang_index import Above
from kaiwo.clusters.kubernetes.client import ApiError, Client, Informer, Resource, UnreachableError
from kaiwo.clusters.kubernetes.client.backoff import Backoff
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.workload_annotations import keep_wishes
from kaiwo.clusters.kubernetes.gangs.kinds.replicaset_statefulset import GROUP as APPS
from kaiwo.clusters.kubernetes.gangs.registry import READ, read_owner
from kaiwo.clusters.kubernetes.watch.object_handler import Kind, Reader


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


class Found(NamedTuple):
    """A kind that is there."""

    group: str
    kind: str
    version: str  # group/version
    path: str


async def discover(client: Client, wanted: Collection[tuple[str, str]]) -> list[Found]:
    """Of these (group, kind), those that can be watched."""
    groups = msgspec.json.decode(await client.read("/apis"), type=_Groups).groups
    found: list[Found] = []
    for group in groups:
        if kinds := {kind for name, kind in wanted if name == group.name}:
            found += await _look_through(client, group, kinds)
    return found


async def _look_through(client: Client, group: _Group, kinds: set[str]) -> list[Found]:
    """Versions of one group have different kinds: an alpha kind is not in the version that the server prefers."""
    found: dict[str, Found] = {}
    for version in group.in_order:
        for item in await _resources(client, version):
            if item.kind in kinds and "watch" in item.verbs and "/" not in item.name:
                found.setdefault(item.kind, Found(group.name, item.kind, version, f"/apis/{version}/{item.name}"))
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
OWNERS = frozenset({*READ, ("kaiwo.silogen.ai", "KaiwoJob"), ("ray.io", "RayJob")})
GroupKind = tuple[str, str]
Follow = Callable[[Reader, Callable[[], None]], Informer[Any]]


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
        self._mirrors: dict[GroupKind, Informer[Any]] = {}
        self._there: dict[GroupKind, Found] = {}
        self._wake = asyncio.Event()
        self.is_known = False  # which kinds there are

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
            await self._see({(each.group, each.kind): each for each in found})
            self.is_known = True
            self._looked()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK_AGAIN_S)

    async def _see(self, found: dict[GroupKind, Found]) -> None:
        gone, self._there = self._there.keys() - found.keys(), found
        for kind, each in found.items():
            mirror = self._mirrors.get(kind)
            if mirror is None:
                self._mirrors[kind] = self._begin(kind, each)
            elif mirror.resource.path != each.path:
                self._report("kind-moved", level="info", kind=each.kind, before=mirror.resource.path, now=each.path)
                await self._move(mirror, each.path)
        for kind in gone:
            self._mirrors[kind].version = ""  # it lists anew: a server that has no such kind has no such objects

    def _begin(self, kind: GroupKind, found: Found) -> Informer[Any]:
        reader = self._kueue_reader(found) if found.group == kueue.GROUP else self._owner_reader(found)
        return self._follow(reader, lambda: self._missed(kind))

    def _missed(self, kind: GroupKind) -> None:
        """The server does not know the path any more: where the kind went is looked for at once."""
        if kind in self._there:
            self._wake.set()

    def _owner_reader(self, found: Found) -> Reader:
        def read(found_item: Any) -> Above | None:
            item = found_item if isinstance(found_item, dict) else msgspec.to_builtins(found_item)
            # The objects of a list do not say of what kind they are. Every version of a group is read alike.
            owner = read_owner(item | {"kind": found.kind, "apiVersion": found.version})
            if isinstance(owner, str):
                self._report("owner-unreadable", level="warning", kind=found.kind, error=owner)
                return None
            metadata = item["metadata"]
            return Above(owner, keep_wishes(metadata.get("annotations")), keep_wishes(metadata.get("labels")))

        resource: Resource[Any] = Resource(
            found.path, wire_objects.Replicated if found.group == APPS else dict[str, Any]
        )
        put, drop = self._cache.roll.put_owner, self._cache.roll.drop_owner
        return Kind(resource, read, lambda above: (above.owner.namespace, above.owner.name), put, drop)

    def _kueue_reader(self, found: Found) -> Reader:
        cache, resource = self._cache, Resource[kueue.WorkloadObject](found.path, kueue.WorkloadObject)
        return Kind(
            resource,
            kueue.read_standing,
            lambda standing: (standing.namespace, standing.name),
            lambda standing: cache.touch(cache.kueue.put(standing)),
            lambda standing: cache.touch(cache.kueue.drop(standing)),
        )
