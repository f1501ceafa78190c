"""Publish on the cluster's objects why workloads wait, in the words of `kaiwo why`, whenever the reasons change.

A workload that was not tried yet has no reason to publish: a moment later it is tried. A running gang that lacks pods
is told before it is stopped.
"""

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kaiwo.clusters.kubernetes.writers.event_writer import GangNotice, WaitReason
from kaiwo.decide.cycle import BUILTIN
from kaiwo.explain.current_obstacles import CurrentObstacles
from kaiwo.explain.gang_sentences import below_minimum
from kaiwo.explain.obstacle_order import in_order_of_telling
from kaiwo.explain.obstacle_sentences import sentence
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.plugins.registry import Registry
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
from kaiwo.snapshot.backlog import ClassKey, WaitingClass
from kaiwo.snapshot.cluster_state import ClusterState

if TYPE_CHECKING:
    from kaiwo.clusters.kubernetes.writers.event_writer import EventWriter

EVERY_S = 1.0  # faster changes are not worth a write
RENEW_S = 0.03  # in each pass, for numbers that may have grown old
MAX_CHARACTERS = 1000
# More nodes would not help against these.
NOT_FOR_LACK_OF_NODES = frozenset(
    (
        Reason.HELD, Reason.DEPENDENCY, Reason.DEPENDENCY_FAILED, Reason.NOT_BEFORE, Reason.ARRAY_SLOTS,
        Reason.NO_QUEUE, Reason.QUEUE_NOT_LEAF, Reason.QUEUE_ACCESS, Reason.QUEUE_LIMIT, Reason.QUEUE_QUOTA,
        Reason.RELEASING, Reason.NOT_PERMITTED,
    )
)  # fmt: skip


class PublishedClass(NamedTuple):
    """What was told about a class of waiting workloads."""

    obstacles: tuple[Obstacle, ...]  # as of the time it was told
    found: tuple[Obstacle, ...]  # by the last cycle that tried it
    names: frozenset[str]


_UNKNOWN = PublishedClass((), (), frozenset())


class WaitReasonPublisher:
    def __init__(self) -> None:
        self._published: dict[ClassKey, PublishedClass] = {}
        self._blocked: dict[str, tuple[Obstacle, ...]] = {}
        self._incomplete: dict[str, int] = {}  # gangs that were told, by workload: since when they lack pods
        self._stale: dict[ClassKey, None] = {}  # classes whose numbers may have changed, the longest waiting first

    async def run(self, loop: SchedulingLoop, writer: "EventWriter") -> None:
        """Publish until cancelled."""
        seen = 0
        while True:
            if not self._stale:
                seen = await loop.changed(seen)
            await asyncio.sleep(EVERY_S)
            renew, seen = loop.revision > seen, loop.revision
            now_s = loop.cluster.now_s()
            ask = partial(self.changed_reasons, plugins=loop.plugins, policy=loop.policy, now_s=now_s, renew=renew)
            writer.publish_reasons(await loop.ask(ask))
            find = partial(self.incomplete_gangs, policy=loop.policy, now_s=now_s)
            notices = await loop.ask(find)
            for notice in notices:
                emit("gang-incomplete", level="warning", workload=notice.workload, reason=notice.sentence)
            writer.publish_gangs(notices)

    def changed_reasons(
        self,
        state: ClusterState,
        plugins: Registry = BUILTIN,
        policy: Policy = DEFAULT_POLICY,
        now_s: int = 0,
        renew: bool = True,
    ) -> list[WaitReason]:
        """The workloads whose reasons changed since the last call.

        A class that a cycle left waiting is not tried again when others start, and its numbers grow old. So they are
        computed anew, as many as a pass has time for; `renew`: something has changed since the last call.
        """
        state.refresh_tables()
        changed: list[WaitReason] = []
        published, self._published = self._published, {}
        waiting = {
            key: found
            for key, found in state.backlog.by_key.items()
            if found.obstacles and key not in state.backlog.to_try and not state.backlog.try_all
        }
        if renew:
            self._stale |= dict.fromkeys(waiting)
        current = CurrentObstacles(state, plugins.active(policy), policy, now_s)
        began = time.monotonic()
        for key in list(self._stale):
            del self._stale[key]
            if key in waiting:
                self._published[key] = _renewed(waiting[key], current)
            if time.monotonic() - began > RENEW_S:
                break
        for key, found in waiting.items():
            before = published.get(key, _UNKNOWN)
            names = frozenset(name for _, name in found.waiters)
            if key in self._published:
                obstacles = self._published[key].obstacles
            else:  # its turn comes; unless a cycle found something else meanwhile
                obstacles = before.obstacles if before.found == found.obstacles else found.obstacles
            self._published[key] = PublishedClass(obstacles, found.obstacles, names)
            new = names if before.obstacles != obstacles else names - before.names
            if new:
                reason = wait_reason("", obstacles)
                changed += [reason._replace(workload=name) for name in sorted(new)]
        blocked_before, self._blocked = self._blocked, dict(state.backlog.gated)
        for name, obstacles in self._blocked.items():
            if blocked_before.get(name) != obstacles:
                changed.append(wait_reason(name, obstacles))
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
                notices.append(GangNotice(name, f"{text}: {reason_sentence(obstacles)}"[:MAX_CHARACTERS]))
        return notices


def _obstacles_of(state: ClusterState, name: str) -> tuple[Obstacle, ...]:
    """What the last cycle found; empty if the workload was not tried since it changed, or does not wait."""
    backlog = state.backlog
    if name in backlog.gated or not backlog.is_queued(name):
        return backlog.gated.get(name, ())
    found = backlog.class_of(name)
    return () if backlog.try_all or found.key in backlog.to_try else found.obstacles


def reason_sentence(obstacles: tuple[Obstacle, ...]) -> str:
    """All the sentences as one."""
    text = "; ".join(dict.fromkeys(sentence(each) for each in in_order_of_telling(obstacles)))
    return text[:MAX_CHARACTERS]


def wait_reason(workload: str, obstacles: tuple[Obstacle, ...]) -> WaitReason:
    would_help = all(each.reason not in NOT_FOR_LACK_OF_NODES for each in obstacles)
    headline = in_order_of_telling(obstacles)[0]
    return WaitReason(workload, reason_sentence(obstacles), would_help, f"{headline.reason.value} {headline.subject}")


def _renewed(found: WaitingClass, current: CurrentObstacles) -> PublishedClass:
    try:
        obstacles = current.of_class(found)
    except PluginFaultError:  # the next cycle sets it aside, and says so
        obstacles = found.obstacles
    return PublishedClass(obstacles, found.obstacles, frozenset())
