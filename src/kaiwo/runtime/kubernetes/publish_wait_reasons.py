"""Publish on the cluster's objects why workloads wait, in the words of `kaiwo why`, whenever the reasons change.

A workload that was not tried yet has no reason to publish: a moment later it is tried. A running gang that lacks pods
is told before it is stopped.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kaiwo.clusters.kubernetes.writers.event_writer import GangNotice, WaitReason
from kaiwo.explain.gang_sentences import below_minimum
from kaiwo.explain.obstacle_order import in_order_of_telling
from kaiwo.explain.obstacle_sentences import sentence
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.model.policy import Policy
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
from kaiwo.snapshot.cluster_state import ClusterState

if TYPE_CHECKING:
    from kaiwo.clusters.kubernetes.writers.event_writer import EventWriter

EVERY_S = 1.0  # faster changes are not worth a write
MAX_CHARACTERS = 1000
# More nodes would not help against these.
NOT_FOR_LACK_OF_NODES = frozenset(
    (
        Reason.HELD, Reason.DEPENDENCY, Reason.DEPENDENCY_FAILED, Reason.NOT_BEFORE, Reason.ARRAY_SLOTS,
        Reason.NO_QUEUE, Reason.QUEUE_NOT_LEAF, Reason.QUEUE_ACCESS, Reason.QUEUE_LIMIT, Reason.QUEUE_QUOTA,
        Reason.RELEASING, Reason.NOT_PERMITTED,
    )
)  # fmt: skip


class WaitReasonPublisher:
    def __init__(self) -> None:
        self._published: dict[tuple[str, str], tuple[tuple[Obstacle, ...], frozenset[str]]] = {}
        self._blocked: dict[str, tuple[Obstacle, ...]] = {}
        self._incomplete: dict[str, int] = {}  # gangs that were told, by workload: since when they lack pods

    async def run(self, loop: SchedulingLoop, writer: "EventWriter") -> None:
        """Publish until cancelled."""
        seen = 0
        while True:
            seen = await loop.changed(seen)
            await asyncio.sleep(EVERY_S)
            writer.publish_reasons(await loop.ask(self.changed_reasons))
            find = partial(self.incomplete_gangs, policy=loop.policy, now_s=loop.cluster.now_s())
            notices = await loop.ask(find)
            for notice in notices:
                emit("gang-incomplete", level="warning", workload=notice.workload, reason=notice.sentence)
            writer.publish_gangs(notices)

    def changed_reasons(self, state: ClusterState) -> list[WaitReason]:
        """The workloads whose reasons changed since the last call."""
        changed: list[WaitReason] = []
        published, self._published = self._published, {}
        for key, found in state.backlog.by_key.items():
            if not found.obstacles or key in state.backlog.to_try:
                continue
            names = frozenset(name for _, name in found.waiters)
            before, known = published.get(key, ((), frozenset()))
            self._published[key] = (found.obstacles, names)
            new = names if before != found.obstacles else names - known
            if new:
                text, would_help = reason_sentence(found.obstacles)
                changed += [WaitReason(name, text, would_help) for name in sorted(new)]
        blocked_before, self._blocked = self._blocked, dict(state.backlog.gated)
        for name, obstacles in self._blocked.items():
            if blocked_before.get(name) != obstacles:
                changed.append(WaitReason(name, *reason_sentence(obstacles)))
        return changed

    def incomplete_gangs(self, state: ClusterState, policy: Policy, now_s: int) -> list[GangNotice]:
        """The running gangs that are below their minimum, and whose missing pods were tried and found no place."""
        before, self._incomplete = self._incomplete, {}
        notices = []
        for name in sorted(state.below_minimum):
            since_s = state.workloads[name].broken_since_s
            obstacles = _obstacles_of(state, name)
            if before.get(name) != since_s and not obstacles:
                continue  # it is tried in a moment, or starts
            self._incomplete[name] = since_s
            text = below_minimum(state, name, policy, now_s) if before.get(name) != since_s else ""
            if text:
                notices.append(GangNotice(name, f"{text}: {reason_sentence(obstacles)[0]}"[:MAX_CHARACTERS]))
        return notices


def _obstacles_of(state: ClusterState, name: str) -> tuple[Obstacle, ...]:
    """What the last cycle found; empty if the workload was not tried since it changed, or does not wait."""
    backlog = state.backlog
    if name in backlog.gated or not backlog.is_queued(name):
        return backlog.gated.get(name, ())
    found = backlog.class_of(name)
    return () if backlog.try_all or found.key in backlog.to_try else found.obstacles


def reason_sentence(obstacles: tuple[Obstacle, ...]) -> tuple[str, bool]:
    """All the sentences as one, and whether more nodes would help."""
    text = "; ".join(dict.fromkeys(sentence(each) for each in in_order_of_telling(obstacles)))
    would_help = all(each.reason not in NOT_FOR_LACK_OF_NODES for each in obstacles)
    return text[:MAX_CHARACTERS], would_help
