"""The rules in use about who may share a GPU with whom, and whose share each request and pod is.

Requests name their tenant only as far as a rule in use asks for it. So clusters without rules have as few shapes as
before, and a rule about queues does not make a shape of every user's request. What has been in use once stays in use:
otherwise a workload that comes and goes would have all waiting work sorted again each time.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kaiwo.model.events import SharingRulesInUse
from kaiwo.model.gpu import (
    EQUALITIES,
    NOBODY,
    WHOLE_MILLI,
    GpuTenant,
    ShareRule,
    joined_rules,
    outside_tenant,
    rule_of_node,
)
from kaiwo.model.node import Node
from kaiwo.model.queue import Queue, queue_path, thread_bound
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
        self._queue_rules: dict[str, ShareRule] = {}  # by queue, with those above it

    def add(self, words: Iterable[str]) -> bool:
        """Whether one of these words was not in use before."""
        known = {*self.in_use, *words}
        is_new = len(known) > len(self.in_use)
        if is_new:
            self.in_use = tuple(word for word in (*EQUALITIES, NOBODY) if word in known)
        return is_new

    def forget_queues(self) -> None:
        self._queue_rules = {}

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
        """The request of one of its roles, with its tenant where that matters, and within the bound on its threads."""
        if request.threads_milli:
            # Work that came in past the edge gets no more than its queue allows.
            request = replace(request, threads_milli=thread_bound(queues, workload.queue).capped(request))
        if not self.in_use or not request.gpus or request.is_exclusive:
            return request
        return replace(request, tenant=self.tenant(workload, request.share_with, queues))

    def of_queue(self, name: str, queues: Mapping[str, Queue]) -> ShareRule:
        """The rules of a queue and of those above it together."""
        rule = self._queue_rules.get(name)
        if rule is None:
            rule = joined_rules(queue.share_with for queue in queue_path(queues, name))
            self._queue_rules[name] = rule
        return rule

    def copy(self) -> "SharingRules":
        other = SharingRules()
        other.in_use, other.everywhere, other._queue_rules = self.in_use, self.everywhere, dict(self._queue_rules)
        return other


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
    bounds = [each.max_threads_milli if each is not None else 0 for each in (before, after)]
    state.sharing.forget_queues()
    has_other_rule = old != new and bool(state.sharing.in_use or new[0])
    has_moved = old[1] != new[1] and any(queue.max_threads_milli for queue in state.queue_objects.values())
    use_rules(state, new[0], has_other_rule or has_moved or bounds[0] != bounds[1])


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
