"""One run of the openb protocol: pods arrive one by one in a published order and never leave.

In:    a trace, a seed and a placement policy.   Out: the published figures of that run.
A pod that fits nowhere is dropped, and still counts as arrived.
"""

import resource
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import msgspec
import numpy as np

from kaiwo.model.events import RequestMixChanged
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.node import Node
from kaiwo.model.plan import Start
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.simulate.openb_trace import Arrivals, OpenbTrace
from kaiwo.simulate.placement_policies import placement_policy
from kaiwo.simulate.typical_requests import TypicalRequests, typical_requests
from kaiwo.simulate.virtual_clock import Arrival, VirtualClock
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.learned.seen_requests import SeenRequests

MEASURED_AT = (60, 80, 90)  # arrived load in %, for fragmentation
PROGRESS_EVERY = 100
KNOWN = "known"  # the mix of requests, in advance; otherwise it is learned


class LoadPoint(msgspec.Struct, frozen=True):
    """When pods have asked for this percentage of all GPUs."""

    arrived: float
    allocated: float
    fragmentation_ratio: float


class OpenbFigures(msgspec.Struct, frozen=True):
    """The figures of one run; percentages of all GPUs."""

    seed: int
    allocated_at_100: float | None  # None: the trace never asks for that much
    allocated_at_130: float | None
    fragmentation_ratio: dict[str, float | None]  # by arrived load: the part of free GPU amounts that is of no use
    p50_ms: float
    p99_ms: float
    peak_rss_mb: float
    curve: tuple[LoadPoint, ...] = ()  # for plots


@dataclass(frozen=True, slots=True)
class OpenbProgress:
    seed: int
    done: int
    total: int


def run_openb(
    trace: OpenbTrace, seed: int, policy: str, mix: str, report: Callable[[OpenbProgress], None] = lambda _: None
) -> OpenbFigures:
    arrivals = trace.arrivals(seed)
    placing = placement_policy(policy, trace.requests, seed)
    clock = VirtualClock(nodes_by_rank(trace, arrivals), placing.policy, placing.plugins, drops=True)
    if mix == KNOWN:
        clock.runner.state.patch([whole_mix(trace.requests)])
    measure = FragmentationMeasure(trace, arrivals, typical_requests(trace.requests))
    asked = [_gpu_milli(trace.requests[row]) for row in arrivals.order]
    loads = [percent(milli, trace.gpu_milli) for milli in accumulate(asked)]
    used, took_ms, ratios, allocated = 0, list[float](), list[float](), list[float]()
    for number, outcome in enumerate(clock.run(arrivals_in_order(trace, arrivals))):
        for start in outcome.starts:
            used += sum(share.milli for share in start.devices)
            measure.take(start, outcome.arrival.workload.roles[0].request)
        allocated.append(percent(used, trace.gpu_milli))
        ratios.append(measure.ratio())
        took_ms.append(outcome.took_ns / 1e6)
        if placing.forgets_scores:
            clock.runner.state.caches.clear()
        if number % PROGRESS_EVERY == 0:
            report(OpenbProgress(seed, number, len(asked)))
    report(OpenbProgress(seed, len(asked), len(asked)))
    p50, p99 = (float(each) for each in np.percentile(took_ms, [50, 99]))
    return OpenbFigures(
        seed=seed,
        allocated_at_100=mean_at(100, loads, allocated),
        allocated_at_130=mean_at(130, loads, allocated),
        fragmentation_ratio={str(load): mean_at(load, loads, ratios) for load in MEASURED_AT},
        p50_ms=round(p50, 3),
        p99_ms=round(p99, 3),
        peak_rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        curve=tuple(_curve(loads, allocated, ratios)),
    )


def _curve(loads: Sequence[float], allocated: Sequence[float], ratios: Sequence[float]) -> Iterator[LoadPoint]:
    """The first arrival of each percent."""
    shown = -1
    for load, used, ratio in zip(loads, allocated, ratios, strict=True):
        if int(load) > shown:
            shown = int(load)
            yield LoadPoint(round(load, 2), round(used, 2), round(ratio, 2))


def whole_mix(requests: Sequence[Request]) -> RequestMixChanged:
    """The requests of the whole trace, as if they had been seen before the first one arrives."""
    seen = SeenRequests()
    for number, request in enumerate(requests):
        seen.add(Workload(f"default/pod-{number:05d}", (Role(request),)))
    return next(iter(seen.as_events()))


def nodes_by_rank(trace: OpenbTrace, arrivals: Arrivals) -> list[Node]:
    """Nodes whose names sort by rank: among equal scores `decide` takes the first name, and so the lowest rank."""
    ranked = zip(trace.nodes, arrivals.rank, strict=True)
    return [msgspec.structs.replace(node, name=ranked_name(node, rank)) for node, rank in ranked]


def ranked_name(node: Node, rank: int) -> str:
    return f"{rank:05d}-{node.name}"


def mean_at(load: int, loads: Sequence[float], values: Sequence[float]) -> float | None:
    """The mean over the arrivals whose load rounds to this one, or, as published, to a neighbour if there is none."""
    near = [value for at, value in zip(loads, values, strict=True) if round(at) == load]
    near = near or [value for at, value in zip(loads, values, strict=True) if load - 1 <= round(at) <= load + 1]
    return round(statistics.fmean(near), 2) if near else None


def percent(milli: int, capacity_milli: int) -> float:
    return 100 * milli / capacity_milli


class FragmentationMeasure:
    """The fragmentation of the whole cluster; each start costs the node that it touches."""

    def __init__(self, trace: OpenbTrace, arrivals: Arrivals, typical: TypicalRequests) -> None:
        self._typical = typical
        names = [ranked_name(node, rank) for node, rank in zip(trace.nodes, arrivals.rank, strict=True)]
        self._row = {name: row for row, name in enumerate(names)}
        self._cpu: IntArray = np.array([node.cpu_milli for node in trace.nodes], np.int64)
        width = max(len(node.gpus) for node in trace.nodes)
        sizes = [[WHOLE_MILLI if at < len(node.gpus) else 0 for at in range(width)] for node in trace.nodes]
        self._devices: IntArray = np.array(sizes, np.int64)
        self._access = typical.access([node.gpus[0].model for node in trace.nodes])
        self._fragments = typical.fragments(self._cpu, self._devices, self._access)
        self._lost, self._idle = float(self._fragments.sum()), int(self._devices.sum())

    def take(self, start: Start, request: Request) -> None:
        row = self._row[start.node]
        self._cpu[row] -= request.cpu_milli
        for share in start.devices:
            self._devices[row, int(share.gpu.removeprefix("gpu-"))] -= share.milli
            self._idle -= share.milli
        only = slice(row, row + 1)
        now = float(self._typical.fragments(self._cpu[only], self._devices[only], self._access[:, only])[0])
        self._lost += now - float(self._fragments[row])
        self._fragments[row] = now

    def ratio(self) -> float:
        return percent_of(self._lost, self._idle)


def percent_of(part: float, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def arrivals_in_order(trace: OpenbTrace, arrivals: Arrivals) -> list[Arrival]:
    """One second apart, so that the time of a decision is its number."""
    return [
        Arrival(number, Workload(f"default/pod-{number:05d}", (Role(trace.requests[row]),), submitted_s=number))
        for number, row in enumerate(arrivals.order)
    ]


def _gpu_milli(request: Request) -> int:
    return request.gpus * request.gpu_milli
