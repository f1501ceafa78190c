"""Refusals as JSON: every error that leaves the API is a Problem with one clear sentence."""

import difflib
from collections.abc import Iterable, Mapping

import msgspec
from starlette.responses import Response

from kaiwo.api.views.answers import Problem
from kaiwo.model.errors import ClusterError, ConfigError, ForbiddenError, KaiwoError, NotFoundError, RefusedError

JSON = "application/json"


class ProblemError(Exception):
    def __init__(
        self, status: int, kind: str, message: str, field: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problem = Problem(kind, message, field)
        self.headers = dict(headers or {})


def invalid(message: str, field: str = "") -> ProblemError:
    return ProblemError(400, "invalid", message, field)


def not_found(message: str) -> ProblemError:
    return ProblemError(404, "not-found", message)


def forbidden(status: int, message: str, headers: Mapping[str, str] | None = None) -> ProblemError:
    return ProblemError(status, "forbidden", message, headers=headers)


def too_many(message: str, retry_after_s: int) -> ProblemError:
    return ProblemError(429, "broken", message, headers={"Retry-After": str(retry_after_s)})


def not_ready(message: str) -> ProblemError:
    return ProblemError(503, "broken", message, headers={"Retry-After": "1"})


def translate(error: KaiwoError) -> ProblemError:
    message = " ".join(str(error).split())
    match error:
        case ConfigError():
            return invalid(message, error.field)
        case ForbiddenError():
            return forbidden(403, message)
        case RefusedError():
            return ProblemError(409, "refused", message, error.field)
        case NotFoundError():
            return not_found(message)
        case ClusterError():
            return ProblemError(503, "broken", message)
    return ProblemError(500, "broken", message)


def respond(error: ProblemError) -> Response:
    headers = {"Cache-Control": "no-store", **error.headers}
    return Response(msgspec.json.encode(error.problem), error.status, headers, media_type=JSON)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'limit'?`, or the whole list when nothing is similar."""
    names = sorted(known)
    if near := similar_name(word, names):
        return f"; did you mean '{near}'?"
    return f"; it can be {', '.join(names)}" if names else ""


def similar_name(word: str, known: Iterable[str]) -> str:
    """The most similar name; empty if none is similar."""
    return next(iter(difflib.get_close_matches(word[:100], sorted(known), n=1, cutoff=0.6)), "")


def quote(text: str) -> str:
    """A client's own text, cut and made printable for a message."""
    short = text if len(text) <= 60 else text[:57] + "..."
    return "'" + "".join(char if char.isprintable() else "?" for char in short) + "'"
