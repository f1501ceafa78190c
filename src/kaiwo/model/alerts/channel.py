"""Channels: where alerts and notices are told. Secrets are in files; a channel never holds one in its text form."""

import enum

import msgspec

from kaiwo.model.alerts.alert_rule import AlertRule, Inhibition, Severity


class ChannelType(enum.StrEnum):
    WEBHOOK = "webhook"  # JSON of Kaiwo's own
    SLACK = "slack"  # what Slack, Mattermost and Rocket.Chat read
    ALERTMANAGER = "alertmanager"  # its API, version 2
    EMAIL = "email"


class MailSettings(msgspec.Struct, frozen=True):
    server: str  # name:port
    sender: str
    to: tuple[str, ...] = ()
    user: str = ""  # empty: the server wants no login
    password_file: str = ""
    security: str = "starttls"  # starttls | tls | none


class Channel(msgspec.Struct, frozen=True):
    name: str
    type: ChannelType
    url: str = ""  # never shown whole: that of a chat is a secret by itself
    url_file: str = ""  # instead of `url`
    token_file: str = ""  # sent as a bearer token
    ca_file: str = ""  # whose certificates are trusted; empty: those that the system trusts
    least: Severity = Severity.INFO
    rules: tuple[str, ...] = ()  # patterns; empty: all
    mail: MailSettings | None = None


class JobNotices(msgspec.Struct, frozen=True):
    """Tell the person whose workload it is that it has ended."""

    channels: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ("failed",)  # succeeded | failed | cancelled
    address: str = ""  # of mails: `{user}@example.com`
    people: dict[str, str] = {}  # addresses of users of whom the pattern is not right


class AlertSettings(msgspec.Struct, frozen=True):
    """What one file says."""

    rules: tuple[AlertRule, ...] = ()
    inhibitions: tuple[Inhibition, ...] = ()
    channels: tuple[Channel, ...] = ()
    jobs: JobNotices = JobNotices()
