"""What we have begun and the API server has not confirmed, and what it refused.

In:    starts and evictions as they begin, succeed and fail.   Out: who is assumed to be where.

Also: Gangs that come in waves, and whose first wave was stopped because the next one found no room.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.gang_index import GangIndex
from kaiwo.clusters.kubernetes.cache.published_state import PublishedState
from kaiwo.clusters.kubernetes.cache.workload_names import WorkloadNames
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.decode.pod_request import NODE_NAME
from kaiwo.clusters.kubernetes.gangs import Gang
from kaiwo.clusters.plan_checks import back_off_s
from kaiwo.model.affinity import NodeRule
from kaiwo.model.plan import Start
from kaiwo.model.workload import Phase, Pod, Role, Workload

FIRST_S, LONGEST_S = 60, 600
FORGOTTEN_S = 3600  # after so long without another one it begins anew
WHY = "its first pods were stopped, because those that come after them found no room in time"


class Setback(NamedTuple):
    times: int  # in a row
    until_s: int


class GangBackoff:
    """By workload. They outlive its pods: a controller makes those anew at once."""

    def __init__(self) -> None:
        self._by_name: dict[str, Setback] = {}

    def record_stop(self, name: str, now_s: int) -> None:
        """What ran of it is stopped, since it was not whole for too long."""
        known = {each: found for each, found in self._by_name.items() if now_s < found.until_s + FORGOTTEN_S}
        times = known[name].times if name in known else 0
        known[name] = Setback(times + 1, now_s + min(FIRST_S << min(times, 10), LONGEST_S))
        self._by_name = known

    def apply_to(self, workload: Workload, group: Gang | None, holding: Sequence[Pod]) -> Workload:
        """The workload with the time before which it is not tried; who is whole has nothing to fear any more."""
        found = self._by_name.get(workload.name)
        if found is None or group is None:
            return workload
        if holding:
            running = sum(pod.phase is Phase.RUNNING for pod in holding)  # not those that were told to go
            if running >= group.minimum and not (group.blocked_by or group.later):
                del self._by_name[workload.name]
            return workload
        if not group.later or group.key.kind == "Job":  # the later pods of a Job come when others are done
            return workload
        return replace(workload, not_before_s=max(workload.not_before_s, found.until_s), not_before_why=WHY)


class StartRefusal(NamedTuple):
    """A start that could not be carried out."""

    times: int  # in a row
    until_s: int
    why: str
    node: str = ""  # that has no room for it; empty: nothing says that another node would do better
    avoided: tuple[str, ...] = ()  # had no room twice in a row: other nodes are tried


class InFlight:
    """Starts and evictions by the UID of their pod, refusals by workload."""

    def __init__(self, roll: GangIndex, names: WorkloadNames, told: PublishedState) -> None:
        self.starts: dict[str, Start] = {}
        self.evictions: set[str] = set()
        self.refusals: dict[str, StartRefusal] = {}
        self.refused_evictions: dict[str, str] = {}  # pods whose Eviction was refused for good, and the server's words
        self._roll, self._names, self._told = roll, names, told

    def upsert_pod(self, pod: CachedPod) -> None:
        """The API server says how a pod is now."""
        if pod.node:
            self.starts.pop(pod.uid, None)
        if pod.is_terminating or pod.is_finished:
            self.evictions.discard(pod.uid)

    def delete_pod(self, uid: str) -> None:
        """A pod is gone."""
        self.starts.pop(uid, None)
        self.evictions.discard(uid)
        self.refused_evictions.pop(uid, None)

    def begin_start(self, start: Start, pod: CachedPod, assumed: Pod) -> None:
        """A Binding is under way. The scheduler assumes it already."""
        self.starts[pod.uid] = start
        self._told.assume_pod(assumed)
        self._roll.touch(pod.key)

    def end_start(self, pod: CachedPod) -> None:
        """The Binding came to nothing, as far as we know."""
        if self.starts.pop(pod.uid, None) is not None:
            self._roll.touch(pod.key)

    def begin_eviction(self, workload: str, slot: str, pod: CachedPod) -> None:
        """An Eviction is under way. The scheduler assumes it already."""
        self.evictions.add(pod.uid)
        self._told.assume_releasing(workload, slot)
        self._roll.touch(pod.key)

    def end_eviction(self, pod: CachedPod, why: str = "") -> None:
        """The Eviction came to nothing. `why`: it was refused for good, so that nobody counts on it until `let_go`."""
        if pod.uid in self.evictions:
            self.evictions.discard(pod.uid)
            if why:
                self.refused_evictions[pod.uid] = why
            self._roll.touch(pod.key)

    def retry_eviction(self, pod: CachedPod) -> None:
        """It may be asked to go again."""
        if self.refused_evictions.pop(pod.uid, None) is not None:
            self._roll.touch(pod.key)

    def refuse(self, workload: str, now_s: int, why: str, node: str = "") -> bool:
        """Its workload waits longer each time. True: from now on it keeps away from the node, until `forgive`."""
        before = self.refusals.get(workload, StartRefusal(0, 0, ""))
        is_again = bool(node) and before.node == node
        avoided = (*before.avoided, node) if is_again else before.avoided
        until_s = now_s + back_off_s(before.times)
        self.refusals[workload] = StartRefusal(before.times + 1, until_s, why, node, avoided)
        self._look_again(workload)
        return is_again

    def retry_avoided_nodes(self, workload: str) -> None:
        """The nodes that it kept away from may have room by now."""
        refusal = self.refusals.get(workload)
        if refusal is not None and refusal.avoided:
            self.refusals[workload] = refusal._replace(node="", avoided=())
            self._look_again(workload)

    def apply_to(self, workload: Workload | None) -> Workload | None:
        """The workload with what its refusals make of it: when it is tried again, and on which nodes it is not."""
        refusal = self.refusals.get(workload.name) if workload else None
        if workload is None or refusal is None:
            return workload
        waiting = replace(workload, not_before_s=refusal.until_s, not_before_why=refusal.why)
        if not refusal.avoided:
            return waiting
        away = NodeRule(NODE_NAME, "NotIn", refusal.avoided)
        return replace(waiting, roles=tuple(_with_rule(role, away) for role in workload.roles))

    def clear_refusals(self, workload: str) -> None:
        """A start went well, or the workload is gone: its refusals are forgotten."""
        if self.refusals.pop(workload, None) is not None:
            self._look_again(workload)

    def _look_again(self, workload: str) -> None:
        if workload in self._names.unit_of:
            self._roll.touch_unit(self._names.unit_of[workload])


def _with_rule(role: Role, rule: NodeRule) -> Role:
    return replace(role, request=replace(role.request, node_rules=(*role.request.node_rules, rule)))
