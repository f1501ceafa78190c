"""Everything that keeps one kind of work waiting, in numbers.

In:    the view, a queue and what a workload needs.   Out: all obstacles, the most telling first; never none.
"""

from collections.abc import Callable

import numpy as np

from kaiwo.decide.ask import ask
from kaiwo.decide.fit import pods_that_fit
from kaiwo.decide.limits import least_charge
from kaiwo.decide.offers import OfferBook
from kaiwo.decide.score import ShapeBook
from kaiwo.decide.shortage import fits_when_empty, no_such_device, short_of
from kaiwo.gpus.fit import times_per_device
from kaiwo.model.plan import Nomination
from kaiwo.model.reason import Obstacle, Reason
from kaiwo.model.request import Request
from kaiwo.plugins.registry import Active
from kaiwo.snapshot.arrays import BoolArray, Rows
from kaiwo.snapshot.backlog import Needs, WaitingClass
from kaiwo.snapshot.nodes import CPU, MEMORY, MIB, MILLI, PODS, SIZE
from kaiwo.snapshot.picture import Picture
from kaiwo.snapshot.queues import ENDLESS, RESOURCES
from kaiwo.snapshot.working import Working

_QUEUE_UNITS = {"gpu": "milli-gpu", "cpu": "milli-cpu", "memory": "mib"}


class Inquiry:
    """Asks why, in one state of the cluster; equal needs are answered once."""

    def __init__(self, picture: Picture, active: Active, book: ShapeBook) -> None:
        self._view, self._picture, self._active, self._book = book.view, picture, active, book
        self._offers = OfferBook(picture, book.start, book.view)
        view = book.view
        self._rows: Rows = np.arange(len(view.nodes.names))
        self._by_needs: dict[Needs, tuple[Obstacle, ...]] = {}

    def obstacles(self, found: WaitingClass) -> tuple[Obstacle, ...]:
        """What the queue says, then what the nodes say. Whose space is kept waits for those who leave it."""
        needs, kept = found.needs, self._picture.nominations.get(found.signature[2], {})
        leaving = self._still_held(kept)
        if leaving and len(kept) >= sum(needed for _, _, needed in needs):
            return tuple(leaving)
        by_nodes = self._by_needs.get(needs)
        if by_nodes is None:
            by_nodes = self._by_needs[needs] = tuple(self._of_nodes(needs))
        every = (*leaving, *self._of_queue(found, self._largest_mib), *by_nodes)
        return every or tuple(self._of_queue(found, self._largest_free_mib)) or (self._gang(needs),)

    def _still_held(self, kept: dict[str, Nomination]) -> list[Obstacle]:
        """Pods whose kept space others have not left yet: there the nodes have given out more than they have."""
        held = sum(1 for each in kept.values() if _is_overdrawn(self._book.start, each))
        return [Obstacle(Reason.RELEASING, held, 0, "pods")] if held else []

    def _of_queue(self, found: WaitingClass, largest_mib: Callable[[int], int]) -> list[Obstacle]:
        queues, name = self._view.queues, found.queue
        row = queues.row.get(name)
        if row is None:
            return [Obstacle(Reason.NO_QUEUE, 1, 0, "queues", name)]
        if not queues.is_leaf[row]:
            return [Obstacle(Reason.QUEUE_NOT_LEAF, 1, 0, "queues", name)]
        is_fixed = not found.signature[1]
        if found.signature[2] or not (is_fixed or queues.is_bounded[row]):
            return []  # the space that is kept for it is paid for
        charge = least_charge(self._picture, found.needs, largest_mib)
        bounds = [(Reason.QUEUE_LIMIT, queues.limit, self._view.queue_used, "limit")]
        if is_fixed:
            bounds.append((Reason.QUEUE_QUOTA, queues.quota, self._view.queue_fixed, "quota"))
        return [
            Obstacle(
                reason,
                amount,
                max(0, int(bound[above, resource] - used[above, resource])),
                _QUEUE_UNITS[RESOURCES[resource]],
                queues.names[above],
                f"{bound[above, resource]} is the {word}",
            )
            for above in queues.path[row]
            for resource, amount in enumerate(charge)
            for reason, bound, used, word in bounds
            if bound[above, resource] < ENDLESS and 0 < amount > bound[above, resource] - used[above, resource]
        ]

    def _largest_mib(self, shape: int) -> int:
        """Of the devices that would serve a shape if they were free."""
        return int(self._offers.of(shape).largest_mib.max(initial=0))

    def _largest_free_mib(self, shape: int) -> int:
        """Of the devices with room for a shape: as large as all that one pod takes on some node can be."""
        want = self._picture.backlog.shapes[shape]
        fits = (times_per_device(self._view, want, self._rows) > 0) & (self._book.state(shape).slots > 0)[:, None]
        sizes = np.sort(self._view.of(self._rows)[1][:, SIZE] * fits, axis=1)
        return int(sizes[:, -want.gpus].max(initial=0)) if 0 < want.gpus <= sizes.shape[1] else 0

    def _of_nodes(self, needs: Needs) -> list[Obstacle]:
        if not len(self._rows):
            return [Obstacle(Reason.NO_NODES, 1, 0, "nodes")]
        found: list[Obstacle] = []
        must_start = any(needed for _, _, needed in needs)
        for shape in dict.fromkeys(shape for shape, _, needed in needs if needed or not must_start):
            for obstacle in self._of_shape(shape):
                if obstacle not in found:
                    found.append(obstacle)
        if sum(needed for _, _, needed in needs) > 1:
            gang = self._gang(needs)
            if gang.have < gang.need:
                found.insert(0, gang)
        return found

    def _of_shape(self, shape: int) -> list[Obstacle]:
        """Filters that stand in the way, then resources that are short on the nodes the filters leave."""
        want, state = self._picture.backlog.shapes[shape], self._book.state(shape)
        if state.room:
            return []  # one pod fits somewhere: what is missing is room for the gang
        offer = self._offers.of(shape)
        if want.gpus and not offer.devices.any():
            return [no_such_device(self._view, want)]
        if (
            state.allowed.all() and not self._active.free_filters
        ):  # asking each filter about each node costs a millisecond
            return short_of(self._view, want, self._rows, offer)
        verdicts = self._verdicts(want)
        passing = self._rows[np.logical_and.reduce([mask for _, mask, _ in verdicts])]
        short = short_of(self._view, want, passing, offer) if len(passing) else []
        could = fits_when_empty(self._view, want, offer)
        could &= not could[passing].any()
        return [*self._blocking_filters(want, verdicts, could), *short] or [Obstacle(Reason.PLUGIN, 1, 0, "nodes")]

    def _verdicts(self, want: Request) -> list[tuple[str, BoolArray, Reason]]:
        rows = self._rows
        return [
            (p.name, ask(p.name, p.filter, len(rows), self._view, want, rows).astype(np.bool_), p.reason)
            for p in self._active.filters
        ]

    def _blocking_filters(
        self, want: Request, verdicts: list[tuple[str, BoolArray, Reason]], could: BoolArray
    ) -> list[Obstacle]:
        """A filter matters when it keeps out every node, or one that would do: now, or (`could`) once it is empty."""
        would_do = could | (pods_that_fit(self._view, want, self._rows) > 0)
        against = np.sum([~mask for _, mask, _ in verdicts], axis=0)
        found = []
        for name, mask, reason in verdicts:
            kept_out = int((~mask).sum())
            alone = (~mask & (against == 1) & would_do).any()
            if kept_out and (not mask.any() or alone):
                found.append(Obstacle(reason, 1, int(mask.sum()), "nodes", name, f"{kept_out} of {len(mask)} nodes"))
        return found

    def _gang(self, needs: Needs) -> Obstacle:
        """How many of the pods that must start together would fit, each shape for itself."""
        if not any(needed for _, _, needed in needs):
            return Obstacle(Reason.GANG, 1, int(any(self._book.state(shape).room for shape, _, _ in needs)), "pods")
        need = sum(needed for _, _, needed in needs)
        have = sum(min(needed, self._book.state(shape).room) for shape, _, needed in needs)
        return Obstacle(Reason.GANG, need, have, "pods")


def _is_overdrawn(view: Working, kept: Nomination) -> bool:
    """What is kept is still held by somebody else, too."""
    row = view.nodes.row.get(kept.node)
    if row is None:
        return False
    columns = [column for share in kept.devices if (column := view.nodes.column[row].get(share.gpu)) is not None]
    is_device_held = (view.gpus[row][[MILLI, MIB]][:, columns] < 0).any()
    return bool(is_device_held or (view.free[row, [CPU, MEMORY, PODS]] < 0).any())
