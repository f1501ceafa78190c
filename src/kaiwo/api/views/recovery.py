"""Failures and recoveries: what does not work, who lost pods to it, what is done about it, and how long it took."""

import msgspec

from kaiwo.model.recovery import FailureKind, RecoveryWay


class FailureView(msgspec.Struct, frozen=True):
    """A node or a GPU that does not work."""

    kind: FailureKind
    name: str  # of the node
    gpu: str  # empty: the whole node
    domain: str  # the widest domain of which no node works, such as `leaf leaf-3`; empty: only this node
    since_s: int
    fenced: bool  # nothing can run on it any more
    reason: str
    workloads: list[str]  # with pods on it


class RestingNodeView(msgspec.Struct, frozen=True):
    """A node that came and went, or is slow, and takes no work for a while."""

    name: str
    failures: int  # in the last day
    until_s: int
    reason: str = ""


class RecoveryItemView(msgspec.Struct, frozen=True):
    """One workload that lost pods to failures."""

    workload: str
    kind: FailureKind
    causes: list[str]
    way: RecoveryWay
    since_s: int
    took_s: int  # until it had all its pods again, or until now
    ended_s: int  # 0: it does not have them back yet
    whole: bool  # it has all its pods again
    lost: list[str]  # pods
    moved: list[str]  # pods of its own that moved although their places work
    others: list[str]  # workloads of which pods moved for it
    answer: str  # what happens, in one sentence


class RecoveryView(msgspec.Struct, frozen=True):
    """Failures, recoveries under way, and past ones, the last one first."""

    as_of_s: int
    failures: list[FailureView]
    resting: list[RestingNodeView]
    current: list[RecoveryItemView]
    past: list[RecoveryItemView]
