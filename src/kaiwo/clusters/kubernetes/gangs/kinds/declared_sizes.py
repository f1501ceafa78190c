"""How many pods the owners of pods declare, for gangs that the pods name themselves.

Such a gang has one number or none, and no information about waves. The owners of its pods have it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.gangs.gang import SIZE_UNKNOWN, Gang, GangKey, GangKind, alive, build_flat_gang
from kaiwo.clusters.kubernetes.gangs.kinds import (
    job,
    jobset,
    leaderworkerset,
    ray_cluster,
    replicaset_statefulset,
    training_jobs,
)
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex

OWNING: tuple[GangKind, ...] = (leaderworkerset, jobset, training_jobs, ray_cluster, job, replicaset_statefulset)


class DeclaredSizes(NamedTuple):
    least: int  # must start together
    wanted: int  # with what is elastic
    later: int
    done: int  # pods that have done their work and are not replaced
    unknown: str  # why the numbers are incomplete; empty when they are complete


def count_declared(members: Sequence[Member], owners: OwnerIndex) -> DeclaredSizes:
    """The sum over the owners. A pod whose owner declares no number counts as one, and there may be more like it."""
    shares: dict[tuple[GangKind, GangKey] | None, list[Member]] = {}
    for member in members:
        shares.setdefault(_owner_of(member, owners), []).append(member)
    least = wanted = later = done = 0
    unknown: set[str] = set()
    for share, own in shares.items():
        gang = share[0].assemble(share[1], own, owners) if share else None
        if gang is None:
            living = alive(own)
            least, wanted = least + len(living), wanted + len(living)
            done += sum(each.has_succeeded for each in own)
            if living:
                unknown.add(_explain_silent(min(living, key=lambda each: each.name)))
            continue
        least, wanted = least + gang.minimum, wanted + sum(role.count for role in gang.roles)
        later, done = later + gang.later, done + gang.done
        if gang.rule == SIZE_UNKNOWN and alive(own):
            unknown.add(gang.blocked_by)
    return DeclaredSizes(least, wanted, later, done, min(unknown, default=""))


def build_sized_gang(key: GangKey, members: Sequence[Member], minimum: int, rule: str, owners: OwnerIndex) -> Gang:
    """A gang of a known size. While the missing pods come only after the existing ones, only this wave counts."""
    living = len(alive(members))
    if living < minimum:
        declared = count_declared(members, owners)
        now = max(declared.least, living)
        if declared.later and now < minimum:
            wave = build_flat_gang(key, members, now, "the pods that come before others are bound or done")
            return msgspec.structs.replace(wave, later=minimum - now)
    return build_flat_gang(key, members, minimum, rule)


def build_minimum_gang(key: GangKey, members: Sequence[Member], minimum: int, rule: str, owners: OwnerIndex) -> Gang:
    """The same where only the number of pods that start together is known, not the total."""
    if len(alive(members)) < minimum:
        declared = count_declared(members, owners)
        # Finished pods never come again and are not missed while enough others are wanted. What the owners want does
        # not suffice by itself: of a gang of two Jobs the second may not have created its pods yet.
        minimum = max(minimum - declared.done, min(minimum, declared.wanted + declared.later))
    return build_sized_gang(key, members, minimum, rule, owners)


def _owner_of(member: Member, owners: OwnerIndex) -> tuple[GangKind, GangKey] | None:
    chain = owners.chain(member)
    for kind in OWNING:
        if key := kind.find_key(member, chain, owners):
            return kind, key
    return None


def _explain_silent(member: Member) -> str:
    if member.owner is None:
        return f"no object makes pod {member.name}"
    return f"Kaiwo does not read how many pods {member.owner.kind} {member.namespace}/{member.owner.name} makes"
