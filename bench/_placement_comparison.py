"""Compare placements by their predicted all-reduce time: ours, best fit by level, and placement without topology.

In:    the made fabric of 1,000 nodes, seven tenths of them in use by gangs of many sizes.
Out:   for a series of gangs, each on its own copy of that cluster, the predicted time of each way to place it.

All ways are judged by the same model (`topology/collective_time`): a node of another gang that crosses leaves uses the
uplinks of its leaf, and one whose gang stays in a leaf does not.
"""

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bench._made_fabric import NODES, dump, node_name
from kaiwo.clusters.local.cluster_file import gpus_of
from kaiwo.decide import decide
from kaiwo.model.events import (
    Event,
    NodeChanged,
    PodChanged,
    PodGone,
    QueueChanged,
    TopologyChanged,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.node import Node
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Role, Workload
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.assumed_events import assume
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.topology.collective_time import all_reduce_us
from kaiwo.topology.network_rates import NetworkRates, network_rates
from kaiwo.topology.sources.fabric import fabric_topology
from kaiwo.topology.sources.ibnetdiscover import read_ibnetdiscover

GPUS = gpus_of("MI300X", 8, 192 << 10)
WHOLE = Request(8_000, 8_192, gpus=8)
BYTES = 1 << 30
LOAD_PERCENT = 70
RUNNING_SIZES = (1, 1, 1, 2, 2, 4, 4, 8, 16, 32)
GANG_SIZES = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
MANY_NODES = 16  # more than most leaves have left
WORLDS = 4
MIX = 600  # gangs


class Times(NamedTuple):
    """Microseconds of one gang's all-reduce, by the way it was placed."""

    nodes: int
    ours: int
    best_fit: int
    blind: int


def comparison() -> dict[str, float]:
    """Single gangs on clusters that were loaded in the same way."""
    times = [each for seed in range(WORLDS) for each in compare_on(loaded_cluster(seed), GANG_SIZES)]
    wide = [each for each in times if each.nodes >= MANY_NODES]
    return {
        "below_best_fit_percent": _saved([each.ours for each in wide], [each.best_fit for each in wide]),
        "below_best_fit_any_size_percent": _saved([each.ours for each in times], [each.best_fit for each in times]),
        "below_blind_percent": _saved([each.ours for each in times], [each.blind for each in times]),
        "gangs_slower_than_best_fit": sum(each.ours * 100 > each.best_fit * 101 for each in times),
    }


def mix_of_gangs() -> dict[str, float]:
    """The same series of gangs comes and goes under each way to place them; each way lives with what it did before.

    A gang's time is predicted when it starts, and again when it ends: others have come by then.
    """
    blind, ours = (_mean_us(_lived_through(has_levels)) for has_levels in (False, True))
    return {"mix_below_blind_percent": round(100 - 100 * ours / blind, 1), "mix_all_reduce_ms": round(ours / 1000, 2)}


def _lived_through(has_levels: bool) -> list[int]:
    draw, state = random.Random(11), ClusterState()
    state.patch(_empty_cluster())
    state.snapshot(0)
    rates = network_rates(state.nodes.topologies.by_name["fabric"], state.nodes.nodes)
    leaf = state.nodes.topologies.by_name["fabric"].levels[-1].domain_of_node
    running: list[tuple[int, str]] = []  # when it ends
    times: list[int] = []
    used, now = 0, 0
    for number in range(MIX):
        size = draw.choice(RUNNING_SIZES)
        name, lasts = f"default/gang-{number}", draw.randint(20, 400)
        while used + size > NODES * LOAD_PERCENT // 100:
            running.sort()
            now, gone = running.pop(0)
            times += _predicted_of(state, gone, rates, leaf)
            pods = state.pods[gone]
            used -= len(pods)
            state.patch([WorkloadGone(gone), *(PodGone(gone, pod) for pod in sorted(pods))])
        gang = Workload(name, (Role(WHOLE, count=size),), preferred_level="leaf" if has_levels else "")
        state.patch([WorkloadChanged(gang)])
        plan = decide(state.snapshot(now))
        state.patch(assume(state, plan, now))
        state.record_cycle(plan)
        times += _predicted_of(state, name, rates, leaf)
        used += size
        running.append((now + lasts, name))
    return times


def _predicted_of(state: ClusterState, name: str, rates: NetworkRates, leaf: IntArray) -> list[int]:
    """Of a gang of several nodes: its all-reduce beside all others; nothing for a single node."""
    rows = np.array([state.nodes.row[pod.node] for pod in state.pods[name].values()], np.int64)
    if len(rows) < 2:
        return []
    others = {each: pods for each, pods in state.pods.items() if each != name}
    return [predicted(rates, rows, crossing_nodes(state, leaf, others))]


def _mean_us(times: Sequence[int]) -> float:
    return sum(times) / len(times)


def _empty_cluster() -> list[Event]:
    topology = fabric_topology(read_ibnetdiscover(dump(), "dump"), "fabric", "dump")
    nodes = [NodeChanged(Node(node_name(at), 192_000, 1 << 20, gpus=GPUS)) for at in range(NODES)]
    return [QueueChanged(Queue("default")), TopologyChanged(topology), *nodes]


def loaded_cluster(seed: int) -> ClusterState:
    """Gangs that came and left in random order: each took the next free nodes from a random place on."""
    draw, state, events = random.Random(seed), ClusterState(), _empty_cluster()
    owner = [0] * NODES
    number, used = 0, 0
    while used < NODES * 95 // 100:
        number += 1
        at, size = draw.randrange(NODES), draw.choice(RUNNING_SIZES)
        for node in [each % NODES for each in range(at, at + NODES) if not owner[each % NODES]][:size]:
            owner[node] = number
            used += 1
    while used > NODES * LOAD_PERCENT // 100:
        gone = draw.randrange(1, number + 1)
        used -= owner.count(gone)
        owner = [0 if each == gone else each for each in owner]
    for gang in sorted({each for each in owner if each}):
        nodes = [at for at, each in enumerate(owner) if each == gang]
        events += running(f"default/old-{gang:04d}", nodes)
    state.patch(events)
    return state


def running(name: str, nodes: Sequence[int]) -> list[Event]:
    shares = tuple(Share(gpu.id, 1000, gpu.memory_mib) for gpu in GPUS)
    pods = [
        PodChanged(Pod(name, f"main-{at}", node_name(node), devices=shares, cpu_milli=8_000))
        for at, node in enumerate(nodes)
    ]
    return [WorkloadChanged(Workload(name, (Role(WHOLE, count=len(nodes)),))), *pods]


def compare_on(state: ClusterState, sizes: Sequence[int]) -> list[Times]:
    state.snapshot(0)
    nodes = state.nodes
    rates = network_rates(nodes.topologies.by_name["fabric"], nodes.nodes)
    leaf = nodes.topologies.by_name["fabric"].levels[-1].domain_of_node
    active = crossing_nodes(state, leaf, state.pods)
    free = np.array([not state.allocations_on.get(name) for name in nodes.names])
    found = []
    for size in sizes:
        ways = (
            decided(state, Workload("default/gang", (Role(WHOLE, count=size),), preferred_level="leaf")),
            best_fit_by_level(leaf, free, size),
            decided(state, Workload("default/gang", (Role(WHOLE, count=size),))),
        )
        found.append(Times(size, *(predicted(rates, rows, active) for rows in ways)))
    return found


def decided(state: ClusterState, gang: Workload) -> IntArray:
    """The nodes that the shipped `decide` gives it."""
    fork = state.fork()
    fork.patch([WorkloadChanged(gang)])
    starts = decide(fork.snapshot(1)).starts
    assert len(starts) == gang.roles[0].count, f"{gang.roles[0].count} nodes are free, and {len(starts)} were given"
    return np.array([fork.nodes.row[start.node] for start in starts], np.int64)


def best_fit_by_level(leaf: IntArray, free: IntArray, size: int) -> IntArray:
    """The leaf with the fewest free nodes that has enough of them; else the roomiest leaves, and for the rest the
    tightest: what schedulers do that count levels and know no rates."""
    room = np.bincount(leaf[free])
    chosen: list[int] = []
    left = size
    while left:
        fits = [at for at in np.argsort(room, kind="stable").tolist() if room[at] >= left and at not in chosen]
        at = fits[0] if fits else max((at for at in range(len(room)) if at not in chosen), key=lambda at: room[at])
        chosen.append(at)
        left -= min(left, int(room[at]))
    rows = np.concatenate([np.flatnonzero(free & (leaf == at)) for at in chosen])
    return rows[:size]


def crossing_nodes(state: ClusterState, leaf: IntArray, running: Mapping[str, Mapping[str, Pod]]) -> IntArray:
    """1 for the nodes of workloads that run in several leaves."""
    active = np.zeros(len(leaf), np.int64)
    for pods in running.values():
        rows = [state.nodes.row[pod.node] for pod in pods.values()]
        if len(set(leaf[rows].tolist())) > 1:
            active[rows] = 1
    return active


def predicted(rates: NetworkRates, rows: IntArray, active: IntArray) -> int:
    gpus = np.zeros((1, len(active)), np.int64)
    gpus[0, rows] = 8
    return int(all_reduce_us(rates, gpus, BYTES, active)[0])


def _saved(ours: Sequence[int], others: Sequence[int]) -> float:
    """By how many percent the times of all gangs together are lower."""
    return round(100 - 100 * sum(ours) / sum(others), 1)
