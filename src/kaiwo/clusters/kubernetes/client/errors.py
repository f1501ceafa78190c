"""Errors that calls to the API server raise.

ClusterError
├── ApiError           it answered with a status: `code`, and `reason` for machines
│   └── StandbyError   the call was not sent: another replica leads
└── UnreachableError   no answer, or an incomplete one: nothing says whether a write happened
"""

import msgspec

from kaiwo.model.errors import ClusterError


class Cause(msgspec.Struct):
    field: str = ""


class Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int = 0
    causes: tuple[Cause, ...] | None = None


class Status(msgspec.Struct, rename="camel"):
    """Kubernetes' own answer to a failed call."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


class ApiError(ClusterError):
    """The API server refused a call. `message`: what it said, without the call; `fields`: which ones it refused."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        retry_after_s: float = 0,
        call: str = "",
        fields: tuple[str, ...] = (),
    ) -> None:
        super().__init__(f"{call}: {message}" if call else message)
        self.code, self.reason, self.message, self.retry_after_s = code, reason, message, retry_after_s
        self.fields = fields

    @property
    def is_gone(self) -> bool:
        """The requested version is too old: list again."""
        return self.code == 410 or self.reason == "Expired"

    @property
    def is_not_found(self) -> bool:
        return self.code == 404

    @property
    def is_conflict(self) -> bool:
        """Another client changed or created the object first."""
        return self.code == 409

    @property
    def is_replaced(self) -> bool:
        """The object that the write names by its UID is gone; another one may have its name."""
        return self.is_not_found or self.is_conflict or (self.code == 422 and "metadata.uid" in self.fields)

    @property
    def is_namespace_terminating(self) -> bool:
        """Its namespace is being deleted, so nothing new can be created there."""
        return self.code == 403 and "because it is being terminated" in self.message

    @property
    def is_transient(self) -> bool:
        """The same call may succeed later: the server is busy, starting or stopping."""
        return self.code in (429, 500, 502, 503, 504)


class StandbyError(ApiError):
    """Only the leader writes. A retry is useless: the leader makes its own decisions."""

    def __init__(self, what: str) -> None:
        super().__init__(0, "Standby", "this replica is a standby, which changes nothing; ask the leader", call=what)


class UnreachableError(ClusterError):
    """No answer from the API server. `message`: why, without the call."""

    is_transient = True
    retry_after_s = 0.0

    def __init__(self, message: str, call: str = "") -> None:
        super().__init__(f"{call}: {message}" if call else message)
        self.message = message


def status_error(status: Status, call: str, retry_after_s: float = 0) -> ApiError:
    details = status.details or Details()
    message = status.message or status.reason or f"HTTP {status.code}"
    fields = tuple(cause.field for cause in details.causes or ())
    return ApiError(
        status.code, status.reason, message, float(details.retry_after_seconds or retry_after_s), call, fields
    )


def read_status(code: int, body: bytes, call: str, retry_after: str = "") -> ApiError:
    """Read the error from an HTTP answer, which may or may not be a Status."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        status = Status(message=body[:200].decode("utf-8", "replace").strip())
    status.code = code
    return status_error(status, call, float(retry_after) if retry_after.isdigit() else 0)
