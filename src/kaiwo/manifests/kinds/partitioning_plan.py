"""Read a PartitioningPlan of upstream Kaiwo: which nodes should have which partition profile, and how fast.

In:    a document of that kind, nodes with their labels.   Out: one PartitioningPlan; the rule for each node.
Both of upstream's forms are read: the profile inside the rule, and a reference to a PartitioningProfile.
An unknown field is ignored with a warning.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from kaiwo.manifests.kinds.node_affinity import MAX_RULES, selector_rules
from kaiwo.manifests.kinds.object_metadata import ManifestObject
from kaiwo.manifests.text.field_errors import FieldPath, show
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.values.names import check_label_key
from kaiwo.model.affinity import NodeRule
from kaiwo.model.gpus.gpu_models import CHIPS
from kaiwo.model.gpus.partition_modes import COMPUTE_MODES, MEMORY_MODES, Mode, legal_modes
from kaiwo.model.gpus.partitioning_plan import PartitioningPlan, PlanRule, Rollout

API_VERSION, KIND = "infrastructure.silogen.ai/v1alpha1", "PartitioningPlan"
CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
MAX_NODES = 10_000
DEFAULT_PROFILE = "default"  # the Device Config Manager's own profile: its nodes are left as they are
_LEGAL = sorted(
    {mode for model in CHIPS for mode in legal_modes(model)},
    key=lambda mode: (COMPUTE_MODES.index(mode.compute), mode.memory),
)


class ChosenRule(NamedTuple):
    plan: str
    rule: PlanRule


class ChosenRules(msgspec.Struct, frozen=True):
    """The rules of all plans, by node."""

    rules: dict[str, ChosenRule]  # by node
    conflicts: tuple[str, ...] = ()  # a sentence for each node whose plans disagree; such a node is left as it is


def read_plan(item: ManifestObject) -> PartitioningPlan:
    spec = item.spec
    rollout = spec.inner("rollout")
    rules = spec.items("rules")
    if not rules:
        raise spec.path_of("rules").error("is empty; add a rule with a selector and a profile")
    if len(rules) > MAX_RULES:
        raise spec.path_of("rules").error(f"has {len(rules)} rules and the maximum is {MAX_RULES}; use fewer")
    plan = PartitioningPlan(
        item.name,
        tuple(_read_rule(rule) for rule in rules),
        Rollout(
            rollout.integer("maxParallel", 1, 1, MAX_NODES),
            rollout.integer("maxUnavailable", 1, 1, MAX_NODES),
            rollout.flag("excludeControlPlane", True),
        ),
        spec.flag("dryRun"),
        spec.flag("paused"),
    )
    for fields in (rollout, spec, item):
        fields.finish(strict=False)
    return plan


def choose_rules(plans: Sequence[PartitioningPlan], nodes: Mapping[str, Mapping[str, str]]) -> ChosenRules:
    """The first matching rule of a plan counts for a node; two plans that disagree about a node cancel each other."""
    rules: dict[str, ChosenRule] = {}
    conflicts = []
    by_name = sorted(plans, key=lambda plan: plan.name)
    for node, labels in sorted(nodes.items()):
        found = [ChosenRule(plan.name, rule) for plan in by_name if (rule := _matching_rule(plan, labels))]
        profiles = {(rule.profile, rule.is_reference) for _, rule in found}
        if len(profiles) > 1:
            settings = " and ".join(f"plan '{name}' wants {rule.profile}" for name, rule in found)
            conflicts.append(f"node '{node}': {settings}; narrow the selector of one of them")
        elif found:
            rules[node] = found[0]
    return ChosenRules(rules, tuple(conflicts))


def mode_of_profile(name: str) -> Mode | None:
    """The mode in a profile's name, such as `cpx-nps4`, `SPX_NPS1` or `cpx`. None if there is none, as in `default`."""
    words = re.split(r"[^A-Z0-9]+", name.upper())
    compute = [word for word in words if word in COMPUTE_MODES]
    memory = [word for word in words if word in MEMORY_MODES]
    if len(compute) != 1 or len(memory) > 1:
        return None
    return Mode(compute[0], memory[0] if memory else "NPS1")


def _read_rule(rule: FieldReader) -> PlanRule:
    selector, profile, reference = rule.inner("selector"), rule.inner("profile"), rule.inner("profileRef")
    labels = selector_rules(selector.text_map("matchLabels"), selector.path_of("matchLabels"))
    nodes = (*labels, *(_read_expression(item) for item in selector.items("matchExpressions")))
    if not nodes:
        raise rule.path_of("selector").error("is empty, and would repartition the GPUs of every node; name a label")
    name = profile.text("dcmProfileName") or profile.text("profileName") or _mode_words(profile)
    is_reference = not name and reference.has("name")
    name = name or reference.text("name")
    if not name:
        raise rule.path_of("profile").error("names no profile; add dcmProfileName, or profileRef with a name")
    _check_profile(name, is_reference, rule.path_of("profileRef" if is_reference else "profile"))
    read = PlanRule(rule.text("description") or rule.text("name"), nodes, name, is_reference)
    profile.ignore("not checked: the node's own count of devices is", "expectedResources", "targetSelector")
    profile.skip("description", "displayName")
    for fields in (selector, profile, reference, rule):
        fields.finish(strict=False)
    return read


def _check_profile(name: str, is_reference: bool, path: FieldPath) -> None:
    """Refuse a mode that no GPU has. A reference without a mode is resolved by the object that it names."""
    mode = mode_of_profile(name)
    if mode in _LEGAL or (mode is None and (is_reference or name == DEFAULT_PROFILE)):
        return
    wrong = "is not a partition mode" if mode is None else f"is {'+'.join(mode)}, which no GPU supports"
    legal = ", ".join("-".join(each).lower() for each in _LEGAL)
    raise path.error(f"names {show(name)}, which {wrong}; write one of {legal}")


def _mode_words(profile: FieldReader) -> str:
    """`cpx-nps4` of computeMode and memoryMode."""
    compute, memory = profile.text("computeMode"), profile.text("memoryMode")
    return "-".join(filter(None, (compute, memory))).lower() if compute else ""


def _read_expression(item: FieldReader) -> NodeRule:
    rule = NodeRule(item.text("key"), item.choice("operator", OPERATORS, "In"), item.texts("values"))
    item.finish(strict=False)
    if not rule.key:
        raise item.path_of("key").error("is missing; name a label")
    check_label_key(rule.key, item.path_of("key"))
    if rule.operator in ("In", "NotIn") and not rule.values:
        raise item.path_of("values").error(f"is empty, and `operator: {rule.operator}` needs at least one; add it")
    return rule


def _matching_rule(plan: PartitioningPlan, labels: Mapping[str, str]) -> PlanRule | None:
    if plan.is_paused or (plan.rollout.excludes_control_plane and any(label in labels for label in CONTROL_PLANE)):
        return None
    return next((rule for rule in plan.rules if all(each.holds(labels) for each in rule.nodes)), None)
