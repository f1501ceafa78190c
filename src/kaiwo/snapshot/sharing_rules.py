"""The rules in use about who may share a GPU with whom, whose share each request and pod is, and how large it may be.

Requests name their tenant only as far as a rule in use asks for it. So clusters without rules have as few shapes as
before, and a rule about queues does not make a shape of every user's request. What has been in use once stays in use:
otherwise a workload that comes and goes would have all waiting work sorted again each time.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kaiwo.model.events import SharingRulesInUse
from kaiwo.model.gpus.gpu import (
    EQUALITIES,
    NO_LIMITS,
    NOBODY,
    WHOLE_MILLI,
    GpuTenant,
    ShareLimits,
    ShareRule,
    joined_rules,
    outside_tenant,
    rule_of_node,
)
from kaiwo.model.node import Node
from kaiwo.model.queue import Queue, queue_path, share_limits, thread_bound
from kaiwo.model.request import Request
from kaiwo.model.workload import RELEASING_PHASES, Pod, Workload
from kaiwo.snapshot.node_table import Allocation

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState


_LEAVING = GpuTenant((NOBODY,))  # the rules of work that is gone are unknown: nobody joins its pods while they stop


class SharingRules:
    def __init__(self) -> None:
        self.in_use: tuple[str, ...] = ()  # words of rules; empty: there has never been a rule
        self.everywhere: ShareRule = ()  # the policy's rule
        self.has_limits = False  # some queue bounds its shares, or has a default for them
        self._queue_rules: dict[str, ShareRule] = {}  # by queue, with those above it
        self._queue_limits: dict[str, ShareLimits] = {}

    def add(self, words: Iterable[str]) -> bool:
        """Whether one of these words was not in use before."""
        known = {*self.in_use, *words}
        is_new = len(known) > len(self.in_use)
        if is_new:
            self.in_use = tuple(word for word in (*EQUALITIES, NOBODY) if word in known)
        return is_new

    def follow_queues(self, queues: Mapping[str, Queue]) -> None:
        """A queue was added, changed or removed."""
        self._queue_rules, self._queue_limits = {}, {}
        self.has_limits = any(has_share_limits(queue) for queue in queues.values())

    def tenant(self, workload: Workload, own: ShareRule, queues: Mapping[str, Queue]) -> GpuTenant:
        rule = joined_rules((own, self.of_queue(workload.queue, queues), self.everywhere))
        used = self.in_use
        return GpuTenant(
            rule,
            workload.queue if "queue" in used else "",
            workload.name.partition("/")[0] if "namespace" in used else "",
            workload.user if "user" in used else "",
        )

    def holder(self, workload: Workload | None, held: Allocation, queues: Mapping[str, Queue]) -> GpuTenant:
        """Whose share a pod or nomination of this workload holds."""
        if workload is not None:
            return self.tenant(workload, held.share_with, queues)
        if isinstance(held, Pod) and held.phase in RELEASING_PHASES:
            return _LEAVING
        return outside_tenant(held.workload, joined_rules((held.share_with, self.everywhere)))

    def with_tenant(self, workload: Workload, request: Request, queues: Mapping[str, Queue]) -> Request:
        """The request of one of its roles, with its tenant and the limits of its shares where that matters."""
        if request.threads_milli:
            # Work that came in past the edge gets no more than its queue allows.
            request = replace(request, threads_milli=thread_bound(queues, workload.queue).capped(request))
        if not request.gpus or request.is_exclusive:
            return request
        if self.has_limits and (limits := self.limits_of(workload.queue, queues)) != NO_LIMITS:
            request = replace(request, limits=limits)
        if not self.in_use:
            return request
        return replace(request, tenant=self.tenant(workload, request.share_with, queues))

    def of_queue(self, name: str, queues: Mapping[str, Queue]) -> ShareRule:
        """The rules of a queue and of those above it together."""
        rule = self._queue_rules.get(name)
        if rule is None:
            rule = joined_rules(queue.share_with for queue in queue_path(queues, name))
            self._queue_rules[name] = rule
        return rule

    def limits_of(self, name: str, queues: Mapping[str, Queue]) -> ShareLimits:
        """What a queue and those above it say about each share of its work."""
        limits = self._queue_limits.get(name)
        if limits is None:
            limits = self._queue_limits[name] = share_limits(queues, name)
        return limits

    def copy(self) -> "SharingRules":
        other = SharingRules()
        other.in_use, other.everywhere, other.has_limits = self.in_use, self.everywhere, self.has_limits
        other._queue_rules, other._queue_limits = dict(self._queue_rules), dict(self._queue_limits)
        return other


def has_share_limits(queue: Queue) -> bool:
    return _limits_as_written(queue) != (0, 0, 0)


def _limits_as_written(queue: Queue | None) -> tuple[int, int, int]:
    if queue is None:
        return 0, 0, 0
    return queue.max_threads_milli, queue.default_threads_milli, queue.max_share_mib


def tenant_of(state: "ClusterState", held: Allocation) -> GpuTenant | None:
    """Whose share of a GPU a pod or nomination holds; None if it holds none, or no rule is in use."""
    if not state.sharing.in_use or all(share.milli >= WHOLE_MILLI for share in held.devices):
        return None
    return state.sharing.holder(state.workloads.get(held.workload), held, state.queue_objects)


def rules_of_policy_changed(state: "ClusterState", event: SharingRulesInUse) -> None:
    is_other = state.sharing.everywhere != event.everywhere
    state.sharing.everywhere = event.everywhere
    use_rules(state, (*event.words, *event.everywhere), is_other)


def rules_of_queue_changed(state: "ClusterState", before: Queue | None, after: Queue | None) -> None:
    old, new = ((each.share_with, each.parent) if each else ((), "") for each in (before, after))
    has_other_limits = _limits_as_written(before) != _limits_as_written(after)
    state.sharing.follow_queues(state.queue_objects)
    has_other_rule = old != new and bool(state.sharing.in_use or new[0])
    has_moved = old[1] != new[1] and state.sharing.has_limits
    use_rules(state, new[0], has_other_rule or has_moved or has_other_limits)


def rules_of_node_changed(state: "ClusterState", node: Node) -> None:
    if rule := rule_of_node(node.labels):
        use_rules(state, rule)


def rules_of_workload_changed(state: "ClusterState", workload: Workload) -> None:
    for role in workload.roles:
        if role.request.share_with:
            use_rules(state, role.request.share_with)


def use_rules(state: "ClusterState", words: Iterable[str], is_other: bool = False) -> None:
    """From now on these words count. Where that is new, or a rule of many changed, all shares are looked at again."""
    if not state.sharing.add(words) and not is_other:
        return
    state.nodes_stale = True
    state.retry_all_classes()
    for name in state.backlog.queued_names():
        if any(role.request.gpus and not role.request.is_exclusive for role in state.workloads[name].roles):
            state.to_requeue[name] = None
