"""Say in one sentence what happens to a workload that lost pods to a failure."""

from kaiwo.model.amounts import count
from kaiwo.model.recovery import Recovery, RecoveryWay

NAMED = 3  # causes in a sentence


def recovery_sentence(recovery: Recovery) -> str:
    """`it lost 2 pods (node n-3): they start again on other nodes, and the other pods stay where they are`."""
    named = ", ".join(recovery.causes[:NAMED])
    more = f" and {len(recovery.causes) - NAMED} more" if len(recovery.causes) > NAMED else ""
    return f"it lost {count(len(recovery.lost), 'pod')} ({named}{more}): {_what_happens(recovery)}"


def _what_happens(recovery: Recovery) -> str:
    match recovery.way:
        case RecoveryWay.FENCE:
            until = "the failed nodes are fenced (taint node.kubernetes.io/out-of-service), deleted, or back"
            return f"they may still run there, so nothing replaces them until {until}"
        case RecoveryWay.REPLACE:
            return "they start again on other nodes, and the other pods stay where they are"
        case RecoveryWay.SWAP:
            moved = [count(len(recovery.moved), "other pod")] if recovery.moved else []
            others = [f"pods of {', '.join(recovery.others)}"] if recovery.others else []
            return f"{' and '.join([*moved, *others])} move to make room for them"
        case RecoveryWay.MOVE:
            return "all its pods move, since its domain has no room for them"
        case _:
            return "no place has room for them yet"
