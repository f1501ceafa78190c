"""What the cache believes of running pods where no admission policy guards what is written on them.

Whoever may write a pod may then write its status. Two things in it matter: that a pod has ended, which frees its
devices and its queue, and when it started, which says how much it would lose. Of its annotations two matter: the queue
that pays for it, and whether it may be stopped. They are those with which it was first seen bound.

An end is believed after it has stood for a while: a kubelet whose pod still runs writes the phase again within ten
seconds (its status manager compares once in that time), so a false end never stands that long. What had ended when this
process first saw it is believed at once: its devices may be another's by now.
A start is what was seen first, never before the pod was made or bound by us, and never in the future.
Never: reads a clock.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.decode.pod_decoder import SETTLED_KEYS, CachedPod

SETTLES_S = 12  # longer than a kubelet needs to contradict


def keep_settled(before: CachedPod | None, pod: CachedPod) -> CachedPod:
    """The pod with what was settled when it was bound. `before`: as the cache has it now."""
    if before is None or before.uid != pod.uid or not before.node or before.annotations_text == pod.annotations_text:
        return pod
    then = before.annotations
    return with_settled(pod, {key: then[key] for key in SETTLED_KEYS if key in then})


def with_settled(pod: CachedPod, settled: Mapping[str, str]) -> CachedPod:
    now = pod.annotations
    if all(settled.get(key) == now.get(key) for key in SETTLED_KEYS):
        return pod
    others = {key: text for key, text in now.items() if key not in SETTLED_KEYS}
    return replace(pod, annotations_text=msgspec.json.encode({**others, **settled}))


class ClaimedEnd(NamedTuple):
    pod: CachedPod  # as the server has it: ended
    due_s: int  # when it is believed; 0: not known yet


class ClaimedEnds:
    """Pods that have ended by their status, until that is believed. `is_guarded`: it is believed at once."""

    def __init__(self) -> None:
        self.is_guarded = True
        self._claims: dict[str, ClaimedEnd] = {}  # by UID

    def doubt(self, before: CachedPod | None, pod: CachedPod) -> CachedPod:
        """The pod as the cache should have it. `before`: as it has it now."""
        if not pod.is_finished or self.is_guarded:
            self._claims.pop(pod.uid, None)
            return pod
        if before is None or before.uid != pod.uid or before.is_finished or not before.node:
            return pod
        known = self._claims.get(pod.uid)
        self._claims[pod.uid] = ClaimedEnd(pod, known.due_s if known is not None else 0)
        return replace(pod, phase=before.phase)

    def forget(self, uid: str) -> None:
        self._claims.pop(uid, None)

    def take_settled(self, now_s: int) -> list[CachedPod]:
        """Those whose end is believed from now on."""
        settled = []
        for uid, claim in list(self._claims.items()):
            if not claim.due_s:
                self._claims[uid] = claim._replace(due_s=now_s + SETTLES_S)
            elif claim.due_s <= now_s:
                settled.append(self._claims.pop(uid).pod)
        return settled

    def move_times(self, by_s: int) -> None:
        """The clock was set: an end is believed after as many seconds as before."""
        for uid, claim in self._claims.items():
            self._claims[uid] = claim._replace(due_s=max(1, claim.due_s + by_s)) if claim.due_s else claim

    @property
    def next_due_s(self) -> int:
        """When the next end will be believed; 0: none waits for that."""
        return min((claim.due_s for claim in self._claims.values()), default=0)


class ObservedStarts:
    """Since when pods hold what they hold."""

    def __init__(self) -> None:
        self.now_s = 0  # of the flush that is under way; 0: unknown
        self._earliest_s: dict[str, int] = {}  # by UID: when we began to bind it
        self._since_s: dict[str, int] = {}  # by UID: the start that was seen first

    def assume(self, uid: str) -> None:
        """We bind this pod now."""
        if self.now_s:
            self._earliest_s.setdefault(uid, self.now_s)

    def since_s(self, pod: CachedPod) -> int:
        known = self._since_s.get(pod.uid)
        if known is not None:
            return known
        earliest_s = max(pod.created_s, self._earliest_s.get(pod.uid, 0))
        if not pod.started_s:
            return pod.created_s
        since_s = max(pod.started_s, earliest_s)
        if self.now_s:
            since_s = max(pod.created_s, min(since_s, self.now_s))
        self._since_s[pod.uid] = since_s
        return since_s

    def forget(self, uid: str) -> None:
        self._earliest_s.pop(uid, None)
        self._since_s.pop(uid, None)
