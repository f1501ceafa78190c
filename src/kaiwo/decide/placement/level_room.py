"""Which required level has too little room: the domain that comes closest, and how many pods it could take.

In:    a workload's levels, what it lacks, and how many pods fit on each node.   Out: the first shortage, or None.
It counts pods, so it proves that a workload cannot start; that one can start, only a placement shows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kaiwo.decide.placement.levels import NO_LEVEL, ConstraintLevels, constraint_levels
from kaiwo.decide.placement.pod_affinity import sum_by_domain
from kaiwo.model.network.constraint import CONSOLIDATED, TopologyConstraint
from kaiwo.model.network.level_groups import WHOLE, PartKey, WorkloadLevels, levels_of
from kaiwo.model.obstacle import LevelShort, Obstacle, Reason
from kaiwo.model.workload import ACTIVE_PHASES, Workload, pod_index, pods_per_role, role_name
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.backlog import RoleNeeds
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import NodeTable

SlotsOf = Callable[[int], IntArray]  # by shape: how many pods fit on each node


class RoleWanted(NamedTuple):
    role: int
    shape: int
    pods: int


class DomainRoom(NamedTuple):
    """The domain of one level that comes closest."""

    part: PartKey
    levels: ConstraintLevels
    domain: int  # -1: no domain at all
    need: int
    have: int
    is_home: bool  # pods of the part run there, so no other domain counts


def wanted_by_role(state: ClusterState, workload: Workload, needs: RoleNeeds) -> list[RoleWanted]:
    """The pods that must start, with the numbers of their roles."""
    counts = pods_per_role(workload, state.pods.get(workload.name, ()))
    missing = [at for at, role in enumerate(workload.roles) if counts[at] < role.count]
    grows = not any(need.needed for need in needs)  # it runs: one more pod would do
    return [
        RoleWanted(role, need.shape, 1 if grows else need.needed)
        for role, need in zip(missing, needs, strict=True)
        if need.needed or grows
    ][: 1 if grows else None]


def rows_by_part(
    state: ClusterState, nodes: NodeTable, workload: Workload, levels: WorkloadLevels
) -> dict[int, list[int]]:
    """By part: the nodes of its running pods."""
    numbers = {role.name: number for number, role in enumerate(workload.roles)}
    found: dict[int, list[int]] = {}
    for name, pod in state.pods.get(workload.name, {}).items():
        number = numbers.get(role_name(name))
        if number is None or pod.phase not in ACTIVE_PHASES or pod.node not in nodes.row:
            continue
        for part in levels.parts_of_role[number]:
            found.setdefault(part, []).append(nodes.row[pod.node])
    return found


def tightest_room(
    nodes: NodeTable,
    levels: WorkloadLevels,
    wanted: Sequence[RoleWanted],
    slots_of: SlotsOf,
    homes: dict[int, list[int]],
) -> DomainRoom | None:
    """The first part with a required level of which no domain has room for its pods; None: each has one."""
    for number, part in enumerate(levels.parts):
        if not part.constraint.required:
            continue
        mine = [each for each in wanted if number in levels.parts_of_role[each.role]]
        if mine:
            found = _closest(nodes, levels, (number, WHOLE), mine, slots_of, homes.get(number, []))
            if found.have < found.need:
                return found
    return None


def _closest(
    nodes: NodeTable,
    levels: WorkloadLevels,
    key: PartKey,
    wanted: Sequence[RoleWanted],
    slots_of: SlotsOf,
    home: list[int],
) -> DomainRoom:
    constraint = levels.constraint(key)
    found = constraint_levels(nodes, constraint, CONSOLIDATED)
    needs: dict[int, int] = {}
    for each in wanted:
        needs[each.shape] = needs.get(each.shape, 0) + each.pods
        needs[each.shape] += _followers_alike(constraint, levels.role_names[each.role])
    need = sum(needs.values())
    if found.unknown or found.required == NO_LEVEL:
        return DomainRoom(key, found, -1, need, 0, False)
    domains = found.levels[found.required].domain_of_node
    have = np.zeros(len(found.levels[found.required].domain_names), np.int64)
    for shape, pods in needs.items():
        room = sum_by_domain(domains, slots_of(shape))
        have[: len(room)] += np.minimum(room, pods)
    known = domains[home][domains[home] >= 0] if home else np.zeros(0, np.int64)
    at = int(np.bincount(known).argmax()) if len(known) else int(have.argmax())
    return DomainRoom(key, found, at, need, int(have[at]), bool(len(known)))


def _followers_alike(constraint: TopologyConstraint, leader: str) -> int:
    """Pods that will follow this role and ask for the same. Others may be smaller: a sum that counts them as large as
    their leader would prove too much."""
    followers = constraint.followers
    return followers.pods if followers is not None and followers.leader == leader and followers.request is None else 0


def level_obstacle(levels: WorkloadLevels, room: DomainRoom, is_too_small: bool = False) -> Obstacle:
    """`is_too_small`: the room is that of empty domains."""
    constraint = levels.constraint(room.part)
    names = tuple(level.name for level in room.levels.levels[:-1] if (level.domain_of_node >= 0).any())
    level = room.levels.levels[room.levels.required].name if room.levels.required != NO_LEVEL else constraint.required
    domain = room.levels.levels[room.levels.required].domain_names[room.domain] if room.domain >= 0 else ""
    known = names if room.levels.unknown else ()
    facts = LevelShort(level, domain, room.levels.topology, room.is_home, known, is_too_small)
    return Obstacle(Reason.LEVEL, room.need, room.have, "pods", levels.name(room.part), facts)


def packing_obstacle(levels: WorkloadLevels, need: int) -> Obstacle:
    """By number its pods would fit into domains of their levels, but no way was found to place all of them."""
    key = next(((number, WHOLE) for number, part in enumerate(levels.parts) if part.constraint.required), None)
    level = levels.constraint(key).required if key is not None else levels.parts[0].constraint.segment_level
    name = levels.name(key) if key is not None else ""
    return Obstacle(Reason.LEVEL, need, need, "pods", name, LevelShort(level))


def obeys_levels(state: ClusterState, nodes: NodeTable, workload: Workload, places: Mapping[str, str]) -> bool:
    """Every required level holds for these pods and for those that run. `places`: nodes by pod."""
    levels = levels_of(workload)
    if levels is None or not levels.requires:
        return True
    numbers = {role.name: number for number, role in enumerate(workload.roles)}
    running = state.pods.get(workload.name, {})
    where = {name: pod.node for name, pod in running.items() if pod.phase in ACTIVE_PHASES} | dict(places)
    rows: dict[PartKey, list[int]] = {}
    for name, node in where.items():
        number = numbers.get(role_name(name))
        if number is None or node not in nodes.row:
            return False
        for key in levels.parts_of(number, pod_index(name)):
            rows.setdefault(key, []).append(nodes.row[node])
    for key, found in rows.items():
        constraint = levels.constraint(key)
        if constraint.required:
            resolved = constraint_levels(nodes, constraint, CONSOLIDATED)
            if resolved.unknown:
                return False
            domains = resolved.levels[resolved.required].domain_of_node[found]
            if (domains < 0).any() or (domains != domains[0]).any():
                return False
    return True
