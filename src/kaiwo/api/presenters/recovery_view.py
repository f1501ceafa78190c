"""Present failures and recoveries."""

from collections.abc import Iterable

from kaiwo.api.views.recovery import FailureView, RecoveryItemView, RecoveryView, RestingNodeView
from kaiwo.decide.make_room.lost_pods import failed_domains
from kaiwo.explain.progress_sentences import node_speed
from kaiwo.explain.recovery_sentences import recovery_sentence
from kaiwo.model.node import Node
from kaiwo.model.recovery import FailureKind, Recovery
from kaiwo.runtime.loop.recovery_history import PastRecovery
from kaiwo.snapshot.cluster_state import ClusterState


def recovery_view(state: ClusterState, past: Iterable[PastRecovery], now_s: int) -> RecoveryView:
    state.refresh_tables()
    domains = failed_domains(state, state.nodes)
    failures = [each for name in sorted(state.failures.nodes) for each in _failures(state, name, domains.get(name, ""))]
    failures += [
        FailureView(FailureKind.NODE, name, "", "", since_s, True, "it is gone", _workloads(state, name))
        for name, since_s in sorted(state.failures.gone.items())
        if _workloads(state, name)
    ]
    resting = [
        RestingNodeView(name, state.node_objects[name].failure.times, until_s, resting_reason(state, name))
        for name, until_s in sorted(state.failures.resting.items())
    ]
    current = [_item(each, now_s, 0) for _, each in sorted(state.failures.recoveries.items())]
    ended = [_item(each.recovery, each.ended_s, each.ended_s, each.is_whole) for each in reversed(list(past))]
    return RecoveryView(now_s, failures, resting, current, ended)


def resting_reason(state: ClusterState, node: str) -> str:
    """Why it takes no work for a while."""
    if node in state.speeds.out:
        return f"it is slow: {node_speed(state, node)}"
    return f"it failed {state.node_objects[node].failure.times} times today, so it rests"


def recovery_note(state: ClusterState, workload: str) -> str:
    """What happens to a workload that lost pods; empty: it lost none."""
    recovery = state.failures.recoveries.get(workload)
    return recovery_sentence(recovery) if recovery is not None else ""


def _failures(state: ClusterState, name: str, domain: str) -> list[FailureView]:
    node: Node = state.node_objects[name]
    if node.failure.since_s:
        kind = FailureKind.DOMAIN if domain else FailureKind.NODE
        fenced, since_s = node.failure.is_fenced, node.failure.since_s
        return [FailureView(kind, name, "", domain, since_s, fenced, node.reason, _workloads(state, name))]
    return [
        FailureView(FailureKind.GPU, name, gpu.id, "", gpu.failed_s, True, gpu.reason, _workloads(state, name, gpu.id))
        for gpu in node.gpus
        if gpu.failed_s
    ]


def _workloads(state: ClusterState, node: str, gpu: str = "") -> list[str]:
    held = state.allocations_on.get(node, {}).values()
    return sorted({each.workload for each in held if not gpu or any(share.gpu == gpu for share in each.devices)})


def _item(recovery: Recovery, until_s: int, ended_s: int, is_whole: bool = False) -> RecoveryItemView:
    return RecoveryItemView(
        recovery.workload,
        recovery.kind,
        list(recovery.causes),
        recovery.way,
        recovery.since_s,
        max(0, until_s - recovery.since_s),
        ended_s,
        is_whole,
        list(recovery.lost),
        list(recovery.moved),
        list(recovery.others),
        recovery_sentence(recovery),
    )
