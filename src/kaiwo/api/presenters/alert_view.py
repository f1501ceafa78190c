"""Show alerts, rules, silences and channels as views, without secrets."""

from kaiwo.api.views.alerts import AlertChannelView, AlertRuleView, AlertView, SilenceView
from kaiwo.manifests.values.target_address import shown_target
from kaiwo.model.alerts.alert import Alert, Silence
from kaiwo.model.alerts.alert_rule import AlertRule, RuleCondition, RuleKind
from kaiwo.model.amounts import duration
from kaiwo.runtime.alerting.delivery import ChannelDelivery
from kaiwo.telemetry.alerts.value_text import filled_in, value_text


def alert_view(alert: Alert, rule: AlertRule | None) -> AlertView:
    summary = alert.summary or (filled_in(rule, alert.subject, alert.value) if rule is not None else "")
    return AlertView(
        alert.id, alert.rule, alert.state, alert.severity, alert.of, alert.subject, summary, alert.action, alert.value,
        alert.since_s, alert.fired_s, alert.resolved_s, alert.quiet, alert.labels,
    )  # fmt: skip


def rule_view(rule: AlertRule, firing: int, pending: int) -> AlertRuleView:
    return AlertRuleView(
        rule.name, rule.kind, rule.of, compared(rule), rule.for_s, rule.keep_s, rule.severity, list(rule.subjects),
        rule.labels, rule.summary, rule.action, rule.is_built_in, firing, pending,
    )  # fmt: skip


def compared(rule: AlertRule) -> str:
    """`used / share below 50.0 % while waiting above 0`."""
    bound = value_text(rule, rule.bound)
    what = f"{rule.measure} / {rule.over}" if rule.over else rule.measure
    match rule.kind:
        case RuleKind.ABSENCE:
            text = f"{what} unknown"
        case RuleKind.RATE:
            text = f"{what} in {duration(rule.per_s)} {rule.side.value} {bound}"
        case RuleKind.ANOMALY:
            text = f"{what} {bound} {rule.side.value} its last {duration(rule.history_s)}"
        case _:
            text = f"{what} {rule.side.value} {bound}"
    return text + "".join(f" while {_condition(each)}" for each in rule.only_while)


def _condition(condition: RuleCondition) -> str:
    of = f"{condition.of} " if condition.of else ""
    return f"{of}{condition.measure} {condition.side.value} {condition.bound}"


def silence_view(silence: Silence) -> SilenceView:
    return SilenceView(
        silence.id, silence.rule, silence.subject, silence.made_s, silence.until_s, silence.by, silence.reason
    )  # fmt: skip


def channel_view(delivery: ChannelDelivery) -> AlertChannelView:
    channel, status = delivery.channel, delivery.status
    if channel.mail is not None:
        target = channel.mail.server
    else:
        target = shown_target(channel.url) if channel.url else "in a file"
    return AlertChannelView(
        channel.name, channel.type.value, target, channel.least, list(channel.rules), delivery.waiting,
        status.delivered, status.failures, status.dropped, status.problem,
    )  # fmt: skip
