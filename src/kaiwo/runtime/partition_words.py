"""What the partition planner has to say to somebody whose work waits.

In:    what the workload's pods ask for, the last look, the policy.   Out: one sentence, or none.
"""

from collections.abc import Iterable, Sequence

from kaiwo.gpus.demand import need_of
from kaiwo.gpus.fleet import Need, Step
from kaiwo.gpus.planner import could_serve
from kaiwo.gpus.sites import suits
from kaiwo.model.request import Request
from kaiwo.runtime.partitions import Partitions

SWITCH = "kaiwo partitions --policy on"


def said_for(partitions: Partitions, wants: Iterable[Request]) -> str:
    """Empty when modes have nothing to do with it."""
    needs = [need for want in wants if (need := need_of(want)) is not None]
    if partitions.policy == "off":
        return ""
    for need in needs:
        steps = [step for step in partitions.look.steps if suits(step.change.after, need)]
        changing = _changing(partitions, need)
        if steps or changing:
            return _plan(partitions, steps, changing)
        if _is_unserved(partitions, need):
            return "no change of partition modes that is allowed now would serve it: others wait for those GPUs too"
    return ""


def _plan(partitions: Partitions, steps: Sequence[Step], changing: int) -> str:
    if partitions.policy == "dry-run":
        where = f"let it with: {SWITCH if partitions.side is None else '--partitions on'}"
        return f"the partition planner would {_what(steps)}; the policy is dry-run: {where}"
    parts = [f"{_gpus(changing)} {'is' if changing == 1 else 'are'} being changed"] if changing else []
    idle, busy = [step for step in steps if step.is_due], [step for step in steps if not step.is_due]
    if idle:
        parts.append(f"{_gpus(len(idle))} will {_goal(idle)} in about {_time(idle[0].takes_s)}")
    if busy:
        wait_s = max(step.waits_s + step.takes_s for step in busy)
        closed = f"{_gpus(len(busy))} {_takes(len(busy))} no new work"
        parts.append(f"{closed} and will {_goal(busy)} when what runs there has ended, within {_time(wait_s)}")
    return f"for work like this, {'; '.join(parts)}"


def _what(steps: Sequence[Step]) -> str:
    wait_s = max(step.waits_s + step.takes_s for step in steps)
    nodes = sorted({step.node for step in steps})
    where = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
    return f"let {_gpus(len(steps))} of {where} {_goal(steps)}, ready within {_time(wait_s)}"


def _goal(steps: Sequence[Step]) -> str:
    change = steps[0].change
    return f"change from {change.before.compute} to {'+'.join(change.after)}"


def _changing(partitions: Partitions, need: Need) -> int:
    goals = [state.goal for state in partitions.following.states.values() if state.is_changing]
    return sum(1 for goal in goals if goal is not None and suits(goal, need))


def _is_unserved(partitions: Partitions, need: Need) -> bool:
    is_missing = any(
        (each.compute, each.memory, each.devices) == (need.compute, need.memory, need.devices)
        for each in partitions.look.unserved
    )
    in_mode = any(suits(gpu.mode, need) for node in partitions.look.nodes for gpu in node.gpus)
    return is_missing and not in_mode and could_serve(partitions.look.nodes, need)


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' if count > 1 else ''}"


def _takes(count: int) -> str:
    return "takes" if count == 1 else "take"


def _time(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{round(seconds / 60)} min" if seconds < 7200 else f"{round(seconds / 3600)} h"
