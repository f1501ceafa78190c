"""A file of alert rules says what is wrong with it: the field, the fact and the way out."""

import pytest

from kaiwo.manifests.alert_file import read_alert_settings
from kaiwo.manifests.values.target_address import shown_target
from kaiwo.model.alerts.alert_rule import RuleKind, Severity, Side
from kaiwo.model.errors import ConfigError
from kaiwo.runtime.alerting.load_settings import MEASURES, built_in_settings

RULE = "{name: hot, of: gpu, measure: temperature_c, above: 90}"
CHANNEL = "{name: ops, type: webhook, url: 'https://hooks.example.com/secret'}"
WHOLE = """
rules:
- name: gpu-hot
  kind: threshold
  of: gpu
  measure: temperature_c
  above: 95
  for: 2m
  keep: 5m
  severity: critical
  subjects: [node-1/*]
  while: [{measure: allocated_milli, above: 0}, {of: cluster, measure: waiting, above: 0}]
  labels: {team: infra}
  summary: "{subject} is at {value}"
- {name: a, kind: ratio, of: queue, measure: gpu_used_milli, over: gpu_share_milli, below: 12.5%, atLeast: 1000}
- {name: b, kind: rate, of: cluster, measure: failed, over: ended, per: 10m, above: 50%}
- {name: c, kind: anomaly, of: gpu, measure: power_w, above: 4.5, history: 12h}
- {name: d, kind: absence, of: gpu, measure: power_w, for: 5m}
disabled: [gpu-held-idle]
inhibit: [{whileFires: [gpu-hot], quiets: ['gpu-*'], same: node}]
channels:
- {name: am, type: alertmanager, url: 'http://127.0.0.1:9093', severity: warning, rules: ['gpu-*']}
- {name: chat, type: slack, urlFile: /run/secrets/slack}
- {name: mail, type: email, server: 'mail.example.com:587', from: kaiwo@example.com, to: [ops@example.com]}
jobs: {channels: [mail], outcomes: [failed], address: '{user}@example.com', people: {root: ops@example.com}}
"""


def read(text: str):  # type: ignore[no-untyped-def]
    return read_alert_settings(text, MEASURES, "alerts.yaml", built_in_settings())


def test_every_field_is_read() -> None:
    found = read(WHOLE)
    own = {rule.name: rule for rule in found.rules if not rule.is_built_in}
    hot = own["gpu-hot"]
    assert (hot.bound, hot.for_s, hot.keep_s, hot.severity) == (95, 120, 300, Severity.CRITICAL)
    assert [condition.of for condition in hot.only_while] == ["", "cluster"]
    assert (own["a"].side, own["a"].bound, own["a"].at_least) == (Side.BELOW, 125, 1000)
    assert (own["b"].kind, own["b"].per_s, own["b"].bound) == (RuleKind.RATE, 600, 500)
    assert (own["c"].bound, own["c"].history_s) == (4500, 43_200)
    assert own["d"].kind is RuleKind.ABSENCE
    assert [channel.name for channel in found.channels] == ["am", "chat", "mail"]
    assert found.jobs.people == {"root": "ops@example.com"}
    assert found.inhibitions[-1].same == "node"


def test_own_rules_replace_and_disable_built_in_ones_and_leave_the_others() -> None:
    found, built_in = read(WHOLE), built_in_settings()
    names = [rule.name for rule in found.rules]
    assert len(names) == len(set(names)) == len(built_in.rules) - 2 + 5
    assert "gpu-held-idle" not in names
    assert found.inhibitions[: len(built_in.inhibitions)] == built_in.inhibitions


def test_the_built_in_rules_have_every_kind_and_subject_that_was_asked_for() -> None:
    rules = built_in_settings().rules
    assert {rule.kind for rule in rules} == set(RuleKind)
    assert {rule.severity for rule in rules} == set(Severity)
    names = {rule.name for rule in rules}
    assert {"cpus-exhausted", "memory-exhausted", "gpu-hot", "jobs-fail", "pods-fail", "cycles-slow", "nodes-failed",
            "fairness-drift", "scheduler-stalled", "promise-broken"} <= names  # fmt: skip
    assert all(rule.summary and rule.action for rule in rules)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rules: [{of: gpu}]", "rules[0].name is missing; name the rule"),
        ("rules: [{name: Hot}]", 'rules[0].name is "Hot"; use up to 63 lower-case letters'),
        ("rules: [{name: hot}]", "rules[0].of is missing; write of what: cluster, node, gpu"),
        ("rules: [{name: hot, of: gpus}]", "did you mean gpu?"),
        ("rules: [{name: hot, of: gpu, measure: temperature}]", "did you mean temperature_c?"),
        ("rules: [{name: hot, of: gpu, measure: temperature_c}]", "above or below must be there"),
        (f"rules: [{RULE}, {RULE}]", 'rules[1].name is "hot", as that of a rule above'),
        (f"rules: [{RULE.replace('90', '90, below: 3')}]", "only one of them"),
        (f"rules: [{RULE.replace('90', '-1')}]", "rules[0].above is -1, but must be 0 to"),
        (f"rules: [{RULE.replace('90', '90, kind: ratio')}]", "rules[0].over is missing"),
        (f"rules: [{RULE.replace('90', '90, kind: rate')}]", "rules[0].per is missing"),
        (f"rules: [{RULE.replace('90', '90, per: 5m')}]", "rules[0].per is only for a rate"),
        (f"rules: [{RULE.replace('90', '90, history: 5m')}]", "rules[0].history is only for an anomaly"),
        (f"rules: [{RULE.replace('90', '90, kind: absence')}]", "is not for an absence"),
        (f"rules: [{RULE.replace('90', '90, kind: ratio, over: power_w')}]", "write a percentage such as 95%"),
        (f"rules: [{RULE.replace('90', '90, kind: anomaly, history: 1s')}]", "must be 10s to 30d"),
        (f"rules: [{RULE.replace('90', '0, kind: anomaly')}]", "how many times the usual deviation"),
        (f"rules: [{RULE.replace('90', '90, subjects: [' + repr('*' * 9) + ']')}]", "at most 4 times *"),
        (f"rules: [{RULE.replace('90', '90, labels: {alertname: x}')}]", "is not a name for a label"),
        (f"rules: [{RULE.replace('90', '90, nonsense: 1')}]", "rules[0].nonsense is not a known field"),
        (f"rules: [{RULE.replace('90', '90, severity: bad')}]", "write info, warning, critical"),
        ("disabled: [gpu-hott]", "did you mean gpu-hot?"),
        ("inhibit: [{quiets: [a]}]", "inhibit[0].whileFires is missing"),
        (f"channels: [{CHANNEL}, {CHANNEL}]", "two channels named ops"),
        ("channels: [{name: ops, type: pager}]", "write webhook, slack, alertmanager, email"),
        ("channels: [{name: ops, type: webhook}]", "url or urlFile must be there"),
        ("channels: [{name: ops, type: slack, url: 'ftp://x'}]", "must begin with https:// or http://"),
        ("channels: [{name: o, type: slack, url: 'https://u:pw@x'}]", "must not contain a user or password"),
        ("channels: [{name: o, type: slack, url: 'http://169.254.169.254/'}]", "link-local, multicast"),
        ("channels: [{name: o, type: webhook, url: 'http://x.example', tokenFile: t}]", "http:// would show it"),
        ("channels: [{name: o, type: webhook, url: 'HTTP://x.example', tokenFile: t}]", "http:// would show it"),
        (
            "channels: [{name: o, type: email, server: 'smtp://u:pw@x:25', from: a@b.c}]",
            "server is no name with a port",
        ),
        ("channels: [{name: o, type: email, server: x, from: a@b.c}]", "write the mail server as name:port"),
        ("channels: [{name: o, type: email, server: 'x:25', from: nobody}]", "is no mail address"),
        ("jobs: {channels: [none]}", "which is no channel"),
        (f"channels: [{CHANNEL}]\njobs: {{channels: [ops], outcomes: [done]}}", "write succeeded, failed, cancelled"),
        ("jobs: {address: ada@example.com}", "must be a mail address with {user} in it"),
        ("jobs: {people: {ada: nowhere}}", "is no mail address"),
        ("jobs: {nonsense: 1}", "is not a known field"),
        ("nonsense: 1", "nonsense is not a known field"),
    ],
)
def test_a_mistake_is_named(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(text)
    assert words in str(raised.value)
    assert str(raised.value).startswith("alerts.yaml: ")
    assert "pw" not in str(raised.value).replace("pwd", "")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example.com/services/T0/B0/secret", "https://hooks.example.com/..."),
        ("https://alerts.example.com", "https://alerts.example.com"),
        ("http://[::1]:9093/?token=secret", "http://[::1]:9093/..."),
    ],
)
def test_only_the_host_of_an_address_is_shown(url: str, shown: str) -> None:
    assert shown_target(url) == shown
