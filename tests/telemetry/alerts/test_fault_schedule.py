"""200 generated faults in 10,000 healthy samples: each is alerted once and resolved once, and nothing else is.

The rules are those that Kaiwo ships. Every kind of rule has faults: thresholds, ratios, rates, absences and anomalies.
"""

import random
from collections import Counter
from typing import NamedTuple

import pytest

from kaiwo.history.series.integer_codec import MISSING
from kaiwo.model.alerts.alert_rule import AlertRule, RuleKind
from kaiwo.runtime.alerting.load_settings import built_in_settings
from kaiwo.telemetry.alerts.evaluate import AlertMemory, evaluate
from kaiwo.telemetry.alerts.rule_set import RuleSet
from tests.telemetry.alerts.samples import GPUS, QUEUES, HealthyCluster

STEP_S = 10
BLOCKS, FAULTS, HEALTHY = 20, 200, 10_000
BEGIN_S = 1_700_000_000

# By rule: what the fault sets. What needs another measure to hold sets that, too.
FAULTS_OF: dict[str, dict[tuple[str, str], int]] = {
    "scheduler-stalled": {("scheduler", "stalled_s"): 90},
    "cycles-fail": {("scheduler", "cycle_failures"): 1},
    "cycles-slow": {("scheduler", "cycle_us"): 700_000},
    "cycles-slower-than-usual": {("scheduler", "cycle_us"): 400_000},
    "promise-broken": {("scheduler", "promises_broken"): 1},
    "eviction-storm": {("scheduler", "evictions"): 40, ("scheduler", "starts"): 10},
    "jobs-fail": {("cluster", "failed"): 20, ("cluster", "ended"): 20},
    "pods-fail": {("cluster", "pods_failed"): 8},
    "nodes-failed": {("cluster", "nodes_failed"): 1},
    "nodes-slow": {("cluster", "nodes_slow"): 2},
    "ports-down": {("cluster", "ports_down"): 1},
    "cpus-exhausted": {("cluster", "cpu_used_milli"): 479_000},
    "memory-exhausted": {("cluster", "memory_used_mib"): 7_480_000},
    "kaiwo-cpu-high": {("process", "cpu_permille"): 990},
    "kaiwo-memory-high": {("process", "memory_mib"): 4_000},
    "kaiwo-slow-to-answer": {("process", "loop_lag_us"): 3_000_000},
    "gpu-silent": {("gpu", "utilisation_percent"): MISSING},
    "gpu-hot": {("gpu", "temperature_c"): 108},
    "gpu-memory-full": {("gpu", "memory_used_mib"): 196_600},
    "gpu-held-idle": {("gpu", "utilisation_percent"): 0},
    "fairness-drift": {("queue", "gpu_used_milli"): 100, ("queue", "waiting"): 3},
}
LONG = ("fairness-drift", "gpu-held-idle")  # an hour and more: in a few blocks only
ALONE = {"cycles-slow": "cycles-slower-than-usual"}  # one would look like the other
RULES = {rule.name: rule for rule in built_in_settings().rules}


class Fault(NamedTuple):
    rule: AlertRule
    subject: str
    begins: int  # samples after the block began
    ends: int

    def changes(self, at: int, draw: random.Random) -> dict[tuple[str, str, str], int]:
        if not self.begins <= at < self.ends:
            return {}
        is_sure = at - self.begins <= self.rule.for_s // STEP_S
        if not is_sure and draw.random() < 0.15:  # for a moment it looks healthy; the fault is the same
            return {}
        return {(kind, measure, self.subject): value for (kind, measure), value in FAULTS_OF[self.rule.name].items()}


@pytest.mark.slow
def test_every_fault_is_alerted_once_and_resolved_once_and_nothing_else_is() -> None:
    draw, cluster = random.Random(11), HealthyCluster(5)
    rules, memory, now_s = RuleSet(built_in_settings().rules), AlertMemory(), BEGIN_S
    fired: Counter[tuple[str, str, int]] = Counter()
    resolved: Counter[tuple[str, str, int]] = Counter()
    healthy = told = 0

    def look(changes: dict[tuple[str, str, str], int], block: int) -> None:
        nonlocal memory, now_s, told
        now_s += STEP_S
        result = evaluate(rules, memory, cluster.sample(changes), now_s)
        before, memory = memory, result.memory
        for alert in result.changed:
            if alert.resolved_s:
                resolved[alert.rule, alert.subject, block] += 1
            elif alert.fired_s and not getattr(before.alerts.get(alert.key), "fired_s", 0):
                fired[alert.rule, alert.subject, block] += 1
        told += len(result.told)

    expected: Counter[tuple[str, str, int]] = Counter()
    for block in range(BLOCKS):
        for _ in range(HEALTHY // BLOCKS):
            look({}, block - 1)  # what the last block left is resolved here
            healthy += 1
        faults = _faults(draw, block)
        expected.update((fault.rule.name, fault.subject, block) for fault in faults)
        for at in range(max(fault.ends for fault in faults)):
            changes: dict[tuple[str, str, str], int] = {}
            for fault in faults:
                changes |= fault.changes(at, draw)
            look(changes, block)
    for _ in range(300):
        look({}, BLOCKS - 1)

    assert healthy == HEALTHY
    assert expected.total() == FAULTS == len(expected)
    assert {RULES[rule].kind for rule, _, _ in expected} == set(RuleKind)
    assert fired == expected
    assert resolved == expected
    assert told == 2 * FAULTS
    assert memory.alerts == {}


def _faults(draw: random.Random, block: int) -> list[Fault]:
    """Ten different faults that overlap; GPUs and queues may have several of one rule."""
    names = [name for name in FAULTS_OF if name not in LONG]
    if block % 5 == 0:
        names += LONG
    single = [name for name in names if RULES[name].of not in ("gpu", "queue")]
    chosen = draw.sample(single, 5)
    for one, other in ALONE.items():
        if one in chosen and other in chosen:
            chosen.remove(other)
    several = [name for name in names if name not in single]
    pairs = {(name, _subject(draw, name)) for name in chosen}
    used: set[str] = set()
    while len(pairs) < FAULTS // BLOCKS:
        name = draw.choice(several)
        subject = _subject(draw, name)
        if subject not in used:  # two faults of one GPU may be about the same measure
            used.add(subject)
            pairs.add((name, subject))
    return [_fault(draw, RULES[name], subject) for name, subject in sorted(pairs)]


def _subject(draw: random.Random, name: str) -> str:
    of = RULES[name].of
    return {"gpu": draw.choice(GPUS), "queue": draw.choice(QUEUES), "process": "kaiwo"}.get(of, of)


def _fault(draw: random.Random, rule: AlertRule, subject: str) -> Fault:
    begins = draw.randrange(30)
    # Long enough to count, and a slow cycle not so long that it is unusual, too.
    lasts = rule.for_s // STEP_S + 12 + (0 if rule.name == "cycles-slow" else draw.randrange(60))
    return Fault(rule, subject, begins, begins + lasts)
