"""What a partition plan costs in sum."""

from kaiwo.gpus.partitioning.planner_types import PartitionPlan


def ready_in_s(plan: PartitionPlan) -> int:
    """Until the last change is done."""
    return max((step.waits_s + step.takes_s for step in plan.steps), default=0)
