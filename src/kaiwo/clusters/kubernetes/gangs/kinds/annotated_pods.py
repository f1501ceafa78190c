"""Annotated pods: those of one namespace that name the same gang with `kaiwo.ai/gang: NAME` are one gang.

`kaiwo.ai/gang-size` says how many pods it has, `kaiwo.ai/min-pods` how many must start together. Both may be on the
pod, on its template or on an object above it; the nearest counts. Without a size, the pods' owners define it; if they
do not, the gang waits until one does.
"""

from collections.abc import Sequence

from kaiwo.clusters.kubernetes.gangs.gang import Gang, GangKey, alive, build_unsized_gang
from kaiwo.clusters.kubernetes.gangs.kinds.declared_sizes import build_minimum_gang, build_sized_gang, count_declared
from kaiwo.clusters.kubernetes.gangs.metadata import MAX_PODS, Texts, read_annotation, read_count, read_gang_name
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex, OwnerLink

LEAST = "the gang's least number of pods"


def find_key(member: Member, chain: Sequence[OwnerLink], owners: OwnerIndex) -> GangKey | None:
    name = read_gang_name(_places(member, chain))
    return GangKey("gang", member.namespace, name) if name else None


def assemble(key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang:
    sizes, minimums = set(), set()
    for member in alive(members):
        places = _places(member, owners.chain(member))
        sizes.add(read_annotation("gang-size", places))
        minimums.add(read_annotation("min-pods", places))
    for name, texts in (("gang-size", sizes), ("min-pods", minimums)):
        if fault := _find_fault(key, name, texts - {""}):
            return build_unsized_gang(key, members, fault)
    size, minimum = _read(sizes), _read(minimums)
    if not size:
        return _without_size(key, members, minimum, owners)
    whole = size - sum(each.has_succeeded for each in members)
    if minimum:
        return build_sized_gang(key, members, min(minimum, max(whole, 1)), LEAST, owners)
    return build_sized_gang(key, members, whole, "the gang's size", owners)


def _without_size(key: GangKey, members: Sequence[Member], minimum: int, owners: OwnerIndex) -> Gang:
    """The owners define how many pods there are. A gang that did not wait for them would start incomplete."""
    declared = count_declared(members, owners)
    if minimum:
        most = minimum if declared.unknown else max(1, declared.wanted + declared.later)
        return build_minimum_gang(key, members, min(minimum, most), LEAST, owners)
    if declared.unknown:
        why = f"{key} does not say how many pods it has: {declared.unknown}; write kaiwo.ai/gang-size on its pods"
        return build_unsized_gang(key, members, why)
    return build_sized_gang(key, members, declared.least, "the least that the owners of its pods want", owners)


def _places(member: Member, chain: Sequence[OwnerLink]) -> list[Texts]:
    return [member.annotations, *(link.owner.annotations for link in chain if link.owner)]


def _find_fault(key: GangKey, name: str, texts: set[str]) -> str:
    if len(texts) > 1:
        return f"{key} has pods that do not agree on kaiwo.ai/{name}; write the same number on each"
    if texts and not _read(texts):
        return f"{key} has a kaiwo.ai/{name} that is no number from 1 to {MAX_PODS:,}; write one"
    return ""


def _read(texts: set[str]) -> int:
    """0: not given, or not a possible number of pods."""
    return next((count for text in texts if 0 < (count := read_count(text) or 0) <= MAX_PODS), 0)
