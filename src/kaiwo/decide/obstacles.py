"""Everything that keeps one kind of work waiting, in numbers.

In:    the view, a queue and what a workload needs.   Out: all obstacles, the most telling first; never none.
"""

import numpy as np

from kaiwo.decide.ask import ask
from kaiwo.decide.fit import pods_that_fit
from kaiwo.decide.gang import least_charge
from kaiwo.decide.offers import OfferBook
from kaiwo.decide.score import ShapeBook
from kaiwo.decide.shortage import no_such_device, short_of
from kaiwo.model.reason import Obstacle, Reason
from kaiwo.model.request import Request
from kaiwo.plugins.registry import Active
from kaiwo.snapshot.arrays import BoolArray, Rows
from kaiwo.snapshot.backlog import Needs
from kaiwo.snapshot.picture import Picture
from kaiwo.snapshot.queues import ENDLESS, RESOURCES

_QUEUE_UNITS = {"gpu": "milli-gpu", "cpu": "milli-cpu", "memory": "mib"}


class Inquiry:
    """Asks why, in one state of the cluster; equal needs are answered once."""

    def __init__(self, picture: Picture, active: Active, book: ShapeBook) -> None:
        self._view, self._picture, self._active, self._book = book.view, picture, active, book
        self._offers = OfferBook(picture, book.start, book.view)
        view = book.view
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
                if queues.limit[above, resource] < ENDLESS and 0 < amount > left:
                    unit = _QUEUE_UNITS[RESOURCES[resource]]
                    detail = f"{queues.limit[above, resource]} is the limit"
                    found.append(Obstacle(Reason.QUEUE_LIMIT, amount, max(0, left), unit, queues.names[above], detail))
        return found

    def _of_nodes(self, needs: Needs) -> list[Obstacle]:
        if not len(self._rows):
            return [Obstacle(Reason.NO_NODES, 1, 0, "nodes")]
        found: list[Obstacle] = []
        for shape in dict.fromkeys(shape for shape, _, _ in needs):
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
        return [*self._blocking_filters(want, verdicts), *short] or [Obstacle(Reason.PLUGIN, 1, 0, "nodes")]

    def _verdicts(self, want: Request) -> list[tuple[str, BoolArray, Reason]]:
        rows = self._rows
        return [
            (p.name, ask(p.name, p.filter, len(rows), self._view, want, rows).astype(np.bool_), p.reason)
            for p in self._active.filters
        ]

    def _blocking_filters(self, want: Request, verdicts: list[tuple[str, BoolArray, Reason]]) -> list[Obstacle]:
        """A filter matters when it keeps out every node, or one that would do."""
        has_room = pods_that_fit(self._view, want, self._rows) > 0
        against = np.sum([~mask for _, mask, _ in verdicts], axis=0)
        found = []
        for name, mask, reason in verdicts:
            kept_out = int((~mask).sum())
            alone = (~mask & (against == 1) & has_room).any()
            if kept_out and (not mask.any() or alone):
                found.append(Obstacle(reason, 1, int(mask.sum()), "nodes", name, f"{kept_out} of {len(mask)} nodes"))
        return found

    def _gang(self, needs: Needs) -> Obstacle:
        """How many of the pods that must start together would fit, each shape for itself."""
        need = sum(max(needed, 1) for _, _, needed in needs)
        have = sum(min(max(needed, 1), self._book.state(shape).room) for shape, _, needed in needs)
        return Obstacle(Reason.GANG, need, have, "pods")
