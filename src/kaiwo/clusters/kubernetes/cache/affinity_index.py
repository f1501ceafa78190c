"""Index the affinity rules of pods: each selector in use gets a mark, a text that stands for the pods that it selects.

In:    pods with their affinity rules, and the labels of namespaces.
Out:   the PodAffinity of a pod, and which pods a new rule affects. Equal selectors always get the same, readable mark.
Where no pod has such a rule, nothing is computed and no label is read.

A selector may be about the pods of all namespaces, and then every pod has its mark. So the pods of one namespace may
use only so many different selectors. A pod with one more waits, so that others need not wait for the scheduler.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.decode.affinity_rules import (
    EVERY_ADDRESS,
    AffinityRules,
    HostPort,
    PodSelector,
    SpreadRule,
    spread_among,
)
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.model.affinity import (
    HOST_PORT_PREFIX,
    NodeRule,
    NodeRules,
    PodAffinity,
    RequiredPodAffinity,
    RequiredPodAntiAffinity,
    TopologySpread,
)

Selectors = tuple[PodSelector, ...]  # of the pods that all of these select
MAX_CACHED = 20_000
MAX_SELECTORS = 256  # in use by the pods of one namespace that wait for us or that we placed
MAX_FOREIGN_SELECTORS = 1024  # the same for pods of other schedulers; the rules of more of them do not count


class _MarksOfPod(NamedTuple):
    owner: tuple[str, bool]  # its namespace, and whether it is ours to place
    marks: tuple[str, ...]  # in its rules


class AffinityIndex:
    """The marks in use, and the pods whose rules mention them."""

    def __init__(self, scheduler: str = "") -> None:
        self._scheduler = scheduler
        self._in_use: dict[tuple[str, bool], Counter[str]] = {}  # marks by the namespace of their pods and who places
        self._refused: dict[str, CachedPod] = {}  # by UID: pods with a selector too many
        self._has_released = False  # since the last `take_touched`
        self._selectors: dict[str, Selectors] = {}  # by mark
        self._by_namespace: dict[str | None, dict[str, Selectors]] = {}  # None: selectors for several namespaces
        self._users: Counter[str] = Counter()  # by mark: how many pods have a rule that mentions it
        self._marks_of: dict[str, _MarksOfPod] = {}  # by UID
        self._namespace_labels: dict[str, dict[str, str]] = {}  # by namespace
        self._new_marks: dict[str, Selectors] = {}  # since the last `take_touched`
        self._relabelled: set[str] = set()  # namespaces with new labels
        self._cached: dict[Any, PodAffinity | None] = {}

    def upsert_pod(self, pod: CachedPod) -> None:
        """Only for pods that wait for us or are placed; call `delete_pod` for the others."""
        rules = pod.spec.affinity
        if rules is None and pod.uid not in self._marks_of:
            return
        found = _all_selectors(rules, pod.namespace, pod.labels) if rules is not None else ()
        groups = {selector_text(*group): group for group in found}
        before = self._marks_of.get(pod.uid)
        owner = (pod.namespace, pod.scheduler == self._scheduler)
        if self._are_too_many(pod, groups, owner):
            self.delete_pod(pod.uid)
            self._refused[pod.uid] = pod
            return
        self._refused.pop(pod.uid, None)
        self._marks_of[pod.uid] = _MarksOfPod(owner, tuple(groups))
        in_use = self._in_use.setdefault(owner, Counter())
        for mark, group in groups.items():
            if not self._users[mark]:
                self._add_mark(mark, group)
            self._users[mark] += 1
            in_use[mark] += 1
        self._release(before)

    def delete_pod(self, uid: str) -> None:
        self._refused.pop(uid, None)
        self._release(self._marks_of.pop(uid, None))

    def explain_refusal(self, pod: CachedPod) -> str:
        """Why a waiting pod cannot be tried; empty: it can."""
        if not self._refused or pod.uid not in self._refused:
            return ""
        return (
            f"the pods of namespace {pod.namespace} use {MAX_SELECTORS} different selectors in rules between pods "
            "(affinity, anti-affinity, spread), which is the maximum; use fewer different ones, or wait until some of "
            "these pods are gone"
        )

    def upsert_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        """A namespace is new or changed; without labels it is gone."""
        if self._namespace_labels.get(name) == labels:
            return
        if labels is None:
            del self._namespace_labels[name]
        else:
            self._namespace_labels[name] = labels
        self._cached.clear()
        about_several = self._by_namespace.get(None, {}).values()
        if any(selector.in_namespaces is not None for group in about_several for selector in group):
            self._relabelled.add(name)

    def take_touched(self, pods: Iterable[CachedPod]) -> list[Key]:
        """Of these pods, those that a new mark selects, or whose namespace has new labels."""
        new, self._new_marks = self._new_marks, {}
        relabelled, self._relabelled = self._relabelled, set()
        retried = self._retry_refused()
        if retried:
            new |= self._new_marks
            self._new_marks = {}
        if not new and not relabelled:
            return retried
        namespaces = {_only_namespace(group) for group in new.values()}  # None: some mark is about several
        selected: dict[tuple[str, bytes], bool] = {}
        touched = list(retried)
        for pod in pods:
            if None not in namespaces and pod.namespace not in namespaces and pod.namespace not in relabelled:
                continue
            key = (pod.namespace, pod.labels_text)
            if key not in selected:
                labels = pod.labels
                is_selected = any(self._selects(group, pod, labels) for group in new.values())
                selected[key] = is_selected or pod.namespace in relabelled
            if selected[key]:
                touched.append(pod.key)
        return touched

    def affinity_of(self, pod: CachedPod) -> PodAffinity | None:
        """None: the pod has no rule, and no rule selects it."""
        rules = pod.spec.affinity
        if rules is None and not self._selectors:
            return None
        key = (pod.namespace, pod.labels_text, rules, pod.is_terminating)
        if key not in self._cached:
            if len(self._cached) >= MAX_CACHED:
                self._cached.clear()
            self._cached[key] = self._compute(pod, rules)
        return self._cached[key]

    def _add_mark(self, mark: str, selectors: Selectors) -> None:
        self._selectors[mark] = self._new_marks[mark] = selectors
        self._by_namespace.setdefault(_only_namespace(selectors), {})[mark] = selectors
        self._cached.clear()

    def _are_too_many(self, pod: CachedPod, groups: Mapping[str, Selectors], owner: tuple[str, bool]) -> bool:
        in_use = self._in_use.get(owner)
        if in_use is None or (pod.node and owner[1]):
            return False  # the rules of a pod that we placed hold as long as it runs
        most = MAX_SELECTORS if owner[1] else MAX_FOREIGN_SELECTORS
        return len(in_use) + len(groups) > most and len(in_use.keys() | groups.keys()) > most

    def _retry_refused(self) -> list[Key]:
        """Of the pods that had a selector too many, those that have no more."""
        if not self._has_released or not self._refused:
            return []
        self._has_released = False
        waiting = list(self._refused.values())
        for pod in waiting:
            self.upsert_pod(pod)
        return [pod.key for pod in waiting if pod.uid not in self._refused]

    def _release(self, gone: "_MarksOfPod | None") -> None:
        """Pods that carry an unused mark keep it until they are published again; it does no harm."""
        if gone is None:
            return
        in_use = self._in_use[gone.owner]
        for mark in gone.marks:
            in_use[mark] -= 1
            if not in_use[mark]:
                del in_use[mark]
                self._has_released = True
            self._users[mark] -= 1
            if self._users[mark]:
                continue
            del self._users[mark]
            del self._by_namespace[_only_namespace(self._selectors.pop(mark))][mark]
            self._new_marks.pop(mark, None)
            self._cached.clear()

    def _compute(self, pod: CachedPod, rules: AffinityRules | None) -> PodAffinity | None:
        labels = pod.labels
        about = self._by_namespace.get(pod.namespace, {}) | self._by_namespace.get(None, {})
        marks = sorted(mark for mark, group in about.items() if self._selects(group, pod, labels))
        if rules is None:
            return PodAffinity(tuple(marks)) if marks else None
        near, levels = _near(rules, pod.namespace), tuple(dict.fromkeys(rule.level for rule in rules.near))
        apart = [
            RequiredPodAntiAffinity(selector_text(_resolve(rule.pods, pod.namespace)), rule.level)
            for rule in rules.apart
        ]
        return PodAffinity(
            (*marks, *_port_marks(rules.ports)),
            RequiredPodAffinity(selector_text(*near), levels) if near else None,
            (*dict.fromkeys(apart), *_port_rules(rules.ports)),
            tuple(_spread(rule, pod.namespace, labels) for rule in rules.spread),
            rules.own_rules,
            rules.own_choices,
        )

    def _selects(self, selectors: Selectors, pod: CachedPod, labels: dict[str, str]) -> bool:
        return all(self._selects_one(selector, pod, labels) for selector in selectors)

    def _selects_one(self, selector: PodSelector, pod: CachedPod, labels: dict[str, str]) -> bool:
        if selector.selector is None or (selector.without_terminating and pod.is_terminating):
            return False
        if pod.namespace not in selector.namespaces:
            there = self._namespace_labels.get(pod.namespace, {})
            if selector.in_namespaces is None or not all(rule.holds(there) for rule in selector.in_namespaces):
                return False
        return all(rule.holds(labels) for rule in selector.selector)


def _all_selectors(rules: AffinityRules, namespace: str, labels: dict[str, str]) -> Iterator[Selectors]:
    if near := _near(rules, namespace):
        yield near
    for term in rules.apart:
        yield (_resolve(term.pods, namespace),)
    for spread in rules.spread:
        yield (_resolve(spread_among(spread, labels), namespace),)


def _near(rules: AffinityRules, namespace: str) -> Selectors:
    """As in Kubernetes, a pod counts only if all the terms select it."""
    return tuple(dict.fromkeys(_resolve(rule.pods, namespace) for rule in rules.near))


def _spread(rule: SpreadRule, namespace: str, labels: dict[str, str]) -> TopologySpread:
    mark = selector_text(_resolve(spread_among(rule, labels), namespace))
    return TopologySpread(mark, rule.level, rule.max_skew, rule.min_places, rule.by_rules, rule.by_taints)


def _resolve(selector: PodSelector, namespace: str) -> PodSelector:
    return replace(selector, namespaces=(namespace,), in_own_namespace=False) if selector.in_own_namespace else selector


def _only_namespace(selectors: Selectors) -> str | None:
    """The one namespace that these selectors cover; None: several."""
    spaces = {selector.namespaces if selector.in_namespaces is None else () for selector in selectors}
    only = spaces.pop() if len(spaces) == 1 else ()
    return only[0] if len(only) == 1 else None


def selector_text(*selectors: PodSelector) -> str:
    """One text for the pods that all of these select."""
    return " and ".join(_describe(selector) for selector in selectors)


def _port_marks(ports: Iterable[HostPort]) -> Iterable[str]:
    """The marks of a pod with these ports: the number, and the number on its address."""
    return dict.fromkeys(mark for port in ports for mark in (_port_mark(port), _port_mark(port, port.address)))


def _port_rules(ports: Iterable[HostPort]) -> Iterable[RequiredPodAntiAffinity]:
    """A port on every address is free where no pod has the number; on one address, where no pod has it there."""
    for port in ports:
        for address in ("",) if port.address == EVERY_ADDRESS else (port.address, EVERY_ADDRESS):
            yield RequiredPodAntiAffinity(_port_mark(port, address))


def _port_mark(port: HostPort, address: str = "") -> str:
    return f"{HOST_PORT_PREFIX}{port.protocol}/{port.number}" + (f" on {address}" if address else "")


def _describe(selector: PodSelector) -> str:
    namespaces = [",".join(selector.namespaces)] if selector.namespaces else []
    if selector.in_namespaces is not None:
        namespaces.append(f"namespaces({_describe_rules(selector.in_namespaces)})")
    staying = ", staying" if selector.without_terminating else ""
    return f"{'+'.join(namespaces)} {_describe_rules(selector.selector)}{staying}"


def _describe_rules(rules: NodeRules | None) -> str:
    if rules is None:
        return "(none)"
    return ",".join(_describe_rule(rule) for rule in rules) or "(all)"


def _describe_rule(rule: NodeRule) -> str:
    values = ",".join(rule.values)
    match rule.operator:
        case "In":
            return f"{rule.key}={values}" if len(rule.values) == 1 else f"{rule.key} in ({values})"
        case "NotIn":
            return f"{rule.key} not in ({values})"
        case "Exists":
            return rule.key
    return f"!{rule.key}"
