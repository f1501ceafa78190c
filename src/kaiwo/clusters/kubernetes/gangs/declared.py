"""How many pods the owners of some pods want, for gangs that pods name themselves.

In:    pods that name the same gang.   Out: what their owners want now and later.
Such a gang has one number, or none, and knows nothing of waves. Its pods' owners do.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.gangs import jobs, jobsets, leaderworkersets, ray, training
from kaiwo.clusters.kubernetes.gangs.groups import Group, Key, alive, build_flat_group
from kaiwo.clusters.kubernetes.gangs.kind import Kind
from kaiwo.clusters.kubernetes.gangs.members import Member
from kaiwo.clusters.kubernetes.gangs.owners import Owners

OWNING = tuple(Kind(each.claim, each.assemble) for each in (leaderworkersets, jobsets, training, ray, jobs))


class Declared(NamedTuple):
    """`now`: never less than the pods that exist."""

    now: int
    later: int


def count_declared(members: Sequence[Member], owners: Owners) -> Declared:
    """The sum over the owners; a pod without one counts itself."""
    shares: dict[tuple[Kind, Key] | None, list[Member]] = {}
    for member in members:
        shares.setdefault(_owner_of(member, owners), []).append(member)
    now = later = 0
    for share, own in shares.items():
        group = share[0].assemble(share[1], own, owners) if share else None
        now += group.minimum if group else len(alive(own))
        later += group.later if group else 0
    return Declared(max(now, len(alive(members))), later)


def build_named_group(key: Key, members: Sequence[Member], minimum: int, rule: str, owners: Owners) -> Group:
    """A gang of one number; of its wave alone while the pods that it lacks come only after those that it has."""
    if len(alive(members)) < minimum:
        declared = count_declared(members, owners)
        if declared.later and declared.now < minimum:
            wave = build_flat_group(key, members, declared.now, "the pods that come before others are bound or done")
            return msgspec.structs.replace(wave, later=minimum - declared.now)
    return build_flat_group(key, members, minimum, rule)


def _owner_of(member: Member, owners: Owners) -> tuple[Kind, Key] | None:
    line = owners.line(member)
    for kind in OWNING:
        if key := kind.claim(member, line, owners):
            return kind, key
    return None
