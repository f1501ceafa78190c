"""The value of a node: what the mix of requests could make of its free GPUs with the CPU that is left.

In:    prices of the kinds of requests.   Out: tables of integers, by free part of a GPU, model and price of a CPU.
Equal prices give equal tables on every machine.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from kaiwo.gpus.prices.packings import (
    CPU_PRICES,
    CPU_SHIFT,
    LEVELS,
    STEP_MILLI,
    UNITS,
    FloatArray,
    ShareSizes,
    share_steps,
)
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.request_mix import PricedKind, RequestPrices
from kaiwo.snapshot.array_types import IntArray

_ROOT = 1.0157477085866857  # e to the power of 1 / UNITS
_LEAST, _MOST = -2_000, 6_000  # logarithms, in units, between which shares of one GPU lie
POWERS: FloatArray = np.cumprod(np.full(_MOST - _LEAST + 1, _ROOT)) * math.exp((_LEAST - 1) / UNITS)
_BOUNDS = POWERS / math.sqrt(_ROOT)  # the logarithm of what lies between two of them is the first one's
_NEVER = -(1 << 40)
_SOFT_MAXIMUM: IntArray = np.array([round(UNITS * math.log1p(math.exp(-each / UNITS))) for each in range(600)] + [0])


class SlotValues(msgspec.Struct, frozen=True):
    """Values in units. The first axis is the price of a CPU, so that the least over it is taken quickly."""

    part: IntArray  # then by model and level: a GPU of which so much is free; 0 for a whole one, which `whole` has
    whole: IntArray  # then by model and number of whole free GPUs
    most_gpus: int
    cpu_prices: IntArray

    def of_gpus(self, models: IntArray, devices: IntArray) -> IntArray:
        """By price of a CPU and node: the value of its free GPUs. `devices` has the free milli of each."""
        gpus = self.of_whole(models, (devices >= WHOLE_MILLI).sum(axis=1))
        at, column = ((devices >= STEP_MILLI) & (devices < WHOLE_MILLI)).nonzero()  # few: most are free or taken
        if len(at):
            first = first_of_each(at)
            gpus[:, at[first]] += np.add.reduceat(self.of_part(models[at], devices[at, column]), first, axis=1)
        return gpus

    def of_whole(self, models: IntArray, count: IntArray) -> IntArray:
        found: IntArray = self.whole.take(models * (self.most_gpus + 1) + count, axis=1)
        return found

    def of_part(self, models: IntArray, milli: IntArray) -> IntArray:
        found: IntArray = self.part.take(models * (LEVELS + 1) + milli // STEP_MILLI, axis=1)
        return found

    def with_cpu(self, cpu_milli: IntArray, gpus: IntArray) -> IntArray:
        """By node: its value, where the CPU and the GPUs together bound what can be used."""
        value: IntArray = (((cpu_milli * self.cpu_prices[:, None]) >> CPU_SHIFT) + gpus).min(axis=0)
        return value


def first_of_each(sorted_rows: IntArray) -> IntArray:
    """Where each row begins. `np.diff` would take ten times as long, and this runs for every score."""
    is_first = np.empty(len(sorted_rows), np.bool_)
    is_first[:1] = True
    np.not_equal(sorted_rows[1:], sorted_rows[:-1], out=is_first[1:])
    return is_first.nonzero()[0]


def slot_values(prices: RequestPrices, models: Sequence[str], most_gpus: int) -> SlotValues:
    cpu_prices = CPU_PRICES[min(prices.cpu_price, int(CPU_PRICES[-1])) <= CPU_PRICES]
    with_gpus = [each for each in prices.kinds if each.kind.gpus]
    total = sum(each.weight for each in with_gpus)
    shares = [each for each in with_gpus if each.kind.gpu_milli < WHOLE_MILLI]
    sizes = ShareSizes(np.array(sorted({share_steps(each.kind.gpu_milli) for each in shares}), np.int64))
    at = {int(step): row for row, step in enumerate(sizes.steps)}
    gains = np.zeros((len(at), len(models), len(cpu_prices)))
    single = np.zeros((len(models), len(cpu_prices)))
    several: dict[int, IntArray] = {}
    for each in with_gpus:
        kind, may = each.kind, _is_accepted(each, models)
        worth = each.worth - (kind.cpu_milli * cpu_prices >> CPU_SHIFT)
        if kind.gpus > 1:
            before = several.get(kind.gpus, np.full(single.shape, _NEVER))
            rare = int(_logarithm(np.array(total / each.weight)))
            several[kind.gpus] = _soft_maximum(before, np.where(may[:, None], worth - rare, _NEVER))
            continue
        ways = may[:, None] * (each.weight / total * POWERS[np.clip(worth, _LEAST, _MOST) - _LEAST])
        if kind.gpu_milli < WHOLE_MILLI:
            gains[at[share_steps(kind.gpu_milli)]] += ways
        else:
            single += ways
    start = np.zeros((LEVELS + 1, *single.shape))
    start[0], start[LEVELS] = 1.0, single
    logarithms = _logarithm(sizes.fill(start, gains))
    whole = _whole_values(logarithms[LEVELS], several, most_gpus)
    logarithms[0] = logarithms[LEVELS] = 0
    part = logarithms.transpose(2, 1, 0).reshape(len(cpu_prices), -1)
    whole = whole.transpose(2, 0, 1).reshape(len(cpu_prices), -1)
    return SlotValues(np.ascontiguousarray(part), np.ascontiguousarray(whole), most_gpus, cpu_prices)


def _logarithm(number: FloatArray) -> IntArray:
    found: IntArray = np.searchsorted(_BOUNDS, number, side="right") - 1 + _LEAST
    return found


def _is_accepted(each: PricedKind, models: Sequence[str]) -> IntArray:
    asked = each.kind.models
    return np.array([not asked or name in asked for name in models], np.int64)


def _whole_values(one: IntArray, several: dict[int, IntArray], most_gpus: int) -> IntArray:
    """By model, number of whole free GPUs and price of a CPU: one by one, or together for requests of several."""
    whole = np.zeros((one.shape[0], most_gpus + 1, one.shape[1]), np.int64)
    for count in range(1, most_gpus + 1):
        value = whole[:, count - 1] + one
        for gpus, worth in sorted(several.items()):
            if gpus <= count:
                value = _soft_maximum(value, worth + whole[:, count - gpus])
        whole[:, count] = value
    return whole


def _soft_maximum(first: IntArray, second: IntArray) -> IntArray:
    apart = np.minimum(np.abs(first - second), len(_SOFT_MAXIMUM) - 1)
    found: IntArray = np.maximum(first, second) + _SOFT_MAXIMUM[apart]
    return found
