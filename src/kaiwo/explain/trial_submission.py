"""Say what would happen to work that is not submitted yet: whether it starts now, whom it stops, or why it waits.

In:    the cluster state, and workloads.   Out: one outcome for each, as `decide` would have it.
Never: changes the state; cycles run on a fork.
"""

from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.decide.cycle import BUILTIN, decide
from kaiwo.explain.changes_that_evict import CYCLES, MAX_STEPS, after_plan
from kaiwo.explain.obstacle_order import in_order_of_telling
from kaiwo.explain.obstacle_sentences import sentence
from kaiwo.explain.why import obstacles_of
from kaiwo.model.events import WorkloadChanged
from kaiwo.model.obstacle import Reason
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.cluster_state import ClusterState


class TrialSubmission(NamedTuple):
    """What would happen to one workload."""

    workload: str
    nodes: tuple[str, ...]  # where it would start now; empty: it would wait
    stopped: tuple[str, ...]  # the workloads that would be stopped for it
    reason: str  # why it would wait


def try_submission(
    state: ClusterState, workloads: list[Workload], policy: Policy, now_s: int, plugins: Registry = BUILTIN
) -> list[TrialSubmission]:
    """The next cycles after the submission, in which evicted work is gone at once."""
    fork, short = state.fork(), replace(policy, steps=min(policy.steps, MAX_STEPS))
    fork.patch([WorkloadChanged(each) for each in workloads])
    names = [each.name for each in workloads]
    stopped: dict[str, dict[str, None]] = {name: {} for name in names}
    for _ in range(CYCLES):
        plan = decide(fork.snapshot(now_s), short, plugins)
        for each in plan.evictions:
            if each.beneficiary in stopped:
                stopped[each.beneficiary][each.workload] = None
        fork = after_plan(fork, plan, now_s)
        if not plan.starts and not plan.evictions and not plan.unfinished:
            break
    found = []
    for name in names:
        nodes = tuple(sorted({pod.node for pod in fork.pods.get(name, {}).values()}))
        obstacles = () if nodes else in_order_of_telling(obstacles_of(fork, name, policy, now_s, plugins))
        is_known = obstacles and obstacles[0].reason is not Reason.NOT_TRIED
        reason = sentence(obstacles[0]) if is_known else "" if nodes else "it would not be tried at once"
        found.append(TrialSubmission(name, nodes, tuple(stopped[name]), reason))
    return found
