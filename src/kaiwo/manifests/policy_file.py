"""Read a policy file, which configures the scheduler: `kaiwo up --policy FILE`.

    actions: [allocate, reclaim, preempt, consolidate, stale-gangs]
    placement: spread
    victimOrder: youngest
    ageBoost: 0.5                        # priority points for an hour of waiting
    pastUse: {halfLife: 7d, strength: 1}

In:    YAML text.   Out: one Policy; a field that is left out has its default.
An unknown field is an error: a mistyped field must not be ignored.
"""

from functools import partial

from kaiwo.manifests.kinds.queue import read_share_rule
from kaiwo.manifests.text.field_errors import FieldPath, show, suggest
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.text.read_documents import read_single
from kaiwo.manifests.values.priorities import MAX_PRIORITY
from kaiwo.manifests.values.quantities import read_duration_s, read_quantity
from kaiwo.manifests.values.setting_values import read_strategy
from kaiwo.model.errors import ConfigError
from kaiwo.model.policy import (
    ACTIONS,
    ADJUSTMENTS,
    DEFAULT_POLICY,
    IDLE_ACTIONS,
    SLOW_NODES,
    Policy,
    TopologyWeights,
    hours_of_day,
)

THE_FILE = "the policy file"
PLACEMENTS = ("pack", "spread")
VICTIM_ORDERS = {"lostWork": "lost-work", "youngest": "youngest"}
MAX_AHEAD_S = 23 * 3600
MAX_MOVES = 10_000
MOST_RUNS = 10  # as many are kept: see advise.run_uses
MAX_STEPS, MAX_POINTS, MAX_STRENGTH, MAX_PROMISES, MAX_WEIGHT = 1_000_000, 1_000, 100, 1_000, 1_000


def read_policy(text: str | bytes, where: str = THE_FILE) -> Policy:
    fields = FieldReader(read_single(text, where, "write all fields in one", "placement: spread"), where, [])
    past, weights, levels = fields.inner("pastUse"), fields.inner("scoreWeights"), fields.inner("topology")
    terms, only_for, predicted = levels.inner("weights"), levels.inner("onlyFor"), fields.inner("predictedDemand")
    slow, moves = fields.inner("slowNodes"), fields.inner("moves")
    adjust, idle = fields.inner("adjustment"), fields.inner("idle")
    policy = Policy(
        steps=fields.integer("steps", DEFAULT_POLICY.steps, 1, MAX_STEPS),
        gpu_strategy=fields.text("gpuStrategy", DEFAULT_POLICY.gpu_strategy),
        placement=fields.choice("placement", PLACEMENTS, DEFAULT_POLICY.placement),
        score_weights={name: weights.integer(name, 0, 0, MAX_WEIGHT) for name in sorted(weights.names())},
        disabled_plugins=fields.texts("disabledPlugins"),
        actions=_read_actions(fields),
        victim_order=VICTIM_ORDERS[fields.choice("victimOrder", VICTIM_ORDERS, "lostWork")],
        max_wait_s=fields.read("maxWait", _read_time_s, DEFAULT_POLICY.max_wait_s),
        overdue_run_s=fields.read("overdueRun", _read_time_s, DEFAULT_POLICY.overdue_run_s),
        age_boost_milli=fields.read("ageBoost", _POINTS, 0),
        size_boost_milli=fields.read("sizeBoost", _POINTS, 0),
        share_with=read_share_rule(fields, "shareWith"),
        max_restart_cost_s=fields.read("maxRestartCost", read_duration_s, DEFAULT_POLICY.max_restart_cost_s),
        spare_ending_s=fields.read("spareEnding", read_duration_s, DEFAULT_POLICY.spare_ending_s),
        keep_lost_place_s=fields.read("keepLostPlace", read_duration_s, DEFAULT_POLICY.keep_lost_place_s),
        stale_gang_grace_s=fields.read("staleGangGrace", read_duration_s, DEFAULT_POLICY.stale_gang_grace_s),
        promises=fields.integer("promises", DEFAULT_POLICY.promises, 0, MAX_PROMISES),
        large_permille=fields.read("largePart", _PERMILLE, DEFAULT_POLICY.large_permille),
        hold_off_s=fields.read("holdOff", read_duration_s, DEFAULT_POLICY.hold_off_s),
        past_use_half_life_s=past.read("halfLife", read_duration_s, 0),
        past_use_strength_milli=past.read("strength", _STRENGTH, DEFAULT_POLICY.past_use_strength_milli),
        topology_strategy=levels.read("strategy", read_strategy, DEFAULT_POLICY.topology_strategy),
        domain_queues={name: only_for.texts(name) for name in sorted(only_for.names())},
        replica_strategy=fields.text("replicaStrategy", DEFAULT_POLICY.replica_strategy),
        predicted_ahead_s=predicted.read("ahead", read_duration_s, 3600 if predicted.names() else 0),
        predicted_priority=predicted.integer("priority", 0, -MAX_PRIORITY, MAX_PRIORITY),
        predicted_permille=predicted.read("most", _PERMILLE, DEFAULT_POLICY.predicted_permille),
        slow_nodes=slow.choice("action", SLOW_NODES, DEFAULT_POLICY.slow_nodes),
        slow_below_percent=slow.integer("belowPercent", DEFAULT_POLICY.slow_below_percent, 1, 100),
        slow_for_s=slow.read("for", read_duration_s, DEFAULT_POLICY.slow_for_s),
        move_hours=_read_hours(moves),
        moves_at_once=moves.integer("atOnce", DEFAULT_POLICY.moves_at_once, 1, MAX_MOVES),
        moves_per_hour=moves.integer("perHour", DEFAULT_POLICY.moves_per_hour, 1, MAX_MOVES),
        adjustment=adjust.choice("mode", ADJUSTMENTS, DEFAULT_POLICY.adjustment),
        adjust_headroom_percent=adjust.integer("headroomPercent", DEFAULT_POLICY.adjust_headroom_percent, 0, 1000),
        adjust_after_runs=adjust.integer("afterRuns", DEFAULT_POLICY.adjust_after_runs, 2, MOST_RUNS),
        idle_action=idle.choice("action", IDLE_ACTIONS, DEFAULT_POLICY.idle_action),
        idle_after_s=idle.read("after", read_duration_s, DEFAULT_POLICY.idle_after_s),
        topology_weights=TopologyWeights(
            *(
                terms.integer(name, getattr(DEFAULT_POLICY.topology_weights, name), 0, MAX_WEIGHT)
                for name in TopologyWeights.__struct_fields__
            )
        ),
    )
    if past.names() and not policy.past_use_half_life_s:
        raise past.path_of("halfLife").error('is missing; write after what time use counts half, such as "7d"')
    if predicted.names() and not predicted.has("priority"):
        raise predicted.path_of("priority").error(
            "is missing; write from which priority on work is urgent, such as 100"
        )
    if policy.predicted_ahead_s > MAX_AHEAD_S:
        raise predicted.path_of("ahead").error("is further than demand is forecast; write at most 23h")
    past.finish()
    predicted.finish()
    slow.finish()
    moves.finish()
    adjust.finish()
    idle.finish()
    terms.finish()
    only_for.finish()
    levels.finish()
    fields.finish()
    return policy


def _read_hours(moves: FieldReader) -> tuple[str, ...]:
    hours = moves.texts("hours")
    for index, text in enumerate(hours):
        try:
            hours_of_day(text)
        except ConfigError:
            path = FieldPath(moves.owner, f"{moves.path_of('hours').field}[{index}]")
            raise path.error(f"is {show(text)}; write hours of the day in UTC, such as 22:00-06:00") from None
    return hours


def _read_actions(fields: FieldReader) -> tuple[str, ...]:
    if not fields.has("actions"):
        return DEFAULT_POLICY.actions
    actions = fields.texts("actions")
    for index, action in enumerate(actions):
        path = FieldPath(fields.owner, f"{fields.path_of('actions').field}[{index}]")
        if action not in ACTIONS:
            raise path.error(f"is {show(action)}; write {', '.join(ACTIONS)}{suggest(action, ACTIONS)}")
        if action in actions[:index]:
            raise path.error(f"is {show(action)}, which is listed already; keep one of them")
    if "allocate" not in actions:
        way_out = "write [allocate] and what else a cycle should do"
        raise fields.path_of("actions").error(f"has no allocate, and without that nothing ever starts; {way_out}")
    return actions


def _read_time_s(value: object, path: FieldPath) -> int:
    """A duration that may be 0."""
    return 0 if value in (0, "0") and not isinstance(value, bool) else read_duration_s(value, path)


def _read_milli(value: object, path: FieldPath, example: str, least: int, most: int) -> int:
    amount = read_quantity(value, path, example)
    if not least <= amount <= most:
        raise path.error(f"is {show(value)}, but must be {least:,} to {most:,}; write it as {example}")
    milli = amount * 1000
    if milli != milli.to_integral_value():
        raise path.error(f"is {show(value)}, but is counted in steps of 0.001; write it as {example}")
    return int(milli)


_POINTS = partial(_read_milli, example="0.5 (priority points)", least=-MAX_POINTS, most=MAX_POINTS)
_STRENGTH = partial(_read_milli, example="1 (0: past use does not count)", least=0, most=MAX_STRENGTH)
_PERMILLE = partial(_read_milli, example="0.1 (a part of the cluster's GPUs)", least=0, most=1)
