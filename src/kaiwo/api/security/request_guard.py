"""Check the Host and the origin of every request, and add security headers to every response."""

from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request

from kaiwo.api.http.problems import ProblemError, respond
from kaiwo.api.security.access import AccessControl

# The page is built so that it needs nothing but itself.
POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
AGENTS = "/api/agents/"  # agents reach the server under many names, and no browser has their token
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    def __init__(self, app: Any, access: AccessControl) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        try:
            check_framing(request)
            if not scope["path"].startswith(AGENTS):
                self._access.check_host(request)
            self._access.check_site(request)
        except ProblemError as error:
            await respond(error)(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)


def check_framing(request: Request) -> None:
    """Two lengths of one body: a proxy in front may believe the other one, and take its rest for another's request."""
    if "transfer-encoding" in request.headers and "content-length" in request.headers:
        raise ProblemError(
            400,
            "invalid",
            "a request has Content-Length or Transfer-Encoding, not both",
            "Transfer-Encoding",
            {"Connection": "close"},
        )
