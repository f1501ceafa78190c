"""What an API server says when it says no, and when it says nothing.

ClusterError
├── ApiError           it answered with a status: `code` and the machine's word `reason`
│   └── StandbyError   we did not even ask: another replica leads
└── UnreachableError   no answer, or one cut off: whether a write happened is not known
"""

import msgspec

from kaiwo.model.errors import ClusterError


class Details(msgspec.Struct, rename="camel"):
    """The part of a Status that says when to come back."""

    retry_after_seconds: int = 0


class Status(msgspec.Struct, rename="camel"):
    """Kubernetes' own answer to a failed call."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


class ApiError(ClusterError):
    """The API server refused a call."""

    def __init__(self, code: int, reason: str, message: str, retry_after_s: float = 0) -> None:
        super().__init__(message)
        self.code, self.reason, self.retry_after_s = code, reason, retry_after_s

    @property
    def is_gone(self) -> bool:
        """The version asked for is too old: list again."""
        return self.code == 410 or self.reason == "Expired"

    @property
    def is_not_found(self) -> bool:
        """The object, or the whole kind, is not there."""
        return self.code == 404

    @property
    def is_conflict(self) -> bool:
        """Somebody else was first."""
        return self.code == 409

    @property
    def is_namespace_ending(self) -> bool:
        """Its namespace is being deleted: nothing new is made there, and nobody minds."""
        return self.code == 403 and "because it is being terminated" in str(self)

    @property
    def is_passing(self) -> bool:
        """The same call may succeed later: the server is busy, starting or stopping."""
        return self.code in (429, 500, 502, 503, 504)


class StandbyError(ApiError):
    """Only the leader writes. Not a passing trouble: whoever leads by now decides anew."""

    def __init__(self, what: str) -> None:
        super().__init__(0, "Standby", f"{what}: this replica is a standby, which changes nothing; ask the leader")


class UnreachableError(ClusterError):
    """No answer from the API server."""


def status_error(status: Status, what: str, retry_after_s: float = 0) -> ApiError:
    """The server's words, with what we had asked for."""
    wait_s = status.details.retry_after_seconds if status.details else 0
    message = f"{what}: {status.message or status.reason or f'HTTP {status.code}'}"
    return ApiError(status.code, status.reason, message, float(wait_s or retry_after_s))


def read_status(code: int, body: bytes, what: str, retry_after: str = "") -> ApiError:
    """From an HTTP answer that may or may not be a Status."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        status = Status(message=body[:200].decode("utf-8", "replace").strip())
    status.code = code
    return status_error(status, what, float(retry_after) if retry_after.isdigit() else 0)
