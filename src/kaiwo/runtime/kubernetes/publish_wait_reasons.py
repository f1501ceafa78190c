"""Publish on the cluster's objects why workloads wait, in the words of `kaiwo why`, whenever the reasons change.

A workload that was not tried yet has no reason to publish: a moment later it is tried.
"""

import asyncio
from typing import TYPE_CHECKING

from kaiwo.clusters.kubernetes.writers.event_writer import WaitReason
from kaiwo.explain.obstacle_sentences import sentence
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
from kaiwo.snapshot.cluster_state import ClusterState

if TYPE_CHECKING:
    from kaiwo.clusters.kubernetes.writers.event_writer import EventWriter

EVERY_S = 1.0  # faster changes are not worth a write
MAX_CHARACTERS = 1000
# More nodes would not help against these.
NOT_FOR_LACK_OF_NODES = frozenset(
    (
        Reason.HELD, Reason.DEPENDENCY, Reason.DEPENDENCY_FAILED, Reason.NOT_BEFORE, Reason.NO_QUEUE,
        Reason.QUEUE_NOT_LEAF, Reason.QUEUE_LIMIT, Reason.QUEUE_QUOTA, Reason.RELEASING,
    )
)  # fmt: skip


class WaitReasonPublisher:
    def __init__(self) -> None:
        self._published: dict[tuple[str, str], tuple[tuple[Obstacle, ...], frozenset[str]]] = {}
        self._blocked: dict[str, tuple[Obstacle, ...]] = {}

    async def run(self, loop: SchedulingLoop, writer: "EventWriter") -> None:
        """Publish until cancelled."""
        seen = 0
        while True:
            seen = await loop.changed(seen)
            await asyncio.sleep(EVERY_S)
            writer.publish_reasons(await loop.ask(self.changed_reasons))

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


def reason_sentence(obstacles: tuple[Obstacle, ...]) -> tuple[str, bool]:
    """All the sentences as one, and whether more nodes would help."""
    text = "; ".join(dict.fromkeys(sentence(each) for each in obstacles))
    would_help = all(each.reason not in NOT_FOR_LACK_OF_NODES for each in obstacles)
    return text[:MAX_CHARACTERS], would_help
