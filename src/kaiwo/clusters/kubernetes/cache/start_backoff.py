"""From when on a workload may start: not at once after a refused start, or after a gang was stopped half-way."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.gang_index import GangIndex
from kaiwo.clusters.kubernetes.decode.pod_request import NODE_NAME
from kaiwo.clusters.kubernetes.gangs.gang import Gang
from kaiwo.clusters.plan_checks import back_off_s
from kaiwo.model.affinity import NodeRule
from kaiwo.model.workload import Phase, Pod, Role, Workload

FIRST_S, LONGEST_S = 60, 600
FORGET_AFTER_S = 3600  # without another stop
STOPPED_HALF_WAY = "its first pods were stopped, because those that come after them found no room in time"


class StartRefusal(NamedTuple):
    times: int  # in a row
    until_s: int
    why: str
    node: str = ""  # the node that had no room; empty: the refusal does not depend on the node
    avoided: tuple[str, ...] = ()  # nodes that had no room twice in a row: other nodes are tried


class StartBackoff:
    """Refused starts by workload. Each change touches the workload's unit."""

    def __init__(self, gang_index: GangIndex) -> None:
        self.refusals: dict[str, StartRefusal] = {}
        self._gang_index = gang_index

    def refuse(self, workload: str, now_s: int, why: str, node: str = "") -> bool:
        """Back off longer each time. True: from now on the workload avoids the node, until `retry_avoided_nodes`."""
        before = self.refusals.get(workload, StartRefusal(0, 0, ""))
        is_again = bool(node) and before.node == node
        avoided = (*before.avoided, node) if is_again else before.avoided
        until_s = now_s + back_off_s(before.times)
        self.refusals[workload] = StartRefusal(before.times + 1, until_s, why, node, avoided)
        self._gang_index.touch_workload(workload)
        return is_again

    def retry_avoided_nodes(self, workload: str) -> None:
        """Stop avoiding nodes: they may have room by now."""
        refusal = self.refusals.get(workload)
        if refusal is not None and refusal.avoided:
            self.refusals[workload] = refusal._replace(node="", avoided=())
            self._gang_index.touch_workload(workload)

    def clear(self, workload: str) -> None:
        """A start succeeded, or the workload is gone."""
        if self.refusals.pop(workload, None) is not None:
            self._gang_index.touch_workload(workload)

    def move_times(self, by_s: int) -> None:
        """The clock was set."""
        moved = {name: found._replace(until_s=max(1, found.until_s + by_s)) for name, found in self.refusals.items()}
        self.refusals.update(moved)

    def apply_to(self, workload: Workload | None) -> Workload | None:
        """The workload with the time before which it is not tried, and without the nodes that it avoids."""
        refusal = self.refusals.get(workload.name) if workload else None
        if workload is None or refusal is None:
            return workload
        waiting = replace(workload, not_before_s=refusal.until_s, not_before_why=refusal.why)
        if not refusal.avoided:
            return waiting
        avoid = NodeRule(NODE_NAME, "NotIn", refusal.avoided)
        return replace(waiting, roles=tuple(_with_rule(role, avoid) for role in workload.roles))


class ReleaseTimes:
    """When workloads that waited for something else (a gate, a hold, more pods) could start for the first time since.

    Only from then on do they wait for a place. Otherwise pods that were held for a day would be overdue when released.
    """

    def __init__(self) -> None:
        self._blocked: set[str] = set()
        self._released_s: dict[str, int] = {}

    def apply_to(self, name: str, workload: Workload | None, now_s: int) -> Workload | None:
        """`workload`: None while it cannot be tried."""
        if workload is None:
            self._blocked.add(name)
            return None
        if name in self._blocked:
            self._blocked.discard(name)
            self._released_s[name] = now_s
        since_s = self._released_s.get(name, 0)
        return workload if since_s <= workload.not_before_s else replace(workload, not_before_s=since_s)

    def move_times(self, by_s: int) -> None:
        """The clock was set."""
        self._released_s = {name: max(1, at_s + by_s) for name, at_s in self._released_s.items()}

    def clear(self, name: str) -> None:
        self._blocked.discard(name)
        self._released_s.pop(name, None)


class GangStops(NamedTuple):
    times: int  # in a row
    until_s: int


class GangBackoff:
    """Gangs whose first pods were stopped because the later ones found no room, by workload.

    An entry outlives the pods: their controller makes new ones at once.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, GangStops] = {}

    def record_stop(self, name: str, now_s: int) -> None:
        """Its running pods are stopped, because it was incomplete for too long."""
        known = {each: found for each, found in self._by_name.items() if now_s < found.until_s + FORGET_AFTER_S}
        times = known[name].times if name in known else 0
        known[name] = GangStops(times + 1, now_s + min(FIRST_S << min(times, 10), LONGEST_S))
        self._by_name = known

    def move_times(self, by_s: int) -> None:
        """The clock was set."""
        self._by_name = {
            name: found._replace(until_s=max(1, found.until_s + by_s)) for name, found in self._by_name.items()
        }

    def apply_to(self, workload: Workload, gang: Gang | None, holding: Sequence[Pod]) -> Workload:
        """The workload with the time before which it is not tried. A complete gang starts with a clean record."""
        found = self._by_name.get(workload.name)
        if found is None or gang is None:
            return workload
        if holding:
            running = sum(pod.phase is Phase.RUNNING for pod in holding)  # without those that are being stopped
            if running >= gang.minimum and not (gang.blocked_by or gang.later):
                del self._by_name[workload.name]
            return workload
        if not gang.later or gang.key.kind == "Job":  # the later pods of a Job come when others are done
            return workload
        until_s = max(workload.not_before_s, found.until_s)
        return replace(workload, not_before_s=until_s, not_before_why=STOPPED_HALF_WAY)


def _with_rule(role: Role, rule: NodeRule) -> Role:
    return replace(role, request=replace(role.request, node_rules=(*role.request.node_rules, rule)))
