"""What a pod's spec says about other pods, before it is known in which namespace and with which labels.

In:    a pod's spec.   Out: one Acquaintance, shared by all pods that say exactly the same; None when it says nothing.
Only what is required is read: what is merely preferred keeps a pod from nowhere.
"""

from collections.abc import Iterable, Mapping

import msgspec

from kaiwo.clusters.kubernetes.decode.wire_objects import Container, LabelSelector, PodSpec, PodTerm, Port
from kaiwo.clusters.kubernetes.decode.wire_objects import Spread as WireSpread
from kaiwo.model.affinity import Choice, NodeRule, Rules

EVERY_ADDRESS = "0.0.0.0"


class PodSelector(msgspec.Struct, frozen=True, gc=False):
    """Which pods a rule is about."""

    selector: Rules | None  # None: no pod
    namespaces: tuple[str, ...] = ()
    in_namespaces: Rules | None = None  # and all namespaces with such labels
    is_at_home: bool = False  # those in the namespace of whoever says it
    is_staying: bool = False  # pods that were told to go do not count


class TermRule(msgspec.Struct, frozen=True, gc=False):
    """Near to them, or apart from them."""

    whom: PodSelector
    level: str


class SpreadRule(msgspec.Struct, frozen=True, gc=False):
    """Even among places."""

    whom: PodSelector
    level: str
    max_skew: int
    min_places: int
    by_rules: bool
    by_taints: bool
    same_labels: tuple[str, ...]  # of these labels, those pods that have the same values


class AffinityRules(msgspec.Struct, frozen=True, gc=False):
    """All of it."""

    near: tuple[TermRule, ...] = ()
    apart: tuple[TermRule, ...] = ()
    spread: tuple[SpreadRule, ...] = ()
    ports: tuple[tuple[str, int, str], ...] = ()  # protocol, number, address
    own_rules: Rules = ()  # which nodes it may use by its own word: for the spread
    own_choices: tuple[Choice, ...] = ()


def read_affinity_rules(spec: PodSpec, rules: Rules = (), choices: tuple[Choice, ...] = ()) -> AffinityRules | None:
    """None: the pod minds nobody. `rules` and `choices` are what it says about nodes."""
    affinity = spec.affinity
    near = affinity.pod_affinity.required if affinity and affinity.pod_affinity else None
    apart = affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else None
    hard = [each for each in spec.topology_spread_constraints or () if each.when_unsatisfiable == "DoNotSchedule"]
    ports = tuple(sorted({_port(port) for item in _staying(spec) for port in item.ports or () if port.host_port}))
    if not (near or apart or hard or ports):
        return None
    return AffinityRules(
        tuple(_term(each) for each in near or ()),
        tuple(_term(each) for each in apart or ()),
        tuple(_spread(each) for each in hard),
        ports,
        rules if hard else (),
        choices if hard else (),
    )


def read_selector(selector: LabelSelector | None) -> Rules | None:
    """In one order, so that equal selectors are equal."""
    if selector is None:
        return None
    rules = {NodeRule(key, "In", (value,)) for key, value in (selector.match_labels or {}).items()}
    for item in selector.match_expressions or ():
        rules.add(NodeRule(item.key, item.operator, tuple(sorted(set(item.values or ())))))
    return tuple(sorted(rules, key=_order))


def spread_among(rule: SpreadRule, labels: Mapping[str, str]) -> PodSelector:
    """Whom a pod with these labels is spread among. A selector that matches everything counts nobody there."""
    if rule.whom.selector is None:
        return rule.whom
    # The server merges them into the selector, too, in most versions: what stands there twice is kept once.
    same = {NodeRule(key, "In", (labels[key],)) for key in rule.same_labels if key in labels}
    selector = tuple(sorted({*rule.whom.selector, *same}, key=_order))
    return msgspec.structs.replace(rule.whom, selector=selector or None)


def _order(rule: NodeRule) -> tuple[str, str, tuple[str, ...]]:
    return rule.key, rule.operator, rule.values


def _term(term: PodTerm) -> TermRule:
    whom = PodSelector(
        read_selector(term.label_selector),
        tuple(sorted(set(term.namespaces or ()))),
        read_selector(term.namespace_selector),
        is_at_home=not term.namespaces and term.namespace_selector is None,
    )
    return TermRule(whom, term.topology_key)


def _spread(rule: WireSpread) -> SpreadRule:
    return SpreadRule(
        PodSelector(read_selector(rule.label_selector), is_at_home=True, is_staying=True),
        rule.topology_key,
        rule.max_skew,
        rule.min_domains or 1,
        by_rules=rule.node_affinity_policy != "Ignore",
        by_taints=rule.node_taints_policy == "Honor",
        same_labels=rule.match_label_keys or (),
    )


def _port(port: Port) -> tuple[str, int, str]:
    return port.protocol or "TCP", port.host_port, port.host_ip or EVERY_ADDRESS


def _staying(spec: PodSpec) -> Iterable[Container]:
    """Containers that run as long as the pod: start-up containers give their ports back."""
    return (*spec.containers, *(item for item in spec.init_containers or () if item.restart_policy == "Always"))
