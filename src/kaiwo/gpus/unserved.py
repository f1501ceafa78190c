"""The pods of one need that nothing serves yet, and how they come to nodes.

In:    a need, nodes in the planner's hands.   Out: what is left of the need; the nodes have less to give.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from kaiwo.gpus.fleet import Amounts, Need, PodSize
from kaiwo.gpus.sites import GpuSite, NodeSite, times_in


class Unserved:
    """Largest pods first: those find the fewest places."""

    __slots__ = ("_least", "_left", "_sizes", "count", "need")

    def __init__(self, need: Need) -> None:
        self.need, self.count = need, need.count
        sizes = need.sizes or (PodSize((), need.count),)
        self._sizes = sorted(sizes, key=lambda size: (size.amounts, size.sharers), reverse=True)
        self._left = [size.count for size in self._sizes]
        self._least: Amounts = tuple(map(min, zip(*(size.amounts for size in sizes), strict=True)))

    def left(self) -> Need:
        """The need, as far as it is not served."""
        sizes = (replace(size, count=left) for size, left in zip(self._sizes, self._left, strict=True) if left)
        return replace(self.need, count=self.count, sizes=tuple(sizes) if self.need.sizes else ())

    def find_room(self, node: NodeSite, changing: Collection[GpuSite]) -> bool:
        """One of them at least finds CPUs, memory and a slot there, when the work on these GPUs has ended."""
        if node.now.free is None or not self._least:
            return True
        room = node.room_later(changing)
        if not times_in(room, self._least, 1):
            return False
        sizes = zip(self._sizes, self._left, strict=True)
        return any(left and times_in(room, size.amounts, 1) for size, left in sizes)

    def fill(self, node: NodeSite) -> None:
        """Give as many of them devices of this node as find room there."""
        need = self.need
        suitable = [site for site in node.gpus if site.free and site.serves(need)]
        devices = sum(site.free for site in suitable)
        if devices < need.devices or not node.times(self._least):
            return
        for at, size in enumerate(self._sizes):
            while self._left[at] and devices >= need.devices and _take(node, suitable, need.devices, size):
                self._left[at] -= 1
                self.count -= 1
                devices -= need.devices
            if devices < need.devices:
                return


def _take(node: NodeSite, suitable: Sequence[GpuSite], devices: int, size: PodSize) -> bool:
    """One pod's devices of one node, of GPUs that are begun or spoken for before others."""
    times = node.times(size.amounts, size.sharers)
    if not times:
        return False
    now = node.times_now(size.amounts, times)
    must_wait = not now  # for what runs on a GPU that changes: it must then be on that GPU
    if must_wait and not any(site.free and site.is_moving for site in suitable):
        return False
    times = now or times
    is_later = False
    for site in sorted((site for site in suitable if site.free), key=lambda site: _order(site, must_wait)):
        taken = min(devices, site.free)
        site.free -= taken
        site.is_spoken = True
        is_later |= site.is_moving
        devices -= taken
        if not devices:
            break
    node.take(size.amounts, times, is_later)
    return True


def _order(site: GpuSite, must_wait: bool) -> tuple[bool, bool, bool, int]:
    return (must_wait and not site.is_moving, not site.is_spoken, site.is_moving, site.free)
