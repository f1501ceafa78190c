"""Find the resources that are short on the nodes that a pod may use, and what they would fit if nothing ran."""

from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.obstacles.availability import NodeAvailability, among, availability_in, fraction_alone
from kaiwo.decide.obstacles.partition_obstacles import after_mode_change
from kaiwo.decide.obstacles.share_bounds import over_share_bound
from kaiwo.decide.placement.node_fit import extended_free, most_free
from kaiwo.gpus.device_fit import devices_of_reservation, eligible_devices, pods_per_device
from kaiwo.gpus.isolation_grades import closed_by_tenants
from kaiwo.gpus.share_rules import closed_by_rules, one_per_device
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.obstacle import (
    ClosestNode,
    GangBound,
    GangLimit,
    LargerNodes,
    LevelShort,
    MoreBesideTenants,
    NotOffered,
    Obstacle,
    Reason,
    SharedByOthers,
    SizeBound,
)
from kaiwo.model.request import Request
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.node_table import CPU, MEMORY, PODS, SIZE, USABLE
from kaiwo.snapshot.view import View

_OF_SIZE = (Reason.NOT_ENOUGH_GPUS, Reason.NOT_ENOUGH_GPU_MEMORY, Reason.GPU_MODEL, Reason.SHARE_TOO_LARGE)
_IN_OTHER_UNITS = (
    Reason.NOT_ENOUGH_GPUS, Reason.NOT_ENOUGH_GPU_MEMORY, Reason.PARTITION_MODE, Reason.SHARE_TOO_LARGE,
)  # fmt: skip
MAX_EXAMINED = 8  # nodes whose GPUs are examined one by one: 1,250 of them took 60 ms
MAX_NAMED = 3  # queues


class _Resource(NamedTuple):
    free: IntArray  # by node
    most: int  # of those
    obstacle: Obstacle  # when none has enough


def short_of(view: View, want: Request, rows: Rows, offer: NodeAvailability) -> list[Obstacle]:
    """Resources that are short on every usable node; if none is, what the closest nodes lack.

    What even empty nodes lack comes first. Work without GPUs that names a reservation may use only its nodes.
    """
    named = _in_named_reservation(view, want)
    if not len(rows := rows[named[rows]]):
        return []
    resources = _resources(view, want, rows, offer)
    short = [each.obstacle for each in resources if each.most < _least(want, each.obstacle)]
    everywhere = [_as_sizes(view, rows, obstacle, named) for obstacle in short]
    if any(isinstance(each.facts, SizeBound) or each.reason in _IN_OTHER_UNITS for each in everywhere):
        return everywhere
    never = _small_when_empty(view, want, rows, resources, offer)
    reasons = [each.reason for each in never]
    return [*never, *(each for each in everywhere if each.reason not in reasons)] or _short_beside_the_rest(
        view, want, rows, resources, offer
    )


def too_large(view: View, want: Request, offer: NodeAvailability) -> list[Obstacle]:
    """Resources other than GPUs of which even an empty node has too little: no change of GPUs helps."""
    rows = view.all_rows
    resources = _resources(view, replace(want, gpus=0), rows, offer)
    named = _in_named_reservation(view, want)
    sizes = [_as_sizes(view, rows[named], each.obstacle, named) for each in resources] if named.any() else []
    return [each for each in sizes if _is_size_of_all(each)]


def is_permanent(obstacle: Obstacle) -> bool:
    """No work that ends removes it: nothing that it may use is that large, or of that kind."""
    facts = obstacle.facts
    is_too_small = isinstance(facts, LevelShort) and facts.is_too_small
    return (
        is_too_small
        or _is_size_of_all(obstacle)
        or facts == GangBound(GangLimit.CLUSTER)
        or (obstacle.reason in _OF_SIZE)
    )


def _is_size_of_all(obstacle: Obstacle) -> bool:
    """No node has that much, even of those that it may not use."""
    facts = obstacle.facts
    return isinstance(facts, NotOffered) or (isinstance(facts, SizeBound) and facts.is_of_all_nodes)


def fits_when_empty(view: View, want: Request, offer: NodeAvailability) -> BoolArray:
    """Nodes that would fit one pod if nothing ran on them."""
    has_gpus: BoolArray = (offer.devices >= want.gpus) & (offer.largest_mib >= want.gpu_mib)
    return large_enough(view, want) & has_gpus & _in_named_reservation(view, want)


def large_enough(view: View, want: Request) -> BoolArray:
    """Nodes that have all that it asks for besides GPUs, if nothing ran on them."""
    nodes = view.nodes
    fits: BoolArray = (nodes.cpu_size >= want.cpu_milli) & (nodes.memory_size >= want.memory_mib)
    for name, amount in want.extended:
        fits &= np.array([node.extended.get(name, 0) for node in nodes.nodes], np.int64) >= amount
    return fits


def _in_named_reservation(view: View, want: Request) -> BoolArray:
    """Nodes with GPUs of the reservation that work without GPUs names; all for other work."""
    rows = np.arange(len(view.nodes.names))
    if want.gpus or not want.reservation:
        return np.ones(len(rows), np.bool_)
    with_gpus: BoolArray = np.any(devices_of_reservation(view, want, rows), axis=1)
    return with_gpus


def largest_device_mib(view: View, want: Request) -> int:
    """The largest device that would serve a request, free or not; 0 when there is none."""
    rows = np.arange(len(view.nodes.names))
    return int((view.of(rows).gpus[:, SIZE] * eligible_devices(view, want, rows)).max(initial=0))


def _resources(view: View, want: Request, rows: Rows, offer: NodeAvailability) -> list[_Resource]:
    free, most = view.of(rows).free, most_free(view, rows)
    found = [_gpus(view, want, rows, offer)] if want.gpus else []
    pool = "" if want.gpus else want.reservation
    for reason, unit, need, column, have in (
        (Reason.NOT_ENOUGH_CPU, "milli-cpu", want.cpu_milli, CPU, most.cpu_milli),
        (Reason.NOT_ENOUGH_MEMORY, "mib", want.memory_mib, MEMORY, most.memory_mib),
        (Reason.NOT_ENOUGH_PODS, "pods", 1, PODS, most.pods),
    ):
        if need:
            found.append(_Resource(free[:, column], have, Obstacle(reason, need, max(0, have), unit, pool)))
    for name, need in want.extended:
        has = extended_free(view, name, rows)
        offered, have = None if name in view.nodes.extended_names else NotOffered(), int(has.max())
        obstacle = Obstacle(Reason.NOT_ENOUGH_EXTENDED, need, max(0, have), "", name, offered)
        found.append(_Resource(has, have, obstacle))
    return found


def _as_sizes(view: View, rows: Rows, obstacle: Obstacle, of: BoolArray) -> Obstacle:
    """The obstacle with sizes instead of free amounts, where even an empty node is too small: waiting does not help.

    `of`: the nodes that filters might exclude.
    """
    size = _sizes(view, obstacle)
    if size is None or (largest := int(size[rows].max())) >= obstacle.need:
        return obstacle
    return replace(obstacle, have=largest, facts=_size_bound(largest, int(size[of].max()), obstacle.need))


def _sizes(view: View, obstacle: Obstacle) -> IntArray | None:
    """What each node has when it is empty; None for GPUs, where that is known already."""
    nodes = view.nodes
    match obstacle.reason:
        case Reason.NOT_ENOUGH_CPU:
            return nodes.cpu_size
        case Reason.NOT_ENOUGH_MEMORY:
            return nodes.memory_size
        case Reason.NOT_ENOUGH_PODS:
            return np.array([node.pods for node in nodes.nodes], np.int64)
        case Reason.NOT_ENOUGH_EXTENDED if not isinstance(obstacle.facts, NotOffered):
            return np.array([node.extended.get(obstacle.subject, 0) for node in nodes.nodes], np.int64)
    return None


def _small_when_empty(
    view: View, want: Request, rows: Rows, resources: list[_Resource], offer: NodeAvailability
) -> list[Obstacle]:
    """What the closest nodes have too little of even when empty, where each resource is enough on some other node."""
    fits = fits_when_empty(view, want, offer)
    if want.is_partition or fits[rows].any():
        return []  # GPUs may change their mode
    has_gpus = (offer.devices[rows] >= want.gpus) & (offer.largest_mib[rows] >= want.gpu_mib)
    is_part_way = bool(offer.devices[rows][~has_gpus].any())  # else nodes without such GPUs are not close to it
    near = rows if is_part_way or not has_gpus.any() else rows[has_gpus]
    empty = [_when_empty(view, want, each.obstacle, offer) for each in resources]
    lacks = np.array([size[near] < obstacle.need for size, obstacle in empty])
    larger = LargerNodes.LARGE_ENOUGH if _fits_elsewhere(view, want, offer) else LargerNodes.ALSO_TOO_SMALL
    if lacks.all(axis=1).any():
        return [
            replace(obstacle, have=int(size[near].max()), facts=SizeBound(larger))
            for (size, obstacle), lacking in zip(empty, lacks, strict=True)
            if lacking.all()
        ]
    found = []
    how_many = lacks.sum(axis=0)
    for (size, obstacle), lacking in zip(empty, lacks, strict=True):
        if len(here := near[lacking & (how_many == how_many.min())]):
            best = here[size[here].argmax()]
            facts = SizeBound(larger, view.nodes.names[best])
            found.append(replace(obstacle, have=int(size[best]), facts=facts))
    return found


def _when_empty(view: View, want: Request, obstacle: Obstacle, offer: NodeAvailability) -> tuple[IntArray, Obstacle]:
    """What each node has of a resource when it is empty, and the obstacle in that unit."""
    if (size := _sizes(view, obstacle)) is not None:
        return size, obstacle
    if offer.most_devices < want.gpus or not want.is_memory:
        unit = "gpus" if want.is_exclusive else "devices"
        return offer.devices, Obstacle(Reason.NOT_ENOUGH_GPUS, want.gpus, 0, unit, want.reservation)
    return offer.largest_mib, Obstacle(Reason.NOT_ENOUGH_GPU_MEMORY, want.gpu_mib, 0, "mib", want.reservation)


def _fits_elsewhere(view: View, want: Request, offer: NodeAvailability) -> bool:
    """Some node that filters or reservations exclude would be large enough."""
    if not want.reservation and view.reservations is not None:
        open_want = unreserved(view, want)
        offer = availability_in(view, open_want, view.all_rows)
    return bool(fits_when_empty(view, want, offer).any())


def _short_beside_the_rest(
    view: View, want: Request, rows: Rows, resources: list[_Resource], offer: NodeAvailability
) -> list[Obstacle]:
    """Each resource is free somewhere, but never all on one node: what the closest nodes lack."""
    lacks = [each.free < _least(want, each.obstacle) for each in resources]
    how_many = np.sum(lacks, axis=0)
    closest = how_many == how_many.min()
    found = []
    for (free, _, obstacle), lacking in zip(resources, lacks, strict=True):
        here = (lacking & closest).nonzero()[0]
        if len(here) and (in_other_mode := _in_another_mode(view, want, rows[here], obstacle, offer)) is not None:
            found.append(in_other_mode)
        elif len(here):
            best = here[free[here].argmax()]
            node = ClosestNode(view.nodes.names[rows[best]])
            found.append(replace(obstacle, have=max(0, int(free[best])), facts=node))
    return found


def _in_another_mode(
    view: View, want: Request, rows: Rows, obstacle: Obstacle, offer: NodeAvailability
) -> Obstacle | None:
    """The only thing missing on these nodes is GPUs in this partition mode."""
    if obstacle.reason != Reason.NOT_ENOUGH_FREE_GPUS or (offer.devices[rows] >= want.gpus).any():
        return None
    gpus = view.of(rows).gpus
    is_closed = ((gpus[:, USABLE] == 0) & (gpus[:, SIZE] > 0)).any(axis=1)  # these may be changing to it
    return after_mode_change(view, want, rows[np.argsort(~is_closed, kind="stable")[:MAX_EXAMINED]])


def _least(want: Request, obstacle: Obstacle) -> int:
    """What a node must have free; bounds on sizes are in another unit."""
    if obstacle.reason in _IN_OTHER_UNITS:
        return want.gpus if want.is_exclusive else want.gpu_mib or want.gpu_milli
    return obstacle.need


def _gpus(view: View, want: Request, rows: Rows, offer: NodeAvailability) -> _Resource:
    here = among(view, offer, rows)
    resource = partial(_Resource, here.now, here.most_now)
    if (too_large_share := over_share_bound(view, want, rows)) is not None:
        return resource(too_large_share)
    if want.is_memory and here.most_mib < want.gpu_mib:
        bound = _size_bound(here.most_mib, offer.most_mib, want.gpu_mib)
        reason = Reason.NOT_ENOUGH_GPU_MEMORY
        return resource(Obstacle(reason, want.gpu_mib, here.most_mib, "mib", want.reservation, bound))
    if (devices := here.most_devices) < want.gpus:
        if (in_other_mode := after_mode_change(view, want, rows)) is not None:
            return resource(in_other_mode)
        bound = _size_bound(devices, offer.most_devices, want.gpus)
        unit = "gpus" if want.is_exclusive else "devices"
        return resource(Obstacle(Reason.NOT_ENOUGH_GPUS, want.gpus, devices, unit, want.reservation, bound))
    have = here.most_now
    if want.is_exclusive:
        return resource(Obstacle(Reason.NOT_ENOUGH_FREE_GPUS, want.gpus, have, "gpus", want.reservation))
    several = f"{want.gpus} devices" if want.gpus > 1 else ""
    if (others := _shared_by_others(view, want, rows, have)) is not None:
        unit = "mib" if want.is_memory else "milli-gpu"
        return resource(Obstacle(Reason.MAY_NOT_SHARE, want.gpu_mib or want.gpu_milli, have, unit, several, others))
    closed = closed_by_tenants(view, want, rows)
    apart = MoreBesideTenants() if closed is not None and closed.any() else None
    if want.is_memory and want.fraction_milli and not have:
        alone = fraction_alone(want)
        return _gpus(view, alone, rows, availability_in(view, alone, rows))
    if want.is_memory:
        return resource(Obstacle(Reason.NOT_ENOUGH_FREE_GPU_MEMORY, want.gpu_mib, have, "mib", several, apart))
    return resource(Obstacle(Reason.NOT_ENOUGH_FREE_GPU_SHARE, want.gpu_milli, have, "milli-gpu", several, apart))


def _shared_by_others(view: View, want: Request, rows: Rows, have: int) -> SharedByOthers | None:
    """Whose work excludes it from devices with enough free; None if rules about sharing are not all that is short."""
    if want.tenant is None or have >= (want.gpu_mib or want.gpu_milli):
        return None
    open_want = replace(want, tenant=None)
    fits = pods_per_device(view, open_want, rows) > 0
    closed = closed_by_rules(view, want, rows)
    if closed is None or not ((fits.sum(axis=1) >= want.gpus) & (fits & closed).any(axis=1)).any():
        return None
    queues: dict[str, None] = {}
    for row, column in zip(*(fits & closed).nonzero(), strict=True):
        queues |= dict.fromkeys(view.queues_on(int(rows[row]), int(column)))
        if len(queues) >= MAX_NAMED:
            break
    return SharedByOthers(tuple(sorted(queues)[:MAX_NAMED]), want.tenant.share_with, bool(want.share_with))


def _size_bound(usable: int, anywhere: int, need: int) -> SizeBound:
    """Whether filters exclude a larger node."""
    if anywhere == usable:
        return SizeBound(LargerNodes.NONE)
    return SizeBound(LargerNodes.LARGE_ENOUGH if anywhere >= need else LargerNodes.ALSO_TOO_SMALL)


UNCOUNTED = 1 << 40  # pods of a shape that takes no whole devices


def most_when_empty(view: View, want: Request, allowed: BoolArray, offer: NodeAvailability) -> dict[GangLimit, int]:
    """How many pods would fit in the cluster by its GPUs alone, on allowed nodes, and outside reservations."""
    open_want, open_offer = unreserved(view, want), offer
    if open_want != want:
        open_offer = availability_in(view, open_want, np.arange(len(view.nodes.names)))
    by_gpus = int((open_offer.devices // want.gpus).sum()) if want.gpus and want.is_exclusive else UNCOUNTED
    allowed_pods = int(pods_when_empty(view, open_want, open_offer)[allowed].sum())
    left_pods = int(pods_when_empty(view, want, offer)[allowed].sum()) if open_want != want else allowed_pods
    return {GangLimit.CLUSTER: by_gpus, GangLimit.ALLOWED_NODES: allowed_pods, GangLimit.UNRESERVED: left_pods}


def unreserved(view: View, want: Request) -> Request:
    """The same request, if nothing were reserved."""
    if view.reservations is None and not want.reservation:
        return want
    names = [claim.name for claim in view.reservations.reservations] if view.reservations is not None else []
    return replace(want, passes=tuple(names), holds_s=0, reservation="")


def pods_when_empty(view: View, want: Request, offer: NodeAvailability) -> IntArray:
    """Per node, outside what is reserved for others."""
    nodes = view.nodes
    pods = np.array([node.pods for node in nodes.nodes], np.int64)
    for name, amount in want.extended:
        if amount:
            pods = np.minimum(pods, [node.extended.get(name, 0) // amount for node in nodes.nodes])
    if want.cpu_milli:
        pods = np.minimum(pods, nodes.cpu_size // want.cpu_milli)
    if want.memory_mib:
        pods = np.minimum(pods, nodes.memory_size // want.memory_mib)
    if want.gpus:
        times = np.full(len(pods), 1 if want.is_exclusive else WHOLE_MILLI // want.gpu_milli)
        if want.is_memory:
            by_mib = offer.largest_mib // want.gpu_mib
            times = np.minimum(by_mib, times) if want.fraction_milli else by_mib
        if (alone := one_per_device(view, want, np.arange(len(pods)))) is not None:
            times = np.where(alone, np.minimum(times, 1), times)
        pods = np.where(offer.devices >= want.gpus, np.minimum(pods, offer.devices * times // want.gpus), 0)
    if view.reservations is not None:
        pods = pods * ~view.reservations.closed_nodes(want.passes, want.holds_s)
    if want.reservation and not want.gpus:
        pods = pods * devices_of_reservation(view, want, np.arange(len(pods))).any(axis=1)
    return pods
