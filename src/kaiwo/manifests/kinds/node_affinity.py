"""Read which nodes a pod may run on: node selector, required node affinity, tolerations.

Never: drops a required rule silently: what is not supported is refused, and preferences get a warning.
"""

import re
from collections.abc import Mapping

from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.values.names import check_label_key, check_labels, read_node_name
from kaiwo.model.affinity import NodeRule
from kaiwo.model.request import Toleration

HOSTNAME = "kubernetes.io/hostname"
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
TOLERATION_OPERATORS = ("Equal", "Exists")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
MAX_RULES = 100


def selector_rules(selector: Mapping[str, str], path: FieldPath) -> tuple[NodeRule, ...]:
    check_labels(selector, path)
    return tuple(NodeRule(key, "In", (value,)) for key, value in sorted(selector.items()))


def read_node_rules(spec: FieldReader) -> tuple[NodeRule, ...]:
    rules = [*selector_rules(spec.text_map("nodeSelector"), spec.path_of("nodeSelector"))]
    if spec.has("nodeName"):
        rules.append(NodeRule(HOSTNAME, "In", (spec.read("nodeName", read_node_name, ""),)))
    affinity = spec.inner("affinity")
    affinity.ignore("not used yet: pods are not placed relative to other pods", "podAffinity", "podAntiAffinity")
    node = affinity.inner("nodeAffinity")
    node.ignore("not used yet: only required rules are", "preferredDuringSchedulingIgnoredDuringExecution")
    required = node.inner("requiredDuringSchedulingIgnoredDuringExecution")
    rules += _read_terms(required)
    for fields in (required, node, affinity):
        fields.finish()
    if len(rules) > MAX_RULES:
        raise spec.path_of("affinity").error(f"has {len(rules)} rules and the maximum is {MAX_RULES}; use fewer")
    return tuple(rules)


def read_tolerations(spec: FieldReader) -> tuple[Toleration, ...]:
    found = tuple(_read_toleration(item) for item in spec.items("tolerations"))
    if len(found) > MAX_RULES:
        raise spec.path_of("tolerations").error(f"has {len(found)} entries and the maximum is {MAX_RULES}; use fewer")
    return found


def check_toleration(toleration: Toleration, path: FieldPath) -> Toleration:
    if toleration.operator not in TOLERATION_OPERATORS:
        raise path.error(f"has an unknown operator; write {' or '.join(TOLERATION_OPERATORS)}")
    if toleration.effect and toleration.effect not in EFFECTS:
        raise path.error(f"has an unknown effect; write {', '.join(EFFECTS)}, or leave it out for all")
    if toleration.key:
        check_label_key(toleration.key, path)
    elif toleration.operator != "Exists":
        raise path.error("has no key; add one, or write `operator: Exists` to tolerate every taint")
    if toleration.value and toleration.operator == "Exists":
        raise path.error("has a value beside `operator: Exists`; remove one of the two")
    return toleration


def _read_toleration(item: FieldReader) -> Toleration:
    item.ignore("not used: a tolerated taint is tolerated for good", "tolerationSeconds")
    toleration = Toleration(item.text("key"), item.text("operator", "Equal"), item.text("value"), item.text("effect"))
    item.finish()
    return check_toleration(toleration, FieldPath(item.owner, item.prefix))


def _read_terms(required: FieldReader) -> list[NodeRule]:
    terms = required.items("nodeSelectorTerms")
    if len(terms) > 1:
        raise required.path_of("nodeSelectorTerms").error(
            f"has {len(terms)} alternative terms, but only one is supported; "
            "write one term, with `operator: In` and several values if a label may have any of them"
        )
    rules: list[NodeRule] = []
    for term in terms:
        rules += [_read_rule(item) for item in term.items("matchExpressions")]
        for item in term.items("matchFields"):
            if item.value("key") != "metadata.name":
                raise item.path_of("key").error("must be metadata.name, the only field that can be matched; use labels")
            rules.append(NodeRule(HOSTNAME, item.choice("operator", ("In", "NotIn"), "In"), item.texts("values")))
            item.finish()
        term.finish()
    return rules


def _read_rule(item: FieldReader) -> NodeRule:
    rule = NodeRule(item.text("key"), item.choice("operator", OPERATORS, "In"), item.texts("values"))
    item.finish()
    path = FieldPath(item.owner, item.prefix)
    check_label_key(rule.key, path)
    if rule.operator in ("In", "NotIn") and not rule.values:
        raise item.path_of("values").error(f"is empty, and `operator: {rule.operator}` needs at least one; add it")
    if rule.operator in ("Exists", "DoesNotExist") and rule.values:
        raise item.path_of("values").error(f"must be left out with `operator: {rule.operator}`; remove it")
    if rule.operator in ("Gt", "Lt") and not (len(rule.values) == 1 and re.fullmatch(r"-?[0-9]{1,18}", rule.values[0])):
        raise item.path_of("values").error(f'must hold one whole number with `operator: {rule.operator}`; write ["4"]')
    return rule
