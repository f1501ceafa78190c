"""Routes that log a browser in, by an address that works once."""

from html import escape

from starlette.responses import HTMLResponse, RedirectResponse, Response

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import ProblemError, forbidden
from kaiwo.api.http.query_params import Param
from kaiwo.api.security.access import cookie_header
from kaiwo.api.views import LoginView

CODE = Param("code", "text", "The code of the address that `kaiwo up` or `kaiwo login` printed.")
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Kaiwo</title>
<body><h1>Not logged in</h1><p>{message}</p><p><a href="/">Look around without logging in</a></p></body></html>"""


async def new_login(call: EndpointCall) -> LoginView:
    if call.credential != "token":
        raise forbidden(403, "a login cannot create another login; send the token instead")
    return LoginView(call.context.access.login_path())


async def log_in(call: EndpointCall) -> Response:
    context = call.context
    headers = {"Cache-Control": "no-store"}
    if context.access.session_of(call.request) is None:
        try:
            secret = context.access.open_session(call.query["code"] or "")
        except ProblemError as error:
            text = PAGE.format(message=escape(error.problem.message))
            return HTMLResponse(text, error.status, {**headers, **error.headers})
        headers["Set-Cookie"] = cookie_header(secret, call.request.url.scheme == "https")
        context.log.emit("login")
    return RedirectResponse("/", 303, headers)


ROUTES = (
    Route("POST", "/logins", "A new address that logs one browser in.", new_login, LoginView, 201, needs_state=False),
)
LOGIN_ROUTE = Route(
    "GET", "/login", "Log this browser in.", log_in, "text/html", params=(CODE,), needs_state=False, is_public=True
)
