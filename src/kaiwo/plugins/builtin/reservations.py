"""Prefer what is reserved for the work: whoever has a reservation leaves the other GPUs to others."""

import numpy as np

from kaiwo.gpus.fit import times_per_device
from kaiwo.model.request import Request
from kaiwo.plugins.contract import TOP_SCORE, View
from kaiwo.snapshot.arrays import IntArray, Rows


class OwnReservations:
    """Fill the nodes on which enough devices are reserved for the work and free."""

    name, version, weight = "own-reservations", "1", 100

    def applies(self, want: Request) -> bool:
        """Work that may use no reservation is not its business."""
        return bool(want.passes) and want.gpus > 0

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        """All or nothing per node."""
        if view.reserved is None:
            return np.zeros(len(nodes), np.int64)
        own = view.reserved.own(want.passes)[nodes]
        fits = (own & (times_per_device(view, want, nodes) > 0)).sum(axis=1) >= want.gpus
        scores: IntArray = TOP_SCORE * fits.astype(np.int64)
        return scores
