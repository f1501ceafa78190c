"""Which kinds the API server has: operators bring theirs, and may come while we run.

In:    API groups and kinds that we could read.   Out: the paths of those that are there.
"""

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client


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
