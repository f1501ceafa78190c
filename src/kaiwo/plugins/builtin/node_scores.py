"""Built-in scores: pack or spread, fill shared GPUs, keep GPU nodes free, use own reservations and preferred nodes."""

import numpy as np

from kaiwo.gpus.device_fit import eligible_devices, fits_beside_others, pods_per_device
from kaiwo.model.affinity import matches_node_rules
from kaiwo.model.request import Request
from kaiwo.plugins.builtin.request_mix import is_priced
from kaiwo.plugins.contract import TOP_SCORE
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.node_table import CPU, FREE_GPU
from kaiwo.snapshot.view import View


class OwnReservations:
    """Prefer nodes on which enough free devices are reserved for the work."""

    name, version, weight = "own-reservations", "1", 100

    def applies(self, want: Request) -> bool:
        return bool(want.passes) and want.gpus > 0

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        if view.reservations is None:
            return np.zeros(len(nodes), np.int64)
        own = view.reservations.usable(want.passes)[nodes]
        fits = (own & (pods_per_device(view, want, nodes) > 0)).sum(axis=1) >= want.gpus
        scores: IntArray = TOP_SCORE * fits.astype(np.int64)
        return scores


def _used_part(view: View, want: Request, nodes: Rows) -> IntArray:
    """How full each node is, 0..1000, in what the request is about: GPUs, else CPU."""
    free = view.of(nodes).free
    left, size = (free[:, FREE_GPU], view.nodes.gpu_total) if want.gpus else (free[:, CPU], view.nodes.cpu_size)
    return TOP_SCORE - TOP_SCORE * np.maximum(left, 0) // np.maximum(size[nodes], 1)


class Pack:
    """Prefer the fullest node that still fits, so that large work finds empty nodes."""

    name, version, weight, placement = "pack", "1", 10, "pack"

    def is_silent(self, view: View, want: Request) -> bool:
        return is_priced(view, want)

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        return _used_part(view, want, nodes)


class Spread:
    """Prefer the emptiest node, when the policy's placement is `spread`."""

    name, version, weight, placement = "spread", "1", 10, "spread"

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        return TOP_SCORE - _used_part(view, want, nodes)


class FillSharedGpus:
    """Put a share on a device that is shared already, so that whole GPUs stay whole."""

    name, version, weight, placement = "fill-shared-gpus", "1", 20, "pack"

    def applies(self, want: Request) -> bool:
        return want.gpus > 0 and not want.is_exclusive

    def is_silent(self, view: View, want: Request) -> bool:
        return is_priced(view, want)

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        return TOP_SCORE * fits_beside_others(view, want, nodes).astype(np.int64)


class SpareGpuNodes:
    """Put work without GPUs on nodes without GPUs."""

    name, version, weight, placement = "spare-gpu-nodes", "1", 20, "pack"

    def applies(self, want: Request) -> bool:
        return want.gpus == 0

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        has_none: IntArray = (eligible_devices(view, want, nodes).sum(axis=1) == 0).astype(np.int64)
        return TOP_SCORE * has_none


class PreferredNodes:
    """Obey preferred node affinity."""

    name, version, weight = "preferred-nodes", "1", 40

    def applies(self, want: Request) -> bool:
        return bool(want.prefers)

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        """The weights of the preferences that a node matches, as a part of all weights."""
        total = sum(each.weight for each in want.prefers)
        labels = (view.nodes.nodes[row].labels for row in nodes)
        matched = (
            sum(each.weight for each in want.prefers if matches_node_rules(node, each.rules, ())) for node in labels
        )
        return TOP_SCORE * np.fromiter(matched, np.int64, len(nodes)) // total


PLUGINS = (Pack, Spread, FillSharedGpus, SpareGpuNodes, PreferredNodes, OwnReservations)
