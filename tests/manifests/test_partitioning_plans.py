"""PartitioningPlans of upstream Kaiwo are read, and say for each node what it should become."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kaiwo.manifests.kinds.object_metadata import NO_DEFAULTS, ManifestObject
from kaiwo.manifests.kinds.partitioning_plan import (
    API_VERSION,
    KIND,
    PartitioningPlan,
    choose_rules,
    mode_of_profile,
    read_plan,
)
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.partition_modes import Mode

GPU, CONTROL = "amd.com/gpu", "node-role.kubernetes.io/control-plane"


def document(name: str = "plan", **spec: Any) -> dict[str, Any]:
    rule = {"selector": {"matchLabels": {"pool": "inference"}}, "profile": {"dcmProfileName": "cpx-nps4"}}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {"rules": [rule], **spec}}


def read(written: dict[str, Any]) -> tuple[PartitioningPlan, list[str]]:
    warnings: list[str] = []
    return read_plan(ManifestObject(written, "document 1", NO_DEFAULTS, warnings)), warnings


def test_every_plan_of_upstream_is_accepted(shared_dir: Path) -> None:
    paths = [p for p in (shared_dir / "cases/kaiwo").rglob("*.yaml") if f"kind: {KIND}" in p.read_text()]
    assert len(paths) >= 6
    for path in paths:
        for written in yaml.safe_load_all(path.read_text()):
            plan, warnings = read(written)
            assert warnings == [], path
            assert plan.is_dry
            assert [rule.profile for rule in plan.rules] == ["default"] * len(plan.rules)


def test_both_forms_of_a_rule_are_read() -> None:
    selector = {"matchExpressions": [{"key": "gpu.amd.com/model", "operator": "In", "values": ["MI300X"]}]}
    plan, warnings = read(
        document(
            paused=True,
            rollout={"maxParallel": 2, "maxUnavailable": 3, "excludeControlPlane": False},
            rules=[
                {"name": "a", "selector": selector, "profileRef": {"name": "mi300x-8-partition"}},
                {
                    "description": "b",
                    "selector": selector,
                    "profile": {"dcmProfileName": "spx", "description": "whole"},
                },
            ],
        )
    )
    assert warnings == []
    assert plan.is_paused
    assert (plan.rollout.max_parallel, plan.rollout.max_unavailable) == (2, 3)
    assert not plan.rollout.excludes_control_plane
    assert [(rule.description, rule.profile, rule.is_reference) for rule in plan.rules] == [
        ("a", "mi300x-8-partition", True),
        ("b", "spx", False),
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"rules": []}, "add a rule"),
        ({"rules": [{"profile": {"dcmProfileName": "cpx"}}]}, "name a label"),
        ({"rules": [{"selector": {"matchLabels": {"a": "b"}}}]}, "names no profile"),
        ({"rollout": {"maxParallel": 0}}, "must be 1 to"),
        ({"rules": [{"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}]}, "write In, NotIn"),
        ({"rules": [{"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}]}, "at least one"),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused_with_the_way_out(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(document(**spec))


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ({"dcmProfileName": "banana"}, 'names "banana", which is not a partition mode; write one of spx-nps1'),
        ({"dcmProfileName": "spx-nps4"}, "is SPX.NPS4, which no GPU supports; write one of spx-nps1, .*cpx-nps4"),
        ({"computeMode": "DPX", "memoryMode": "NPS4"}, "is DPX.NPS4, which no GPU supports"),
    ],
)
def test_a_profile_that_no_gpu_can_have_is_refused_at_the_door(profile: dict[str, str], message: str) -> None:
    rule = {"selector": {"matchLabels": {"pool": "inference"}}, "profile": profile}
    with pytest.raises(ConfigError, match=message):
        read(document(rules=[rule]))


def test_a_reference_is_refused_when_its_name_tells_an_illegal_mode() -> None:
    rule = {"selector": {"matchLabels": {"pool": "inference"}}, "profileRef": {"name": "spx-nps4"}}
    with pytest.raises(ConfigError, match="which no GPU supports"):
        read(document(rules=[rule]))


def test_what_is_not_known_is_said() -> None:
    _, warnings = read(document(speed="fast"))
    assert warnings == ["PartitioningPlan 'plan': unknown and ignored: spec.speed"]


def test_the_first_rule_that_matches_counts_and_control_planes_are_left_alone() -> None:
    first = {
        "selector": {"matchExpressions": [{"key": GPU, "operator": "Exists"}]},
        "profile": {"dcmProfileName": "cpx"},
    }
    second = {"selector": {"matchLabels": {"pool": "inference"}}, "profile": {"dcmProfileName": "spx"}}
    plan, _ = read(document(rules=[first, second]))
    nodes = {"a": {GPU: "8", "pool": "inference"}, "b": {"pool": "inference"}, "c": {}, "d": {GPU: "8", CONTROL: ""}}
    chosen = choose_rules([plan], nodes)
    assert {node: rule.profile for node, (_, rule) in chosen.rules.items()} == {"a": "cpx", "b": "spx"}
    without = {
        "selector": {"matchExpressions": [{"key": GPU, "operator": "DoesNotExist"}]},
        "profileRef": {"name": "x"},
    }
    other, _ = read(document(rules=[without], rollout={"excludeControlPlane": False}))
    assert sorted(choose_rules([other], nodes).rules) == ["b", "c"]


def test_two_plans_of_different_minds_leave_the_node_as_it_is() -> None:
    alpha, _ = read(document("alpha"))
    beta, _ = read(
        document("beta", rules=[{"selector": {"matchLabels": {"pool": "inference"}}, "profileRef": {"name": "spx"}}])
    )
    chosen = choose_rules([beta, alpha], {"n": {"pool": "inference"}, "m": {}})
    assert chosen.rules == {}
    assert chosen.conflicts == (
        "node 'n': plan 'alpha' wants cpx-nps4 and plan 'beta' wants spx; narrow the selector of one of them",
    )
    again, _ = read(document("again"))
    assert choose_rules([alpha, again], {"n": {"pool": "inference"}}).conflicts == ()
    paused, _ = read(document("paused", paused=True))
    assert choose_rules([paused], {"n": {"pool": "inference"}}).rules == {}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("cpx", Mode("CPX", "NPS1")),
        ("CPX_NPS4", Mode("CPX", "NPS4")),
        ("cpx-profile-nps4", Mode("CPX", "NPS4")),
        ("mi300x-spx-nps1", Mode("SPX", "NPS1")),
        ("default", None),
        ("cpx-or-spx", None),
        ("cpx-nps1-nps4", None),
    ],
)
def test_a_profile_named_after_its_mode_tells_it(name: str, mode: Mode | None) -> None:
    assert mode_of_profile(name) == mode
