"""Sub-groups: a workload whose roles form a tree, of which only some branches must run.

In:    a workload, and how many pods of each role are up.   Out: whether that is enough, or a sentence about its tree.
A role is a leaf and needs its own minimum of pods. A sub-group needs so many of its children (sub-groups and roles)
whole; the one without a name is the workload itself. Without sub-groups every role is needed.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec

ROOT = ""
MOST_DEPTH = 8


class SubGroup(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Roles and other sub-groups below it, of which at least `minimum` must be whole."""

    name: str = ROOT
    parent: str = ROOT
    minimum: int = -1  # -1: all of them


class Branch(NamedTuple):
    """A sub-group with what is below it, in the order in which the workload names it."""

    path: str  # `left/workers`; empty: the workload itself
    minimum: int
    children: tuple["Branch | int", ...]  # an int is the number of a role
    extras: tuple[int, ...] = ()  # roles of which no pod is needed: they are no part that counts


class Leaf(Protocol):
    """What the tree must know of a role."""

    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def needed(self) -> int: ...


def tree_of(groups: tuple[SubGroup, ...], roles: Sequence[Leaf]) -> Branch:
    """The whole tree. It must be sound: see `fault_in`. What needs more parts than it has is never whole."""
    return _tree(groups, tuple((role.group, role.needed > 0) for role in roles))


@lru_cache(maxsize=256)
def _tree(groups: tuple[SubGroup, ...], roles: tuple[tuple[str, bool], ...]) -> Branch:
    minimum = next((group.minimum for group in groups if group.name == ROOT), -1)
    return _branch(SubGroup(ROOT, ROOT, minimum), "", groups, roles)


def _branch(group: SubGroup, path: str, groups: tuple[SubGroup, ...], roles: tuple[tuple[str, bool], ...]) -> Branch:
    below = [each for each in groups if each.parent == group.name and each.name != ROOT]
    children: list[Branch | int] = [_branch(each, f"{path}/{each.name}".strip("/"), groups, roles) for each in below]
    children += [number for number, (parent, counts) in enumerate(roles) if parent == group.name and counts]
    extras = tuple(number for number, (parent, counts) in enumerate(roles) if parent == group.name and not counts)
    return Branch(path, len(children) if group.minimum < 0 else group.minimum, tuple(children), extras)


def is_whole(groups: tuple[SubGroup, ...], roles: Sequence[Leaf], up: Sequence[int]) -> bool:
    """So many pods of each role are what the workload needs, or more."""
    if not groups:
        return all(count >= role.needed for count, role in zip(up, roles, strict=True))
    return is_branch_whole(tree_of(groups, roles), roles, up)


def is_branch_whole(branch: Branch | int, roles: Sequence[Leaf], up: Sequence[int]) -> bool:
    """The same of one branch."""
    if isinstance(branch, int):
        return up[branch] >= roles[branch].needed
    return sum(is_branch_whole(child, roles, up) for child in branch.children) >= branch.minimum


def fault_in(groups: tuple[SubGroup, ...], roles: Sequence[Leaf]) -> str:
    """What is wrong with a tree, as the end of a sentence; empty: it is sound."""
    parents = {group.name: group.parent for group in groups if group.name != ROOT}
    names = [group.name for group in groups]
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f"names the sub-group {twice!r} twice; give each its own name"
    for name, parent in (*parents.items(), *((role.name, role.group) for role in roles)):
        if parent != ROOT and parent not in parents:
            return f"puts {name!r} into the sub-group {parent!r}, which it does not have; add it, or correct the name"
    for name in parents:
        way = [name]
        while (above := parents[way[-1]]) != ROOT:
            if above in way:
                return f"has {name!r} inside itself, by way of {way[-1]!r}; clear the parent of one of them"
            way.append(above)
        if len(way) > MOST_DEPTH:
            return f"is {len(way)} sub-groups deep at {name!r}; the most is {MOST_DEPTH}"
    for group in groups:
        leaves = [role.group for role in roles if role.needed]
        below = sum(parent == group.name for parent in (*parents.values(), *leaves))
        what = f"the sub-group {group.name!r}" if group.name else "the workload"
        if not below:
            return f"has nothing in {what}; put pods into it, or remove it"
        if group.minimum == 0 or group.minimum > below:
            return f"needs {group.minimum} of the {below} parts of {what}; ask for 1 to {below}"
    return ""
