"""Recovery from failures: what a workload lost and how it gets that back, and what is remembered about nodes.

A node that comes and goes stays out for a growing time. A workload does not return to a node on which it lost pods,
unless the whole domain of the node had failed: then the node itself was not to blame.
"""

import enum
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from kaiwo.model.node import NodeFailure

DAY_S = 86_400
FIRST_OUT_S, LONGEST_OUT_S = 60, 3_600  # after the second failure of a day, and at most
MAX_BAD_FOR = 64  # workloads that a node remembers; the newest stay


class RecoveryWay(enum.StrEnum):
    """How a workload gets its lost pods back. Codes are API: never renamed, never reused."""

    FENCE = "fence"  # it waits until it is certain that its lost pods do not run any more
    REPLACE = "replace"  # only the lost pods get other places
    SWAP = "swap"  # others move, too: as few pods as possible
    MOVE = "move"  # all its pods move to another domain
    WAIT = "wait"  # nothing has room for its lost pods yet


class FailureKind(enum.StrEnum):
    """What failed. Codes are API: never renamed, never reused."""

    NODE = "node"
    GPU = "gpu"
    LINK = "link"
    DOMAIN = "domain"
    SLOW = "slow"  # a node or a domain that works, but far below the speed of the others


class Recovery(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One workload that lost pods to failures and does not have them back yet."""

    workload: str
    since_s: int  # when the first of these failures was noticed
    kind: FailureKind  # of the first cause
    causes: tuple[str, ...]  # `node n-3`, `gpu-1 of n-4`, `network of n-5`, `leaf leaf-2`, `slow node n-6`
    way: RecoveryWay
    lost: tuple[str, ...]  # pods
    size: int  # how many pods it had
    moved: tuple[str, ...] = ()  # pods of its own that move although their places work
    others: tuple[str, ...] = ()  # workloads of which pods move for it


class BadNode(msgspec.Struct, gc=False, frozen=True):
    """A workload lost pods on this node by a fault of the node."""

    node: str
    workload: str


def after_failure(before: NodeFailure, at_s: int, is_fenced: bool) -> NodeFailure:
    """The node failed, or its fence changed while it did not work."""
    if before.since_s:
        return before if before.is_fenced == is_fenced else replace(before, is_fenced=is_fenced)
    times = before.times + 1 if at_s - before.last_s < DAY_S else 1
    at_s = max(1, at_s)
    return replace(before, since_s=at_s, is_fenced=is_fenced, times=times, last_s=at_s, out_until_s=0)


def after_return(before: NodeFailure, now_s: int) -> NodeFailure:
    """The node works again. After its second failure of a day it stays out for a minute, then for twice that."""
    if not before.since_s:
        return before
    out_s = min(FIRST_OUT_S << min(before.times - 2, 16), LONGEST_OUT_S) if before.times > 1 else 0
    return replace(before, since_s=0, is_fenced=False, out_until_s=now_s + out_s if out_s else 0)


def failure_moved(before: NodeFailure, by_s: int) -> NodeFailure:
    """The clock was set; 0 means that there is no such time."""
    since_s, last_s, out_until_s = (
        max(1, at_s + by_s) if at_s else 0 for at_s in (before.since_s, before.last_s, before.out_until_s)
    )
    return replace(before, since_s=since_s, last_s=last_s, out_until_s=out_until_s)


def remember_bad(before: NodeFailure, workloads: Iterable[str]) -> NodeFailure:
    """These workloads lost pods there."""
    names = dict.fromkeys((*before.bad_for, *workloads))
    return replace(before, bad_for=tuple(names)[-MAX_BAD_FOR:])
