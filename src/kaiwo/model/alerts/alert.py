"""An alert: a rule that holds for one subject, from its first moment to its end; and silences, which keep it quiet."""

import enum

import msgspec

from kaiwo.model.alerts.alert_rule import Severity


class AlertState(enum.StrEnum):
    """How far an alert is."""

    PENDING = "pending"  # the rule holds, but not yet for long enough
    FIRING = "firing"
    RESOLVED = "resolved"


class Alert(msgspec.Struct, frozen=True, omit_defaults=True):
    rule: str
    of: str  # the kind of its subject
    subject: str
    severity: Severity
    since_s: int  # when the rule began to hold, by the cluster's clock
    seen_s: int  # when it last held
    value: int = 0  # then
    fired_s: int = 0  # 0: it is pending
    resolved_s: int = 0  # 0: it is not resolved
    summary: str = ""
    action: str = ""
    labels: dict[str, str] = {}
    is_told: bool = False  # the channels were told that it fires
    quiet: str = ""  # why they were not

    @property
    def id(self) -> str:
        """Two alerts never have the same one, and it survives a restart."""
        return f"{self.rule}|{self.subject}|{self.since_s}"

    @property
    def key(self) -> tuple[str, str]:
        return self.rule, self.subject

    @property
    def state(self) -> AlertState:
        if self.resolved_s:
            return AlertState.RESOLVED
        return AlertState.FIRING if self.fired_s else AlertState.PENDING


class Silence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nobody is told of these alerts until some time. They are listed all the same."""

    id: int
    rule: str  # a pattern
    subject: str  # a pattern
    until_s: int
    made_s: int = 0
    by: str = ""
    reason: str = ""
