"""Read a pod's rules about other pods: affinity, anti-affinity, topology spread and host ports.

Only required rules are read: preferred ones do not exclude any node.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.decode.wire_objects import (
    LabelSelector,
    PodSpec,
    PodTerm,
    Port,
    TopologySpreadConstraint,
)
from kaiwo.model.affinity import NodeAlternatives, NodeRule, NodeRules

EVERY_ADDRESS = "0.0.0.0"
MAX_RULES = 32  # affinity terms, anti-affinity terms and spread constraints of one pod; more are not read


class PodSelector(msgspec.Struct, frozen=True, gc=False):
    """Which pods a rule is about."""

    selector: NodeRules | None  # None: no pod
    namespaces: tuple[str, ...] = ()
    in_namespaces: NodeRules | None = None  # and all namespaces with such labels
    in_own_namespace: bool = False  # and the namespace of the pod that has the rule
    without_terminating: bool = False  # pods that are being deleted do not count


class TermRule(msgspec.Struct, frozen=True, gc=False):
    """An affinity or anti-affinity term."""

    pods: PodSelector
    level: str


class SpreadRule(msgspec.Struct, frozen=True, gc=False):
    """Spread evenly over topology domains."""

    pods: PodSelector
    level: str
    max_skew: int
    min_places: int
    by_rules: bool
    by_taints: bool
    same_labels: tuple[str, ...]  # only pods with the same values of these labels


class HostPort(NamedTuple):
    """A port of the node that a pod takes."""

    protocol: str
    number: int
    address: str


class AffinityRules(msgspec.Struct, frozen=True, gc=False):
    """Every rule of one pod."""

    near: tuple[TermRule, ...] = ()
    apart: tuple[TermRule, ...] = ()
    spread: tuple[SpreadRule, ...] = ()
    ports: tuple[HostPort, ...] = ()
    own_rules: NodeRules = ()  # which nodes the spec itself allows: for the spread
    own_choices: tuple[NodeAlternatives, ...] = ()


def read_affinity_rules(
    spec: PodSpec, rules: NodeRules = (), choices: tuple[NodeAlternatives, ...] = ()
) -> AffinityRules | None:
    """None: the pod has no such rules. `rules` and `choices`: its rules about nodes."""
    affinity = spec.affinity
    near = affinity.pod_affinity.required if affinity and affinity.pod_affinity else None
    apart = affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else None
    hard = [each for each in spec.topology_spread_constraints or () if each.when_unsatisfiable == "DoNotSchedule"]
    # Init containers give their ports back, unless they run as long as the pod.
    sidecars = [item for item in spec.init_containers or () if item.restart_policy == "Always"]
    ports = {_port(port) for item in (*spec.containers, *sidecars) for port in item.ports or () if port.host_port}
    if not (near or apart or hard or ports):
        return None
    return AffinityRules(
        tuple(_term(each) for each in (near or ())[:MAX_RULES]),
        tuple(_term(each) for each in (apart or ())[:MAX_RULES]),
        tuple(_spread(each) for each in hard[:MAX_RULES]),
        tuple(sorted(ports)),
        rules if hard else (),
        choices if hard else (),
    )


def count_rules(spec: PodSpec) -> int:
    """How many rules about other pods it has, of any one kind."""
    affinity = spec.affinity
    near = affinity.pod_affinity.required if affinity and affinity.pod_affinity else None
    apart = affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else None
    return max(len(near or ()), len(apart or ()), len(spec.topology_spread_constraints or ()))


def read_selector(selector: LabelSelector | None) -> NodeRules | None:
    """The requirements in a fixed order, so that equal selectors compare as equal."""
    if selector is None:
        return None
    labels, expressions = selector.match_labels or {}, selector.match_expressions or ()
    rules = {NodeRule(key, "In", (value,)) for key, value in labels.items()}
    rules |= {NodeRule(item.key, item.operator, tuple(sorted(set(item.values or ())))) for item in expressions}
    return tuple(sorted(rules, key=_order))


def spread_among(rule: SpreadRule, labels: Mapping[str, str]) -> PodSelector:
    """The pods among which a pod with these labels is spread. An empty selector counts no pods."""
    if rule.pods.selector is None:
        return rule.pods
    # Most servers merge them into the selector too: duplicates are kept once.
    same = {NodeRule(key, "In", (labels[key],)) for key in rule.same_labels if key in labels}
    selector = tuple(sorted({*rule.pods.selector, *same}, key=_order))
    return msgspec.structs.replace(rule.pods, selector=selector or None)


def _order(rule: NodeRule) -> tuple[str, str, tuple[str, ...]]:
    return rule.key, rule.operator, rule.values


def _term(term: PodTerm) -> TermRule:
    selector = PodSelector(
        read_selector(term.label_selector),
        tuple(sorted(set(term.namespaces or ()))),
        read_selector(term.namespace_selector),
        in_own_namespace=not term.namespaces and term.namespace_selector is None,
    )
    return TermRule(selector, term.topology_key)


def _spread(rule: TopologySpreadConstraint) -> SpreadRule:
    return SpreadRule(
        PodSelector(read_selector(rule.label_selector), in_own_namespace=True, without_terminating=True),
        rule.topology_key,
        rule.max_skew,
        rule.min_domains or 1,
        by_rules=rule.node_affinity_policy != "Ignore",
        by_taints=rule.node_taints_policy == "Honor",
        same_labels=rule.match_label_keys or (),
    )


def _port(port: Port) -> HostPort:
    return HostPort(port.protocol or "TCP", port.host_port, port.host_ip or EVERY_ADDRESS)
