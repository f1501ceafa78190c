"""Write what channels are told: Kaiwo's own JSON, a chat message, Alertmanager's JSON, a mail.

In:    messages of one channel.   Out: text or JSON values.
Never: contains a secret; names of people and workloads go in as they are, and nothing reads them as markup.
"""

import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

from kaiwo.model.alerts.alert import Alert
from kaiwo.model.amounts import count
from kaiwo.telemetry.alerts.alert_store import Message

MAX_LINES = 40  # of a chat message or a mail; more are counted
MAX_SUBJECT = 200
OUTCOME_WORDS = {
    "workload-succeeded": "succeeded",
    "workload-failed": "failed",
    "workload-cancelled": "was cancelled",
}


class MailText(NamedTuple):
    subject: str
    body: str


def webhook_form(messages: Sequence[Message]) -> dict[str, Any]:
    """`id` is the same when an alert is told again, so that receivers can tell."""
    alerts = [
        {
            "id": alert.id, "status": alert.state.value, "rule": alert.rule, "severity": alert.severity.value,
            "of": alert.of, "subject": alert.subject, "summary": alert.summary, "action": alert.action,
            "value": alert.value, "labels": alert.labels, "startsAt": rfc3339(_began(each, each.ended_unix)),
            "endsAt": rfc3339(each.ended_unix) if each.ended_unix else None,
        }
        for each in messages
        if (alert := each.alert) is not None
    ]  # fmt: skip
    notices = [
        {"code": each.code, "workload": each.subject, "user": each.user, "text": each.text,
         "at": rfc3339(each.began_unix)}
        for each in messages if each.alert is None
    ]  # fmt: skip
    return {"version": 1, "sender": "kaiwo", "alerts": alerts, "notices": notices}


def chat_form(messages: Sequence[Message]) -> dict[str, Any]:
    """Slack reads &, < and > as markup, also a mention of everybody."""
    lines = [_line(each).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for each in messages]
    return {"text": "\n".join(_cut(lines))}


def alertmanager_form(messages: Sequence[Message], now_unix: float, until_unix: float) -> list[dict[str, Any]]:
    """Alerts only. `until_unix`: it may forget those that fire when nobody repeats them until then.

    It refuses what begins after its end, as an alert does that fired before the clock was set back.
    """
    return [
        {
            "labels": {
                **alert.labels, "alertname": alert.rule, "severity": alert.severity.value, "of": alert.of,
                "subject": alert.subject, "source": "kaiwo",
            },
            "annotations": {"summary": alert.summary, "action": alert.action},
            "startsAt": rfc3339(_began(each, each.ended_unix or now_unix)),
            "endsAt": rfc3339(each.ended_unix or until_unix),
        }
        for each in messages
        if (alert := each.alert) is not None
    ]  # fmt: skip


def mail_form(messages: Sequence[Message]) -> MailText:
    lines = [_line(each) for each in messages]
    subject = lines[0] if len(lines) == 1 else f"{count(len(lines), 'alert')}: {lines[0]}"
    details = [_details(each) for each in messages[:MAX_LINES]]
    more = len(messages) - MAX_LINES
    body = "\n\n".join(details) + (f"\n\nand {more} more; see: kaiwo alerts" if more > 0 else "") + "\n"
    return MailText("Kaiwo: " + _one_line(subject)[:MAX_SUBJECT], body)


def rfc3339(unix: float) -> str:
    return datetime.datetime.fromtimestamp(unix, datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _began(message: Message, latest_unix: float) -> float:
    """When it began, and not after this time; 0: it has not ended."""
    return min(message.began_unix, latest_unix) if latest_unix else message.began_unix


def _line(message: Message) -> str:
    alert = message.alert
    if alert is None:
        text = f": {message.text}" if message.text else ""
        return _one_line(f"{message.subject} of {message.user or 'nobody'} {OUTCOME_WORDS[message.code]}{text}")
    return _one_line(f"{_state(alert)} {alert.rule}: {alert.summary or alert.subject}")


def _details(message: Message) -> str:
    alert, lines = message.alert, [_line(message)]
    if alert is not None:
        lines += [f"  about    {alert.of} {alert.subject}", f"  since    {rfc3339(message.began_unix)}"]
        lines += [f"  do       {alert.action}"] if alert.action else []
        lines += [f"  {name:8} {value}" for name, value in sorted(alert.labels.items())]
    return "\n".join(map(_one_line, lines))


def _state(alert: Alert) -> str:
    return "RESOLVED" if alert.resolved_s else alert.severity.value.upper()


def _one_line(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _cut(lines: list[str]) -> list[str]:
    more = len(lines) - MAX_LINES
    return lines if more <= 0 else [*lines[:MAX_LINES], f"and {more} more; see: kaiwo alerts"]
