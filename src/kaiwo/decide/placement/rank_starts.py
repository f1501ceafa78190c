"""Give the starts of a plan their ranks: neighbours near each other, and no pod that stays is numbered anew.

In:    the starts of one plan, and the pods that run.   Out: the same starts, with ranks where the workload has them.
Work has ranks if it states a level or asks for them. Pods without GPUs have none, if others of the workload have GPUs:
launchers and parameter servers are no part of the collectives.
"""

from collections.abc import Container, Mapping, Sequence

from msgspec.structs import replace

from kaiwo.decide.placement.levels import Level, constraint_levels
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.network.constraint import CONSOLIDATED, TopologyConstraint
from kaiwo.model.network.level_groups import levels_of
from kaiwo.model.plan import Start
from kaiwo.model.workload import NO_RANK, RELEASING_PHASES, Pod, Role, Workload, find_role, pod_index, role_name
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import NodeTable
from kaiwo.topology.rank_order import RankedPod, rank_order


def with_ranks(
    state: ClusterState, starts: tuple[Start, ...], evicted: Container[tuple[str, str]]
) -> tuple[Start, ...]:
    """`evicted`: workload and pod of what the same plan stops."""
    by_workload: dict[str, list[Start]] = {}
    workloads = state.workloads
    for start in starts:
        workload = workloads.get(start.workload)
        if workload is None or (len(workload.roles) == 1 and workload.roles[0].count == 1):  # most have one pod
            continue
        if has_ranks(workload):
            by_workload.setdefault(start.workload, []).append(start)
    if not by_workload:
        return starts
    ranks: dict[tuple[str, str], int] = {}
    for name, own in by_workload.items():
        stays = [
            pod
            for pod in state.pods.get(name, {}).values()
            if pod.phase not in RELEASING_PHASES and (name, pod.name) not in evicted
        ]
        found = _ranks(state.workloads[name], state.nodes, own, stays)
        ranks.update(((name, pod), rank) for pod, rank in found.items())
    return tuple(
        replace(start, rank=ranks[start.workload, start.pod]) if (start.workload, start.pod) in ranks else start
        for start in starts
    )


def has_ranks(workload: Workload) -> bool:
    """It states a level or asks for ranks, and has more than one pod to number."""
    if not workload.rank_order and levels_of(workload) is None:
        return False
    return sum(role.count for role in ranked_roles(workload)) > 1


def ranked_roles(workload: Workload) -> list[Role]:
    with_gpus = [role for role in workload.roles if role.request.gpus]
    return with_gpus or list(workload.roles)


def _ranks(workload: Workload, nodes: NodeTable, starts: Sequence[Start], stays: Sequence[Pod]) -> Mapping[str, int]:
    """By pod. Empty: pods run that have no rank, since they started before the workload asked for them."""
    numbers = {role.name: at for at, role in enumerate(workload.roles)}
    ranked = {role.name for role in ranked_roles(workload)}
    if any(pod.rank == NO_RANK and role_name(pod.name) in ranked for pod in stays):
        return {}
    levels = _levels(workload, nodes)
    found = []
    places = [(start.pod, start.node, start.devices, NO_RANK) for start in starts]
    for name, node, devices, rank in [*((pod.name, pod.node, pod.devices, pod.rank) for pod in stays), *places]:
        role, row = find_role(workload, name), nodes.row.get(node)
        if role is None or role.name not in ranked:
            continue
        path = _path(levels, row) if row is not None else (-1,) * len(levels)
        device = _first_device(nodes, row, devices) if row is not None else 0
        found.append(RankedPod(name, (numbers[role.name], pod_index(name)), path, device, role.leads, rank))
    return rank_order(found)


def _levels(workload: Workload, nodes: NodeTable) -> tuple[Level, ...]:
    """From the widest level of its topology, or of the first one, to single nodes."""
    levels = levels_of(workload)
    constraint = levels.parts[0].constraint if levels is not None and levels.parts else TopologyConstraint()
    return constraint_levels(nodes, constraint, CONSOLIDATED).levels


def _path(levels: Sequence[Level], row: int) -> tuple[int, ...]:
    """A domain that is not known is one of its own, with this node alone."""
    return tuple(found if (found := int(level.domain_of_node[row])) >= 0 else -2 - row for level in levels)


def _first_device(nodes: NodeTable, row: int, devices: Sequence[Share]) -> int:
    return min((nodes.column[row].get(share.gpu, 0) for share in devices), default=0)
