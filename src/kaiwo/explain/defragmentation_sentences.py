"""Say why work is not moved, and why a step of moves was not made."""

from kaiwo.model.amounts import count
from kaiwo.model.defragmentation import DefragmentationGoal, GoalKind, KeptReason, SkipReason

KEPT = {
    KeptReason.NOT_PREEMPTIBLE: "it is not preemptible",
    KeptReason.DISRUPTION_BUDGET: "a disruption budget protects it",
    KeptReason.NOT_REPLACED: "no controller would start it again",
    KeptReason.PROTECTED: "its minimum run time, its near end or a plugin protects it",
    KeptReason.OVERDUE: "it waited too long before it started, and may run for a while",
    KeptReason.RECOVERING: "it recovers from a failure",
    KeptReason.IN_TRANSIT: "it is starting, stopping or moving",
    KeptReason.RESERVATION: "it runs on reserved GPUs",
    KeptReason.BANDWIDTH: "it asked for bandwidth, which depends on all its places together",
}
SKIPPED = {
    SkipReason.NOT_NEEDED: "it is not needed any more: who was to get the room has gone, started or has room",
    SkipReason.NO_ROOM: "its places are used by others by now",
    SkipReason.PROTECTED: "a pod of it may not be stopped now",
    SkipReason.REFUSED: "the cluster did not evict a pod of it",
    SkipReason.TOO_MANY_AT_ONCE: "its pods change places with each other, which is more at once than the policy allows",
    SkipReason.ABORTED: "the run was aborted",
}


def goal_sentence(goal: DefragmentationGoal) -> str:
    match goal.kind:
        case GoalKind.WORKLOAD:
            return f"room for {goal.workload}"
        case GoalKind.NODES:
            return f"{count(goal.nodes, 'node')} without work"
        case GoalKind.BALANCE:
            return "even load on all nodes"
        case _:
            return "room for waiting work"
