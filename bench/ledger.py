"""One allocation, and the listing of all devices, at 10,000 GPUs and at 80,000 partitions.

In:    1,250 nodes of 8 MI300X, whole and in CPX, half of their devices taken.
Out:   milliseconds of processor time on shipped code: other processes do not count.
An allocation is `Placer.place` on a cycle's working copy, as `decide` does it: the best of all nodes, exact devices,
taken. The whole cycle around it (copy, order, plan) and one page of the API's list are timed beside it.
"""

import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import msgspec

from bench._device_list import list_devices
from kaiwo.api.presenters.node_view import GpuQuery, gpu_page
from kaiwo.decide import decide
from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.placement.place_pods import Placer
from kaiwo.decide.placement.shape_scores import ShapeScores
from kaiwo.model.events import Event, NodeChanged, PodChanged, QueueChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.gpus.gpu_models import GPU_MODELS
from kaiwo.model.gpus.partition_modes import Mode, partition_gpu
from kaiwo.model.node import Node
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Role, Workload
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.overview.cluster_overview import ClusterOverview
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.working_copy import WorkingCopy

NODES, GPUS, MODEL, ROUNDS = 1_250, 8, "MI300X", 200
ALLOCATION_MS, LISTING_MS = 1.0, 10.0


def main() -> int:
    result = measure()
    print(json.dumps(result))
    missed = []
    for size, figures in result.items():
        for name, most in (("allocation_p99_ms", ALLOCATION_MS), ("listing_longest_ms", LISTING_MS)):
            if figures[name] > most:
                missed.append(f"{size}: {name} is {figures[name]}, at most {most} is due")
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


def measure() -> dict[str, dict[str, float]]:
    whole = cluster(Mode("SPX", "NPS1"), Request(gpus=1), Request(gpus=1, gpu_milli=250))
    return {
        "gpus_10000": whole,
        "partitions_80000": cluster(
            Mode("CPX", "NPS4"), Request(gpus=1, partition="CPX"), Request(gpus=2, partition="CPX")
        ),
    }


def cluster(mode: Mode, first: Request, second: Request) -> dict[str, float]:
    state = ClusterState()
    state.patch([QueueChanged(Queue("default")), *(NodeChanged(node(f"node-{at:05d}", mode)) for at in range(NODES))])
    state.patch(half_taken(state))
    allocations = [allocation_ms(state, want) for want in (first, second)]
    listing = [timed(lambda: list_devices(state.nodes)) for _ in range(ROUNDS // 4)]
    devices = list_devices(state.nodes)
    cycles = [cycle_ms(state, first, number) for number in range(ROUNDS // 4)]
    together = sorted(took for each in allocations for took in each)
    return {
        "devices": len(devices),
        "allocation_p50_ms": round(statistics.median(together), 3),
        "allocation_p99_ms": round(together[len(together) * 99 // 100], 3),
        "listing_p50_ms": round(statistics.median(listing), 2),
        "listing_longest_ms": round(max(listing), 2),
        "cycle_of_one_p50_ms": round(statistics.median(cycles), 2),
        "api_page_of_50_p50_ms": round(statistics.median(page_ms(state) for _ in range(20)), 2),
    }


def node(name: str, mode: Mode) -> Node:
    size = GPU_MODELS[MODEL].memory_mib
    gpus = [part for at in range(GPUS) for part in partition_gpu(Gpu(f"gpu-{at}", MODEL, size), mode)]
    return Node(name, cpu_milli=192_000, memory_mib=2**21, pods=256, gpus=tuple(gpus))


def half_taken(state: ClusterState) -> list[Event]:
    draw = random.Random(3)
    events: list[Event] = []
    for name, here in state.node_objects.items():
        for gpu in here.gpus:
            if draw.random() < 0.5:
                share = Share(gpu.id, gpu.milli, gpu.memory_mib)
                events.append(PodChanged(Pod(f"default/{name}-{gpu.id}", "main-0", name, devices=(share,))))
    return events


def allocation_ms(state: ClusterState, want: Request) -> list[float]:
    """Each on the state that the one before left; all of them three times, of which the quickest counts."""
    workload = Workload("default/asks", (Role(want),))
    state.patch([WorkloadChanged(workload)])
    shape = state.backlog.class_of(workload.name).needs[0][0]
    runs = [one_after_another(state, shape, want) for _ in range(3)]
    state.patch([WorkloadGone(workload.name)])
    return [min(same) for same in zip(*runs, strict=True)]


def one_after_another(state: ClusterState, shape: int, want: Request) -> list[float]:
    gc.collect()
    snapshot = state.snapshot(0)
    start, working = WorkingCopy(snapshot).view, WorkingCopy(snapshot)
    active = BUILTIN.active(DEFAULT_POLICY)
    placer = Placer(working, ShapeScores(state, start, working, active), active)
    placer.place(shape, want, 1)  # the first of a shape looks at every node: its cost is in the cycle's figure
    took = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        placed = placer.place(shape, want, 1)
        took.append((time.thread_time() - began) * 1000)
        assert len(placed) == 1
        assert len(placed[0].devices) == want.gpus
    return took


def cycle_ms(state: ClusterState, want: Request, number: int) -> float:
    """From a workload that has just come to the plan that starts it."""
    workload = Workload(f"default/one-{number}", (Role(want),))
    state.patch([WorkloadChanged(workload)])

    def cycle() -> None:
        plan = decide(state.snapshot(0))
        assert len(plan.starts) == 1

    took = timed(cycle)
    state.patch([WorkloadGone(workload.name)])
    return took


def page_ms(state: ClusterState) -> float:
    """`GET /gpus` from the cluster state to the bytes, without the network: a page from the middle of the list."""
    board = ClusterOverview(cast(LiveLoop, SimpleNamespace(state=state)))
    after = gpu_page(board, GpuQuery(limit=200)).next
    return timed(lambda: msgspec.json.encode(gpu_page(board, GpuQuery(limit=50, after=after))))


def timed(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1000


if __name__ == "__main__":
    sys.exit(main())
