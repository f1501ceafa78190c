"""A policy file says how the scheduler weighs things; a slip in it is an error."""

import re
from pathlib import Path

import pytest

from kaiwo.app.load_policy import load_policy
from kaiwo.manifests.policy_file import read_policy
from kaiwo.model.errors import ConfigError
from kaiwo.model.policy import DEFAULT_POLICY, Policy, TopologyWeights

DOCS = Path(__file__).parents[2] / "docs"


def test_what_is_left_out_is_as_in_the_default() -> None:
    assert read_policy("placement: pack") == DEFAULT_POLICY


def test_every_field_has_a_name() -> None:
    text = """
        steps: 5000
        gpuStrategy: first-fit
        placement: spread
        scoreWeights: {pack: 3}
        disabledPlugins: [taints]
        actions: [allocate, consolidate]
        victimOrder: youngest
        ageBoost: 0.5
        sizeBoost: -2
        staleGangGrace: 2m
        keepLostPlace: 90s
        shareWith: [user, queue]
        maxRestartCost: 2h
        spareEnding: 3m
        maxWait: 0
        overdueRun: 30m
        promises: 2
        largePart: 0.25
        holdOff: 5m
        pastUse: {halfLife: 7d, strength: 1.5}
        topology: {strategy: balanced, weights: {availability: 50, performance: 0}, onlyFor: {rack-1: [lab]}}
        replicaStrategy: own-rule
        predictedDemand: {priority: 100, ahead: 2h, most: 0.5}
        slowNodes: {action: leave, belowPercent: 30, for: 5m}
        moves: {hours: ["22:00-06:00"], atOnce: 2, perHour: 30}
        adjustment: {mode: act, headroomPercent: 30, afterRuns: 3}
        idle: {action: release, after: 2h}
    """
    policy = read_policy(text)
    expected = Policy(
        5000, "first-fit", "spread", {"pack": 3}, ("taints",), ("allocate", "consolidate"), "youngest", 500, -2000, 120,
        2, 250, 300, 7 * 86_400, 1500, 90, ("queue", "user"), 7200, "balanced", TopologyWeights(50, 30, 20, 0),
        180, {"rack-1": ("lab",)}, "own-rule", 0, 1800, 7200, 100, 500, "leave", 30, 300,
        ("22:00-06:00",), 2, 30, "act", 30, 3, "release", 7200,
    )  # fmt: skip
    assert policy == expected
    assert all(getattr(policy, name) != getattr(DEFAULT_POLICY, name) for name in Policy.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("actions: [alocate]", 'actions[0] is "alocate"; write allocate'),
        ("actions: [allocate, allocate]", 'actions[1] is "allocate", which is listed already'),
        ("moves: {hours: [night]}", 'moves.hours[0] is "night"; write hours of the day in UTC'),
        ('moves: {hours: ["25:00-26:00"]}', 'moves.hours[0] is "25:00-26:00"'),
        ("moves: {atOnce: 0}", "moves.atOnce"),
        ("adjustment: {mode: maybe}", "adjustment.mode"),
        ("adjustment: {afterRuns: 1}", "adjustment.afterRuns"),
        ("idle: {action: kill}", "idle.action"),
        ("actions: []", "actions has no allocate, and without that nothing ever starts; write [allocate]"),
        ("actions: [reclaim, preempt]", "actions has no allocate"),
        ("", "there is no document in it; write at least one, such as `placement: spread`"),
        ("victimOrder: oldest", 'victimOrder is "oldest"; write lostWork, youngest'),
        ("placment: pack", "placment is not a known field"),
        ("ageBoost: much", 'ageBoost is "much"'),
        ("largePart: 2", "largePart is 2, but must be 0 to 1"),
        ("pastUse: {strength: 1}", "pastUse.halfLife is missing"),
        ("pastUse: {halfLife: soon}", 'pastUse.halfLife is "soon", which is not a duration'),
        (
            "topology: {strategy: near}",
            'topology.strategy is "near"; choose from: consolidated, distributed, balanced',
        ),
        ("topology: {weights: {speed: 1}}", "topology.weights.speed is not a known field"),
        ("steps: 0", "steps is 0, but must be 1 to"),
        ("a: 1\n---\nb: 2", "has 2 documents"),
        ("- allocate", "is a list, not a mapping"),
    ],
)
def test_a_slip_is_named_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match="the policy file.*" + re.escape(sentence)):
        read_policy(text)


def test_plugins_that_nobody_has_are_refused_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("disabledPlugins: [no-such]")
    with pytest.raises(ConfigError, match="no-such"):
        load_policy(str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_policy(str(tmp_path / "nothing.yaml"))
    assert load_policy("") == DEFAULT_POLICY


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("disabledPlugins: [fit]", "disabledPlugins names unknown plugins: fit; there are: .*taints"),
        ("scoreWeights: {fit: 1}", "scoreWeights names unknown plugins: fit; there are: .*taints"),
        ("gpuStrategy: fit", "gpuStrategy is 'fit', which is unknown; choose one of: .*first-fit"),
    ],
)
def test_a_plugin_that_is_not_there_is_named_with_its_field(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        load_policy(str(file))


def test_the_page_about_it_shows_a_file_that_is_read() -> None:
    (text,) = re.findall(r"```policy\n(.*?)```", (DOCS / "policy.md").read_text(), re.S)
    assert read_policy(text).past_use_half_life_s == 7 * 86_400
