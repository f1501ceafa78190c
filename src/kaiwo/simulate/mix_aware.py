"""Place pods so that a node keeps what the mix of requests can use: its GPUs together with the CPU that they need.

In:    requests with their counts, known in advance or learned so far.   Out: a plugin with a score and a device choice.
Unlike FGD it counts how far the CPU of a node reaches, not only whether one more pod fits, and it keeps GPU models for
requests that accept no other.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.node import Node
from kaiwo.model.request import Request
from kaiwo.simulate.typical_requests import FloatArray
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.node_table import CPU, MILLI
from kaiwo.snapshot.view import View

LEVELS = 100  # whole numbers, so that nearly equal nodes are equal
COVERED = 0.99  # rarer requests are left out
# How much the reach of the CPU counts, in tenths, against whether one pod fits. Sums are of integers, so that a node
# has the same value whichever nodes are looked at together.
CPU_TENTHS, TENTHS, PPM = 4, 10, 1_000_000
SIZE_EXPONENT = -0.6  # large requests count less than their number: they are few, and whole nodes serve them anyway
PRESSURE_WEIGHT, MOST_PRESSURE = 0.5, 1.5
FIRST_REFRESH, GROWTH = 16, 2  # a learned mix is used after 16 arrivals, then each time their number has doubled


@dataclass(frozen=True, slots=True)
class RequestMix:
    """The kinds of GPU requests, by weight; arrays by kind."""

    cpu_milli: IntArray
    milli: IntArray
    gpus: IntArray
    models: tuple[tuple[str, ...], ...]
    weight_ppm: IntArray
    pressure: Mapping[str, float]  # by GPU model: what requests that need it ask for, as a part of what there is

    def usable(self, cpu_free: IntArray, devices: IntArray, access: BoolArray) -> FloatArray:
        """By node: the milli-GPU that the mix can use, with the CPU that is left. `access` is by kind and node."""
        milli, gpus, cpu = self.milli[:, None], self.gpus[:, None], self.cpu_milli[:, None]
        amount, fitting = _by_milli(self.milli, devices)
        whole = fitting // gpus * gpus * WHOLE_MILLI
        full = np.where(gpus > 1, whole, amount)
        reach = cpu_free[None, :] * (gpus * milli) // np.maximum(cpu, 1)
        limited = np.where(cpu > 0, np.minimum(full, reach), full)
        value = (TENTHS - CPU_TENTHS) * full + CPU_TENTHS * limited
        is_served = access & (cpu <= cpu_free[None, :]) & (fitting >= gpus)
        total: IntArray = (self.weight_ppm[:, None] * np.where(is_served, value, 0)).sum(axis=0)
        found: FloatArray = total / (PPM * TENTHS)
        return found


def _by_milli(milli: IntArray, devices: IntArray) -> tuple[IntArray, IntArray]:
    """By kind and node: the amount and number of the devices that are large enough. Many kinds have the same size."""
    sizes, kind_size = np.unique(milli, return_inverse=True)
    is_large = devices.T[None, :, :] >= sizes[:, None, None]
    amount = np.einsum("sdn,dn->sn", is_large, devices.T)
    return amount[kind_size], is_large.sum(axis=1)[kind_size]


def request_mix(counts: Mapping[Request, int], nodes: Sequence[Node]) -> RequestMix:
    """Equal counts give equal mixes, in whatever order the requests came."""
    kinds = Counter[tuple[int, int, int, tuple[str, ...]]]()
    for request, times in counts.items():
        if request.gpus:
            models = tuple(sorted(set(request.gpu_models)))
            kinds[request.cpu_milli, request.gpu_milli, request.gpus, models] += times
    weights = {kind: times * (kind[1] * kind[2] / WHOLE_MILLI) ** SIZE_EXPONENT for kind, times in kinds.items()}
    ranked = sorted(weights, key=lambda kind: (-weights[kind], kind))
    total, reached, kept = sum(weights[kind] for kind in ranked), 0.0, list[tuple[int, int, int, tuple[str, ...]]]()
    for kind in ranked:
        if reached >= COVERED * total:
            break
        kept.append(kind)
        reached += weights[kind]
    return RequestMix(
        np.array([kind[0] for kind in kept], np.int64),
        np.array([kind[1] for kind in kept], np.int64),
        np.array([kind[2] for kind in kept], np.int64),
        tuple(kind[3] for kind in kept),
        np.array([round(PPM * weights[kind] / reached) for kind in kept], np.int64),
        _pressure(kinds, nodes),
    )


def _pressure(kinds: Mapping[tuple[int, int, int, tuple[str, ...]], int], nodes: Sequence[Node]) -> dict[str, float]:
    """Requests that accept some models only, spread over those, as if the whole cluster were asked for."""
    there = Counter(gpu.model for node in nodes for gpu in node.gpus)
    asked = sum(times * kind[1] * kind[2] for kind, times in sorted(kinds.items()))
    found = dict.fromkeys(there, 0.0)
    for (_, milli, gpus, models), times in sorted(kinds.items()):
        own = [name for name in models if name in there]
        if not own or len(own) == len(there):
            continue
        part = times * milli * gpus / asked * there.total() / sum(there[name] for name in own)
        for name in own:
            found[name] += part
    return found


class MixAware:
    """Prefer the place where a pod takes least from what the mix could use."""

    name, version, weight = "mix-aware", "1", 1

    def __init__(self, mix: RequestMix) -> None:
        self._mix = mix

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        scores = np.zeros(len(nodes), np.int64)
        at, _, found = self._candidates(view, want, nodes)
        np.maximum.at(scores, at, found)
        return scores

    def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        if want.is_exclusive:
            return np.zeros(len(columns), np.int64)
        _, devices, found = self._candidates(view, want, np.array([node]))
        by_device = dict(zip(devices.tolist(), found.tolist(), strict=True))
        left = view.gpus[node, MILLI]
        # Of devices with equally much left only the first was tried.
        first = [int((left == left[column]).argmax()) for column in columns.tolist()]
        return np.array([-by_device.get(column, -1) for column in first], np.int64)

    def _candidates(self, view: View, want: Request, nodes: Rows) -> tuple[Rows, Rows, IntArray]:
        """Every way to place the pod: positions in `nodes`, the device of a share, and the score."""
        devices, cpu_free = view.gpus[nodes, MILLI], view.free[nodes, CPU]
        table = view.nodes
        model = table.gpu_model[nodes, 0]
        known = [name in asked or not asked for asked in self._mix.models for name in table.models]
        access = np.array(known, np.bool_).reshape(len(self._mix.models), len(table.models))[:, model]
        before = self._mix.usable(cpu_free, devices, access)
        if want.is_fraction and want.gpus == 1:
            at, device = _distinct_devices(devices, want.gpu_milli)
            after = devices[at]
            after[np.arange(len(at)), device] -= want.gpu_milli
        else:
            at, device = np.arange(len(nodes)), np.zeros(len(nodes), np.intp)
            is_free = devices == WHOLE_MILLI
            after = np.where(is_free & (np.cumsum(is_free, axis=1) <= want.gpus), 0, devices)
        lost = before[at] - self._mix.usable(cpu_free[at] - want.cpu_milli, after, access[:, at])
        pressure = np.array([min(self._mix.pressure.get(name, 0.0), MOST_PRESSURE) for name in table.models])
        worth = want.gpus * want.gpu_milli * (1 - PRESSURE_WEIGHT * pressure[model[at]] ** 2)
        levels: IntArray = (LEVELS / (1 + np.exp((lost - worth) / 1000))).astype(np.int64)
        return at, device, levels


def _distinct_devices(devices: IntArray, milli: int) -> tuple[Rows, Rows]:
    """Nodes and devices with room for a share; of devices with equally much left, the first."""
    fits = devices >= milli
    for column in range(1, devices.shape[1]):
        fits[:, column] &= (devices[:, :column] != devices[:, column : column + 1]).all(axis=1)
    at, device = fits.nonzero()
    return at, device
