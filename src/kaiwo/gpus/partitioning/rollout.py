"""Carry out a partition plan: which GPUs are closed to new work, which change now, and what their node shows meanwhile.

The caller closes the devices, makes the changes, and reports each one when it is done.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from kaiwo.gpus.partitioning.demand import GpuModeState, mode_of
from kaiwo.gpus.partitioning.pending_mode_change import close_for_change, reopen
from kaiwo.gpus.partitioning.planner_types import UNKNOWN_S, GpuKey, ModeChangeStep, NodeState, PartitionPlan
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.partition_modes import ModeChange, partition_gpu
from kaiwo.model.node import Node


def states_after(nodes: Sequence[NodeState], plan: PartitionPlan) -> dict[GpuKey, GpuModeState]:
    """The changes in progress from now on. A GPU that is no longer in the plan is open again."""
    steps = {(step.node, step.change.gpu): step for step in plan.steps}
    states = {}
    for node in nodes:
        for gpu in node.gpus:
            key = (node.name, gpu.id)
            step = steps.get(key)
            if gpu.is_changing:
                states[key] = GpuModeState(node.model, gpu.mode, gpu.since_s, gpu.goal, is_changing=True)
            elif step is not None:
                states[key] = GpuModeState(node.model, gpu.mode, gpu.since_s, step.change.after, step.is_due)
            elif gpu.since_s > -UNKNOWN_S:
                states[key] = GpuModeState(node.model, gpu.mode, gpu.since_s)
    return states


def changes_starting(before: Mapping[GpuKey, GpuModeState], after: Mapping[GpuKey, GpuModeState]) -> list[GpuKey]:
    known = {key for key, state in before.items() if state.is_changing}
    return sorted(key for key, state in after.items() if state.is_changing and key not in known)


def change_done(state: GpuModeState, now_s: int) -> GpuModeState:
    return GpuModeState(state.model, state.goal or state.mode, now_s)


def with_closed_devices(node: Node, states: Mapping[GpuKey, GpuModeState]) -> Node:
    """The node with the devices of changing or draining GPUs closed to new work."""
    devices = []
    for gpu in node.gpus:
        state = states.get((node.name, gpu.parent or gpu.id))
        if state is not None and state.goal is not None:
            gpu = close_for_change(gpu, state.goal, state.is_changing)
        devices.append(gpu)
    return replace(node, gpus=tuple(devices))


def with_modes_applied(node: Node, states: Mapping[GpuKey, GpuModeState], sizes: Mapping[GpuKey, int]) -> Node:
    """The node with every GPU in its planned mode, for virtual nodes.

    `sizes`: MiB of whole GPUs, since a changing GPU may show no device.
    """
    shown: dict[str, list[Gpu]] = {}
    for gpu in map(reopen, node.gpus):
        shown.setdefault(gpu.parent or gpu.id, []).append(gpu)
    for name, gpu_id in states:
        if name == node.name:
            shown.setdefault(gpu_id, [])
    devices: list[Gpu] = []
    for gpu_id in sorted(shown, key=_numbered):
        state, parts = states.get((node.name, gpu_id)), shown[gpu_id]
        if state is not None and (not parts or mode_of(parts[0]) != state.mode):
            parts = list(partition_gpu(Gpu(gpu_id, state.model, sizes[node.name, gpu_id]), state.mode))
        devices += parts
    return with_closed_devices(replace(node, gpus=tuple(devices)), states)


def whole_gpu_mib(node: Node, gpu: str) -> int:
    return sum(device.memory_mib for device in node.gpus if gpu in (device.id, device.parent))


def changed_nodes(before: Mapping[GpuKey, GpuModeState], after: Mapping[GpuKey, GpuModeState]) -> list[str]:
    keys: Iterable[GpuKey] = {*before, *after}
    return sorted({key[0] for key in keys if _visible_state(before.get(key)) != _visible_state(after.get(key))})


def _numbered(name: str) -> tuple[tuple[int, str], ...]:
    """gpu-2 before gpu-10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))


def _visible_state(state: GpuModeState | None) -> tuple[object, bool]:
    return (None, False) if state is None else (state.goal, state.is_changing)


def whole_node_steps(
    nodes: Sequence[NodeState], steps: Sequence[ModeChangeStep], names: Collection[str]
) -> list[ModeChangeStep]:
    """Extend the steps on nodes in `names`, which change as a whole: all their GPUs wait for the last one in use."""
    found = [step for step in steps if step.node not in names]
    for node in nodes:
        mine = {step.change.gpu: step for step in steps if step.node == node.name} if node.name in names else {}
        if not mine:
            continue
        is_due = not any(gpu.used or gpu.is_changing for gpu in node.gpus)
        waits_s = max(gpu.waits_s for gpu in node.gpus)
        takes_s = max(step.takes_s for step in mine.values())
        for gpu in node.gpus:
            step = mine.get(gpu.id) or ModeChangeStep(node.name, ModeChange(gpu.id, gpu.mode, gpu.mode), False)
            found.append(replace(step, is_due=is_due, waits_s=waits_s, takes_s=takes_s))
    return found
