"""Read a request's body: of the right kind, not too large, not too slow."""

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request

from kaiwo.api.http.problems import ProblemError, did_you_mean, invalid, quote
from kaiwo.api.settings import Settings
from kaiwo.manifests import read_json


class Body(msgspec.Struct, frozen=True):
    kinds: tuple[str, ...]  # media types; the first is the one to name
    schema: Any  # a type, or a JSON schema
    required: bool = True


async def read_body(request: Request, body: Body, settings: Settings) -> bytes:
    try:
        async with asyncio.timeout(settings.body_s):
            content = await _read(request, settings.body_bytes)
    except TimeoutError:
        raise ProblemError(
            408, "invalid", f"the body did not arrive within {settings.body_s:g} s; send it again"
        ) from None
    if not content.strip():
        if body.required:
            raise invalid(f"the body is empty; send {body.kinds[0]}")
        return b""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in body.kinds:
        given = quote(kind) if kind else "none"
        raise ProblemError(415, "invalid", f"the Content-Type must be {body.kinds[0]}, not {given}", "Content-Type")
    return content


def read_fields(body: bytes, *known: str) -> dict[str, Any]:
    """A form with these fields only; each may be left out."""
    fields = read_json(body) if body else {}
    for field in fields:
        if field not in known:
            raise invalid(f"there is no field {quote(field)}{did_you_mean(field, known)}", field[:100])
    return fields


async def _read(request: Request, limit: int) -> bytes:
    parts, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:  # the server reads and drops the rest, so that the client receives the answer
            way_out = "split it into several requests"
            raise ProblemError(413, "invalid", f"the body is larger than {limit // 1000} kB; {way_out}")
        parts.append(chunk)
    return b"".join(parts)
