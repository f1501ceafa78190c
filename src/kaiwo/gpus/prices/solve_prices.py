"""Find what each kind of request is worth: prices at which the free GPUs would be asked for by just this mix.

In:    the mix of requests and the nodes as they are now.   Out: RequestPrices.
The prices are the dual values of a packing problem: fill the free GPUs and CPUs with pods of the mix, as if the mix
went on until the cluster is full. A kind that is easy to place has a low worth, one that needs what is scarce keeps all
of it. Every round fills the nodes at the present prices, then lowers the worth of what was packed too often.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from kaiwo.gpus.prices.packings import (
    CPU_PRICES,
    CPU_SHIFT,
    LEVELS,
    STEP_MILLI,
    UNITS,
    UNITS_PER_GPU,
    FloatArray,
    ShareSizes,
    share_steps,
)
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.request_mix import PricedKind, RequestKind, RequestPrices
from kaiwo.snapshot.array_types import BoolArray, IntArray
from kaiwo.snapshot.node_table import CPU, MILLI, USABLE, NodeTable

MOST_KINDS = 384  # rarer ones are left out
STEP, GROWTH, SHRINK, LARGEST_STEP = 0.5, 1.3, 0.5, 30.0  # of a worth in one round: it grows while the sign stays
LEAST_ROUNDS, SETTLED = 10, 0.1  # it is enough if a tenth of the GPUs is packed too often or too seldom
BEYOND_FULL = 1.05  # work goes on to come when the cluster is full, so what is scarce is asked for by more than fits
CPU_PRICE_STEP, MOST_CPU_PRICE = 160 * 0.5, 960.0


class FreeNodes(msgspec.Struct, frozen=True):
    """Nodes with GPUs; equal ones once, with their number."""

    model: IntArray
    cpu_milli: IntArray
    levels: IntArray  # by node and device: what is free of a partly free GPU
    whole: IntArray  # whole free GPUs
    count: IntArray

    @property
    def free_milli(self) -> int:
        return int(((self.levels.sum(axis=1) * STEP_MILLI + self.whole * WHOLE_MILLI) * self.count).sum())


def free_nodes(nodes: NodeTable) -> FreeNodes:
    has_gpus = (nodes.gpu_total > 0).nonzero()[0]
    if not len(has_gpus):  # the table may not even have a column for a GPU
        nothing = np.zeros(0, np.int64)
        return FreeNodes(nothing, nothing, nothing.reshape(0, 0), nothing, nothing)
    milli = np.where(nodes.gpus[has_gpus, USABLE] > 0, nodes.gpus[has_gpus, MILLI], 0)
    levels = np.where(milli < WHOLE_MILLI, milli // STEP_MILLI, 0)
    columns = (nodes.gpu_model[has_gpus, 0], nodes.free[has_gpus, CPU], (milli >= WHOLE_MILLI).sum(axis=1))
    table = np.column_stack((*columns, np.sort(levels, axis=1)))
    found, count = np.unique(table, axis=0, return_counts=True)
    return FreeNodes(found[:, 0], np.maximum(found[:, 1], 0), found[:, 3:], found[:, 2], count)


def solve_prices(
    weights: Mapping[RequestKind, int], nodes: NodeTable, before: RequestPrices | None, rounds: int
) -> tuple[tuple[PricedKind, ...], int] | None:
    """The priced kinds and the price of a CPU; None: there is nothing to compare."""
    cluster = free_nodes(nodes)
    kinds = sorted(weights, key=lambda kind: (-weights[kind], kind))[:MOST_KINDS]
    with_gpus = [kind for kind in kinds if kind.gpus and _is_accepted(kind, nodes.models).any()]
    if not with_gpus or cluster.free_milli <= 0:
        return None
    problem = _Problem(with_gpus, weights, nodes.models, cluster)
    known = {each.kind: each.worth for each in before.kinds} if before is not None else {}
    full = np.array([kind.total_milli * UNITS_PER_GPU // WHOLE_MILLI for kind in with_gpus], np.float64)
    worth = np.array([known.get(kind, int(most)) for kind, most in zip(with_gpus, full, strict=True)], np.float64)
    cpu_price = float(before.cpu_price) if before is not None else 0.0
    work_cpu = sum(weights[kind] * kind.cpu_milli for kind in kinds if not kind.gpus) * problem.scale
    step, last, mean, mean_price = np.ones(len(full)), np.zeros(len(full)), np.zeros(len(full)), 0.0
    counted = 0
    units = UNITS * np.array([max(1, kind.gpus) for kind in with_gpus], np.float64)
    for number in range(rounds):
        packed, cpu_left = problem.fill(worth, cpu_price)
        excess = np.clip(np.log((packed + 1e-9) / problem.demand), -3, 3)
        step = np.clip(np.where(excess * last > 0, step * GROWTH, step * SHRINK), 0.5, LARGEST_STEP)
        last, worth = excess, np.clip(worth - STEP * step * excess * units, 0, full)
        if work_cpu:
            cpu_price += CPU_PRICE_STEP * float(np.clip((work_cpu - cpu_left) / work_cpu, -1, 1))
            cpu_price = min(max(cpu_price, 0.0), MOST_CPU_PRICE)
        if number >= rounds // 2:
            mean, mean_price, counted = mean + worth, mean_price + cpu_price, counted + 1
        is_bound = ((worth >= full) & (excess < 0)) | ((worth <= 0) & (excess > 0))
        wrong = np.where(is_bound, 0.0, np.abs(packed - problem.demand)) @ full
        if number >= LEAST_ROUNDS and wrong < SETTLED * (problem.demand @ full):
            mean, mean_price, counted = worth, cpu_price, 1
            break
    priced = zip(with_gpus, (mean / counted).round().astype(np.int64).tolist(), strict=True)
    found = tuple(PricedKind(kind, weights[kind], value) for kind, value in sorted(priced))
    return found, round(mean_price / counted)


class _Problem:
    """The mix and the nodes as arrays. Axes are model (m), price of a CPU (b), share size (s), kind (k)."""

    def __init__(
        self,
        kinds: Sequence[RequestKind],
        weights: Mapping[RequestKind, int],
        models: Sequence[str],
        cluster: FreeNodes,
    ) -> None:
        weight = np.array([weights[kind] for kind in kinds], np.float64)
        asked = sum(weights[kind] * kind.total_milli for kind in kinds)
        self.scale = cluster.free_milli / asked  # as if the mix went on until the cluster is full
        self._frequency = weight / weight.sum()
        self._cpu = np.array([kind.cpu_milli for kind in kinds], np.float64)
        self._cluster, self._models = cluster, len(models)
        shares = {share_steps(kind.gpu_milli) for kind in kinds if kind.gpu_milli < WHOLE_MILLI}
        self._sizes = ShareSizes(np.array(sorted(shares), np.int64))
        steps = self._sizes.steps.tolist()
        self._counts = sorted({kind.gpus for kind in kinds if kind.gpus > 1})
        # A slot is a share size, one whole GPU, or a number of them.
        slots = [*steps, -1, *(-count for count in self._counts)]
        self._slot = np.array([slots.index(_slot(kind)) for kind in kinds])
        self._access = np.array([_is_accepted(kind, models) for kind in kinds])
        self.demand = weight * self.scale * BEYOND_FULL * self._parts_to_keep_room_for(weight, kinds)
        self._slots = len(slots)
        member = (self._slot[None, :] == np.arange(self._slots)[:, None])[:, None, :] & self._access.T[None, :, :]
        self._member = member.reshape(-1, len(kinds)).astype(np.float64)  # (slot, model) by kind

    def _parts_to_keep_room_for(self, weight: FloatArray, kinds: Sequence[RequestKind]) -> FloatArray:
        """By kind: how much of its demand counts.

        The more of the mix accepts only some models, the less counts what accepts all. Otherwise all models are
        asked for in full and cost nearly the same, and what could run anywhere takes what others cannot do without.
        """
        asked = weight * np.array([kind.total_milli for kind in kinds])
        takes_any = self._access.all(axis=1)
        parts: FloatArray = np.where(takes_any, asked[takes_any].sum() / asked.sum(), 1.0)
        return parts

    def fill(self, worth: FloatArray, cpu_price: float) -> tuple[FloatArray, float]:
        """How many pods of each kind the nodes take at these prices, and the CPU that is left on them."""
        prices = CPU_PRICES.astype(np.float64)
        gain = (worth[:, None] - self._cpu[:, None] / (1 << CPU_SHIFT) * prices[None, :]) / UNITS
        top = gain.max()
        shift = np.where(self._slot >= len(self._sizes.steps) + 1, top, 0.0)[:, None]  # several GPUs: far beyond one
        ways = self._frequency[:, None] * np.exp(gain - shift)
        shape = (self._slots, self._models, len(prices))
        total = (self._member @ ways).reshape(shape)
        mean_cpu = (self._member @ (ways * self._cpu[:, None])).reshape(shape) / np.maximum(total, 1e-300)
        taken, cpu_left = self._fill_nodes(total, mean_cpu, top, cpu_price)
        per_way = taken / np.maximum(total, 1e-300)
        packed = ways * (per_way[self._slot] * self._access[:, :, None]).sum(axis=1)
        return packed.sum(axis=1), cpu_left

    def _fill_nodes(
        self, total: FloatArray, mean_cpu: FloatArray, top: float, cpu_price: float
    ) -> tuple[FloatArray, float]:
        """The slots that are taken, by slot, model and price of a CPU; and the CPU that is left."""
        sizes, number = self._sizes, len(self._sizes.steps)
        shares, single = total[:number], total[number]
        start = np.zeros((LEVELS + 1, *single.shape))
        start[0], start[LEVELS] = 1.0, single
        way = sizes.fill(start, shares)
        # The expected CPU of all ways together follows the same rule, with the CPU of each pod added.
        start[0] = 0.0
        start[LEVELS] = single * mean_cpu[number]
        padded = np.concatenate((np.zeros((LEVELS, *single.shape)), way))
        levels = np.arange(LEVELS + 1)[:, None]
        if number:
            start = start + ((shares * mean_cpu[:number])[None] * padded[LEVELS + levels - sizes.steps]).sum(axis=1)
            start[0] = 0.0
        cpu = sizes.fill(start, shares) / way
        value = np.log(way)
        wholes = _WholeGpus(value[LEVELS], cpu[LEVELS], np.log(np.maximum(total[number + 1 :], 1e-300)) + top)
        wholes.fill(self._counts, mean_cpu[number + 1 :], int(self._cluster.whole.max(initial=0)))
        value[LEVELS] = cpu[LEVELS] = 0.0
        chosen, cpu_left = self._choose_prices(value, cpu, wholes, cpu_price)
        taken = np.zeros_like(total)
        whole_use, several_use = wholes.spread(self._counts, chosen.whole)
        taken[number + 1 :] = several_use
        ending = chosen.levels.copy()
        ending[LEVELS] = whole_use
        back = sizes.fill((ending / way)[::-1], shares)[::-1]  # the same rule, from full to empty
        taken[number] = back[LEVELS] * single
        for row, step in enumerate(sizes.steps.tolist()):
            taken[row] = shares[row] * (back[step:] * way[: LEVELS + 1 - step]).sum(axis=0)
        return taken, cpu_left

    def _choose_prices(
        self, value: FloatArray, cpu: FloatArray, wholes: "_WholeGpus", cpu_price: float
    ) -> tuple["_Chosen", float]:
        """Each node has the price of a CPU at which its value is least; between two prices, it takes a part of both."""
        nodes, size = self._cluster, len(CPU_PRICES)
        m, at = nodes.model[:, None], np.arange(len(nodes.model))
        worth = value[nodes.levels, m].sum(axis=1) + wholes.value[nodes.whole, nodes.model]
        need = cpu[nodes.levels, m].sum(axis=1) + wholes.cpu[nodes.whole, nodes.model]
        total = worth + nodes.cpu_milli[:, None] / (1 << CPU_SHIFT) * CPU_PRICES / UNITS
        least = min(int(np.searchsorted(CPU_PRICES, cpu_price)), size - 1)
        best = total[:, least:].argmin(axis=1) + least
        is_short = need[at, best] > nodes.cpu_milli
        other = np.clip(np.where(is_short, best + 1, best - 1), least, size - 1)
        apart = need[at, best] - need[at, other]
        safe = np.where(np.abs(apart) > 1e-9, apart, 1.0)
        share = np.clip(np.where(np.abs(apart) > 1e-9, (nodes.cpu_milli - need[at, other]) / safe, 1.0), 0.0, 1.0)
        used = share * need[at, best] + (1 - share) * need[at, other]
        fits = np.minimum(1.0, nodes.cpu_milli / np.maximum(used, 1e-9))
        left = float((np.maximum(nodes.cpu_milli - used, 0) * nodes.count).sum())
        chosen = _Chosen(np.zeros((LEVELS + 1, *value.shape[1:])), np.zeros_like(wholes.value))
        for price, amount in ((best, share * fits * nodes.count), (other, (1 - share) * fits * nodes.count)):
            chosen.add(nodes, price, amount)
        return chosen, left


class _Chosen(msgspec.Struct, frozen=True):
    """How many GPUs are filled, by level or number of whole ones, model and price of a CPU."""

    levels: FloatArray
    whole: FloatArray

    def add(self, nodes: FreeNodes, price: IntArray, amount: FloatArray) -> None:
        _, models, size = self.levels.shape
        cell = nodes.model * size + price
        flat = (nodes.levels * (models * size) + cell[:, None]).ravel()
        spread = np.repeat(amount, nodes.levels.shape[1])
        self.levels[...] += np.bincount(flat, spread, self.levels.size).reshape(self.levels.shape)
        self.levels[0] = 0.0
        flat = nodes.whole * (models * size) + cell
        self.whole[...] += np.bincount(flat, amount, self.whole.size).reshape(self.whole.shape)


class _WholeGpus:
    """Whole free GPUs of a node: each on its own, or several for one pod."""

    def __init__(self, one: FloatArray, one_cpu: FloatArray, several: FloatArray) -> None:
        self._one, self._one_cpu, self._several = one, one_cpu, several
        self.value = self.cpu = one[None]
        self._parts: list[FloatArray] = []  # by number of GPUs: the part of one at a time, then of each count

    def fill(self, counts: Sequence[int], mean_cpu: FloatArray, most: int) -> None:
        value, cpu = [np.zeros_like(self._one)], [np.zeros_like(self._one)]
        for number in range(1, most + 1):
            options = [value[number - 1] + self._one]
            needs = [cpu[number - 1] + self._one_cpu]
            for row, count in enumerate(counts):
                if count <= number:
                    options.append(self._several[row] + value[number - count])
                    needs.append(mean_cpu[row] + cpu[number - count])
            stacked = np.array(options)
            best = stacked.max(axis=0)
            ways = np.exp(stacked - best)
            parts = ways / ways.sum(axis=0)
            self._parts.append(parts)
            value.append(best + np.log(ways.sum(axis=0)))
            cpu.append((parts * np.array(needs)).sum(axis=0))
        self.value, self.cpu = np.array(value), np.array(cpu)

    def spread(self, counts: Sequence[int], nodes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """How often a whole GPU is filled on its own, and how often each count is taken at once."""
        left, one = nodes.copy(), np.zeros_like(self._one)
        several = np.zeros((len(counts), *self._one.shape))
        for number in range(len(nodes) - 1, 0, -1):
            flows = self._parts[number - 1] * left[number]
            one += flows[0]
            left[number - 1] += flows[0]
            fitting = [(row, count) for row, count in enumerate(counts) if count <= number]
            for flow, (row, count) in zip(flows[1:], fitting, strict=True):
                several[row] += flow
                left[number - count] += flow
        return one, several


def _slot(kind: RequestKind) -> int:
    return share_steps(kind.gpu_milli) if kind.gpu_milli < WHOLE_MILLI else -kind.gpus


def _is_accepted(kind: RequestKind, models: Sequence[str]) -> BoolArray:
    return np.array([not kind.models or name in kind.models for name in models], np.bool_)
