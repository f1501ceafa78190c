"""Alerts, their rules, silences and channels."""

import msgspec

from kaiwo.model.alerts.alert import AlertState
from kaiwo.model.alerts.alert_rule import RuleKind, Severity


class AlertView(msgspec.Struct, frozen=True):
    """A rule that holds, or held, for one subject."""

    id: str  # the same in every message about it
    rule: str
    state: AlertState
    severity: Severity
    of: str  # the kind of its subject: cluster | node | gpu | queue | user | scheduler | process
    subject: str
    summary: str
    action: str  # what to do, or where to look; may be empty
    value: int  # when the rule last held
    since_s: int  # since when the rule holds
    fired_s: int  # 0: not yet
    resolved_s: int  # 0: not yet
    quiet: str  # why nobody is told; empty: they are
    labels: dict[str, str]


class AlertsView(msgspec.Struct, frozen=True):
    """What fires and what is pending, the worst first."""

    now_s: int
    alerts: list[AlertView]
    rules: int  # that are evaluated
    evaluated_s: int  # when; 0: not yet
    problem: str  # why the file of rules is not used as it is now; empty: it is


class PastAlertsView(msgspec.Struct, frozen=True):
    """Alerts that were resolved, the last first."""

    now_s: int
    alerts: list[AlertView]


class AlertRuleView(msgspec.Struct, frozen=True):
    """A rule: what it compares, and how bad it is when it holds."""

    name: str
    kind: RuleKind
    of: str
    compares: str  # such as `temperature_c above 100 °C`
    for_s: int
    keep_s: int
    severity: Severity
    subjects: list[str]  # patterns; empty: all
    labels: dict[str, str]
    summary: str
    action: str
    is_built_in: bool
    firing: int
    pending: int


class AlertRulesView(msgspec.Struct, frozen=True):
    """All rules, by name."""

    rules: list[AlertRuleView]
    problem: str


class SilenceForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which alerts nobody is to be told of, and for how long."""

    rule: str  # a name or pattern, such as gpu-*
    for_s: int
    subject: str = "*"  # a name or pattern, such as node-1/*


class SilenceView(msgspec.Struct, frozen=True):
    """Nobody is told of these alerts until some time. They are listed all the same."""

    id: int
    rule: str
    subject: str
    made_s: int
    until_s: int
    by: str
    reason: str


class AlertChannelView(msgspec.Struct, frozen=True):
    """Where alerts are told, without anything secret."""

    name: str
    type: str  # webhook | slack | alertmanager | email
    target: str  # the part of the address that is no secret
    severity: Severity  # the least that it is told of
    rules: list[str]  # patterns; empty: all
    waiting: int  # messages that it has not taken yet
    delivered: int  # since the start
    failures: int  # attempts
    dropped: int  # messages that it refused, or that waited for too long
    problem: str  # why the last attempt failed; empty: it did not
