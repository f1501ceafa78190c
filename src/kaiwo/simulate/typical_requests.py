"""The requests that make up most of a trace, and how much of a node's free GPUs they could not use.

The measure is the fragmentation of "Beware of Fragmentation" (USENIX ATC'23): of each typical request, the free GPU
amount of a node that the request could not use, weighted by how often the request occurs.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kaiwo.model.request import Request
from kaiwo.snapshot.array_types import BoolArray, IntArray

FloatArray = NDArray[np.float64]
POPULAR_PERCENT = 95  # as published: the most frequent requests, until they are this part of all
_LACKS_BOTH, _LACKS_GPU, _LACKS_CPU, _NO_GPU_FITS, _NO_GPU_LACKS_CPU, _NO_ACCESS = range(6)


@dataclass(frozen=True, slots=True)
class TypicalRequests:
    """By typical request, the most frequent first."""

    cpu_milli: IntArray
    milli: IntArray  # of each GPU; 0: it needs none
    gpus: IntArray
    models: tuple[tuple[str, ...], ...]
    weight: FloatArray  # they add up to 1

    def access(self, node_models: Sequence[str]) -> BoolArray:
        """By typical request and node: whether the node has a GPU model that the request accepts."""
        accepts = [[not asked or model in asked for model in node_models] for asked in self.models]
        return np.array(accepts, np.bool_).reshape(len(self.models), len(node_models))

    def fragments(self, cpu_free: IntArray, devices: IntArray, access: BoolArray) -> FloatArray:
        """By node: the milli-GPU of it that typical requests cannot use. `devices` has what is free of each device.

        Sums run in the order of the published code, one kind of fragment after the other: its scores are cut to whole
        numbers, so that another order would place some pods elsewhere.
        """
        milli, cpu = self.milli[:, None], self.cpu_milli[:, None] <= cpu_free[None, :]
        is_large = devices.T[None, :, :] >= milli[:, :, None]  # request, device, node
        usable = (is_large * devices.T[None, :, :]).sum(axis=1)
        has_gpus = is_large.sum(axis=1) >= self.gpus[:, None]
        total = devices.sum(axis=1)[None, :]
        kind = np.where(has_gpus, np.where(cpu, _LACKS_GPU, _LACKS_CPU), np.where(cpu, _LACKS_GPU, _LACKS_BOTH))
        kind = np.where(access, kind, _NO_ACCESS)
        kind = np.where(milli > 0, kind, np.where(cpu, _NO_GPU_FITS, _NO_GPU_LACKS_CPU))
        is_served = has_gpus & cpu & access & (milli > 0)
        amount = self.weight[:, None] * np.where(is_served, total - usable, total)
        found: FloatArray = np.zeros(len(cpu_free))
        for each in (_LACKS_BOTH, _LACKS_GPU, _LACKS_CPU, _NO_GPU_FITS, _NO_GPU_LACKS_CPU, _NO_ACCESS):
            found = found + np.add.accumulate(np.where(kind == each, amount, 0.0), axis=0)[-1]
        return found


def typical_requests(requests: Iterable[Request], percent: int = POPULAR_PERCENT) -> TypicalRequests:
    counts = Counter(_kind(request) for request in requests)
    total = counts.total()
    ranked = sorted(counts.items(), key=lambda item: (item[1], item[0]), reverse=True)
    popular: list[tuple[tuple[int, int, int, str], int]] = []
    reached = 0
    for kind, times in ranked:
        if reached * 100 >= percent * total:
            break
        popular.append((kind, times))
        reached += times
    kinds = [kind for kind, _ in popular]
    return TypicalRequests(
        np.array([kind[0] for kind in kinds], np.int64),
        np.array([kind[1] for kind in kinds], np.int64),
        np.array([kind[2] for kind in kinds], np.int64),
        tuple(tuple(name for name in kind[3].split("|") if name) for kind in kinds),
        np.array([(times / total) / (reached / total) for _, times in popular]),
    )


def _kind(request: Request) -> tuple[int, int, int, str]:
    """What the measure looks at; memory is not part of it."""
    milli = request.gpu_milli if request.gpus else 0
    return request.cpu_milli, milli, request.gpus, "|".join(request.gpu_models)
