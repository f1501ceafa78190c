"""Read a file of alert rules and channels: `kaiwo up --alerts FILE`.

    rules:
    - {name: gpu-hot, kind: threshold, of: gpu, measure: temperature_c, above: 95, for: 2m, severity: critical}
    channels:
    - {name: ops, type: alertmanager, url: "https://alerts.example.com"}

In:    YAML text, and the table of measures.   Out: AlertSettings.
Never: shows an address or a path to a secret in a message; an unknown field is an error, as in the policy.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from msgspec.structs import replace

from kaiwo.manifests.text.field_errors import FieldPath, show, suggest
from kaiwo.manifests.text.field_reader import FieldReader, check_integer
from kaiwo.manifests.text.read_documents import read_single
from kaiwo.manifests.values.quantities import read_duration_s
from kaiwo.manifests.values.target_address import TargetError, check_target
from kaiwo.model.alerts.alert_rule import (
    DEFAULT_KEEP_S,
    AlertRule,
    Inhibition,
    RuleCondition,
    RuleKind,
    Severity,
    Side,
)
from kaiwo.model.alerts.channel import AlertSettings, Channel, ChannelType, JobNotices, MailSettings
from kaiwo.model.errors import ConfigError

THE_FILE = "the alert file"
MAX_RULES, MAX_CHANNELS, MAX_PATTERNS, MAX_LABELS = 2_000, 50, 50, 20
MAX_TEXT, MAX_PATTERN, MAX_STARS = 500, 200, 4
MAX_BOUND = 2**50
MAX_WINDOW_S, MAX_HISTORY_S = 7 * 86_400, 30 * 86_400
DEFAULT_HISTORY_S, DEFAULT_DEVIATIONS = 86_400, 6000
SINGLE = ("cluster", "scheduler", "process")  # kinds with one subject
OUTCOMES = ("succeeded", "failed", "cancelled")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,62}")
_TAKEN_LABELS = ("alertname", "severity", "subject", "of", "source")
_MAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,255}")
_SERVER = re.compile(r"[A-Za-z0-9.-]{1,255}:[0-9]{1,5}")

Measures = Mapping[str, Sequence[str]]  # by kind of subject
NOTHING = AlertSettings()


def read_alert_settings(
    text: str | bytes,
    measures: Measures,
    where: str = THE_FILE,
    built_in: AlertSettings = NOTHING,
    is_built_in: bool = False,
) -> AlertSettings:
    """The file's rules beside the built-in ones. A rule with the name of a built-in one replaces it."""
    fields = FieldReader(read_single(text, where, "write all fields in one", "rules: []"), where, [])
    own = [
        replace(_read_rule(each, measures), is_built_in=is_built_in) for each in _limited(fields, "rules", MAX_RULES)
    ]
    _check_names(own, fields)
    disabled, known = fields.texts("disabled"), [rule.name for rule in built_in.rules]
    for name in disabled:
        if name not in known:
            raise fields.path_of("disabled").error(
                f"names {show(name)}, which is no built-in rule{suggest(name, known)}"
            )
    replaced = {rule.name for rule in own} | set(disabled)
    rules = (*(rule for rule in built_in.rules if rule.name not in replaced), *own)
    channels = tuple(_read_channel(each) for each in _limited(fields, "channels", MAX_CHANNELS))
    names = [channel.name for channel in channels]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise fields.path_of("channels").error(f"has two channels named {twice}; give one of them another name")
    inhibitions = (*built_in.inhibitions, *map(_read_inhibition, fields.items("inhibit")))
    jobs = _read_jobs(fields.inner("jobs"), channels)
    fields.finish()
    return AlertSettings(rules, inhibitions, channels, jobs)


def _limited(fields: FieldReader, name: str, most: int) -> list[FieldReader]:
    found = fields.items(name)
    if len(found) > most:
        raise fields.path_of(name).error(f"has {len(found):,} items, and the most is {most:,}; remove some")
    return found


def _check_names(rules: Sequence[AlertRule], fields: FieldReader) -> None:
    seen: set[str] = set()
    for index, rule in enumerate(rules):
        if rule.name in seen:
            path = fields.path_of(f"rules[{index}]").inner("name")
            raise path.error(f"is {show(rule.name)}, as that of a rule above; choose another")
        seen.add(rule.name)


# -- rules


def _read_rule(fields: FieldReader, measures: Measures) -> AlertRule:
    name = fields.read("name", _read_rule_name, "")
    if not name:
        raise fields.path_of("name").error("is missing; name the rule, for example gpu-hot")
    kind = RuleKind(fields.choice("kind", [each.value for each in RuleKind], RuleKind.THRESHOLD.value))
    of = fields.choice("of", measures)
    if not of:
        raise fields.path_of("of").error(f"is missing; write of what: {', '.join(measures)}")
    measure = _read_measure(fields, "measure", of, measures)
    over = _read_measure(fields, "over", of, measures) if fields.has("over") else ""
    if kind is RuleKind.RATIO and not over:
        raise fields.path_of("over").error("is missing; name the measure to divide by")
    if over and kind not in (RuleKind.RATIO, RuleKind.RATE):
        raise fields.path_of("over").error("is only for a ratio or a rate; remove it, or write kind: ratio")
    side, bound = _read_bound(fields, kind, bool(over))
    per_s = fields.read("per", read_duration_s, 0)
    if (kind is RuleKind.RATE) != bool(per_s):
        fact = "is missing; write in which time, such as 10m" if not per_s else "is only for a rate; remove it"
        raise fields.path_of("per").error(fact)
    _check_span(fields, "per", per_s, MAX_WINDOW_S)
    history_s = fields.read("history", read_duration_s, DEFAULT_HISTORY_S if kind is RuleKind.ANOMALY else 0)
    if history_s and kind is not RuleKind.ANOMALY:
        raise fields.path_of("history").error("is only for an anomaly; remove it, or write kind: anomaly")
    _check_span(fields, "history", history_s, MAX_HISTORY_S)
    rule = AlertRule(
        name=name, kind=kind, of=of, measure=measure, side=side, bound=bound, over=over, per_s=per_s,
        at_least=fields.integer("atLeast", 0, 0, MAX_BOUND) if over else 0,
        history_s=history_s,
        subjects=_patterns(fields, "subjects"),
        only_while=tuple(_read_condition(each, of, measures) for each in _conditions(fields)),
        for_s=fields.read("for", _read_time_s, 0),
        keep_s=fields.read("keep", _read_time_s, DEFAULT_KEEP_S),
        severity=Severity(fields.choice("severity", [each.value for each in Severity], Severity.WARNING.value)),
        labels=_read_labels(fields),
        summary=_read_line(fields, "summary"),
        action=_read_line(fields, "action"),
    )  # fmt: skip
    fields.finish()
    return rule


def _read_rule_name(value: object, path: FieldPath) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise path.error(f"is {show(value)}; use up to 63 lower-case letters, digits and '-', such as gpu-hot")
    return value


def _read_measure(fields: FieldReader, name: str, of: str, measures: Measures) -> str:
    measure = fields.text(name)
    if measure not in measures[of]:
        listed = ", ".join(measures[of])
        known = f"write one of a {of}: {listed}{suggest(measure, measures[of]) if measure else ''}"
        raise fields.path_of(name).error(f"is {show(measure)}; {known}" if measure else f"is missing; {known}")
    return measure


def _read_bound(fields: FieldReader, kind: RuleKind, has_divisor: bool) -> tuple[Side, int]:
    given = [side for side in Side if fields.has(side.value)]
    if kind is RuleKind.ABSENCE:
        if given:
            raise fields.path_of(given[0].value).error("is not for an absence; `for` says how long it may last")
        return Side.ABOVE, 0
    if kind is RuleKind.ANOMALY and not given:
        return Side.ABOVE, DEFAULT_DEVIATIONS
    if len(given) != 1:
        raise fields.path_of("above").error("or below must be there, and only one of them")
    side = given[0]
    if kind is RuleKind.RATIO or has_divisor:
        return side, fields.read(side.value, _read_permille, 0)
    if kind is RuleKind.ANOMALY:
        return side, fields.read(side.value, _read_deviations, 0)
    return side, fields.integer(side.value, 0, 0, MAX_BOUND)


def _read_permille(value: object, path: FieldPath) -> int:
    match = re.fullmatch(r"([0-9]{1,6})(?:\.([0-9]))? ?%", value) if isinstance(value, str) else None
    if match is None:
        raise path.error(f"is {show(value)}; write a percentage such as 95% or 0.5%")
    return int(match[1]) * 10 + int(match[2] or 0)


def _read_deviations(value: object, path: FieldPath) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 1000:
        raise path.error(f"is {show(value)}; write how many times the usual deviation, 1 to 1000, such as 6")
    return int(Decimal(str(value)) * 1000)


def _read_time_s(value: object, path: FieldPath) -> int:
    """A duration that may be 0."""
    return 0 if value in (0, "0") and not isinstance(value, bool) else read_duration_s(value, path)


def _check_span(fields: FieldReader, name: str, value_s: int, most_s: int) -> None:
    if value_s and not 10 <= value_s <= most_s:
        raise fields.path_of(name).error(f"must be 10s to {most_s // 86_400}d: samples are taken every ten seconds")


def _conditions(fields: FieldReader) -> list[FieldReader]:
    found = fields.items("while")
    if len(found) > 4:
        raise fields.path_of("while").error(f"has {len(found)} conditions, and the most is 4; remove some")
    return found


def _read_condition(fields: FieldReader, of: str, measures: Measures) -> RuleCondition:
    other = fields.choice("of", SINGLE) if fields.has("of") else ""
    measure = _read_measure(fields, "measure", other or of, measures)
    given = [side for side in Side if fields.has(side.value)]
    if len(given) != 1:
        raise fields.path_of("above").error("or below must be there, and only one of them")
    bound = fields.value(given[0].value)
    found = RuleCondition(measure, given[0], check_integer(bound, fields.path_of(given[0].value), 0, MAX_BOUND), other)
    fields.finish()
    return found


def _patterns(fields: FieldReader, name: str) -> tuple[str, ...]:
    found = fields.texts(name)
    if len(found) > MAX_PATTERNS:
        raise fields.path_of(name).error(f"has {len(found)} patterns, and the most is {MAX_PATTERNS}; remove some")
    for pattern in found:
        if not is_pattern(pattern):
            raise fields.path_of(name).error(
                f"has {show(pattern)}; write at most {MAX_PATTERN} characters with at most {MAX_STARS} times *"
            )
    return found


def is_pattern(text: str) -> bool:
    """Bounded, so that no pattern takes long to compare."""
    return bool(text) and len(text) <= MAX_PATTERN and text.count("*") <= MAX_STARS and text.isprintable()


def _read_labels(fields: FieldReader) -> dict[str, str]:
    labels = fields.text_map("labels")
    for name, value in labels.items():
        path = fields.path_of("labels").inner(name)
        if not _LABEL.fullmatch(name) or name in _TAKEN_LABELS:
            raise path.error(
                f"is not a name for a label; use letters, digits and _, and not {', '.join(_TAKEN_LABELS)}"
            )
        if len(value) > MAX_TEXT or not value.isprintable():
            raise path.error(f"must be one line of at most {MAX_TEXT} characters; shorten it")
    if len(labels) > MAX_LABELS:
        raise fields.path_of("labels").error(f"has {len(labels)} labels, and the most is {MAX_LABELS}; remove some")
    return labels


def _read_line(fields: FieldReader, name: str) -> str:
    text = fields.text(name)
    if len(text) > MAX_TEXT or not text.isprintable():
        raise fields.path_of(name).error(f"must be one line of at most {MAX_TEXT} characters; shorten it")
    return text


def _read_inhibition(fields: FieldReader) -> Inhibition:
    found = Inhibition(
        _patterns(fields, "whileFires"), _patterns(fields, "quiets"), fields.choice("same", ("subject", "node"))
    )
    for name, patterns in (("whileFires", found.while_fires), ("quiets", found.quiets)):
        if not patterns:
            raise fields.path_of(name).error("is missing; write patterns of rules, such as [nodes-failed]")
    fields.finish()
    return found


# -- channels


def _read_channel(fields: FieldReader) -> Channel:
    name = fields.read("name", _read_rule_name, "")
    if not name:
        raise fields.path_of("name").error("is missing; name the channel, for example ops")
    type_ = fields.choice("type", [each.value for each in ChannelType])
    if not type_:
        raise fields.path_of("type").error(f"is missing; write {', '.join(ChannelType)}")
    is_mail = type_ == ChannelType.EMAIL
    channel = Channel(
        name=name,
        type=ChannelType(type_),
        url="" if is_mail else _read_url(fields),
        url_file="" if is_mail else fields.text("urlFile"),
        token_file="" if is_mail else fields.text("tokenFile"),
        ca_file=fields.text("caFile"),
        least=Severity(fields.choice("severity", [each.value for each in Severity], Severity.INFO.value)),
        rules=_patterns(fields, "rules"),
        mail=_read_mail(fields) if is_mail else None,
    )
    if not is_mail and bool(channel.url) == bool(channel.url_file):
        raise fields.path_of("url").error("or urlFile must be there, and only one of them")
    if channel.token_file and channel.url and not _is_private(channel.url):
        raise fields.path_of("tokenFile").error("is a secret, and http:// would show it on the way; write https://")
    fields.finish()
    return channel


def _read_url(fields: FieldReader) -> str:
    url = fields.text("url")
    if url:
        try:
            check_target(url)
        except TargetError as error:
            raise fields.path_of("url").error(str(error)) from None
    return url


def _is_private(url: str) -> bool:
    """Nobody on the way can read what is sent."""
    return re.match(r"https:|http://(localhost|127\.[0-9.]+|\[::1\])(:|/|$)", url.lower()) is not None


def _read_mail(fields: FieldReader) -> MailSettings:
    server, sender, to = fields.text("server"), fields.text("from"), fields.texts("to")
    if not _SERVER.fullmatch(server):
        # It is not shown: an address of a mail server with a password in it would be.
        raise fields.path_of("server").error("is no name with a port; write the mail server as name:port")
    for name, addresses in (("from", (sender,)), ("to", to)):
        for address in addresses:
            if not is_mail_address(address):
                raise fields.path_of(name).error(f"has {show(address)}, which is no mail address")
    return MailSettings(
        server, sender, to, fields.text("user"), fields.text("passwordFile"),
        fields.choice("security", ("starttls", "tls", "none"), "starttls"),
    )  # fmt: skip


def is_mail_address(text: str) -> bool:
    return _MAIL.fullmatch(text) is not None


def _read_jobs(fields: FieldReader, channels: Sequence[Channel]) -> JobNotices:
    names = [channel.name for channel in channels]
    found = JobNotices(
        fields.texts("channels"), fields.texts("outcomes") if fields.has("outcomes") else ("failed",),
        fields.text("address"), fields.text_map("people"),
    )  # fmt: skip
    for name in found.channels:
        if name not in names:
            raise fields.path_of("channels").error(f"names {show(name)}, which is no channel{suggest(name, names)}")
    for outcome in found.outcomes:
        if outcome not in OUTCOMES:
            raise fields.path_of("outcomes").error(f"has {show(outcome)}; write {', '.join(OUTCOMES)}")
    if found.address and (
        found.address.count("{user}") != 1 or not is_mail_address(found.address.replace("{user}", "a"))
    ):
        raise fields.path_of("address").error('must be a mail address with {user} in it, such as "{user}@example.com"')
    for user, address in found.people.items():
        if not is_mail_address(address):
            raise ConfigError(f"{fields.owner}: {fields.path_of('people').field} of {show(user)} is no mail address")
    fields.finish()
    return found
