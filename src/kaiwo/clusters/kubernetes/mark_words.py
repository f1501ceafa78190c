"""Marks in words: what stands in the picture for a selector or a port, and in the sentence why a pod waits.

In:    whom a rule is about; ports.   Out: `default app=web`, `port:TCP/8080`.
A namespace has no colon, so no selector's mark is taken for a port's.
"""

from collections.abc import Iterable

from kaiwo.clusters.kubernetes.acquaintance import EVERY_ADDRESS, Whom
from kaiwo.model.neighbours import PORT, Apart
from kaiwo.model.node_rules import NodeRule, Rules

Ports = tuple[tuple[str, int, str], ...]  # protocol, number, address


def mark_of(*group: Whom) -> str:
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


def _words(whom: Whom) -> str:
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
