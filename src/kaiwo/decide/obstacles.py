"""Everything that keeps one kind of work waiting, in numbers.

In:    the view, a queue and what a workload needs.   Out: all obstacles, the most telling first; never none.
"""

import numpy as np

from kaiwo.decide.ask import ask
from kaiwo.decide.fit import extended_free, pods_that_fit
from kaiwo.decide.gang import least_charge
from kaiwo.gpus.fit import eligible, times_per_device
from kaiwo.model.reason import Obstacle, Reason
from kaiwo.model.request import Request
from kaiwo.plugins.registry import Active
from kaiwo.snapshot.arrays import BoolArray, IntArray, Rows
from kaiwo.snapshot.backlog import Needs
from kaiwo.snapshot.nodes import CPU, MEMORY, MIB, MILLI, PODS, SIZE
from kaiwo.snapshot.picture import Picture
from kaiwo.snapshot.queues import ENDLESS, RESOURCES
from kaiwo.snapshot.working import Working

_QUEUE_UNITS = {"gpu": "milli-gpu", "cpu": "milli-cpu", "memory": "mib"}


class Inquiry:
    """Asks why, in one state of the cluster; equal needs are answered once."""

    def __init__(self, view: Working, picture: Picture, active: Active) -> None:
        self._view, self._picture, self._active = view, picture, active
        self._rows: Rows = np.arange(len(view.nodes.names))
        self._by_needs: dict[Needs, tuple[Obstacle, ...]] = {}

    def obstacles(self, queue: str, needs: Needs) -> tuple[Obstacle, ...]:
        """What the queue says, then what the nodes say."""
        by_nodes = self._by_needs.get(needs)
        if by_nodes is None:
            by_nodes = self._by_needs[needs] = tuple(self._of_nodes(needs))
        found = (*self._of_queue(queue, needs), *by_nodes)
        return found or (self._gang(needs),)

    def _of_queue(self, name: str, needs: Needs) -> list[Obstacle]:
        queues = self._view.queues
        row = queues.row.get(name)
        if row is None:
            return [Obstacle(Reason.NO_QUEUE, 1, 0, "queues", name)]
        if not queues.is_leaf[row]:
            return [Obstacle(Reason.QUEUE_NOT_LEAF, 1, 0, "queues", name)]
        charge = least_charge(self._picture, needs)
        found = []
        for above in queues.path[row]:
            for resource, amount in enumerate(charge):
                left = int(queues.limit[above, resource] - self._view.queue_used[above, resource])
                if queues.limit[above, resource] < ENDLESS and amount > left:
                    unit = _QUEUE_UNITS[RESOURCES[resource]]
                    detail = f"{queues.limit[above, resource]} is the limit"
                    found.append(Obstacle(Reason.QUEUE_LIMIT, amount, max(0, left), unit, queues.names[above], detail))
        return found

    def _of_nodes(self, needs: Needs) -> list[Obstacle]:
        if not len(self._rows):
            return [Obstacle(Reason.NO_NODES, 1, 0, "nodes")]
        found: list[Obstacle] = []
        for shape in dict.fromkeys(shape for shape, _, _ in needs):
            for obstacle in self._of_shape(self._picture.backlog.shapes[shape]):
                if obstacle not in found:
                    found.append(obstacle)
        if sum(needed for _, _, needed in needs) > 1:
            gang = self._gang(needs)
            if gang.have < gang.need:
                found.insert(0, gang)
        return found

    def _of_shape(self, want: Request) -> list[Obstacle]:
        """Filters that stand in the way, then resources that are short on the nodes the filters leave."""
        verdicts = self._verdicts(want)
        passing = np.logical_and.reduce([mask for _, mask, _ in verdicts]) if verdicts else self._rows >= 0
        slots = pods_that_fit(self._view, want, self._rows)
        if want.gpus and not eligible(self._view, want, self._rows).any():
            return [self._no_such_device(want)]
        if (slots[passing] > 0).any():
            return []  # one pod fits somewhere: what is missing is room for the gang
        blocking = self._blocking_filters(verdicts, slots)
        return [*blocking, *(self._short(want, passing) if passing.any() else [])] or [self._no_room()]

    def _verdicts(self, want: Request) -> list[tuple[str, BoolArray, Reason]]:
        rows = self._rows
        return [
            (p.name, ask(p.name, p.filter, len(rows), self._view, want, rows).astype(np.bool_), p.reason)
            for p in self._active.filters
        ]

    def _blocking_filters(self, verdicts: list[tuple[str, BoolArray, Reason]], slots: IntArray) -> list[Obstacle]:
        """A filter matters when it keeps out every node, or one that would do."""
        found = []
        for at, (name, mask, reason) in enumerate(verdicts):
            others = np.ones(len(mask), np.bool_)
            for other, (_, other_mask, _) in enumerate(verdicts):
                if other != at:
                    others &= other_mask
            kept_out = int((~mask).sum())
            if kept_out and (not mask.any() or (~mask & others & (slots > 0)).any()):
                found.append(Obstacle(reason, 1, int(mask.sum()), "nodes", name, f"{kept_out} of {len(mask)} nodes"))
        return found

    def _short(self, want: Request, passing: BoolArray) -> list[Obstacle]:
        """Resources of which no node that may be used has enough, or that are short where the others would do."""
        rows = self._rows[passing]
        fits: list[tuple[BoolArray, Obstacle]] = []
        if want.gpus:
            fits.append(self._gpus(want, rows))
        view = self._view
        free_all, _ = view.of(rows)
        for reason, unit, need, free in (
            (Reason.NOT_ENOUGH_CPU, "milli-cpu", want.cpu_milli, free_all[:, CPU]),
            (Reason.NOT_ENOUGH_MEMORY, "mib", want.memory_mib, free_all[:, MEMORY]),
            (Reason.NOT_ENOUGH_PODS, "pods", 1, free_all[:, PODS]),
        ):
            fits.append((free >= need, Obstacle(reason, need, max(0, int(free.max())), unit)))
        for name, need in want.extended:
            free = extended_free(view, name, rows)
            obstacle = Obstacle(Reason.NOT_ENOUGH_EXTENDED, need, max(0, int(free.max())), "", name)
            fits.append((free >= need, obstacle))
        everywhere = [obstacle for mask, obstacle in fits if not mask.any()]
        return everywhere or [obstacle for mask, obstacle in fits if not mask.all()]

    def _gpus(self, want: Request, rows: Rows) -> tuple[BoolArray, Obstacle]:
        """Where enough devices are free, and the best that any node can offer."""
        view = self._view
        able = eligible(view, want, rows)
        times = times_per_device(view, want, rows)
        enough = (times > 0).sum(axis=1) >= want.gpus
        _, gpus = view.of(rows)
        milli, mib, size = gpus[:, MILLI], gpus[:, MIB], gpus[:, SIZE]
        if want.is_memory:
            most = int((size * able).max(initial=0))
            if most < want.gpu_mib:
                return enough, Obstacle(Reason.NOT_ENOUGH_GPU_MEMORY, want.gpu_mib, most, "mib")
        if int(able.sum(axis=1).max(initial=0)) < want.gpus:
            most = int(able.sum(axis=1).max(initial=0))
            return enough, Obstacle(Reason.NOT_ENOUGH_GPUS, want.gpus, most, "gpus")
        if want.is_whole:
            have = int((times > 0).sum(axis=1).max(initial=0))
            return enough, Obstacle(Reason.NOT_ENOUGH_FREE_GPUS, want.gpus, have, "gpus")
        if want.is_memory:
            have = _kth_best(mib * able, want.gpus)
            return enough, Obstacle(Reason.NOT_ENOUGH_FREE_GPU_MEMORY, want.gpu_mib, have, "mib", _times(want))
        have = _kth_best(np.minimum(milli, 1000 * mib // np.maximum(size, 1)) * able, want.gpus)
        return enough, Obstacle(Reason.NOT_ENOUGH_FREE_GPU_SHARE, want.gpu_milli, have, "milli-gpu", _times(want))

    def _no_such_device(self, want: Request) -> Obstacle:
        """No working device of a wanted model anywhere."""
        if want.gpu_models:
            there = sorted({gpu.model for node in self._view.nodes.nodes for gpu in node.gpus})
            if not set(there) & set(want.gpu_models):
                detail = f"the cluster has {', '.join(there) or 'no GPUs'}"
                return Obstacle(Reason.GPU_MODEL, want.gpus, 0, "gpus", " or ".join(want.gpu_models), detail)
        broken = sum(1 for node in self._view.nodes.nodes for gpu in node.gpus if not gpu.healthy)
        reason = Reason.GPU_UNHEALTHY if broken else Reason.NOT_ENOUGH_GPUS
        return Obstacle(reason, want.gpus, 0, "gpus")

    def _no_room(self) -> Obstacle:
        return Obstacle(Reason.PLUGIN, 1, 0, "nodes")

    def _gang(self, needs: Needs) -> Obstacle:
        """How many of the pods that must start together would fit, each shape for itself."""
        need = sum(max(needed, 1) for _, _, needed in needs)
        have = 0
        for shape, _, needed in needs:
            want = self._picture.backlog.shapes[shape]
            passing = np.logical_and.reduce([mask for _, mask, _ in self._verdicts(want)])
            have += min(max(needed, 1), int((pods_that_fit(self._view, want, self._rows) * passing).sum()))
        return Obstacle(Reason.GANG, need, have, "pods")


def _kth_best(free: IntArray, devices: int) -> int:
    """What the best node has free on each of that many devices."""
    if free.shape[1] < devices:
        return 0
    return max(0, int(np.sort(free, axis=1)[:, -devices].max(initial=0)))


def _times(want: Request) -> str:
    return f"{want.gpus} devices" if want.gpus > 1 else ""
