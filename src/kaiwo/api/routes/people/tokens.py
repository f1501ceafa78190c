"""Routes that list, create, rotate and revoke the tokens of people, and say who makes a request."""

import math
import time

import msgspec

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import JSON, did_you_mean, forbidden, invalid, quote
from kaiwo.api.http.request_body import Body
from kaiwo.api.security.access import is_session
from kaiwo.api.security.roles import ALL_QUEUES, AccessRole, Right
from kaiwo.api.security.token_store import PersonToken
from kaiwo.api.views.answers import Outcome, Page
from kaiwo.api.views.people import IdentityView, NewTokenView, RotateForm, TokenForm, TokenView
from kaiwo.manifests import read_json
from kaiwo.model.errors import RefusedError

ONE = "/tokens/{id}"


async def whoami(call: EndpointCall) -> IdentityView:
    person = call.person
    left_s = call.context.access.left_s(person)
    return IdentityView(
        name=person.name,
        role=person.role,
        queues=list(person.queues) if person.has(Right.SUBMIT) else [],
        rights=[right for right in Right if right is not Right.NONE and person.has(right)],
        credential=person.credential,
        expires_in_s=0 if math.isinf(left_s) else math.ceil(left_s),
    )


async def list_tokens(call: EndpointCall) -> Page[TokenView]:
    items = [_view(token) for token in call.context.access.people.tokens()]
    return Page(items, len(items))


async def create_token(call: EndpointCall) -> NewTokenView:
    _refuse_session(call)
    if call.context.access.person_tokens is not None:
        raise RefusedError(
            "here people use their Kubernetes tokens; grant rights with a RoleBinding: docs/kubernetes.md"
        )
    try:
        form = msgspec.convert(read_json(call.body), TokenForm)
    except msgspec.ValidationError as error:
        raise invalid(f"this does not describe a token: {error}") from None
    if not form.name.isprintable():
        raise invalid("name must be one line", "name")
    role = AccessRole(form.role)
    queues = _queues(call, role, form.queues)
    token, secret = await call.context.access.people.create(form.name, role, queues, form.expires_in_s, call.user)
    call.trail.changed(f"token/{token.id}", None, _view(token))
    return NewTokenView(_view(token), secret)


async def rotate_token(call: EndpointCall) -> NewTokenView:
    _refuse_session(call)
    try:
        form = msgspec.convert(read_json(call.body) if call.body else {}, RotateForm)
    except msgspec.ValidationError as error:
        raise invalid(f"this does not describe a rotation: {error}") from None
    lasts_s = None if isinstance(form.expires_in_s, msgspec.UnsetType) else form.expires_in_s
    before = _find(call)
    token, secret = await call.context.access.people.rotate(call.path["id"], form.grace_s, lasts_s)
    call.trail.changed(f"token/{token.id}", before, _view(token))
    return NewTokenView(_view(token), secret)


async def revoke_token(call: EndpointCall) -> Outcome:
    before = _find(call)
    token = await call.context.access.people.revoke(call.path["id"])
    call.trail.changed(f"token/{token.id}", before, _view(token))
    return Outcome([f"token {token.id} of {token.name} revoked"])


def _find(call: EndpointCall) -> TokenView | None:
    """The token as it is, for the audit."""
    found = (token for token in call.context.access.people.tokens() if token.id == call.path["id"])
    return next(map(_view, found), None)


def _refuse_session(call: EndpointCall) -> None:
    """A login must not leave a token behind that outlives it."""
    if is_session(call.person):
        raise forbidden(403, "a login cannot make tokens; send the token instead")


def _queues(call: EndpointCall, role: AccessRole, queues: list[str]) -> list[str]:
    """Only the role `user` is bound to queues, and it must name at least one: a forgotten list must not mean all."""
    if role is not AccessRole.USER:
        if queues:
            raise invalid(f"only the role user is bound to queues; leave them out for the role {role}", "queues")
        return [ALL_QUEUES]
    if not queues:
        raise invalid("the role user needs the queues into which this person may submit; '*' means all", "queues")
    known = call.context.live.state.queue_objects
    for name in queues:
        if name != ALL_QUEUES and name not in known:
            raise invalid(f"there is no queue {quote(name)}{did_you_mean(name, list(known)[:50])}", "queues")
    return list(dict.fromkeys(queues))


def _view(token: PersonToken) -> TokenView:
    now_s = time.time()
    is_over = token.ended_s() <= now_s
    return TokenView(
        id=token.id,
        name=token.name,
        role=token.role,
        state="revoked" if token.revoked_s else "expired" if is_over else "valid",
        queues=list(token.queues) if token.role is AccessRole.USER else [],
        created_s=token.created_s,
        created_by=token.created_by,
        expires_s=token.expires_s,
        last_used_s=token.last_used_s,
        revoked_s=token.revoked_s,
        rotations=token.secret_number - 1,
        former_until_s=token.former_until_s if not is_over and token.former_until_s > now_s else 0,
    )


FORM = Body((JSON,), TokenForm)
ROTATION = Body((JSON,), RotateForm, required=False)
ROUTES = (
    Route("GET", "/whoami", "Who you are, and what you may do.", whoami, IdentityView, needs_state=False),
    Route("GET", "/tokens", "The tokens of people.", list_tokens, Page[TokenView], needs_state=False),
    Route("POST", "/tokens", "Create a token; its secret is shown once.", create_token, NewTokenView, 201, body=FORM),
    Route(
        "POST", ONE + "/rotate", "Give it a new secret; the present one stays good for a while.", rotate_token,
        NewTokenView, body=ROTATION, needs_state=False, errors=(404,),
    ),
    Route(
        "DELETE", ONE, "Revoke it, with its open streams and logins.", revoke_token, Outcome, needs_state=False,
        errors=(404,),
    ),
)  # fmt: skip
