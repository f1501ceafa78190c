"""Routes that show, check, change and undo the scheduling policy of a running Kaiwo."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import JSON, invalid
from kaiwo.api.http.request_body import Body
from kaiwo.api.views.policy import PolicyChangeForm, PolicyChangeView, PolicyFieldView, PolicyOutcome, PolicyView
from kaiwo.manifests.policy_file import read_policy
from kaiwo.manifests.text.read_documents import read_single
from kaiwo.manifests.write_policy import FieldChange, policy_changes, policy_document
from kaiwo.model.amounts import count
from kaiwo.model.policy import Policy
from kaiwo.runtime.loop.live_policy import LivePolicy

WHERE = "the policy"
MAX_DEPTH = 8  # deeper than any field, and far from what a reader of JSON can follow


async def get_policy(call: EndpointCall) -> PolicyView:
    live = call.context.policy
    changes = [
        PolicyChangeView(each.at_s, each.by, each.reason, _views(policy_changes(each.before, each.after)))
        for each in reversed(live.changes)
    ]
    return PolicyView(policy_document(call.context.live.policy), _source(live), changes)


async def change_policy(call: EndpointCall) -> PolicyOutcome:
    try:
        form = msgspec.json.decode(call.body, type=PolicyChangeForm)
    except msgspec.MsgspecError as error:
        raise invalid(f"the body is not a change of the policy: {error}") from None
    async with call.context.policy.turn:
        return await _change(call, form)


async def _change(call: EndpointCall, form: PolicyChangeForm) -> PolicyOutcome:
    live, before = call.context.live, call.context.live.policy
    policy = await asyncio.to_thread(_asked, form, before)
    call.context.policy.check(live, policy)
    changes = policy_changes(before, policy)
    if not changes:
        return PolicyOutcome([], "the policy is like that already; nothing changes")
    if form.dry_run:
        return PolicyOutcome(_views(changes), f"{count(len(changes), 'field')} would change")
    await call.context.policy.change(live, policy, call.user, call.trail.reason)
    call.trail.changed("policy", policy_document(before), policy_document(policy))
    return PolicyOutcome(_views(changes), f"{count(len(changes), 'field')} changed")


async def undo_policy(call: EndpointCall) -> PolicyOutcome:
    async with call.context.policy.turn:
        undone = await call.context.policy.undo(call.context.live)
    call.trail.changed("policy", policy_document(undone.after), policy_document(undone.before))
    return PolicyOutcome(
        _views(policy_changes(undone.after, undone.before)), f"the change of {undone.by or 'somebody'} is undone"
    )


def _asked(form: PolicyChangeForm, before: Policy) -> Policy:
    if bool(form.file.strip()) == bool(form.set):
        raise invalid("give either `file`, a whole policy, or `set`, single fields")
    if form.file.strip():
        return read_policy(form.file, WHERE)
    document = policy_document(before)
    for field, text in form.set.items():
        _put(document, field, text)
    return read_policy(msgspec.json.encode(document).decode() if document else "{}", WHERE)


def _put(document: dict[str, Any], field: str, text: str) -> None:
    """Set a field, `topology.strategy` inside another, to a value as YAML writes it; an empty one removes it."""
    if field.count(".") >= MAX_DEPTH:
        raise invalid(f"the policy has no fields inside fields {MAX_DEPTH} deep; see: kaiwo policy get", field[:80])
    *outer, name = field.split(".")
    found = document
    for each in outer:
        inner = found.setdefault(each, {})
        if not isinstance(inner, dict):
            raise invalid(f"{each} has no fields of its own", field)
        found = inner
    if text.strip():
        found[name] = read_single(f"value: {text}", field, "write one value", "value: spread")["value"]
    else:
        found.pop(name, None)
    for each in [each for each in outer[:1] if not document[each]]:
        del document[each]


def _source(live: LivePolicy) -> str:
    if live.changes:
        return f"changed {count(len(live.changes), 'time')} since {live.path or 'the default'}"
    return live.path or "the default"


def _views(changes: Sequence[FieldChange]) -> list[PolicyFieldView]:
    return [PolicyFieldView(*each) for each in changes]


ROUTES = (
    Route("GET", "/policy", "The scheduling policy in force, and its changes.", get_policy, PolicyView),
    Route("POST", "/policy", "Check a change of the policy, or make it.", change_policy, PolicyOutcome,
          body=Body((JSON,), PolicyChangeForm)),
    Route("POST", "/policy/undo", "Take the last change of the policy back.", undo_policy, PolicyOutcome),
)  # fmt: skip
