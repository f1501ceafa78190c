"""What keeps a pod waiting when no device is cut as it asks: whether another partition mode would help, and comes.

In:    the view, a request.   Out: an obstacle.
"""

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from kaiwo.gpus.isolation_grades import is_mps_on_amd
from kaiwo.gpus.partitioning.if_repartitioned import available_modes, if_repartitioned, is_isolation_too_weak
from kaiwo.model.node import Node
from kaiwo.model.obstacle import (
    ModelModes,
    ModelsPresent,
    ModeMissing,
    MpsOnAmd,
    NodesExcluded,
    NoSuchMode,
    Obstacle,
    Reason,
    ReservedBy,
)
from kaiwo.model.partition_modes import WHOLE_MODE
from kaiwo.model.request import ANY_PARTITION, Request
from kaiwo.model.reservation import Reservation
from kaiwo.snapshot.array_types import Rows
from kaiwo.snapshot.node_table import SIZE, USABLE
from kaiwo.snapshot.view import View


def no_such_device(view: View, want: Request) -> Obstacle:
    """No working device of a wanted model, cut as wanted, anywhere."""
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
    broken = sum(1 for node in nodes for gpu in node.gpus if not gpu.healthy)
    reason = Reason.GPU_UNHEALTHY if broken else Reason.NOT_ENOUGH_GPUS
    return Obstacle(reason, want.gpus, 0, "gpus")


def after_mode_change(view: View, want: Request, rows: Rows) -> Obstacle | None:
    """A node would have enough if its GPUs were cut so; the one that comes closest is told. None: no node would."""
    gpus = view.of(rows)[1]
    is_cut = want.is_partition or len(view.nodes.profiles) > 1
    if not is_cut and not ((gpus[:, USABLE] == 0) & (gpus[:, SIZE] > 0)).any():
        return None  # nothing is cut and nothing waits for it: this is most clusters, and looking costs
    able = [each for each in if_repartitioned(_open_nodes(view, want, rows), want) if each.devices >= want.gpus]
    if not able:
        return None
    best = max(able, key=lambda each: (each.coming, each.now))
    unit = "gpus" if want.is_whole else "devices"
    facts = ModeMissing(best.node, best.coming)
    return Obstacle(Reason.PARTITION_MODE, want.gpus, best.now, unit, want.partition or WHOLE_MODE, facts)


def _in_other_modes(view: View, want: Request) -> Obstacle | None:
    """All are cut in other ways; or none of them can be cut so, ever."""
    nodes, mode = view.nodes.nodes, want.partition or WHOLE_MODE
    found = list(if_repartitioned(_open_nodes(view, want, np.arange(len(nodes))), want))
    if found:
        could, coming = sum(each.others for each in found), sum(each.coming for each in found)
        return Obstacle(Reason.PARTITION_MODE, want.gpus, could, "gpus", mode, ModeMissing(changing=coming))
    if (kept := _reserved(view, want, mode)) is not None:
        return kept
    modes = available_modes(nodes, want)
    if not want.is_partition or not modes or _is_possible(modes, want.partition):
        return None
    supported = tuple(ModelModes(model, tuple(there)) for model, there in modes.items())
    return Obstacle(Reason.PARTITION_MODE, want.gpus, 0, "gpus", mode, NoSuchMode(supported))


def _reserved(view: View, want: Request, mode: str) -> Obstacle | None:
    """Those that could be cut so are reserved for others, who alone may change them."""
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
    """The owner and the times, as far as they are still to come: so they stay the same from cycle to cycle."""
    start_s = reservation.start_s if reservation.start_s > now_s else 0
    return ReservedBy(reservation.owner, start_s, reservation.end_s)


def _open_nodes(view: View, want: Request, rows: Rows) -> list[Node]:
    """The nodes without the devices that reservations keep for others."""
    nodes = [view.nodes.nodes[row] for row in rows]
    if view.reservations is None:
        return nodes
    closed = view.reservations.closed(want.passes, want.holds_s)[rows]
    return [
        replace(node, gpus=tuple(gpu for column, gpu in enumerate(node.gpus) if not closed[at, column]))
        if closed[at].any()
        else node
        for at, node in enumerate(nodes)
    ]


def _is_possible(modes: Mapping[str, tuple[str, ...]], wanted: str) -> bool:
    """Some model that is there can be in such a mode. How NVIDIA's are cut only their devices tell."""
    compute = wanted.partition("+")[0]
    return wanted == ANY_PARTITION or any(compute in there for there in modes.values())
