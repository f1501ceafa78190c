"""Decide which alerts begin, fire and end, from one sample of the cluster.

In:    the rules, what is remembered, a sample with its time, and the silences.   Out: what to remember, the alerts that
       changed, and what the channels are to be told.
Never: reads a clock, does I/O, or changes what it was given. The same input gives the same answer.

An alert fires once for one fault: while the value swings around the bound, it goes on until the rule has not held for
`keep_s`. A value that nobody knows neither begins nor ends an alert; after a quarter of an hour the alert ends.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from kaiwo.history.series.measures import SubjectKind
from kaiwo.history.series.series_writer import Frame
from kaiwo.model.alerts.alert import Alert, Silence
from kaiwo.model.alerts.alert_rule import AlertRule, Inhibition, RuleKind, Side
from kaiwo.telemetry.alerts.rule_set import RuleSet, matches
from kaiwo.telemetry.alerts.signals import Signal, SignalMemory, SignalReader, key_of
from kaiwo.telemetry.alerts.value_text import action_for, filled_in

UNKNOWN_KEPT_S = 900
GAP_S = 120  # nobody looked for longer: what was pending begins anew
NOTHING = SignalMemory()


class AlertMemory(msgspec.Struct, frozen=True):
    """What is remembered from one evaluation to the next."""

    signals: SignalMemory = NOTHING
    alerts: dict[tuple[str, str], Alert] = {}  # pending and firing ones, by rule and subject


class Evaluation(NamedTuple):
    memory: AlertMemory
    changed: tuple[Alert, ...]  # that are new, began to fire, were told, silenced or resolved
    dropped: tuple[Alert, ...]  # that were pending, and are no more
    told: tuple[Alert, ...]  # those that the channels are told of now: that they fire, or that they are resolved


def evaluate(
    rules: RuleSet, memory: AlertMemory, sample: Frame, now_s: int, silences: Sequence[Silence] = ()
) -> Evaluation:
    reader = SignalReader(sample, memory.signals, now_s)
    is_after_gap = now_s - memory.signals.at_s > GAP_S
    holding = _holding(rules, reader, sample)
    live = {
        key: _held(rules, memory.alerts.get(key), key, value, (now_s, is_after_gap)) for key, value in holding.items()
    }
    resolved, dropped = [], []
    for key, alert in memory.alerts.items():
        if key in holding:
            continue
        if _goes_on(rules, reader, alert, now_s):
            live[key] = alert
        elif alert.fired_s:
            resolved.append(replace(alert, resolved_s=max(now_s, 1)))
        else:
            dropped.append(alert)
    told = [alert for alert in resolved if alert.is_told]
    for key, alert in _with_telling(rules, live, silences, now_s):
        live[key] = alert
        if alert.is_told:
            told.append(alert)
    changed = [alert for key, alert in live.items() if _is_news(memory.alerts.get(key), alert)]
    return Evaluation(AlertMemory(reader.memory(), live), (*changed, *resolved), tuple(dropped), tuple(told))


def _holding(rules: RuleSet, reader: SignalReader, sample: Frame) -> dict[tuple[str, str], int]:
    """For each rule and subject of which the rule holds: the value. Nearly all rules end at the first comparison."""
    found: dict[tuple[str, str], int] = {}
    for key, every in rules.by_signal.items():
        signal = reader.read(key)
        if signal is None:
            continue
        for rule in every:
            is_above = rule.side is Side.ABOVE or rule.kind is RuleKind.ANOMALY
            if signal.most <= rule.bound if is_above else signal.most < 0 or signal.least >= rule.bound:
                continue
            for row in _rows(rules, rule, signal, is_above, sample):
                found[rule.name, signal.names[row]] = int(signal.values[row])
    return found


def _rows(rules: RuleSet, rule: AlertRule, signal: Signal, is_above: bool, sample: Frame) -> list[int]:
    values = signal.values
    holds = values > rule.bound if is_above else (values >= 0) & (values < rule.bound)
    if rule.subjects:
        holds = holds & rules.mask(rule, signal.names)
    for condition in rule.only_while:
        frame = sample.get(SubjectKind(condition.of or rule.of))
        if frame is None or condition.measure not in frame.values:
            return []
        others = frame.values[condition.measure]  # of one subject, it counts for all
        holds = holds & (others > condition.bound if condition.side is Side.ABOVE else
                         (others >= 0) & (others < condition.bound))  # fmt: skip
    rows: list[int] = np.flatnonzero(holds).tolist()
    return rows


def _held(rules: RuleSet, known: Alert | None, key: tuple[str, str], value: int, when: tuple[int, bool]) -> Alert:
    """The alert of a rule that holds now. `when`: now, and whether nobody looked for long."""
    now_s, is_after_gap = when
    rule = rules.by_name[key[0]]
    if known is None or (is_after_gap and not known.fired_s):
        action = action_for(rule, key[1])
        known = Alert(rule.name, rule.of, key[1], rule.severity, now_s, now_s, action=action, labels=rule.labels)
    known = replace(known, seen_s=now_s, value=value)
    if known.fired_s or now_s - known.since_s < rule.for_s:
        return known
    return replace(known, fired_s=max(now_s, 1), summary=filled_in(rule, key[1], value))


def _goes_on(rules: RuleSet, reader: SignalReader, alert: Alert, now_s: int) -> bool:
    """Whether an alert goes on although its rule does not hold now."""
    rule = rules.by_name.get(alert.rule)
    if rule is None:
        return False
    silent_s = now_s - alert.seen_s
    if silent_s < 0:  # the clock was set back
        return bool(alert.fired_s)
    if _is_unknown(rules, reader, rule, alert.subject):
        return silent_s < UNKNOWN_KEPT_S
    return bool(alert.fired_s) and silent_s < rule.keep_s


def _is_unknown(rules: RuleSet, reader: SignalReader, rule: AlertRule, subject: str) -> bool:
    signal = reader.read(key_of(rule))
    if signal is None:
        return True
    row = rules.rows(rule.of, signal.names).get(subject)
    return row is None or int(signal.values[row]) < 0


# -- who is told


def _with_telling(
    rules: RuleSet, live: dict[tuple[str, str], Alert], silences: Sequence[Silence], now_s: int
) -> Iterator[tuple[tuple[str, str], Alert]]:
    """The firing alerts of which the channels are told now, and those that are quiet for another reason than before."""
    open_ = [(key, alert) for key, alert in live.items() if alert.fired_s and not alert.is_told]
    if not open_:
        return
    sources = [(each, _places(each, live.values())) for each in rules.inhibitions]
    for key, alert in open_:
        quiet = _silence_of(alert, silences, now_s) or _inhibition_of(alert, sources)
        if not quiet:
            yield key, replace(alert, is_told=True, quiet="")
        elif quiet != alert.quiet:
            yield key, replace(alert, quiet=quiet)


def _silence_of(alert: Alert, silences: Sequence[Silence], now_s: int) -> str:
    for each in silences:
        if each.until_s > now_s and matches(alert.rule, (each.rule,)) and matches(alert.subject, (each.subject,)):
            return f"silence {each.id}"
    return ""


def _places(inhibition: Inhibition, alerts: Iterable[Alert]) -> dict[str, str]:
    """Where an alert fires that keeps others quiet: by place, its rule."""
    firing = (each for each in alerts if each.fired_s and matches(each.rule, inhibition.while_fires))
    return {_place(each, inhibition.same): each.rule for each in firing}


def _inhibition_of(alert: Alert, sources: Sequence[tuple[Inhibition, dict[str, str]]]) -> str:
    for inhibition, places in sources:
        if places and matches(alert.rule, inhibition.quiets):
            rule = places.get(_place(alert, inhibition.same))
            if rule is not None and rule != alert.rule:
                return f"{rule} fires"
    return ""


def _place(alert: Alert, same: str) -> str:
    if not same:
        return ""
    return alert.subject if same == "subject" else alert.subject.partition("/")[0]


def _is_news(before: Alert | None, alert: Alert) -> bool:
    """Whether more changed than the value."""
    return before is None or alert != replace(before, seen_s=alert.seen_s, value=alert.value)
