"""Plan what somebody wants some nodes to be, whoever waits for what.

In:    nodes with their modes and what runs there, the mode that each should have, the terms.   Out: steps, and why not.
Never: a change under a running pod, an illegal mode, or more nodes at a time than were allowed.
"""

from collections.abc import Mapping, Sequence

from kaiwo.gpus.partitioning.planner_types import GpuState, ModeChangeStep, NodeState, PlannerSettings
from kaiwo.model.partition_modes import Mode, ModeChange, next_modes


def steps_to_modes(
    nodes: Sequence[NodeState], modes: Mapping[str, Mode], most_nodes: int, terms: PlannerSettings
) -> list[ModeChangeStep]:
    """The changes that lead there: nodes that have begun go on, and others begin while fewer than `most_nodes` do."""
    mine = sorted((node for node in nodes if node.name in modes), key=lambda node: (not _has_begun(node), node.name))
    steps: list[ModeChangeStep] = []
    busy = 0
    for node in mine:
        found = node_steps(node, modes[node.name], terms)
        is_changing = any(gpu.is_changing for gpu in node.gpus)
        if (found or is_changing) and busy < most_nodes:
            busy += 1
            steps += found
    return steps


def node_steps(node: NodeState, mode: Mode, terms: PlannerSettings) -> list[ModeChangeStep]:
    """Every GPU that is not in the mode yet. With the memory mode the whole node waits for its last GPU."""
    if why_unreachable(node, mode):
        return []
    moving = [gpu for gpu in node.gpus if gpu.mode != mode and not gpu.is_changing]
    is_memory = any(gpu.mode.memory != mode.memory for gpu in moving)
    latest_s = max((_waits_s(gpu) for gpu in node.gpus), default=0) if is_memory else 0
    is_idle = not any(gpu.used or gpu.is_changing for gpu in node.gpus)
    takes_s = terms.memory_s if is_memory else terms.compute_s
    return [
        ModeChangeStep(
            node=node.name,
            change=ModeChange(gpu.id, gpu.mode, mode),
            is_due=is_idle if is_memory else not gpu.used,
            waits_s=max(latest_s, _waits_s(gpu)),
            takes_s=takes_s,
            idle_gpu_s=takes_s + gpu.idle_gpu_s + max(0, latest_s - _waits_s(gpu)),
        )
        for gpu in moving
    ]


def why_unreachable(node: NodeState, mode: Mode) -> str:
    """Why a node cannot be so; empty when it can."""
    for gpu in node.gpus:
        if mode not in next_modes(node.model, gpu.mode, node.platform):
            return f"{node.model} ({node.platform}) cannot go from {'+'.join(gpu.mode)} to {'+'.join(mode)}"
    return ""


def _has_begun(node: NodeState) -> bool:
    return any(gpu.is_changing or gpu.goal is not None for gpu in node.gpus)


def _waits_s(gpu: GpuState) -> int:
    return gpu.free_in_s if gpu.used else 0
