"""Check the starts and evictions of a plan against what a cluster knows now: the plan may be a moment old.

Never starts only a part of a gang, or evicts a part of a gang that cannot run without it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from kaiwo.clusters.ledger import Ledger, Misfit
from kaiwo.model.amounts import memory, thousandths
from kaiwo.model.events import Event, NominationGone, PodChanged, PodGone, WorkloadGone
from kaiwo.model.gpus.gpu import (
    WHOLE_MILLI,
    GpuTenant,
    Share,
    ShareLimits,
    joined_rules,
    may_share,
    most_share_mib,
    outside_tenant,
    rule_of_node,
)
from kaiwo.model.node import Node
from kaiwo.model.plan import Eviction, EvictionCause, Nomination, Plan, Start
from kaiwo.model.queue import Queue, queue_path, share_limits
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod, Role, Workload, breaks_gang, pod_index, pod_name, role_name

STILL_STOPPING = "its former pods are still stopping"
LONGEST_BACK_OFF_S = 60
Item = TypeVar("Item", Start, Eviction, Nomination)


class CheckedStarts(NamedTuple):
    starts: Sequence[Start]
    events: Sequence[Event]  # what the scheduler must learn first


class CheckedEvictions(NamedTuple):
    pods: Sequence[str]
    events: Sequence[Event]  # what the scheduler must learn first
    is_whole: bool  # nothing of the workload keeps running


def by_workload(items: Iterable[Item]) -> dict[str, list[Item]]:
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.workload, []).append(item)
    return groups


def check_starts(name: str, is_known: bool, starts: Sequence[Start], placed: Mapping[str, Pod]) -> CheckedStarts:
    """Leave out pods that are already placed, and workloads that are gone."""
    if not is_known:
        return CheckedStarts((), (*(PodGone(name, start.pod) for start in starts), WorkloadGone(name)))
    # The scheduler believed that these pods were waiting: the events correct that.
    events = [PodChanged(placed[start.pod]) for start in starts if start.pod in placed]
    return CheckedStarts(tuple({start.pod: start for start in starts if start.pod not in placed}.values()), events)


def check_devices(workload: Workload, start: Start, queues: Mapping[str, Queue]) -> Role | Misfit:
    """The role of the pod that a start names, if that pod exists and is given what its role and its queue allow."""
    name = role_name(start.pod)
    role = next((role for role in workload.roles if role.name == name), None)
    if role is None or not 0 <= (index := pod_index(start.pod)) < role.count or pod_name(role, index) != start.pod:
        return Misfit("", f"it has no pod {start.pod}")
    wrong = _device_mismatch(role.request, start.devices, share_limits(queues, workload.queue))
    return Misfit("", f"pod {start.pod}: {wrong}") if wrong else role


class Owners(NamedTuple):
    """Whose the pods are: what rules about sharing a GPU depend on."""

    workload: Callable[[str], Workload | None]
    queues: Mapping[str, Queue]

    def tenant(self, pod: Pod) -> GpuTenant:
        workload = self.workload(pod.workload)
        if workload is None:
            return outside_tenant(pod.workload, pod.share_with)
        rule = joined_rules((pod.share_with, *(q.share_with for q in queue_path(self.queues, workload.queue))))
        return GpuTenant(rule, workload.queue, workload.name.partition("/")[0], workload.user)


def find_misfit(
    workload: Workload,
    starting: Sequence[Pod],
    placed: Iterable[Pod],
    nodes: Mapping[str, Node],
    ledger: Ledger,
    owners: Owners,
) -> Misfit | None:
    """Why these pods cannot start now, in addition to those that are already placed."""
    if workload.held:
        return Misfit("", "it is held")
    if workload.after or workload.after_failed:
        return Misfit("", f"it waits for {(workload.after + workload.after_failed)[0]}")
    staying = [pod.name for pod in placed if pod.phase is not Phase.RELEASING]
    if breaks_gang(workload, [*staying, *(pod.name for pod in starting)]):
        return Misfit("", "the plan starts only a part of its pods")
    return ledger.first_misfit(nodes, starting) or _sharing_misfit(starting, nodes, ledger, owners)


def _sharing_misfit(
    starting: Sequence[Pod], nodes: Mapping[str, Node], ledger: Ledger, owners: Owners
) -> Misfit | None:
    """The first of these pods that may not share a GPU with the pods that have shares of it, or with those before."""
    before: dict[tuple[str, str], list[Pod]] = {}
    for pod in starting:
        for share in pod.devices:
            if share.milli >= WHOLE_MILLI:
                continue
            if share.mib > (most := most_share_mib(nodes[pod.node].labels)) and not _is_partition(
                nodes[pod.node], share
            ):
                given, allowed = memory(share.mib, most), memory(most, share.mib)
                return Misfit(pod.node, f"a share of {given} of {share.gpu} is more than {pod.node} allows: {allowed}")
            others = before.setdefault((pod.node, share.gpu), list(ledger.pods_sharing(pod.node, share.gpu)))
            node_rule = rule_of_node(nodes[pod.node].labels) if others else ()
            mine = owners.tenant(pod) if others else None
            if mine is not None and not all(may_share(mine, owners.tenant(other), node_rule) for other in others):
                return Misfit(pod.node, f"others use {share.gpu} of node {pod.node}, with whom it may not share a GPU")
            others.append(pod)
    return None


def _is_partition(node: Node, share: Share) -> bool:
    return any(gpu.id == share.gpu and gpu.parent for gpu in node.gpus)


class RenamedPlan(NamedTuple):
    plan: Plan
    events: Sequence[Event]  # what the scheduler must learn first


def follow_renamed_pods(plan: Plan, pods: Mapping[str, Mapping[str, Pod]]) -> RenamedPlan:
    """The plan with the names that its pods have now; without those that are gone. `pods`: by workload and name.

    When a pod of a gang leaves, another may get its name. An eviction that was decided before is about the pod at the
    place that the decision saw: a recovery once stopped the healthy pod of a gang whose other node had failed.
    """
    moved: dict[tuple[str, str], str] = {}
    for each in plan.evictions:
        own = pods.get(each.workload, {})
        if each.node and not (each.pod in own and _is_at(own[each.pod], each)):
            moved[each.workload, each.pod] = next((name for name in sorted(own) if _is_at(own[name], each)), "")
    if not moved:
        return RenamedPlan(plan, ())
    events = list[Event]()
    for name, pod in moved:
        now = pods.get(name, {}).get(pod)
        events.append(PodGone(name, pod) if now is None else PodChanged(now))
    kept = [each for each in plan.nominations if (each.workload, each.pod) in moved]
    events += [NominationGone(each.workload, each.pod) for each in kept]
    return RenamedPlan(
        replace(plan, evictions=_renamed(plan.evictions, moved), nominations=_renamed(plan.nominations, moved)), events
    )


def _renamed(items: Sequence[Item], moved: Mapping[tuple[str, str], str]) -> tuple[Item, ...]:
    named = ((each, moved.get((each.workload, each.pod), each.pod)) for each in items)
    return tuple(each if each.pod == name else replace(each, pod=name) for each, name in named if name)


def _is_at(pod: Pod, seen: Eviction) -> bool:
    return pod.node == seen.node and pod.devices == seen.devices


def check_evictions(
    name: str, workload: Workload | None, pods: Sequence[str], placed: Mapping[str, Pod], only_named: bool = False
) -> CheckedEvictions:
    """These pods, or all pods of the workload when it cannot continue without them.

    `only_named`: the others wait for the replacements of these.
    """
    events = [PodGone(name, pod) for pod in pods if pod not in placed]
    leaving = [pod for pod in pods if pod in placed and is_up(placed[pod])]
    if workload is None or not leaving:
        return CheckedEvictions((), events, False)
    named = set(leaving)
    staying = [slot for slot, pod in placed.items() if slot not in named and pod.phase is not Phase.RELEASING]
    breaks = not only_named and breaks_gang(workload, staying)
    is_whole = breaks or not any(is_up(placed[slot]) for slot in staying)
    if is_whole:
        leaving = [slot for slot, pod in placed.items() if is_up(pod)]
    return CheckedEvictions(leaving, events, is_whole)


def stops_only_named(evictions: Sequence[Eviction]) -> bool:
    """A recovery, or a move, stops only the pods that it names, even of a gang."""
    return all(each.cause in (EvictionCause.RECOVERY, EvictionCause.DEFRAGMENT) for each in evictions)


def is_up(pod: Pod) -> bool:
    """Whether it is starting or running, and not being stopped."""
    return pod.phase in (Phase.ASSUMED, Phase.RUNNING)


def eviction_sentence(eviction: Eviction, beneficiary: Workload | None) -> str:
    """Why it was stopped, and for whom. `beneficiary`: the workload that the eviction names, where it still exists."""
    if eviction.cause is EvictionCause.FOREIGN_BINDING:
        return "stopped by the scheduler: somebody else bound it to its node; leave nodeName and Bindings to Kaiwo"
    if eviction.cause is EvictionCause.DEFRAGMENT:
        return f"moved by the scheduler{f', to make room for {eviction.beneficiary}' if eviction.beneficiary else ''}"
    whom = f" for {eviction.beneficiary}" if eviction.beneficiary else ""
    if beneficiary is not None:
        whom += f"{f' of {beneficiary.user}' if beneficiary.user else ''}, queue {beneficiary.queue}"
    return f"stopped by the scheduler ({eviction.cause}{whom})"


def back_off_s(times: int) -> int:
    """1, 2, 4 ... 60 seconds. `times`: how many attempts in a row had failed before this one."""
    return min(1 << min(times, 10), LONGEST_BACK_OFF_S)


def _device_mismatch(request: Request, devices: Sequence[Share], limits: ShareLimits) -> str:
    if len(devices) != request.gpus or len({share.gpu for share in devices}) != request.gpus:
        return f"it asks for {request.gpus} devices and was given {len(devices)}"
    for share in devices:
        if share.milli < 0 or share.mib < 0:
            return f"a share of {share.gpu} is below zero"
        # Without a number of its own it may have the default of its queue or of the node.
        allowed = max(request.fraction_milli or share.milli, limits.max_threads_milli)
        if share.threads_milli > min(request.threads_milli or allowed, allowed):
            return f"it was given more threads of {share.gpu} than it asks for and its queue allows"
        if not request.is_exclusive and share.mib > limits.max_mib:
            most, given = memory(limits.max_mib, share.mib), memory(share.mib, limits.max_mib)
            return f"it was given {given} of {share.gpu}, and queue {limits.queue} allows at most {most} for one share"
        if request.is_memory and share.mib < request.gpu_mib:
            asked, given = memory(request.gpu_mib, share.mib), memory(share.mib, request.gpu_mib)
            return f"it asks for {asked} of each device and was given {given}"
        is_less = request.is_memory and share.milli < request.fraction_milli
        if is_less or ((request.is_whole or request.is_fraction) and share.milli != request.gpu_milli):
            asked, given = thousandths(request.gpu_milli), thousandths(share.milli)
            return f"it asks for a share of {asked} of each device and was given {given}"
    return ""
