"""Predict the bandwidth of a collective among some devices of a node, from the links between them.

In:    the links of a node and sets of its devices.   Out: MB/s, as the bus bandwidth of NCCL's and RCCL's tests.
Whatever a part of the devices has must leave that part: of k devices, a part of n can send at most what its links to
the others carry, so the bus bandwidth is at most (k - 1) times that, divided by n. The smallest of these bounds counts.
Where all pairs are alike it is the cost model of `topology.collective_time`: (k - 1) links in a mesh, the full rate on
a switch whatever k is. It also answers for machines whose pairs differ, such as MI250.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np

from kaiwo.model.node import DeviceLinks
from kaiwo.snapshot.array_types import BoolArray, IntArray

PCIE_MB_S = 26_000  # between devices that no link connects: see `topology.network_rates`
MAX_EXACT = 8  # devices of a set of which every part is looked at


def predicted_mb_s(wiring: DeviceLinks, devices: Sequence[int]) -> int:
    """What each of these devices can send to the others at once, over PCIe if no links connect them; 0: it is alone."""
    if len(devices) < 2:
        return 0
    return int(link_bandwidths(wiring, [tuple(devices)])[0]) or PCIE_MB_S


def link_bandwidths(wiring: DeviceLinks, sets: Sequence[tuple[int, ...]]) -> IntArray:
    """Of sets of equal size, over links alone; 0: a single device, or links do not connect all of them."""
    size = len(sets[0]) if sets else 0
    if size < 2:
        return np.zeros(len(sets), np.int64)
    all_links, all_totals = _arrays(wiring)
    members = np.array(sets, np.intp)
    links = all_links[members[:, :, None], members[:, None, :]]
    total = all_totals[members]
    found = np.full(len(sets), np.iinfo(np.int64).max // 4)
    for part in _parts(size):
        between = links[:, part][:, :, ~part].sum(axis=(1, 2))
        carried = np.minimum(between, np.minimum(total[:, part].sum(axis=1), total[:, ~part].sum(axis=1)))
        found = np.minimum(found, (size - 1) * carried // int(part.sum()))
    return found


def _parts(size: int) -> Iterable[BoolArray]:
    """The larger part of each division in two, which has the lower bound; of large sets, all but one or two devices."""
    smaller = size // 2 if size <= MAX_EXACT else 2
    for count in range(1, smaller + 1):
        for at in combinations(range(size), count):
            part = np.ones(size, np.bool_)
            part[list(at)] = False
            yield part


@lru_cache(maxsize=64)
def _arrays(wiring: DeviceLinks) -> tuple[IntArray, IntArray]:
    """The links between each pair, and what each device can send in all."""
    links = np.array(wiring.mb_s, np.int64)
    np.fill_diagonal(links, 0)
    summed = links.sum(axis=1)
    total = np.array([wiring.total_of(device) or int(summed[device]) for device in range(len(links))], np.int64)
    return links, total
