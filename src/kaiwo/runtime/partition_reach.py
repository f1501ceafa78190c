"""Where a waiting pod could go if only the partition modes were others.

In:    the view of a moment, a request, how many such pods start together.
Out:   the nodes that the filters allow and that have the CPUs and memory; none when all of them have too little.
What work on GPUs holds of a node counts as free: it goes when they drain. What others hold does not.
"""

import numpy as np

from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.score import allowed
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.request import Request
from kaiwo.snapshot.arrays import BoolArray, IntArray
from kaiwo.snapshot.nodes import CPU, EXTENDED, MEMORY, PODS
from kaiwo.snapshot.picture import Picture
from kaiwo.snapshot.working import Working

Nodes = frozenset[str] | None  # None: all


class Reach:
    """Those who are equal in what matters here get one answer."""

    def __init__(self, picture: Picture, view: Working) -> None:
        self._view, self._rows = view, np.arange(len(view.nodes.names))
        self._room = _room(picture, view)
        self._filters = BUILTIN.active(DEFAULT_POLICY).static_filters
        self._fields = sorted({field for each in self._filters for field in getattr(each, "depends_on", ())})
        self._allowed: dict[tuple[object, ...], BoolArray] = {}
        self._named: dict[bytes, Nodes] = {}

    def nodes(self, want: Request, pods: int = 1) -> Nodes:
        """The nodes that could hold such a pod; none when together they could not hold so many."""
        key = tuple(getattr(want, field) for field in self._fields)
        if key not in self._allowed:
            self._allowed[key] = allowed(self._view, want, self._rows, self._filters)
        times = np.where(self._allowed[key], self._times(want), 0)
        mask = times > 0 if int(times.sum()) >= pods else np.zeros_like(self._allowed[key])
        marks = mask.tobytes()
        if marks not in self._named:
            names = (self._view.nodes.names[row] for row in np.flatnonzero(mask))
            self._named[marks] = None if mask.all() else frozenset(names)
        return self._named[marks]

    def _times(self, want: Request) -> IntArray:
        """By node: how many such pods find room beside each other."""
        room, names = self._room, self._view.nodes.extended_names
        times = np.maximum(room[:, PODS], 0)
        for column, amount in ((CPU, want.cpu_milli), (MEMORY, want.memory_mib)):
            if amount > 0:
                times = np.minimum(times, room[:, column] // amount)
        for name, amount in want.extended:
            if amount > 0:
                found = room[:, EXTENDED + names.index(name)] if name in names else np.zeros_like(times)
                times = np.minimum(times, found // amount)
        return np.maximum(times, 0)


def _room(picture: Picture, view: Working) -> IntArray:
    """Per node what is free, and what goes with the work on its GPUs."""
    room: IntArray = view.of(np.arange(len(view.nodes.names)))[0].copy()
    for name, held in picture.held_on.items():
        row = view.nodes.row.get(name)
        if row is None:
            continue
        for each in held.values():
            if each.devices:
                room[row, [CPU, MEMORY, PODS]] += (each.cpu_milli, each.memory_mib, 1)
                for resource, amount in each.extended:
                    if resource in view.nodes.extended_names:
                        room[row, EXTENDED + view.nodes.extended_names.index(resource)] += amount
    return room
