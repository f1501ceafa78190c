"""Measure fragmentation: which free GPU amounts the mix of requests cannot use, and why.

In:    the nodes and the learned mix of requests.   Out: by node, domain and cluster: free, stranded, and a ratio.
Stranded is what no kind of request in the mix could use, whatever it is. The ratio is the mean over the mix of the part
that a request cannot use: 0 says that every request could use all that is free.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec
import numpy as np

from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.request_mix import RequestKind
from kaiwo.snapshot.array_types import BoolArray, IntArray
from kaiwo.snapshot.node_table import CPU, MILLI, USABLE, NodeTable

MOST_KINDS = 64  # the most frequent ones are looked at
ASSUMED = {RequestKind(0, 1, WHOLE_MILLI): 1}  # before anything was seen


class StrandedBy(StrEnum):
    NODE_CLOSED = "node-closed"
    NO_CPU = "no-cpu"
    TOO_SMALL = "too-small"  # what is left of a GPU is smaller than any share of the mix
    MODEL = "model"  # no request of the mix accepts this GPU model


class NodeFragments(msgspec.Struct, frozen=True):
    node: str
    model: str
    free_milli: int
    whole_gpus: int  # free ones
    cpu_free_milli: int
    stranded_milli: int
    reason: StrandedBy | None  # the main one; None: nothing is stranded
    ratio_permille: int


class DomainFragments(msgspec.Struct, frozen=True):
    topology: str
    level: str
    domain: str
    free_milli: int
    stranded_milli: int
    ratio_permille: int


class KindRoom(msgspec.Struct, frozen=True):
    """How many more pods of one kind fit."""

    kind: RequestKind
    weight_permille: int  # of the mix
    pods: int


class ClusterFragments(msgspec.Struct, frozen=True):
    free_milli: int
    stranded_milli: int
    ratio_permille: int
    by_reason: Mapping[StrandedBy, int]  # stranded milli
    nodes: tuple[NodeFragments, ...]  # with free GPU amounts
    domains: tuple[DomainFragments, ...]
    kinds: tuple[KindRoom, ...]  # the most frequent first


def measure_fragments(nodes: NodeTable, weights: Mapping[RequestKind, int]) -> ClusterFragments:
    seen = {kind: weight for kind, weight in weights.items() if kind.gpus} or ASSUMED
    kinds = sorted(seen, key=lambda kind: (-seen[kind], kind))[:MOST_KINDS]
    share = np.array([seen[kind] for kind in kinds], np.int64)
    rows = (nodes.gpu_total > 0).nonzero()[0]
    if not len(rows):  # then the tables may have no column for a GPU at all
        return ClusterFragments(0, 0, 0, {}, (), (), ())
    devices: IntArray = np.where(nodes.gpus[rows, USABLE] > 0, nodes.gpus[rows, MILLI], 0)
    cpu: IntArray = np.maximum(nodes.free[rows, CPU], 0)
    is_open = nodes.schedulable[rows]
    models = nodes.gpu_model[rows, 0]
    free: IntArray = devices.sum(axis=1)
    accepts: BoolArray = np.array([[not kind.models or name in kind.models for name in nodes.models] for kind in kinds])
    room = np.array([_room(kind, devices) for kind in kinds]) * accepts[:, models]  # by kind and node
    reach = np.array([_reach(kind, cpu, room[at]) for at, kind in enumerate(kinds)]) * is_open
    size = np.array([kind.total_milli for kind in kinds], np.int64)[:, None]
    usable: IntArray = (reach * size).max(axis=0, initial=0)
    lost = (share[:, None] * (free[None, :] - reach * size)).sum(axis=0)
    could: IntArray = (room * size).max(axis=0, initial=0)
    is_accepted = np.atleast_1d(accepts[:, models].any(axis=0))
    reasons = [_reason(*each) for each in zip(is_open, is_accepted, could, usable, strict=True)]
    total = int(share.sum())
    found = tuple(
        NodeFragments(
            nodes.names[row], nodes.models[models[at]], int(free[at]), int((devices[at] >= WHOLE_MILLI).sum()),
            int(cpu[at]), int(free[at] - usable[at]), reasons[at] if free[at] > usable[at] else None,
            _permille(int(lost[at]), total * int(free[at])),
        )
        for at, row in enumerate(rows.tolist())
        if free[at]
    )  # fmt: skip
    by_reason = Counter[StrandedBy]()
    for each in found:
        if each.reason is not None:
            by_reason[each.reason] += each.stranded_milli
    stranded = free - usable
    pods = reach.sum(axis=1).tolist()
    return ClusterFragments(
        int(free.sum()),
        int(stranded.sum()),
        _permille(int(lost.sum()), total * int(free.sum())),
        dict(sorted(by_reason.items())),
        found,
        _domains(nodes, rows, (free, stranded, lost), total),
        tuple(KindRoom(kind, _permille(seen[kind], total), pods[at]) for at, kind in enumerate(kinds)),
    )


def _room(kind: RequestKind, devices: IntArray) -> IntArray:
    """How many pods of a kind the devices of each node have room for, one after the other."""
    if kind.gpus == 1:
        found: IntArray = (devices // kind.gpu_milli).sum(axis=1)
        return found
    whole: IntArray = (devices >= WHOLE_MILLI).sum(axis=1) // kind.gpus
    return whole


def _reach(kind: RequestKind, cpu: IntArray, room: IntArray) -> IntArray:
    """The same, with the CPU that is left."""
    return np.minimum(room, cpu // kind.cpu_milli) if kind.cpu_milli else room


def _reason(is_open: np.bool_, is_accepted: np.bool_, room_milli: np.int64, usable_milli: np.int64) -> StrandedBy:
    if not is_open:
        return StrandedBy.NODE_CLOSED
    if not is_accepted:
        return StrandedBy.MODEL
    return StrandedBy.NO_CPU if room_milli > usable_milli else StrandedBy.TOO_SMALL


def _domains(
    nodes: NodeTable, rows: IntArray, amounts: tuple[IntArray, IntArray, IntArray], total: int
) -> tuple[DomainFragments, ...]:
    found: list[DomainFragments] = []
    for topology, table in sorted(nodes.topologies.by_name.items()):
        for level in table.levels:
            domain = level.domain_of_node[rows]
            inside = domain >= 0
            sums = [_sum_by(domain[inside], each[inside], level.names) for each in amounts]
            found += [
                DomainFragments(topology, level.name, name, free, stranded, _permille(lost, total * free))
                for name, free, stranded, lost in zip(level.names, *sums, strict=True)
            ]
    return tuple(found)


def _sum_by(domain: IntArray, amounts: IntArray, names: Sequence[str]) -> list[int]:
    sums = np.zeros(len(names), np.int64)
    np.add.at(sums, domain, amounts)
    return [int(each) for each in sums]


def _permille(part: int, whole: int) -> int:
    return 1000 * part // whole if whole else 0
