"""The routes of alerts: what fires, what did, the rules, silences, and the channels."""

from collections import Counter

import msgspec

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import JSON, invalid
from kaiwo.api.http.query_params import Param
from kaiwo.api.http.request_body import Body
from kaiwo.api.presenters.alert_view import alert_view, channel_view, rule_view, silence_view
from kaiwo.api.views.alerts import (
    AlertChannelView,
    AlertRulesView,
    AlertsView,
    PastAlertsView,
    SilenceForm,
    SilenceView,
)
from kaiwo.api.views.answers import Page
from kaiwo.manifests.alert_file import is_pattern
from kaiwo.model.alerts.alert import Silence
from kaiwo.model.alerts.alert_rule import Severity
from kaiwo.model.errors import NotFoundError

MAX_SILENCE_S, MAX_SILENCES, MAX_PAST = 90 * 86_400, 1_000, 5_000
SILENCE = "/alerts/silences/{id}"
CHANNEL = "/alerts/channels/{name}/test"

LAST = Param("last", "int", "Resolved in so many seconds before now.", 7 * 86_400, 1, 2**40)
LIMIT = Param("limit", "int", "At most this many.", 100, 1, MAX_PAST)
RULE = Param("rule", "text", "Only of this rule.", "", example="gpu-hot")
SEVERITY = Param("severity", "choice", "This bad or worse.", "info", choices=tuple(each.value for each in Severity))


async def list_alerts(call: EndpointCall) -> AlertsView:
    loop, least = call.context.alerts, Severity(call.query["severity"])
    rules = {rule.name: rule for rule in loop.settings.rules}
    found = [alert for alert in await loop.current() if alert.severity.rank >= least.rank]
    return AlertsView(
        call.context.live.cluster.now_s(),
        [alert_view(alert, rules.get(alert.rule)) for alert in found],
        len(rules),
        loop.memory.signals.at_s,
        loop.problem,
    )


async def list_past_alerts(call: EndpointCall) -> PastAlertsView:
    now_s, query = call.context.live.cluster.now_s(), call.query
    async with call.context.turns.of(call.person):  # an evaluation waits for whoever reads the file
        found = await call.context.alerts.past(query["limit"], query["rule"], now_s - query["last"])
    return PastAlertsView(now_s, [alert_view(alert, None) for alert in found])


async def list_rules(call: EndpointCall) -> AlertRulesView:
    loop = call.context.alerts
    alerts = await loop.current()
    firing = Counter(alert.rule for alert in alerts if alert.fired_s)
    pending = Counter(alert.rule for alert in alerts if not alert.fired_s)
    rules = sorted(loop.settings.rules, key=lambda rule: rule.name)
    return AlertRulesView([rule_view(rule, firing[rule.name], pending[rule.name]) for rule in rules], loop.problem)


async def list_silences(call: EndpointCall) -> Page[SilenceView]:
    await call.context.alerts.current()
    now_s = call.context.live.cluster.now_s()
    items = [silence_view(each) for each in call.context.alerts.silences if each.until_s > now_s]
    return Page(items, len(items))


async def add_silence(call: EndpointCall) -> SilenceView:
    try:
        form = msgspec.json.decode(call.body, type=SilenceForm)
    except msgspec.MsgspecError as error:
        raise invalid(f"the body is not a silence: {error}") from None
    if not 1 <= form.for_s <= MAX_SILENCE_S:
        raise invalid(f"a silence lasts 1 second to {MAX_SILENCE_S // 86_400} days, not {form.for_s} s", "for_s")
    for name, pattern in (("rule", form.rule), ("subject", form.subject)):
        if not is_pattern(pattern):
            raise invalid(f"{name} must be a name or a pattern such as gpu-*, with at most four *", name)
    if len(call.context.alerts.silences) >= MAX_SILENCES:
        raise invalid(f"there are {MAX_SILENCES} silences already; remove some")
    now_s = call.context.live.cluster.now_s()
    wanted = Silence(0, form.rule, form.subject, now_s + form.for_s, now_s, call.user, call.trail.reason)
    added = await call.context.alerts.add_silence(wanted)
    call.trail.changed(f"alert-silence/{added.id}", None, silence_view(added))
    return silence_view(added)


async def remove_silence(call: EndpointCall) -> SilenceView:
    text = call.path["id"]
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise NotFoundError(f"'{text[:40]}' is not the number of a silence; list them with: kaiwo alerts silences")
    removed = await call.context.alerts.remove_silence(int(text))
    call.trail.changed(f"alert-silence/{removed.id}", silence_view(removed), None)
    return silence_view(removed)


async def list_channels(call: EndpointCall) -> Page[AlertChannelView]:
    await call.context.alerts.current()
    items = [channel_view(each) for _, each in sorted(call.context.alerts.channels.items())]
    return Page(items, len(items))


async def send_test(call: EndpointCall) -> AlertChannelView:
    name = call.path["name"]
    delivery = await call.context.alerts.test(name)
    call.trail.changed(f"alert-channel/{name}")
    return channel_view(delivery)


ROUTES = (
    Route("GET", "/alerts", "What fires and what is pending, the worst first.", list_alerts, AlertsView,
          params=(SEVERITY,)),
    Route("GET", "/alerts/history", "Alerts that were resolved, the last first.", list_past_alerts, PastAlertsView,
          params=(LAST, RULE, LIMIT)),
    Route("GET", "/alerts/rules", "The rules that are evaluated.", list_rules, AlertRulesView),
    Route("GET", "/alerts/silences", "Of what nobody is told, and until when.", list_silences, Page[SilenceView]),
    Route("POST", "/alerts/silences", "Tell nobody of some alerts for a while.", add_silence, SilenceView, 201,
          body=Body((JSON,), SilenceForm)),
    Route("DELETE", SILENCE, "End a silence.", remove_silence, SilenceView, errors=(404,)),
    Route("GET", "/alerts/channels", "The channels that alerts are sent to, and whether messages arrive.",
          list_channels, Page[AlertChannelView]),
    Route("POST", CHANNEL, "Send a test message to a channel, and say whether it was accepted.", send_test,
          AlertChannelView, errors=(404,)),
)  # fmt: skip
