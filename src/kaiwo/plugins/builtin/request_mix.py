"""Place pods so that the free GPUs keep their value for the mix of requests that was learned.

The value of a node is what the mix could make of its free GPUs with the CPU that is left (`gpus.prices`). A pod goes
where it takes least of that. Nearly equal losses are equal: among those the first name wins.
"""

import numpy as np

from kaiwo.gpus.prices.node_values import NodeValues, node_values
from kaiwo.gpus.prices.packings import CPU_SHIFT, SOFTNESS_MILLI, UNITS, UNITS_PER_GPU
from kaiwo.gpus.prices.slot_values import SlotValues, first_of_each, slot_values
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from kaiwo.model.request_mix import RequestPrices, has_kind
from kaiwo.plugins.contract import TOP_SCORE
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.node_table import MILLI
from kaiwo.snapshot.view import View

_PRICED = ("", "fragmentation-aware")  # strategies of queues under which the mix counts

MIDDLE = TOP_SCORE // 2  # the score of a pod that takes exactly as much value as it asks for
LEVELS_PER_SOFTNESS = 4  # losses are compared in whole levels


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

    def is_silent(self, view: View, want: Request) -> bool:
        return view.prices is None or not view.nodes.width

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        scores = np.zeros(len(nodes), np.int64)
        if view.prices is None or not view.nodes.width:
            return scores
        slots = _TABLES.of(view, view.prices)
        now = node_values(view, slots, nodes)
        has_room = now.cpu >= want.cpu_milli
        if want.gpus:
            has_room &= (now.devices >= max(1, want.gpu_milli)).sum(axis=1) >= want.gpus
        if has_room.all():
            return _scores(want, _lost(slots, want, now))
        rows = has_room.nonzero()[0]
        if len(rows):
            scores[rows] = _scores(want, _lost(slots, want, node_values(view, slots, nodes[rows])))
        return scores


def lost_milli(view: View, want: Request, nodes: Rows) -> IntArray:
    """By node: how much of a GPU, in thousandths, the mix can use less once a pod is there. It fits on each of them."""
    assert view.prices is not None
    slots = _TABLES.of(view, view.prices)
    return _lost(slots, want, node_values(view, slots, nodes)) * WHOLE_MILLI // UNITS_PER_GPU


def share_losses(view: View, want: Request, node: int, columns: IntArray) -> IntArray:
    """By device of a node: the value that a share takes there, in whole levels."""
    assert view.prices is not None
    milli = view.gpus[node, MILLI, columns]
    if (milli == milli[:1]).all():  # often: an empty node
        return np.zeros(len(columns), np.int64)
    slots = _TABLES.of(view, view.prices)
    now = node_values(view, slots, view.at(node))
    after = _with_share(slots, want, np.repeat(now.model, len(columns)), now.gpus, now.whole, milli)
    return _levels(now.total - slots.with_cpu(now.cpu - want.cpu_milli, after))


def _lost(slots: SlotValues, want: Request, now: NodeValues) -> IntArray:
    """By node: the value that a pod takes there. It fits on each of them."""
    left = now.cpu - want.cpu_milli
    if not want.gpus:
        return now.total - slots.with_cpu(left, now.gpus)
    if want.is_whole:
        gpus = now.gpus - slots.of_whole(now.model, now.whole) + slots.of_whole(now.model, now.whole - want.gpus)
        return now.total - slots.with_cpu(left, gpus)
    return now.total - _best_share(slots, want, now, left)


def _best_share(slots: SlotValues, want: Request, now: NodeValues, left: IntArray) -> IntArray:
    """By node: its value after the share is on the device where that is highest."""
    is_whole = now.devices >= WHOLE_MILLI
    fits = (now.devices >= want.gpu_milli) & ~is_whole
    first = is_whole.argmax(axis=1)
    fits[np.arange(len(first)), first] |= now.whole > 0  # one whole GPU stands for all
    at, device = fits.nonzero()
    milli = now.devices[at, device]
    after = _with_share(slots, want, now.model[at], now.gpus[:, at], now.whole[at], milli)
    each = slots.with_cpu(left[at], after)
    if len(at) == len(left):  # one place on every node
        return each
    best: IntArray = np.maximum.reduceat(each, first_of_each(at))
    return best


def _with_share(
    slots: SlotValues, want: Request, models: IntArray, gpus: IntArray, whole: IntArray, milli: IntArray
) -> IntArray:
    """The values of the GPUs once the share is on one that has so much free."""
    of_whole = slots.of_whole(models, whole) - slots.of_whole(models, np.maximum(whole - 1, 0))
    taken = np.where(milli >= WHOLE_MILLI, of_whole, slots.of_part(models, milli))
    return gpus - taken + slots.of_part(models, milli - want.gpu_milli)


def _levels(lost: IntArray) -> IntArray:
    level = UNITS // LEVELS_PER_SOFTNESS
    return (lost + level // 2) // level


def _scores(want: Request, lost: IntArray) -> IntArray:
    asked = want.gpus * want.gpu_milli * LEVELS_PER_SOFTNESS // SOFTNESS_MILLI
    return np.clip(MIDDLE + asked - _levels(lost), 0, TOP_SCORE)


def is_cpu_short(view: View, nodes: Rows) -> BoolArray:
    """By node: whether a little more CPU could change what the mix makes of its free GPUs, or of a part of them."""
    if view.prices is None or not view.nodes.width:
        return np.zeros(len(nodes), np.bool_)
    slots = _TABLES.of(view, view.prices)
    now = node_values(view, slots, nodes)
    # At the first price, CPU costs nothing. It counts where another price bounds the value; half of the CPU is spare.
    worth = (now.cpu * slots.cpu_prices[:, None]) >> (CPU_SHIFT + 1)
    short: BoolArray = (now.gpus[0] - now.gpus > worth).any(axis=0) | (slots.cpu_prices[0] > 0)
    return short


def is_priced(view: View, want: Request) -> bool:
    """Whether the value of what is left decides, so that other ways to pack stand back."""
    return view.prices is not None and want.strategy in _PRICED and has_kind(want)


PLUGINS = (RequestMix,)
