"""Kueue's pod groups: pods that carry the same group name and say how many they are.

Groups that Kueue makes itself for a serving StatefulSet are not gangs: each of those pods is useful alone, and they
come one after the other. With fast admission no pod waits for the rest, so the pods that exist are the gang.
"""

from collections.abc import Sequence

from kaiwo.clusters.kubernetes.gangs.gang import Gang, GangKey, alive, build_flat_gang, build_unsized_gang
from kaiwo.clusters.kubernetes.gangs.kinds.declared_sizes import build_sized_gang
from kaiwo.clusters.kubernetes.gangs.labels import KUEUE_FAST, KUEUE_GROUP, KUEUE_SERVING, KUEUE_TOTAL
from kaiwo.clusters.kubernetes.gangs.metadata import read_count
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex, OwnerLink


def find_key(member: Member, chain: Sequence[OwnerLink], owners: OwnerIndex) -> GangKey | None:
    name = member.labels.get(KUEUE_GROUP) or member.annotations.get(KUEUE_GROUP)
    if not name or member.annotations.get(KUEUE_SERVING) == "true":
        return None
    return GangKey("Kueue pod group", member.namespace, name)


def assemble(key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang:
    living = alive(members)
    totals = {read_count(each.annotations.get(KUEUE_TOTAL)) for each in living}
    if len(totals) > 1 or None in totals:
        blocked_by = f"{key} has pods that do not agree on {KUEUE_TOTAL}; write the same number on each"
        return build_unsized_gang(key, members, blocked_by)
    total = max(1, (totals.pop() or 1) - sum(each.has_succeeded for each in members))
    if any(each.annotations.get(KUEUE_FAST) == "true" for each in living):
        return build_flat_gang(key, members, min(total, len(living)), "the pods that exist: fast admission")
    return build_sized_gang(key, members, total, "the pod group's total count", owners)
