"""Place pods so that the free GPUs keep their value for the mix of requests that was learned.

The value of a node is what the mix could make of its free GPUs with the CPU that is left (`gpus.prices`). A pod goes
where it takes least of that. Nearly equal losses are equal: among those the first name wins.
"""

import numpy as np

from kaiwo.gpus.prices.packings import SOFTNESS_MILLI, UNITS
from kaiwo.gpus.prices.slot_values import SlotValues, first_of_each, slot_values
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from kaiwo.model.request_mix import RequestPrices, has_kind
from kaiwo.plugins.contract import TOP_SCORE
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.node_table import CPU, MILLI, USABLE
from kaiwo.snapshot.view import View

_PRICED = ("", "fragmentation-aware")  # strategies of queues under which the mix counts

MIDDLE = TOP_SCORE // 2  # the score of a pod that takes exactly as much value as it asks for


class ValueTables:
    """The value tables of the last prices; they follow from the prices alone."""

    def __init__(self) -> None:
        self._last: tuple[RequestPrices, tuple[str, ...], int, SlotValues] | None = None

    def of(self, view: View, prices: RequestPrices) -> SlotValues:
        models, width = tuple(view.nodes.models), view.nodes.width
        if self._last is None or self._last[0] is not prices or self._last[1:3] != (models, width):
            self._last = (prices, models, width, slot_values(prices, models, width))
        return self._last[3]


_TABLES = ValueTables()


class RequestMix:
    """Prefer the node where a pod takes least from what the mix of requests could use."""

    name, version, weight, placement = "request-mix", "1", 10, "pack"

    def applies(self, want: Request) -> bool:
        return want.strategy in _PRICED and has_kind(want)

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        scores = np.zeros(len(nodes), np.int64)
        if view.prices is None:
            return scores
        values = _TABLES.of(view, view.prices)
        amounts = view.of(nodes)
        rows = (amounts.free[:, CPU] >= want.cpu_milli).nonzero()[0]
        devices = _free_milli(amounts.gpus[rows])
        if want.gpus:
            has_room = (devices >= max(1, want.gpu_milli)).sum(axis=1) >= want.gpus
            rows, devices = rows[has_room], devices[has_room]
        if not len(rows):
            return scores
        cpu, models = amounts.free[rows, CPU], view.nodes.gpu_model[nodes[rows], 0]
        gpus = values.of_gpus(models, devices)
        before, left = values.with_cpu(cpu, gpus), cpu - want.cpu_milli
        if want.is_whole:
            whole = (devices >= WHOLE_MILLI).sum(axis=1)
            gpus = gpus - values.of_whole(models, whole) + values.of_whole(models, whole - want.gpus)
        elif want.gpus:
            scores[rows] = _scores(want, before - _best_share(values, want, models, left, gpus, devices))
            return scores
        scores[rows] = _scores(want, before - values.with_cpu(left, gpus))
        return scores


def share_losses(view: View, want: Request, node: int, columns: IntArray) -> IntArray:
    """By device of a node: the value that a share takes there, in whole levels."""
    assert view.prices is not None
    here = _free_milli(view.gpus[node : node + 1])
    milli = here[0, columns]
    if (milli == milli[:1]).all():  # often: an empty node
        return np.zeros(len(columns), np.int64)
    values = _TABLES.of(view, view.prices)
    model, cpu = view.nodes.gpu_model[node, :1], view.free[node, CPU : CPU + 1]
    gpus = values.of_gpus(model, here)
    after = _with_share(values, want, np.repeat(model, len(columns)), gpus, here, milli)
    return _levels(values.with_cpu(cpu, gpus) - values.with_cpu(cpu - want.cpu_milli, after))


def _best_share(
    values: SlotValues, want: Request, models: IntArray, left: IntArray, gpus: IntArray, devices: IntArray
) -> IntArray:
    """By node: its value after the share is on the device where that is highest."""
    is_whole = devices >= WHOLE_MILLI
    is_first = is_whole & (np.cumsum(is_whole, axis=1) == 1)  # one whole GPU stands for all
    at, device = (((devices >= want.gpu_milli) & ~is_whole) | is_first).nonzero()
    after = _with_share(values, want, models[at], gpus[:, at], devices[at], devices[at, device])
    first = first_of_each(at)  # every node has a device that fits
    best: IntArray = np.maximum.reduceat(values.with_cpu(left[at], after), first)
    return best


def _with_share(
    values: SlotValues, want: Request, models: IntArray, gpus: IntArray, devices: IntArray, milli: IntArray
) -> IntArray:
    """The values of the GPUs once the share is on one that has so much free."""
    whole = (devices >= WHOLE_MILLI).sum(axis=1)
    of_whole = values.of_whole(models, whole) - values.of_whole(models, np.maximum(whole - 1, 0))
    taken = np.where(milli >= WHOLE_MILLI, of_whole, values.of_part(models, milli))
    return gpus - taken + values.of_part(models, milli - want.gpu_milli)


def _free_milli(gpus: IntArray) -> IntArray:
    """By node and device: the free milli of devices that work."""
    found: IntArray = np.where(gpus[:, USABLE] > 0, gpus[:, MILLI], 0)
    return found


def _levels(lost: IntArray) -> IntArray:
    return (lost + UNITS // 2) // UNITS


def _scores(want: Request, lost: IntArray) -> IntArray:
    asked = want.gpus * want.gpu_milli // SOFTNESS_MILLI
    return np.clip(MIDDLE + asked - _levels(lost), 0, TOP_SCORE)


def is_priced(view: View, want: Request) -> bool:
    """Whether the value of what is left decides, so that other ways to pack stand back."""
    return view.prices is not None and want.strategy in _PRICED and has_kind(want)


PLUGINS = (RequestMix,)
