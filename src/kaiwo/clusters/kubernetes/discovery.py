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
        kinds = {kind for name, kind in wanted if name == group.name}
        if not kinds:
            continue
        version = group.preferred_version.group_version
        try:
            listed = msgspec.json.decode(await client.read(f"/apis/{version}"), type=_Resources)
        except ApiError as error:
            if error.is_not_found:  # it went between the two questions
                continue
            raise
        found += [
            Found(group.name, item.kind, version, f"/apis/{version}/{item.name}")
            for item in listed.resources
            if item.kind in kinds and "watch" in item.verbs and "/" not in item.name
        ]
    return found
