"""Routes that log a browser in and out. A login begins with an address that works once, and not for long."""

import msgspec

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import JSON, forbidden, invalid
from kaiwo.api.http.request_body import Body
from kaiwo.api.security.access import bearer, is_session
from kaiwo.api.security.browser_sessions import SESSION_S
from kaiwo.api.views.answers import Outcome
from kaiwo.api.views.people import LoginView, SessionForm, SessionView
from kaiwo.manifests import read_json
from kaiwo.model.amounts import count


async def new_login(call: EndpointCall) -> LoginView:
    if is_session(call.person):
        raise forbidden(403, "a login cannot create another login; send the token instead")
    call.trail.changed("login")
    token = bearer(call.request) if call.person.is_of_kubernetes else ""
    return LoginView(call.context.access.login_path(call.person, token))


async def open_session(call: EndpointCall) -> SessionView:
    """The page exchanges the code of its address for a secret, which only pages of this origin can read."""
    try:
        form = msgspec.convert(read_json(call.body), SessionForm)
    except msgspec.ValidationError:
        raise invalid('code must be the code of a login address, such as {"code": "..."}', "code") from None
    secret = call.context.access.open_session(form.code)
    call.trail.person = call.context.access.sessions.find(secret) or call.person
    call.context.log.emit("login")
    return SessionView(secret, SESSION_S)


async def log_out(call: EndpointCall) -> Outcome:
    """A session ends itself; the token ends all sessions of its owner."""
    sessions, person = call.context.access.sessions, call.person
    if is_session(person):
        sessions.close(person.credential)
        return Outcome(["this browser is logged out"])
    closed = sessions.close_all(person.name)
    call.trail.changed("login", {"browsers": closed}, {"browsers": 0})
    return Outcome([f"{count(closed, 'browser')} logged out"])


CODE = Body((JSON,), SessionForm)
ROUTES = (
    Route(
        "POST", "/logins", "A new address that logs one browser in.", new_login, LoginView, 201,
        needs_state=False,
    ),
    Route(
        "DELETE", "/logins", "Log this browser out; with a token, all of your browsers.", log_out, Outcome,
        needs_state=False,
    ),
    Route(
        "POST", "/sessions", "Exchange the code of a login address for a token.", open_session, SessionView,
        201, body=CODE, needs_state=False,
    ),
)  # fmt: skip
