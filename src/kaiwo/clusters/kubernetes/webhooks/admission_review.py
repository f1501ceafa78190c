"""AdmissionReview of admission.k8s.io/v1: only the fields that are read, and the three answers there are.

In:    what the API server asks.   Out: what it is told.
"""

import base64
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.decode.wire_objects import NOTHING, Wire

DENIED = 403
MOST_WARNINGS, WARNING_CHARACTERS = 5, 250  # the API server cuts what is longer
Step = dict[str, Any]  # of a JSON patch


class UserInfo(Wire):
    """Who asks, as the API server knows it."""

    username: str = ""
    groups: tuple[str, ...] | None = None


class Kind(Wire):
    """What the object is."""

    group: str = ""
    kind: str = ""


class AdmissionRequest(Wire):
    """One question."""

    uid: str
    kind: Kind
    operation: str = "CREATE"
    name: str = ""
    namespace: str = ""
    user_info: UserInfo = msgspec.field(default_factory=UserInfo)
    object: msgspec.Raw = NOTHING
    old_object: msgspec.Raw = NOTHING


class Review(Wire):
    """What arrives."""

    request: AdmissionRequest


class Verdict(NamedTuple):
    """What we say."""

    refusal: str = ""  # empty: it may pass
    patch: tuple[Step, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str = ""  # of a refusal, in one word, for those who count


PASS = Verdict()
_read = msgspec.json.Decoder(Review).decode


def read_review(body: bytes) -> AdmissionRequest:
    """Raises msgspec.DecodeError for what is no review."""
    return _read(body).request


def write_review(uid: str, verdict: Verdict) -> bytes:
    """The answer as the API server takes it."""
    response: dict[str, Any] = {"uid": uid, "allowed": not verdict.refusal}
    if verdict.refusal:
        response["status"] = {"code": DENIED, "reason": "Forbidden", "message": verdict.refusal}
    elif verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(verdict.patch)).decode()
    if verdict.warnings:
        response["warnings"] = [line[:WARNING_CHARACTERS] for line in verdict.warnings[:MOST_WARNINGS]]
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def is_nothing(raw: msgspec.Raw) -> bool:
    """The field was left out, or is null."""
    return bytes(raw) in (b"", b"null")
