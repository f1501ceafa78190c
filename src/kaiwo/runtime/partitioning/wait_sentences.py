"""What the partition planner is doing about one waiting workload, in one sentence.

In:    what the workload's pods ask for, the last look, the policy.   Out: one sentence, or none.
"""

from collections.abc import Iterable, Sequence

from kaiwo.gpus.partitioning.demand import demand_of
from kaiwo.gpus.partitioning.planner import could_serve
from kaiwo.gpus.partitioning.planner_state import suits
from kaiwo.gpus.partitioning.planner_types import ModeChangeStep, ModeDemand
from kaiwo.model.amounts import rounded_duration
from kaiwo.model.partition_modes import ModeChange
from kaiwo.model.request import Request
from kaiwo.runtime.partitioning.partitioning_loop import Partitions

SWITCH = "kaiwo partitions --policy on"


def said_for(partitions: Partitions, wants: Iterable[Request]) -> str:
    """Empty when modes do not matter to it, or when a change would not start it either."""
    if partitions.policy == "off":
        return ""
    for want in wants:
        needs = _like(partitions.look.needs, want)
        steps = [step for step in partitions.look.steps if _is_for_one(needs, step.node, step.change)]
        changing = _changing(partitions, needs)
        if steps or changing:
            return _plan(partitions, steps, changing)
        if _is_unserved(partitions, want):
            return "no partition change that is allowed now would help: other work is waiting for those GPUs too"
    return ""


def _like(needs: Iterable[ModeDemand], want: Request) -> list[ModeDemand]:
    """The planner's needs that ask for the same."""
    own = demand_of(want)
    if own is None:
        return []
    kind = (own.compute, own.memory, own.devices, own.models, own.is_share)
    return [each for each in needs if (each.compute, each.memory, each.devices, each.models, each.is_share) == kind]


def _is_for_one(needs: Iterable[ModeDemand], node: str, change: ModeChange) -> bool:
    return any(suits(change.after, need) and _may_use(need, node, change.gpu) for need in needs)


def _may_use(need: ModeDemand, node: str, gpu: str) -> bool:
    return (need.nodes is None or node in need.nodes) and (node, gpu) not in need.barred


def _plan(partitions: Partitions, steps: Sequence[ModeChangeStep], changing: int) -> str:
    if partitions.policy == "dry-run":
        switch = SWITCH if partitions.objects is None else "--partitions on"
        return f"the partition planner would {_what(steps)}; its policy is dry-run, allow changes with: {switch}"
    parts = [f"{_gpus(changing)} {'is' if changing == 1 else 'are'} being changed"] if changing else []
    idle, busy = [step for step in steps if step.is_due], [step for step in steps if not step.is_due]
    if idle:
        parts.append(f"{_gpus(len(idle))} will {_goal(idle)} in about {rounded_duration(idle[0].takes_s)}")
    if busy:
        wait_s = max(step.waits_s + step.takes_s for step in busy)
        closed = f"{_gpus(len(busy))} {_takes(len(busy))} no new work"
        parts.append(
            f"{closed} and will {_goal(busy)} when the work there has ended, within {rounded_duration(wait_s)}"
        )
    return f"for work like this, {'; '.join(parts)}"


def _what(steps: Sequence[ModeChangeStep]) -> str:
    wait_s = max(step.waits_s + step.takes_s for step in steps)
    nodes = sorted({step.node for step in steps})
    where = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
    return f"{_goal(steps, f'{_gpus(len(steps))} of {where} ')}, ready within {rounded_duration(wait_s)}"


def _goal(steps: Sequence[ModeChangeStep], what: str = "") -> str:
    before = " or ".join(sorted({step.change.before.compute for step in steps}))
    after = " or ".join(sorted({"+".join(step.change.after) for step in steps}))
    return f"change {what}from {before} to {after}"


def _changing(partitions: Partitions, needs: Sequence[ModeDemand]) -> int:
    changes = [
        (node, ModeChange(gpu, state.mode, state.goal))
        for (node, gpu), state in partitions.following.states.items()
        if state.is_changing and state.goal is not None
    ]
    return sum(1 for node, change in changes if _is_for_one(needs, node, change))


def _is_unserved(partitions: Partitions, want: Request) -> bool:
    look = partitions.look
    missing = _like(look.unserved, want)
    in_mode = any(
        suits(gpu.mode, need) and _may_use(need, node.name, gpu.id)
        for need in missing
        for node in look.nodes
        for gpu in node.gpus
    )
    return not in_mode and any(could_serve(look.nodes, need) for need in missing)


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' if count > 1 else ''}"


def _takes(count: int) -> str:
    return "takes" if count == 1 else "take"
