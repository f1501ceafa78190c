"""Who is meant by the rules between pods: every selector in use becomes a mark that the pods it matches carry.

In:    pods with their rules, and the labels of namespaces.   Out: the Neighbours of a pod, and which pods a new rule
       touches. The marks are texts that people can read, and the same in every process.
Where no pod has such a rule, nothing is worked out and no label is read.

Also: Marks in words: what stands in the picture for a selector or a port, and in the sentence why a pod waits.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.decode.affinity_rules import (
    EVERY_ADDRESS,
    AffinityRules,
    PodSelector,
    SpreadRule,
    spread_among,
)
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.model.affinity import PORT, Apart, Near, NodeRule, PodAffinity, Rules, Spread

Ports = tuple[tuple[str, int, str], ...]  # protocol, number, address


def selector_text(*group: PodSelector) -> str:
    """One text for pods that all of these mean."""
    return " and ".join(_words(whom) for whom in group)


def port_marks(ports: Ports) -> Iterable[str]:
    """What a pod with these ports is known by: the number, and the number on its address."""
    return dict.fromkeys(
        mark for protocol, port, on in ports for mark in (_port(protocol, port), _port(protocol, port, on))
    )


def port_rules(ports: Ports) -> Iterable[Apart]:
    """A port on every address is free where nobody has the number; on one address, where nobody has it there."""
    for protocol, port, on in ports:
        if on == EVERY_ADDRESS:
            yield Apart(_port(protocol, port))
        else:
            yield Apart(_port(protocol, port, on))
            yield Apart(_port(protocol, port, EVERY_ADDRESS))


def _port(protocol: str, port: int, on: str = "") -> str:
    return f"{PORT}{protocol}/{port}" + (f" on {on}" if on else "")


def _words(whom: PodSelector) -> str:
    spaces = [",".join(whom.namespaces)] if whom.namespaces else []
    if whom.in_namespaces is not None:
        spaces.append(f"namespaces({_all_of(whom.in_namespaces)})")
    return f"{'+'.join(spaces)} {_all_of(whom.selector)}" + (", staying" if whom.is_staying else "")


def _all_of(rules: Rules | None) -> str:
    if rules is None:
        return "(none)"
    return ",".join(_one(rule) for rule in rules) or "(all)"


def _one(rule: NodeRule) -> str:
    values = ",".join(rule.values)
    match rule.operator:
        case "In":
            return f"{rule.key}={values}" if len(rule.values) == 1 else f"{rule.key} in ({values})"
        case "NotIn":
            return f"{rule.key} not in ({values})"
        case "Exists":
            return rule.key
    return f"!{rule.key}"


Group = tuple[PodSelector, ...]  # pods that all of these mean
MOST_KNOWN = 20_000


class AffinityIndex:
    """The marks in use, and who carries them."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}  # by mark
        self._at_home: dict[str, dict[str, Group]] = {}  # of those: by the one namespace that they are about
        self._abroad: dict[str, Group] = {}  # of those: about several
        self._users: Counter[str] = Counter()  # by mark: pods with a rule about it
        self._said: dict[str, tuple[str, ...]] = {}  # by UID: the marks that a pod's rules are about
        self._labels: dict[str, dict[str, str]] = {}  # by namespace
        self._fresh: dict[str, Group] = {}  # marks that are new
        self._moved: set[str] = set()  # namespaces whose labels are new
        self._known: dict[Any, PodAffinity | None] = {}

    def upsert_pod(self, pod: CachedPod) -> None:
        """A pod that counts: it waits for us, or holds a place."""
        rules = pod.spec.affinity
        if rules is None and pod.uid not in self._said:
            return
        found = _groups(rules, pod.namespace, pod.labels) if rules is not None else ()
        groups = {selector_text(*group): group for group in found}
        before = self._said.get(pod.uid, ())
        self._said[pod.uid] = tuple(groups)
        for mark, group in groups.items():
            if not self._users[mark]:
                self._begin(mark, group)
            self._users[mark] += 1
        self._release(before)

    def delete_pod(self, uid: str) -> None:
        """A pod that counts no longer."""
        self._release(self._said.pop(uid, ()))

    def upsert_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        """None: it is gone."""
        if self._labels.get(name) == labels:
            return
        if labels is None:
            del self._labels[name]
        else:
            self._labels[name] = labels
        self._known.clear()
        if any(whom.in_namespaces is not None for group in self._abroad.values() for whom in group):
            self._moved.add(name)

    def take_touched(self, pods: Iterable[CachedPod]) -> list[Key]:
        """Of these pods, those that a new mark is about, or whose namespace may be meant by others now."""
        fresh, self._fresh = self._fresh, {}
        moved, self._moved = self._moved, set()
        if not fresh and not moved:
            return []
        spaces = {home for group in fresh.values() if (home := _home(group)) is not None}
        is_abroad = any(_home(group) is None for group in fresh.values())
        known: dict[tuple[str, bytes], bool] = {}
        touched = []
        for pod in pods:
            if not is_abroad and pod.namespace not in spaces and pod.namespace not in moved:
                continue
            key = (pod.namespace, pod.labels_text)
            if key not in known:
                labels = pod.labels
                is_meant = any(self._means(group, pod, labels) for group in fresh.values())
                known[key] = is_meant or pod.namespace in moved
            if known[key]:
                touched.append(pod.key)
        return touched

    def affinity_of(self, pod: CachedPod) -> PodAffinity | None:
        """None: nobody minds this pod, and it minds nobody."""
        rules = pod.spec.affinity
        if rules is None and not self._groups:
            return None
        key = (pod.namespace, pod.labels_text, rules, pod.is_terminating)
        if key not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = self._work_out(pod, rules)
        return self._known[key]

    def _begin(self, mark: str, group: Group) -> None:
        self._groups[mark] = self._fresh[mark] = group
        home = _home(group)
        (self._abroad if home is None else self._at_home.setdefault(home, {}))[mark] = group
        self._known.clear()

    def _release(self, marks: Iterable[str]) -> None:
        """Who carries a mark that nobody minds any more loses it when it is told of next: it does no harm."""
        for mark in marks:
            self._users[mark] -= 1
            if self._users[mark]:
                continue
            del self._users[mark]
            home = _home(self._groups.pop(mark))
            del (self._abroad if home is None else self._at_home[home])[mark]
            self._fresh.pop(mark, None)
            self._known.clear()

    def _work_out(self, pod: CachedPod, rules: AffinityRules | None) -> PodAffinity | None:
        labels = pod.labels
        about = self._at_home.get(pod.namespace, {}) | self._abroad
        marks = sorted(mark for mark, group in about.items() if self._means(group, pod, labels))
        if rules is None:
            return PodAffinity(tuple(marks)) if marks else None
        near = _near(rules, pod.namespace)
        apart = [Apart(selector_text(_at_home(rule.whom, pod.namespace)), rule.level) for rule in rules.apart]
        return PodAffinity(
            (*marks, *port_marks(rules.ports)),
            Near(selector_text(*near), tuple(dict.fromkeys(rule.level for rule in rules.near))) if near else None,
            (*dict.fromkeys(apart), *port_rules(rules.ports)),
            tuple(_spread(rule, pod.namespace, labels) for rule in rules.spread),
            rules.own_rules,
            rules.own_choices,
        )

    def _means(self, group: Group, pod: CachedPod, labels: dict[str, str]) -> bool:
        return all(self._means_one(whom, pod, labels) for whom in group)

    def _means_one(self, whom: PodSelector, pod: CachedPod, labels: dict[str, str]) -> bool:
        if whom.selector is None or (whom.is_staying and pod.is_terminating):
            return False
        if pod.namespace not in whom.namespaces:
            there = self._labels.get(pod.namespace, {})
            if whom.in_namespaces is None or not all(rule.holds(there) for rule in whom.in_namespaces):
                return False
        return all(rule.holds(labels) for rule in whom.selector)


def _groups(rules: AffinityRules, namespace: str, labels: dict[str, str]) -> Iterator[Group]:
    """Everybody whom a pod's rules are about."""
    if near := _near(rules, namespace):
        yield near
    for term in rules.apart:
        yield (_at_home(term.whom, namespace),)
    for spread in rules.spread:
        yield (_at_home(spread_among(spread, labels), namespace),)


def _near(rules: AffinityRules, namespace: str) -> Group:
    """Only pods that all terms mean count for any of them."""
    return tuple(dict.fromkeys(_at_home(rule.whom, namespace) for rule in rules.near))


def _spread(rule: SpreadRule, namespace: str, labels: dict[str, str]) -> Spread:
    mark = selector_text(_at_home(spread_among(rule, labels), namespace))
    return Spread(mark, rule.level, rule.max_skew, rule.min_places, rule.by_rules, rule.by_taints)


def _at_home(whom: PodSelector, namespace: str) -> PodSelector:
    return replace(whom, namespaces=(namespace,), is_at_home=False) if whom.is_at_home else whom


def _home(group: Group) -> str | None:
    """The one namespace that a group is about."""
    spaces = {whom.namespaces if whom.in_namespaces is None else () for whom in group}
    only = spaces.pop() if len(spaces) == 1 else ()
    return only[0] if len(only) == 1 else None
