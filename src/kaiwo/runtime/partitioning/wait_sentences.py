"""Say in one sentence what the partition planner does for a waiting workload."""

from collections.abc import Iterable, Sequence

from kaiwo.gpus.partitioning.demand import demand_of
from kaiwo.gpus.partitioning.planner import could_serve
from kaiwo.gpus.partitioning.planner_state import suits
from kaiwo.gpus.partitioning.planner_types import ModeChangeStep, ModeDemand
from kaiwo.model.amounts import rounded_duration
from kaiwo.model.gpus.partition_modes import ModeChange
from kaiwo.model.request import Request
from kaiwo.runtime.partitioning.partitioning_loop import PartitioningLoop

SWITCH = "kaiwo partitions --policy on"


def wait_sentence(partitions: PartitioningLoop, wants: Iterable[Request]) -> str:
    """The sentence; empty if modes do not matter to the workload, or no change would start it."""
    if partitions.policy == "off":
        return ""
    for want in wants:
        demands = _same_demands(partitions.planned.demands, want)
        steps = [step for step in partitions.planned.steps if _serves_any(demands, step.node, step.change)]
        changing = sum(
            _serves_any(demands, node, ModeChange(gpu, state.mode, state.goal))
            for (node, gpu), state in partitions.changer.states.items()
            if state.is_changing and state.goal is not None
        )
        if steps or changing:
            return _plan_sentence(partitions, steps, changing)
        if _is_unserved(partitions, want):
            return "no partition change that is allowed now would help: other work is waiting for those GPUs too"
    return ""


def _same_demands(demands: Iterable[ModeDemand], want: Request) -> list[ModeDemand]:
    own = demand_of(want)
    if own is None:
        return []
    kind = (own.compute, own.memory, own.devices, own.models, own.is_share)
    return [each for each in demands if (each.compute, each.memory, each.devices, each.models, each.is_share) == kind]


def _serves_any(demands: Iterable[ModeDemand], node: str, change: ModeChange) -> bool:
    return any(suits(change.after, demand) and _may_use(demand, node, change.gpu) for demand in demands)


def _may_use(demand: ModeDemand, node: str, gpu: str) -> bool:
    return (demand.nodes is None or node in demand.nodes) and (node, gpu) not in demand.barred


def _plan_sentence(partitions: PartitioningLoop, steps: Sequence[ModeChangeStep], changing: int) -> str:
    if partitions.policy == "dry-run":
        wait_s = max(step.waits_s + step.takes_s for step in steps)
        nodes = sorted({step.node for step in steps})
        where = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
        goal = _goal(steps, f"{_gpus(len(steps))} of {where} ")
        switch = SWITCH if partitions.objects is None else "--partitions on"
        return (
            f"the partition planner would {goal}, ready within {rounded_duration(wait_s)}; "
            f"its policy is dry-run, allow changes with: {switch}"
        )
    parts = [f"{_gpus(changing)} {'is' if changing == 1 else 'are'} being changed"] if changing else []
    idle, busy = [step for step in steps if step.is_due], [step for step in steps if not step.is_due]
    if idle:
        parts.append(f"{_gpus(len(idle))} will {_goal(idle)} in about {rounded_duration(idle[0].takes_s)}")
    if busy:
        wait_s = max(step.waits_s + step.takes_s for step in busy)
        closed = f"{_gpus(len(busy))} {'takes' if len(busy) == 1 else 'take'} no new work"
        parts.append(
            f"{closed} and will {_goal(busy)} when the work there has ended, within {rounded_duration(wait_s)}"
        )
    return f"for work like this, {'; '.join(parts)}"


def _goal(steps: Sequence[ModeChangeStep], what: str = "") -> str:
    before = " or ".join(sorted({step.change.before.compute for step in steps}))
    after = " or ".join(sorted({step.change.after.profile for step in steps}))
    return f"change {what}from {before} to {after}"


def _is_unserved(partitions: PartitioningLoop, want: Request) -> bool:
    planned = partitions.planned
    missing = _same_demands(planned.unserved, want)
    in_mode = any(
        suits(gpu.mode, demand) and _may_use(demand, node.name, gpu.id)
        for demand in missing
        for node in planned.nodes
        for gpu in node.gpus
    )
    return not in_mode and any(could_serve(planned.nodes, demand) for demand in missing)


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' if count > 1 else ''}"
