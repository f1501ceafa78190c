"""Negative namespace selectors, about which kube-scheduler and the API's words differ.

In:    a pod to be placed.   Out: two twins, which both schedulers must judge alike.
The API says that a term's `namespaceSelector` is matched with the labels of namespaces. kube-scheduler 1.36 writes the
names of the namespaces that match into the terms of the pod that it places, but keeps the selector too and matches it
with no labels at all. A selector that only excludes matches no labels, so for it such a term reaches every namespace.
Terms of pods that are placed already are matched with real labels. So: what kube-scheduler says of such a pod is what
we say of its twin that selects every namespace; and what we say of it is what kube-scheduler says of its twin that
names the namespaces.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]
EVERYWHERE, BY_NAME = "-everywhere", "-by-name"
NOWHERE = "nobody-is-here"  # a term without any namespace would mean the pod's own
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def twins(pod: Json, labels: Mapping[str, Mapping[str, str]]) -> list[Json]:
    """`labels`: of each namespace. None where no selector of the pod excludes only."""
    if not any(_only_excludes(term) for term in _terms(pod)):
        return []
    everywhere, by_name = copy.deepcopy(pod), copy.deepcopy(pod)
    everywhere["metadata"]["name"] += EVERYWHERE
    by_name["metadata"]["name"] += BY_NAME
    for term in filter(_only_excludes, _terms(everywhere)):
        term["namespaceSelector"] = {}
    for term in filter(_only_excludes, _terms(by_name)):
        rules = term.pop("namespaceSelector")["matchExpressions"]
        named = {name for name, own in labels.items() if all(_holds(rule, own) for rule in rules)}
        term["namespaces"] = sorted(named.union(term.get("namespaces", ()))) or [NOWHERE]
    return [everywhere, by_name]


def _terms(pod: Json) -> Iterator[Json]:
    affinity = pod["spec"].get("affinity", {})
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from affinity.get(kind, {}).get(REQUIRED, ())


def _only_excludes(term: Json) -> bool:
    selector = term.get("namespaceSelector") or {}
    rules = selector.get("matchExpressions", ())
    excludes = all(rule["operator"] in ("NotIn", "DoesNotExist") for rule in rules)
    return bool(rules) and not selector.get("matchLabels") and excludes


def _holds(rule: Json, labels: Mapping[str, str]) -> bool:
    key = rule["key"]
    return key not in labels or (rule["operator"] == "NotIn" and labels[key] not in rule["values"])
