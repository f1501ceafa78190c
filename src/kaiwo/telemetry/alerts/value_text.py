"""Write the numbers of alerts as people write them, and fill them into a rule's summary."""

from collections.abc import Callable

from kaiwo.model.alerts.alert_rule import AlertRule, RuleKind
from kaiwo.model.amounts import duration, rounded_memory, thousandths

_UNITS: dict[str, Callable[[int], str]] = {
    "_permille": lambda value: f"{value / 10:.1f} %",
    "_percent": lambda value: f"{value} %",
    "_milli": thousandths,
    "_mib": rounded_memory,
    "_us": lambda value: f"{value / 1000:.1f} ms",
    "_w": lambda value: f"{value} W",
    "_c": lambda value: f"{value} °C",
    "_s": duration,
}


def filled_in(rule: AlertRule, subject: str, value: int) -> str:
    """The summary with its values; a rule without one is described by what it compares."""
    text = rule.summary or f"{rule.measure} of {{subject}} is {{value}}"
    text = text.replace("{value}", value_text(rule, value)).replace("{bound}", value_text(rule, rule.bound))
    return text.replace("{subject}", subject)  # last: a name may look like one of the others


def action_for(rule: AlertRule, subject: str) -> str:
    """What to do about this subject; `{node}` is the node of a GPU."""
    return rule.action.replace("{node}", subject.partition("/")[0]).replace("{subject}", subject)


def value_text(rule: AlertRule, value: int) -> str:
    match rule.kind:
        case RuleKind.RATIO:
            return f"{value / 10:.1f} %"
        case RuleKind.ABSENCE:
            return duration(value)
        case RuleKind.ANOMALY:
            return f"{value / 1000:.1f} deviations"
        case RuleKind.RATE if rule.over:
            return f"{value / 10:.1f} %"
    return next((write(value) for unit, write in _UNITS.items() if rule.measure.endswith(unit)), str(value))
