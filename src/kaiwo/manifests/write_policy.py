"""Write a policy as the fields of a policy file, and compare two of them.

In:    a Policy.   Out: what `read_policy` reads as the same policy; only fields that are not as by default.
"""

from typing import Any, NamedTuple

from kaiwo.manifests.policy_file import VICTIM_ORDERS
from kaiwo.model.amounts import thousandths
from kaiwo.model.policy import DEFAULT_POLICY, Policy, TopologyWeights

_TIMES_S = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


class FieldChange(NamedTuple):
    field: str  # `pastUse.halfLife`
    before: str
    after: str


def policy_document(policy: Policy) -> dict[str, Any]:
    """The fields of the file, in the order of the documentation."""
    every = _every_field(policy)
    defaults = _every_field(DEFAULT_POLICY)
    found: dict[str, Any] = {}
    for field, value in every.items():
        if value != defaults.get(field):
            *outer, name = field.split(".", 1) if field.startswith(_NESTED) else (field,)
            (found.setdefault(outer[0], {}) if outer else found)[name] = value
    if "pastUse" in found and "halfLife" not in found["pastUse"]:
        del found["pastUse"]  # its strength alone means nothing, and is refused
    topology = found.get("topology", {})
    if weights := {
        name.partition(".")[2]: topology.pop(name) for name in list(topology) if name.startswith("weights.")
    }:
        topology["weights"] = weights
    return found


def policy_changes(before: Policy, after: Policy) -> list[FieldChange]:
    """The fields that differ; a field at its default shows that."""
    old, new = _every_field(before), _every_field(after)
    return [
        FieldChange(field, _words(old.get(field)), _words(new.get(field)))
        for field in dict.fromkeys((*old, *new))
        if old.get(field) != new.get(field)
    ]


_NESTED = ("pastUse.", "topology.", "moves.", "predictedDemand.", "slowNodes.", "adjustment.", "idle.")


def _every_field(policy: Policy) -> dict[str, Any]:
    weights = {f"topology.weights.{name}": getattr(policy.topology_weights, name) for name in _WEIGHTS}
    return {
        "actions": list(policy.actions),
        "placement": policy.placement,
        "gpuStrategy": policy.gpu_strategy,
        "victimOrder": {inner: outer for outer, inner in VICTIM_ORDERS.items()}[policy.victim_order],
        "maxRestartCost": _time(policy.max_restart_cost_s),
        "spareEnding": _time(policy.spare_ending_s),
        "maxWait": _time(policy.max_wait_s),
        "overdueRun": _time(policy.overdue_run_s),
        "ageBoost": _number(policy.age_boost_milli),
        "sizeBoost": _number(policy.size_boost_milli),
        "staleGangGrace": _time(policy.stale_gang_grace_s),
        "keepLostPlace": _time(policy.keep_lost_place_s),
        "shareWith": list(policy.share_with),
        "promises": policy.promises,
        "largePart": _number(policy.large_permille),
        "holdOff": _time(policy.hold_off_s),
        "pastUse.halfLife": _time(policy.past_use_half_life_s),
        "pastUse.strength": _number(policy.past_use_strength_milli),
        "topology.strategy": policy.topology_strategy,
        "topology.onlyFor": {name: list(queues) for name, queues in sorted(policy.domain_queues.items())},
        **weights,
        "replicaStrategy": policy.replica_strategy,
        **_predicted_demand(policy),
        "slowNodes.action": policy.slow_nodes,
        "slowNodes.belowPercent": policy.slow_below_percent,
        "slowNodes.for": _time(policy.slow_for_s),
        "moves.hours": list(policy.move_hours),
        "moves.atOnce": policy.moves_at_once,
        "moves.perHour": policy.moves_per_hour,
        "adjustment.mode": policy.adjustment,
        "adjustment.headroomPercent": policy.adjust_headroom_percent,
        "adjustment.afterRuns": policy.adjust_after_runs,
        "idle.action": policy.idle_action,
        "idle.after": _time(policy.idle_after_s),
        "scoreWeights": dict(sorted(policy.score_weights.items())),
        "disabledPlugins": list(policy.disabled_plugins),
        "steps": policy.steps,
    }


_WEIGHTS = TopologyWeights.__struct_fields__


def _predicted_demand(policy: Policy) -> dict[str, Any]:
    """All or nothing: a file that has one of these fields must say the priority."""
    if not policy.predicted_ahead_s:
        return {}
    return {
        "predictedDemand.priority": policy.predicted_priority,
        "predictedDemand.ahead": _time(policy.predicted_ahead_s),
        "predictedDemand.most": _number(policy.predicted_permille),
    }


def _time(seconds: int) -> str:
    """The largest unit in which it is a whole number."""
    size, unit = next((each for each in _TIMES_S if seconds and seconds % each[0] == 0), _TIMES_S[-1])
    return f"{seconds // size}{unit}" if seconds else "0"


def _number(milli: int) -> float | int:
    return float(thousandths(milli)) if milli % 1000 else milli // 1000


def _words(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_words(each)}" for name, each in value.items()) + "}"
    return str(value)
