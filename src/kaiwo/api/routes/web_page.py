"""Serve the web page: the files that `make ui` built, or a page that says how to build them."""

import mimetypes
import os
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from kaiwo.api.context import Context
from kaiwo.api.http.problems import ProblemError, respond

FOREVER = "public, max-age=31536000, immutable"  # the name of a built asset changes with its content
ALWAYS_ASK = "no-cache"
PAGE = "index.html"
LOGIN = "login"  # the page itself: it exchanges the code in its address
MISSING = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Kaiwo</title>
<body><h1>Kaiwo is running</h1><p>The web page is not part of this build. In a checkout, <code>make ui</code> builds it;
the API is at <a href="/api/v1/status">/api/v1/status</a>, and the command line works: <code>kaiwo status</code>.</p>
</body></html>"""


class WebPage:
    """Serves the files of one folder. The page keeps its state after the #, so no other path is a page."""

    def __init__(self, context: Context) -> None:
        self._folder = Path(context.settings.static)
        self._address = context.settings.host if context.settings.host.startswith("127.") else ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        response = self._answer(Request(scope))
        await response(scope, receive, send)

    def _answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            message = f"this address does not take {request.method}; it takes GET, HEAD"
            return respond(ProblemError(405, "invalid", message, headers={"Allow": "GET, HEAD"}))
        wanted = request.url.path.lstrip("/") or PAGE
        if wanted == LOGIN:
            wanted = PAGE
        if wanted == PAGE and self._address and request.url.hostname == "localhost":
            # Another user may listen on this port of ::1, which is localhost too, and would share the page's secret.
            return RedirectResponse(
                str(request.url.replace(hostname=self._address)), 307, {"Cache-Control": "no-store"}
            )
        found = self._find(wanted)
        if found is not None:
            is_built = wanted.startswith("assets/")
            kind = mimetypes.guess_type(found.name)[0] or "application/octet-stream"
            return FileResponse(found, headers={"Cache-Control": FOREVER if is_built else ALWAYS_ASK}, media_type=kind)
        if wanted.startswith("assets/"):
            return respond(
                ProblemError(404, "not-found", "there is no such file; reload the page, which may be outdated")
            )
        if wanted == PAGE:
            return HTMLResponse(MISSING, headers={"Cache-Control": ALWAYS_ASK})
        return respond(ProblemError(404, "not-found", "there is no such address; the page is at /"))

    def _find(self, wanted: str) -> Path | None:
        """The file, if it is inside the folder."""
        if "\x00" in wanted:
            return None
        path = os.path.realpath(self._folder / wanted)
        inside = os.path.realpath(self._folder) + os.sep
        return Path(path) if path.startswith(inside) and os.path.isfile(path) else None
