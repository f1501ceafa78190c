"""Where a change takes a whole node: all its GPUs are closed for it, and wait for the last one in use.

In:    the steps of a plan, the nodes.   Out: the same, with a step from its mode to the same for every other GPU.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from kaiwo.gpus.fleet import NodeNow, Step
from kaiwo.model.partitions import ModeChange


def whole_nodes(nodes: Sequence[NodeNow], steps: Sequence[Step], names: Collection[str]) -> list[Step]:
    """`names`: the nodes that change only as a whole."""
    found = [step for step in steps if step.node not in names]
    for node in nodes:
        mine = {step.change.gpu: step for step in steps if step.node == node.name} if node.name in names else {}
        if not mine:
            continue
        is_due = not any(gpu.used or gpu.is_changing for gpu in node.gpus)
        waits_s = max(gpu.free_in_s if gpu.used else 0 for gpu in node.gpus)
        takes_s = max(step.takes_s for step in mine.values())
        for gpu in node.gpus:
            step = mine.get(gpu.id) or Step(node.name, ModeChange(gpu.id, gpu.mode, gpu.mode), False)
            found.append(replace(step, is_due=is_due, waits_s=waits_s, takes_s=takes_s))
    return found
