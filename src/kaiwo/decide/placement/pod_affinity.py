"""Pod affinity, anti-affinity and spreading: where a pod may run, given the pods that are there.

No plugin can override it. A domain is the set of nodes with one value of a label. Counts are kept by node and summed by
domain when needed, since the nodes of a domain may differ from pod to pod.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from kaiwo.model.affinity import (
    HOST_PORT_PREFIX,
    NODE_LEVEL,
    NOMINATED_PREFIX,
    PodAffinity,
    RequiredPodAffinity,
    TopologySpread,
    matches_node_rules,
)
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason
from kaiwo.model.request import Request
from kaiwo.plugins.builtin.node_filters import tolerates_all
from kaiwo.snapshot.array_types import BoolArray, IntArray
from kaiwo.snapshot.node_table import NodeTable
from kaiwo.snapshot.view import View
from kaiwo.snapshot.working_copy import WorkingCopy

MAX_NAMED = 3
_Array = TypeVar("_Array", IntArray, BoolArray)


class AffinityVerdict(NamedTuple):
    mask: BoolArray
    reason: Reason
    subject: str  # the mark, and the level
    is_final: bool  # no placement of this cycle makes more nodes possible


class NodeVerdict(NamedTuple):
    """The verdict of a filter, or of all affinity rules of one kind together, on every node."""

    subject: str
    mask: BoolArray
    reason: Reason


def affinity_verdicts(view: WorkingCopy, want: Request) -> list[AffinityVerdict]:
    """The verdicts of a request's own rules, and of other pods' rules about it, on every node."""
    own = want.neighbours
    if own is None:
        return []
    found = _anti_affinity(view, own)
    if own.near is not None:
        found.append(_is_near(view, own.near, own.near.mark in own.marks))
    found += [_is_even(view, want, own, rule) for rule in own.spread]
    return found


def verdicts_by_reason(view: WorkingCopy, want: Request) -> list[NodeVerdict]:
    """All rules of one kind together, naming those that exclude a node."""
    found: dict[Reason, tuple[list[str], BoolArray]] = {}
    for verdict in affinity_verdicts(view, want):
        subjects, mask = found.get(verdict.reason, ([], np.ones(len(verdict.mask), np.bool_)))
        if not verdict.mask.all() and verdict.subject not in subjects:
            subjects.append(verdict.subject)
        found[verdict.reason] = (subjects, mask & verdict.mask)
    return [NodeVerdict("; ".join(subjects[:MAX_NAMED]), mask, reason) for reason, (subjects, mask) in found.items()]


def missing_topology_label(view: View, want: Request) -> str:
    """The first label that its pods must be spread over and that no node has; empty: there is none."""
    levels = [rule.level for rule in want.neighbours.spread] if want.neighbours is not None else []
    return next((level for level in levels if not (domains_of(view.nodes, level) >= 0).any()), "")


def may_return(view: WorkingCopy, own: PodAffinity | None, row: int) -> bool:
    """A removed pod may return to its node: no pod there must be apart from it."""
    return own is None or all(bool(verdict.mask[row]) for verdict in _anti_affinity(view, own))


def nomination_holds(view: WorkingCopy, kept: PodAffinity | None, row: int) -> bool:
    """The nominated pod may come here; pods that are leaving do not count."""
    if kept is None:
        return True
    pod = PodAffinity(tuple(mark.removeprefix(NOMINATED_PREFIX) for mark in kept.marks), apart=kept.apart)
    has_releasing_pods = view.has_releasing_pods
    if has_releasing_pods:
        view.count_releasing(+1)
    view.affinity_counts.change(row, kept, -1)
    may_come = may_return(view, pod, row)
    view.affinity_counts.change(row, kept, +1)
    if has_releasing_pods:
        view.count_releasing(-1)
    return may_come


def still_holds(view: WorkingCopy, want: Request, row: int) -> bool:
    """A pod on this node still obeys its rules, whatever came or left after it."""
    own = want.neighbours
    if own is None:
        return True
    view.affinity_counts.change(row, own, -1)
    holds = all(bool(verdict.mask[row]) for verdict in affinity_verdicts(view, want))
    view.affinity_counts.change(row, own, +1)
    return holds


def domains_of(nodes: NodeTable, level: str) -> IntArray:
    """By node: the number of its domain on a level; -1: none."""
    return nodes.once(level, lambda: _number(nodes, level))


def sum_by_domain(domains: IntArray, counts: IntArray) -> IntArray:
    inside = domains >= 0
    sums: IntArray = np.bincount(domains[inside], counts[inside], int(domains.max(initial=-1)) + 1).astype(np.int64)
    return sums


def _number(nodes: NodeTable, level: str) -> IntArray:
    if level == NODE_LEVEL:
        return np.arange(len(nodes.names), dtype=np.int64)
    numbers: dict[str, int] = {}
    values = (node.labels.get(level) for node in nodes.nodes)
    every = (-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values)
    return np.fromiter(every, np.int64, len(nodes.nodes))


def _present(view: WorkingCopy, counts: IntArray | None, level: str) -> BoolArray | None:
    """Nodes whose domain has at least one; None: there are none anywhere."""
    if counts is None:
        return None
    domains = domains_of(view.nodes, level)
    there = np.zeros(int(domains.max(initial=-1)) + 2, np.bool_)
    there[domains[counts > 0]] = True
    there[-1] = False  # index -1, for nodes without a domain, is the last entry
    return there[domains]


def _anti_affinity(view: WorkingCopy, own: PodAffinity) -> list[AffinityVerdict]:
    """The pod's own rules, and those of other pods about it."""
    counts = view.affinity_counts
    found = [
        _apart(view, rule.mark, rule.level, counts.by_row(rule.mark), counts.by_row(NOMINATED_PREFIX + rule.mark))
        for rule in own.apart
    ]
    for mark in own.marks:
        found += [_apart(view, mark, level, counts.by_row((mark, level))) for level in counts.repelling_levels(mark)]
    return found


def _apart(view: WorkingCopy, mark: str, level: str, *counts: IntArray | None) -> AffinityVerdict:
    mask = np.ones(len(view.nodes.names), np.bool_)
    for each in counts:
        present = _present(view, each, level)
        if present is not None:
            mask &= ~present
    if mark.startswith(HOST_PORT_PREFIX):
        return AffinityVerdict(mask, Reason.PORT_TAKEN, mark.removeprefix(HOST_PORT_PREFIX), True)
    return AffinityVerdict(mask, Reason.PODS_TOO_NEAR, _subject(level, mark), True)


def _is_near(view: WorkingCopy, rule: RequiredPodAffinity, is_own: bool) -> AffinityVerdict:
    """All levels together: near on one level alone is not near."""
    counts = view.affinity_counts.by_row(rule.mark)
    has_domain = np.ones(len(view.nodes.names), np.bool_)
    near = np.ones(len(view.nodes.names), np.bool_)
    has_matches = False
    for level in rule.levels:
        has_domain &= domains_of(view.nodes, level) >= 0
        present = _present(view, counts, level)
        near &= present if present is not None else False
        has_matches = has_matches or (present is not None and bool(present.any()))
    mask = has_domain & (near if has_matches or not is_own else True)
    return AffinityVerdict(mask, Reason.PODS_NOT_NEAR, _subject(", ".join(rule.levels), rule.mark), False)


def _is_even(view: WorkingCopy, want: Request, own: PodAffinity, rule: TopologySpread) -> AffinityVerdict:
    """The rule must hold with nominated pods and without them, since they may still be placed elsewhere."""
    counts, kept = view.affinity_counts.by_row(rule.mark), view.affinity_counts.by_row(NOMINATED_PREFIX + rule.mark)
    nothing = np.zeros(len(view.nodes.names), np.int64)
    now = nothing if counts is None else counts
    mask = _within_skew(view, want, own, rule, now)
    if kept is not None:
        mask &= _within_skew(view, want, own, rule, now + kept)
    return AffinityVerdict(mask, Reason.PODS_UNEVEN, _subject(rule.level, rule.mark), False)


def _within_skew(
    view: WorkingCopy, want: Request, own: PodAffinity, rule: TopologySpread, counts: IntArray
) -> BoolArray:
    domains = domains_of(view.nodes, rule.level)
    counted = np.where(_counts(view.nodes, want, own, rule), domains, -1)
    sums = sum_by_domain(counted, counts)
    exist = np.zeros(len(sums), np.bool_)
    exist[counted[counted >= 0]] = True
    fewest = int(sums[exist].min()) if exist.sum() >= rule.min_places and exist.any() else 0
    more = np.zeros(int(domains.max(initial=-1)) + 2, np.int64)  # the last is for nodes without a domain
    more[: len(sums)] = sums
    within: BoolArray = more[domains] + (rule.mark in own.marks) - fewest <= rule.max_skew
    return within & (domains >= 0)


def _counts(nodes: NodeTable, want: Request, own: PodAffinity, rule: TopologySpread) -> BoolArray:
    """Nodes that count for a rule: with a domain on every level, and as its own policies require."""
    levels = tuple(dict.fromkeys(other.level for other in own.spread))
    counted: BoolArray = nodes.once(("spread", levels), lambda: _with_domains(nodes, levels)).copy()
    if rule.by_rules and (own.own_rules or own.own_choices):
        rules = own.own_rules, own.own_choices
        counted &= _nodes_where(nodes, ("rules", *rules), lambda node: matches_node_rules(node.labels, *rules))
    if rule.by_taints:
        counted &= _nodes_where(nodes, want.tolerations, lambda node: tolerates_all(want.tolerations, node))
    return counted


def _with_domains(nodes: NodeTable, levels: tuple[str, ...]) -> BoolArray:
    found: BoolArray = np.logical_and.reduce([domains_of(nodes, level) >= 0 for level in levels])
    return found


def _nodes_where(nodes: NodeTable, key: object, holds: Callable[[Node], bool]) -> BoolArray:
    return nodes.once(key, lambda: np.fromiter(map(holds, nodes.nodes), np.bool_, len(nodes.nodes)))


def _subject(level: str, mark: str) -> str:
    return mark if level == NODE_LEVEL else f"{mark}, by {level}"
