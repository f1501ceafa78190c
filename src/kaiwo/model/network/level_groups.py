"""The parts of a workload whose pods must or should run near each other: all of it, sub-groups, roles and segments.

In:    a workload.   Out: its parts with a constraint of their own, wider parts first, and those that each pod is in.
"""

from functools import lru_cache
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from kaiwo.model.network.constraint import Followers, TopologyConstraint
from kaiwo.model.workload import ROOT, SubGroup, Workload

PartKey: TypeAlias = tuple[int, int]  # the number of a part and -1, or the number of a role and of a segment of it
WHOLE = -1


class LevelPart(NamedTuple):
    """A part of a workload with a constraint."""

    name: str  # of the role or sub-group; empty: the whole workload
    parent: int  # the next wider part with a constraint; -1: none
    constraint: TopologyConstraint


class WorkloadLevels(NamedTuple):
    """All constraints of one workload. Equal constraints are equal values: they are a part of a class's signature."""

    parts: tuple[LevelPart, ...]  # the wider before the narrower
    parts_of_role: tuple[tuple[int, ...], ...]  # by role: the parts that it is in, the widest first
    segments_of_role: tuple[TopologyConstraint | None, ...]  # by role: how its pods are divided into segments
    role_names: tuple[str, ...]

    def parts_of(self, role: int, index: int) -> tuple[PartKey, ...]:
        """The parts that one pod is in, the widest first."""
        keys = tuple((part, WHOLE) for part in self.parts_of_role[role])
        divided = self.segments_of_role[role]
        return keys if divided is None else (*keys, (role, index // divided.segment))

    def name(self, key: PartKey) -> str:
        """`left` for a sub-group or role, `workers, pods 8-15` for a segment; empty: the whole workload."""
        number, segment = key
        if segment == WHOLE:
            return self.parts[number].name
        divided = self.segments_of_role[number]
        size = divided.segment if divided is not None else 1
        return f"{self.role_names[number]}, pods {segment * size}-{(segment + 1) * size - 1}"

    def constraint(self, key: PartKey) -> TopologyConstraint:
        number, segment = key
        if segment == WHOLE:
            return self.parts[number].constraint
        divided = self.segments_of_role[number]
        assert divided is not None, "only roles with segments have keys of segments"
        return divided.of_segment

    @property
    def bandwidth_mb_s(self) -> int:
        """What each pod must be able to send to the others; 0: whatever there is."""
        return self.parts[0].constraint.bandwidth_mb_s if self.parts and not self.parts[0].name else 0

    @property
    def followers(self) -> tuple[Followers, ...]:
        """Pods that are made once a leader has a node, in the domain of that leader."""
        return tuple(part.constraint.followers for part in self.parts if part.constraint.followers is not None)

    @property
    def requires(self) -> bool:
        """Some level must hold, so that not every node is open to every pod."""
        return any(part.constraint.required or part.constraint.has_segments for part in self.parts)


def levels_of(workload: Workload) -> WorkloadLevels | None:
    """All constraints of a workload; None: it has none, as most work."""
    own = workload.levels
    if own is None and not _has_levels(workload):
        return None
    each = workload.levels_of_roles
    roles = tuple((role.name, role.group, role.levels or each) for role in workload.roles)
    return _levels(own, workload.groups, roles)


def _has_levels(workload: Workload) -> bool:
    """Every workload that comes is asked, so this makes no generator for most."""
    for role in workload.roles:
        if role.levels:
            return True
    return bool(workload.groups) and any(group.levels for group in workload.groups)


@lru_cache(maxsize=1024)
def _levels(
    own: TopologyConstraint | None,
    groups: tuple[SubGroup, ...],
    roles: tuple[tuple[str, str, TopologyConstraint | None], ...],
) -> WorkloadLevels:
    parts: list[LevelPart] = []
    root = next((group.levels for group in groups if group.name == ROOT), None)
    if own is not None and root is not None and own == TopologyConstraint(bandwidth_mb_s=own.bandwidth_mb_s):
        own = replace(root, bandwidth_mb_s=own.bandwidth_mb_s)  # the levels of the whole stand in its tree
    chains: dict[str, tuple[int, ...]] = {ROOT: _with_part(parts, (), ROOT, own or root)}
    by_name = {group.name: group for group in groups if group.name != ROOT}

    def chain_of(name: str) -> tuple[int, ...]:
        if name not in chains:
            group = by_name.get(name, SubGroup(name))
            chains[name] = _with_part(parts, chain_of(group.parent), name, group.levels)
        return chains[name]

    for group in groups:
        chain_of(group.name)
    of_roles = [_with_part(parts, chain_of(group), name, constraint) for name, group, constraint in roles]
    divided = [
        next((parts[at].constraint for at in reversed(chain) if parts[at].constraint.has_segments), None)
        for chain in of_roles
    ]
    return WorkloadLevels(tuple(parts), tuple(of_roles), tuple(divided), tuple(name for name, _, _ in roles))


def _with_part(
    parts: list[LevelPart], above: tuple[int, ...], name: str, constraint: TopologyConstraint | None
) -> tuple[int, ...]:
    if constraint is None:
        return above
    parts.append(LevelPart(name, above[-1] if above else -1, constraint))
    return (*above, len(parts) - 1)


def role_numbers(workload: Workload) -> dict[str, int]:
    return {role.name: number for number, role in enumerate(workload.roles)}
