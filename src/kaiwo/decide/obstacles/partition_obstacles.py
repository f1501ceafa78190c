"""Obstacles of partition modes: no device is in the mode that a pod asks for, and whether a change would help."""

import numpy as np
from msgspec.structs import replace

from kaiwo.gpus.isolation_grades import is_mps_on_amd
from kaiwo.gpus.partitioning.if_repartitioned import available_modes, if_repartitioned, is_isolation_too_weak
from kaiwo.model.gpus.partition_modes import WHOLE_MODE, read_mode
from kaiwo.model.node import Node
from kaiwo.model.obstacle import (
    LargerNodes,
    ModelModes,
    ModelsPresent,
    ModeMissing,
    MpsOnAmd,
    NodesExcluded,
    NoSuchMode,
    Obstacle,
    Reason,
    ReservedBy,
    SizeBound,
)
from kaiwo.model.request import ANY_PARTITION, Request
from kaiwo.model.reservation import Reservation
from kaiwo.snapshot.array_types import Rows
from kaiwo.snapshot.node_table import SIZE, USABLE
from kaiwo.snapshot.view import View


def no_such_device(view: View, want: Request) -> Obstacle:
    """No healthy device of a wanted model and partition mode exists."""
    nodes = view.nodes.nodes
    if is_mps_on_amd(want, nodes):
        return Obstacle(Reason.GPU_ISOLATION, want.gpus, 0, "nodes", "gpu-isolation", MpsOnAmd())
    if want.gpu_models:
        there = sorted({gpu.model for node in nodes for gpu in node.gpus})
        if not set(there) & set(want.gpu_models):
            wanted = " or ".join(want.gpu_models)
            return Obstacle(Reason.GPU_MODEL, want.gpus, 0, "gpus", wanted, ModelsPresent(tuple(there)))
    if (in_other_modes := _in_other_modes(view, want)) is not None:
        return in_other_modes
    if not want.is_exclusive and is_isolation_too_weak(nodes, want):
        return Obstacle(Reason.GPU_ISOLATION, 1, 0, "nodes", "gpu-isolation", NodesExcluded(len(nodes), len(nodes)))
    largest_mib = max((gpu.memory_mib for node in nodes for gpu in node.gpus), default=0)
    if 0 < largest_mib < want.device_mib:
        bound = SizeBound(LargerNodes.NONE)
        return Obstacle(Reason.NOT_ENOUGH_GPU_MEMORY, want.device_mib, largest_mib, "mib", want.reservation, bound)
    broken = sum(1 for node in nodes for gpu in node.gpus if not gpu.healthy)
    reason = Reason.GPU_UNHEALTHY if broken else Reason.NOT_ENOUGH_GPUS
    return Obstacle(reason, want.gpus, 0, "gpus")


def after_mode_change(view: View, want: Request, rows: Rows) -> Obstacle | None:
    """The node that would come closest after its GPUs changed their mode; None: no node would have enough."""
    gpus = view.of(rows).gpus
    is_cut = want.is_partition or len(view.nodes.profiles) > 1
    if not is_cut and not ((gpus[:, USABLE] == 0) & (gpus[:, SIZE] > 0)).any():
        return None  # no GPU is partitioned or about to change, as in most clusters: save the cost of looking
    able = [each for each in if_repartitioned(_open_nodes(view, want, rows), want) if each.devices >= want.gpus]
    if not able:
        return None
    best = max(able, key=lambda each: (each.coming, each.now))
    unit = "gpus" if want.is_whole else "devices"
    facts = ModeMissing(best.node, best.coming)
    return Obstacle(Reason.PARTITION_MODE, want.gpus, best.now, unit, want.partition or WHOLE_MODE, facts)


def _in_other_modes(view: View, want: Request) -> Obstacle | None:
    """All such GPUs are in other modes, or none of them supports this one."""
    nodes, mode = view.nodes.nodes, want.partition or WHOLE_MODE
    found = list(if_repartitioned(_open_nodes(view, want, np.arange(len(nodes))), want))
    if found:
        could, coming = sum(each.others for each in found), sum(each.coming for each in found)
        return Obstacle(Reason.PARTITION_MODE, want.gpus, could, "gpus", mode, ModeMissing(changing=coming))
    if (kept := _reserved(view, want, mode)) is not None:
        return kept
    modes = available_modes(nodes, want)
    compute = read_mode(want.partition).compute
    # NVIDIA's modes are known only from their devices.
    is_possible = want.partition == ANY_PARTITION or any(compute in there for there in modes.values())
    if not want.is_partition or not modes or is_possible:
        return None
    supported = tuple(ModelModes(model, tuple(there)) for model, there in modes.items())
    return Obstacle(Reason.PARTITION_MODE, want.gpus, 0, "gpus", mode, NoSuchMode(supported))


def _reserved(view: View, want: Request, mode: str) -> Obstacle | None:
    """The GPUs that support the mode are reserved for others, and only those may change them."""
    reserved = view.reservations
    if reserved is None:
        return None
    able = {each.node for each in if_repartitioned(view.nodes.nodes, want)}
    for claim in reserved.reservations if able else ():
        names = {view.nodes.names[row] for row in (*claim.rows, *claim.whole)}
        if names & able and reserved.closes(claim, want.passes, want.holds_s):
            facts = replace(reserved_by(claim.reservation, reserved.now_s), mode=mode)
            return Obstacle(Reason.RESERVED, want.gpus, 0, "gpus", claim.name, facts)
    return None


def reserved_by(reservation: Reservation, now_s: int) -> ReservedBy:
    """The owner, and the times still to come, so that they stay the same from cycle to cycle."""
    start_s = reservation.start_s if reservation.start_s > now_s else 0
    return ReservedBy(reservation.owner, start_s, reservation.end_s)


def _open_nodes(view: View, want: Request, rows: Rows) -> list[Node]:
    nodes = [view.nodes.nodes[row] for row in rows]
    if view.reservations is None:
        return nodes
    closed = view.reservations.closed(want.passes, want.holds_s)[rows]
    for at in np.flatnonzero(closed.any(axis=1)).tolist():
        gpus = tuple(gpu for column, gpu in enumerate(nodes[at].gpus) if not closed[at, column])
        nodes[at] = replace(nodes[at], gpus=gpus)
    return nodes
