"""How many pods with the same request fit on the devices of each node.

Compute and memory of a device are coupled: a share is checked against both, and takes both.
"""

from collections.abc import Sequence

import numpy as np

from kaiwo.gpus.share_rules import closed_devices, one_per_device
from kaiwo.model.gpus.gpu import ANY_MIB, WHOLE_MILLI
from kaiwo.model.request import ANY_PARTITION, Request
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows, freeze
from kaiwo.snapshot.node_table import MIB, MILLI, SIZE, USABLE
from kaiwo.snapshot.view import View

MANY = np.int64(1) << 40


def eligible_devices(view: View, want: Request, nodes: Rows) -> BoolArray:
    """Healthy devices of the requested model, size and partition profile that it may use, whether free or not."""
    suitable = _suitable_devices(view, want, nodes)
    return suitable & _is_within_share_bound(view, want, nodes) if is_share_bounded(view, want) else suitable


def devices_beyond_share_bound(view: View, want: Request, nodes: Rows) -> BoolArray | None:
    """Devices that would serve it, but for a bound on the memory of one share; None: there is no bound."""
    if not is_share_bounded(view, want):
        return None
    return _suitable_devices(view, want, nodes) & ~_is_within_share_bound(view, want, nodes)


def _suitable_devices(view: View, want: Request, nodes: Rows) -> BoolArray:
    gpus = view.of(nodes).gpus
    usable: BoolArray = gpus[:, USABLE] > 0
    if want.device_mib:
        usable &= gpus[:, SIZE] >= want.device_mib
    if view.reservations is not None:
        usable &= ~view.reservations.closed(want.passes, want.holds_s)[nodes]
    if want.reservation:
        usable &= devices_of_reservation(view, want, nodes)
    if _must_check_profile(view, want):
        usable &= _is_among(view.nodes.gpu_profile[nodes], matching_profiles(view.nodes.profiles, want))
    if not want.gpu_models and not _must_check_vendor(view, want):
        return usable
    return usable & _is_among(view.nodes.gpu_model[nodes], _wanted_models(view, want))


def is_share_bounded(view: View, want: Request) -> bool:
    """True if its queue or some node bounds the memory of one share."""
    if not want.gpus or want.is_exclusive:
        return False
    if want.limits and want.limits.max_mib < ANY_MIB:
        return True
    return view.nodes.bounds_shares


def _is_within_share_bound(view: View, want: Request, nodes: Rows) -> BoolArray:
    need_mib = device_need(want, view.of(nodes).gpus[:, SIZE])[1]
    within: BoolArray = need_mib <= share_bound(view, want, nodes)[:, None]
    return within


def share_bound(view: View, want: Request, nodes: Rows) -> IntArray:
    """The most memory of one share of this request on each of these nodes."""
    bound: IntArray = np.minimum(view.nodes.max_share_mib[nodes], want.limits.max_mib if want.limits else ANY_MIB)
    return bound


def _must_check_vendor(view: View, want: Request) -> bool:
    """True if the vendor must be checked: some node has GPUs of two vendors, so the rule on its label is not enough."""
    return bool(view.nodes.mixed_vendor_nodes) and bool(want.vendor)


def _wanted_models(view: View, want: Request) -> list[int]:
    vendor, table = want.vendor if view.nodes.mixed_vendor_nodes else "", view.nodes
    names = [name for name in table.models if not want.gpu_models or name in want.gpu_models]
    return [table.models.index(name) for name in names if not vendor or table.vendors.get(name) in ("", vendor)]


def _is_among(numbers: IntArray, wanted: Sequence[int]) -> BoolArray:
    """True where a number is wanted. For a single one `isin` would take ten times as long."""
    return numbers == wanted[0] if len(wanted) == 1 else np.isin(numbers, wanted)


def matching_profiles(profiles: Sequence[str], want: Request) -> list[int]:
    """Shares and whole GPUs need GPUs that are not partitioned. `CPX` allows every memory mode, `any` every profile."""
    if not want.is_partition:
        return [0]
    wanted = want.partition
    return [
        at
        for at, name in enumerate(profiles)
        if name == wanted or name.startswith(f"{wanted}+") or (wanted == ANY_PARTITION and name != "")
    ]


def pods_per_device(view: View, want: Request, nodes: Rows) -> IntArray:
    """How often one device's part of the request fits on each device."""
    last = view.own(_LastFit)
    if last.want is want and last.nodes is nodes and last.clock == view.clock:
        return last.times  # fit and scores of one repair ask the same: this halves its cost
    times = _times(view, want, nodes)
    freeze(times)
    last.want, last.nodes, last.clock, last.times = want, nodes, view.clock, times
    return times


class _LastFit:
    """The last answer of `pods_per_device` about one view."""

    __slots__ = ("clock", "nodes", "times", "want")
    clock: int
    nodes: Rows
    times: IntArray

    def __init__(self) -> None:
        self.want: Request | None = None


def _times(view: View, want: Request, nodes: Rows) -> IntArray:
    gpus = view.of(nodes).gpus
    milli, mib, size = gpus[:, MILLI], gpus[:, MIB], gpus[:, SIZE]
    is_limited = view.reservations is not None or want.reservation
    is_chosen = want.gpu_models or want.device_mib or is_limited or _must_check_profile(view, want)
    is_chosen = is_chosen or _must_check_vendor(view, want) or is_share_bounded(view, want)
    usable = eligible_devices(view, want, nodes) if is_chosen else gpus[:, USABLE]
    times: IntArray
    if want.is_partition:
        times = ((milli == view.nodes.device_milli[nodes]) & (mib == size)) * usable
        return times
    if want.is_whole:
        times = ((milli == WHOLE_MILLI) & (mib == size)) * usable
        return times
    if want.is_memory:
        need_milli, need_mib = device_need(want, size) if want.fraction_milli else (_milli_of(want, size), want.gpu_mib)
        by_milli = np.where(need_milli > 0, milli // np.maximum(need_milli, 1), MANY)
        times = np.minimum(mib // need_mib, by_milli)
    else:
        need_mib = np.maximum(want.gpu_milli * size // WHOLE_MILLI, 1)
        times = np.minimum(milli // want.gpu_milli, mib // need_mib)
    times *= usable
    if (closed := closed_devices(view, want, nodes)) is not None:
        times *= ~closed
    if (alone := one_per_device(view, want, nodes)) is not None:
        times = np.minimum(times, np.where(alone, 1, MANY)[:, None])
    return np.maximum(times, 0, out=times)


def devices_of_reservation(view: View, want: Request, nodes: Rows) -> BoolArray:
    """The devices of the reservation that the request names; none if there is none or the request may not use it."""
    if view.reservations is None or want.reservation not in want.passes:
        return np.zeros((len(nodes), view.nodes.width), np.bool_)
    return view.reservations.usable((want.reservation,))[nodes]


def _must_check_profile(view: View, want: Request) -> bool:
    """True if the profile must be checked; if no GPU is partitioned, only for requests that ask for a partition."""
    return want.is_partition or (want.gpus > 0 and len(view.nodes.profiles) > 1)


def device_need(want: Request, size_mib: IntArray) -> tuple[IntArray, IntArray]:
    """Milli and MiB that the request takes of a device of this size.

    A fraction gets its part of the memory; a memory request's milli round down, and the MiB column binds. Where it asks
    for both, the larger need of the two binds.
    """
    if not want.is_memory:
        return np.full_like(size_mib, want.gpu_milli), want.gpu_milli * size_mib // WHOLE_MILLI
    milli = _milli_of(want, size_mib)
    if not (fraction := want.fraction_milli):
        return milli, np.full_like(size_mib, want.gpu_mib)
    return np.maximum(milli, fraction), np.maximum(fraction * size_mib // WHOLE_MILLI, want.gpu_mib)


def _milli_of(want: Request, size_mib: IntArray) -> IntArray:
    milli: IntArray = want.gpu_mib * WHOLE_MILLI // np.maximum(size_mib, 1)
    return milli


def rounding_of(want: Request, size_mib: IntArray, milli: IntArray) -> IntArray:
    """What a queue pays beyond the milli that a memory request takes of devices of this size: see `Share`."""
    charge = np.maximum(-(-want.gpu_mib * WHOLE_MILLI // np.maximum(size_mib, 1)), 1)
    rounding: IntArray = np.maximum(charge - milli, 0)
    return rounding


def need_on(view: View, want: Request, row: int, columns: IntArray) -> tuple[IntArray, IntArray]:
    """Milli and MiB that the request takes of these devices; exclusive ones are taken whole."""
    sizes = view.gpus[row, SIZE, columns]
    if want.is_exclusive:
        return view.nodes.device_milli[row, columns], sizes
    return device_need(want, sizes)


def pods_by_devices(times: IntArray, devices: int) -> IntArray:
    """How many pods that want `devices` distinct devices fit, when each device has room for `times`."""
    if devices == 1:
        ones: IntArray = times.sum(axis=1)
        return ones
    low = np.zeros(len(times), np.int64)
    if devices > times.shape[1]:
        return low
    high = times.sum(axis=1) // devices
    while (low < high).any():  # p pods fit exactly if the devices have p * devices places, at most p each
        middle = (low + high + 1) // 2
        fits = np.minimum(times, middle[:, None]).sum(axis=1) >= middle * devices
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    return low


def fits_beside_others(view: View, want: Request, nodes: Rows) -> BoolArray:
    """The nodes where the request fits on devices that are partly used already."""
    gpus = view.of(nodes).gpus
    begun = (gpus[:, MILLI] < view.nodes.device_milli[nodes]) | (gpus[:, MIB] < gpus[:, SIZE])
    if want.gpus and not begun.any():
        return np.zeros(len(begun), np.bool_)
    beside: BoolArray = (begun & (pods_per_device(view, want, nodes) > 0)).sum(axis=1) >= want.gpus
    return beside
