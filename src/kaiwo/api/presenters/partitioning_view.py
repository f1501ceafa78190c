"""Show what the partition planner plans, is changing and has done."""

from kaiwo.api.views.partitions import PartitionStepView, PartitionsView, PlanNodeView, PlanView
from kaiwo.devices.amd.device_config_manager import OPT_IN
from kaiwo.gpus.partitioning.planner_types import ModeChangeStep, ModeDemand
from kaiwo.model.amounts import count
from kaiwo.model.gpus.partition_modes import WHOLE_MODE
from kaiwo.runtime.partitioning.partitioning_loop import PartitioningLoop

MAX_STEPS = 1000


def partitions_view(partitions: PartitioningLoop) -> PartitionsView:
    """The GPUs that are changing come first."""
    planned, running = partitions.planned, []
    for (node, gpu), state in sorted(partitions.changer.states.items()):
        if state.is_changing and state.goal is not None:
            running.append(PartitionStepView(node, gpu, state.mode.profile, state.goal.profile, "changing"))
    steps = [*running, *(_step(partitions, step) for step in planned.steps)]
    return PartitionsView(
        policy=partitions.policy,
        carried_out_by=_executor(partitions),
        as_of_s=planned.at_s,
        steps=steps[:MAX_STEPS],
        total=len(steps),
        idle_gpu_s=sum(step.idle_gpu_s for step in planned.steps),
        unserved=[_need(need) for need in planned.unserved],
        plans=[_plan(partitions, name) for name in sorted(partitions.plans)],
        conflicts=list(planned.conflicts),
        history=[
            PartitionStepView(
                each.node, each.change.gpu, each.change.before.profile, each.change.after.profile, each.status,
                at_s=each.at_s, reason=each.reason,
            )
            for each in partitions.changer.history
        ],
    )  # fmt: skip


def _step(partitions: PartitioningLoop, step: ModeChangeStep) -> PartitionStepView:
    state = "planned" if partitions.policy == "dry-run" else "due" if step.is_due else "draining"
    change = step.change
    return PartitionStepView(
        step.node, change.gpu, change.before.profile, change.after.profile, state, step.waits_s, step.takes_s,
        step.idle_gpu_s,
    )  # fmt: skip


def _executor(partitions: PartitioningLoop) -> str:
    if partitions.objects is not None:
        return f"AMD's Device Config Manager, on nodes with the label {'='.join(OPT_IN)}"
    if partitions.changer.machine is not None:
        return partitions.changer.machine.description
    return "emulation, because the nodes are virtual"


def _need(need: ModeDemand) -> str:
    if need.is_share:
        gpus = need.count * need.devices  # the GPUs that hold all shares together
        return f"shares of GPUs, which need {count(gpus, 'GPU')} that {'is' if gpus == 1 else 'are'} not partitioned"
    mode = f"{need.compute}{f'+{need.memory}' * bool(need.memory)}"
    kind = "whole GPU" if need.compute == WHOLE_MODE else f"{mode} partition"
    return f"{count(need.count, 'pod')} with {count(need.devices, kind)} each"


def _plan(partitions: PartitioningLoop, name: str) -> PlanView:
    plan = partitions.plans[name]
    state = "paused" if plan.is_paused else "dry-run" if plan.is_dry else partitions.policy
    nodes = [each for each in partitions.planned.statuses if each.plan == name]
    return PlanView(name, state, [PlanNodeView(each.node, each.profile, each.state, each.reason) for each in nodes])
