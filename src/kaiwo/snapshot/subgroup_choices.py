"""The ways in which a workload with sub-groups can reach its minimum, and the steps by which it then grows.

In:    a workload, and its pods per role.   Out: pods to add, by role: the cheapest way first.
Sub-groups that need the same pods are one kind, and ways that add the same pods are one way: a gang that needs 300 of
400 equal replicas has one way. Where there are many kinds, the `MAX_ALTERNATIVES` cheapest ways are kept.
"""

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from kaiwo.model.request import Request
from kaiwo.model.workload import Role, SubGroupTree, Workload, branch_has_minimum, pods_per_role, subgroup_tree

MAX_ALTERNATIVES = 16
PodsByRole: TypeAlias = tuple[tuple[int, int], ...]  # role, pods
Cost: TypeAlias = tuple[int, int, int, int]  # milli-GPU, MiB of GPU memory, milli-CPU, MiB


class PodsToAdd(NamedTuple):
    cost: Cost
    by_request: tuple[tuple[int, int], ...]  # what is added, whichever role it is for: (kind of request, pods)
    by_role: PodsByRole


class SubGroupChoices(NamedTuple):
    """What a workload with sub-groups may do next; tuples follow the roles with missing pods."""

    is_running: bool  # it runs already: these are the steps by which it grows
    needed: tuple[tuple[int, ...], ...]  # of each way or step: the pods that start together; the best first
    display_names: tuple[str, ...]  # of each role: the sub-group that people know it by


_NOTHING_TO_ADD = PodsToAdd((0, 0, 0, 0), (), ())


def choices_of(workload: Workload, pods: Container[str]) -> SubGroupChoices:
    """The ways to reach the minimum; once it is reached, the steps to grow."""
    up = pods_per_role(workload, pods)
    missing = [number for number, role in enumerate(workload.roles) if up[number] < role.count]
    everything = tuple((number, workload.roles[number].count - up[number]) for number in missing)
    ways = ways_to_start(workload, up) or [everything]
    has_minimum = not ways[0]
    every = [dict(adds) for adds in (ways_to_grow(workload, up) if has_minimum else ways)]
    titles = display_names(workload)
    needed = tuple(tuple(adds.get(number, 0) for number in missing) for adds in every)
    return SubGroupChoices(has_minimum, needed, tuple(titles[number] for number in missing))


def ways_to_start(workload: Workload, up: Sequence[int]) -> list[PodsByRole]:
    """The cheapest way first; an empty one when nothing is missing. No way at all: it has fewer parts than it needs."""
    return [way.by_role for way in _Alternatives(workload, up).of(subgroup_tree(workload.groups, workload.roles))]


def ways_to_grow(workload: Workload, up: Sequence[int]) -> list[PodsByRole]:
    """Complete a sub-group, or add a pod to a complete role; first where the smallest part of the need is met."""
    steps = _Alternatives(workload, up).steps(subgroup_tree(workload.groups, workload.roles), ())
    return [adds for _, adds in sorted(steps)]


def display_names(workload: Workload) -> list[str]:
    """For each role: the sub-group that people know it by."""
    found = [role.name for role in workload.roles]

    def visit(branch: SubGroupTree) -> None:
        for child in (*branch.children, *branch.extras):
            if isinstance(child, SubGroupTree):
                visit(child)
            elif branch.path:  # a role may be all of a sub-group, or all of one kind in it
                is_all_of_it = found[child].partition(".")[0] == branch.path.rpartition("/")[2]
                found[child] = branch.path if is_all_of_it else f"{branch.path}/{found[child]}"

    visit(subgroup_tree(workload.groups, workload.roles))
    return found


class _Alternatives:
    def __init__(self, workload: Workload, up: Sequence[int]) -> None:
        self._roles, self._up = workload.roles, up
        numbers: dict[Request, int] = {}
        self._kind = [numbers.setdefault(role.request, len(numbers)) for role in workload.roles]

    def of(self, branch: SubGroupTree | int) -> list[PodsToAdd]:
        if isinstance(branch, int):
            return [self._of_role(branch)]
        kinds: dict[tuple[tuple[tuple[int, int], ...], ...], list[list[PodsToAdd]]] = {}
        for child in branch.children:
            ways = self.of(child)
            if not ways:
                continue  # it can never reach its minimum
            kinds.setdefault(tuple(way.by_request for way in ways), []).append(ways)
        return _choose(list(kinds.values()), branch.minimum)

    def _of_role(self, number: int) -> PodsToAdd:
        role = self._roles[number]
        missing = role.needed - self._up[number]
        if missing <= 0:
            return _NOTHING_TO_ADD
        return PodsToAdd(_cost(role, missing), ((self._kind[number], missing),), ((number, missing),))

    def steps(self, branch: SubGroupTree, rank: tuple[int, ...]) -> Iterable[tuple[tuple[int, ...], PodsByRole]]:
        for at, child in enumerate((*branch.children, *branch.extras)):
            below = (*rank, self._ratio_milli(child), at)
            if not branch_has_minimum(child, self._roles, self._up):
                yield from ((below, way.by_role) for way in self.of(child)[:1])
            elif not isinstance(child, int):
                yield from self.steps(child, below)
            elif self._up[child] < self._roles[child].count:
                yield below, ((child, 1),)

    def _ratio_milli(self, branch: SubGroupTree | int) -> int:
        """What a branch has of what it needs, in thousandths."""
        if isinstance(branch, int):
            return self._up[branch] * 1000 // max(1, self._roles[branch].needed)
        has = sum(branch_has_minimum(child, self._roles, self._up) for child in branch.children)
        return has * 1000 // max(1, branch.minimum)


def _choose(kinds: list[list[list[PodsToAdd]]], minimum: int) -> list[PodsToAdd]:
    """All ways to bring this many children to their minimum; children of one kind are taken in order."""
    chosen: dict[int, list[PodsToAdd]] = {0: [_NOTHING_TO_ADD]}
    left = sum(len(members) for members in kinds)
    for members in kinds:
        left -= len(members)
        more: dict[int, list[PodsToAdd]] = {}
        some = [_NOTHING_TO_ADD]
        for taken in range(len(members) + 1):
            if taken:
                some = _best(_join(a, b) for a in some for b in members[taken - 1])
            for count, ways in chosen.items():
                if minimum - left <= count + taken <= minimum:
                    more.setdefault(count + taken, []).extend(_join(a, b) for a in ways for b in some)
        chosen = {count: _best(ways) for count, ways in more.items()}
    return chosen.get(minimum, [])


def _best(ways: Iterable[PodsToAdd]) -> list[PodsToAdd]:
    """The cheapest of each kind; of equal ones the first."""
    kept: dict[tuple[tuple[int, int], ...], PodsToAdd] = {}
    for way in sorted(ways, key=lambda way: way.cost):
        kept.setdefault(way.by_request, way)
    return list(kept.values())[:MAX_ALTERNATIVES]


def _join(a: PodsToAdd, b: PodsToAdd) -> PodsToAdd:
    if not b.by_role:
        return a
    if not a.by_role:
        return b
    gpu, mib, cpu, memory = (one + other for one, other in zip(a.cost, b.cost, strict=True))
    return PodsToAdd((gpu, mib, cpu, memory), tuple(sorted(a.by_request + b.by_request)), a.by_role + b.by_role)


def _cost(role: Role, pods: int) -> Cost:
    want = role.request
    mib = want.gpu_mib * want.gpus if want.is_memory else 0
    return want.least_milli * pods, mib * pods, want.cpu_milli * pods, want.memory_mib * pods
