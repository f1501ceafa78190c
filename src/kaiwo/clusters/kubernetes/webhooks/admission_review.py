"""AdmissionReview of admission.k8s.io/v1: the fields that Kaiwo reads, and the answer."""

import base64
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.decode.wire_objects import NOTHING, Wire
from kaiwo.clusters.kubernetes.webhooks.submitting_user import Requester

DENIED = 403
MAX_WARNINGS, WARNING_CHARACTERS = 5, 250  # the API server truncates longer ones
PatchStep = dict[str, Any]  # of a JSON patch


class ReviewedKind(Wire):
    group: str = ""
    kind: str = ""


class AdmissionRequest(Wire):
    uid: str
    kind: ReviewedKind
    operation: str = "CREATE"
    name: str = ""
    namespace: str = ""
    user_info: Requester = msgspec.field(default_factory=Requester)
    object: msgspec.Raw = NOTHING
    old_object: msgspec.Raw = NOTHING


class _AdmissionReview(Wire):
    request: AdmissionRequest


class AdmissionVerdict(NamedTuple):
    refusal: str = ""  # empty: allowed
    patch: tuple[PatchStep, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str = ""  # of a refusal, in one word, for metrics


ALLOWED = AdmissionVerdict()
_read = msgspec.json.Decoder(_AdmissionReview).decode


def read_review(body: bytes) -> AdmissionRequest:
    """Raises msgspec.DecodeError if the body is no AdmissionReview."""
    return _read(body).request


def write_review(uid: str, verdict: AdmissionVerdict) -> bytes:
    response: dict[str, Any] = {"uid": uid, "allowed": not verdict.refusal}
    if verdict.refusal:
        response["status"] = {"code": DENIED, "reason": "Forbidden", "message": verdict.refusal}
    elif verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(verdict.patch)).decode()
    if verdict.warnings:
        response["warnings"] = [line[:WARNING_CHARACTERS] for line in verdict.warnings[:MAX_WARNINGS]]
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def is_absent(raw: msgspec.Raw) -> bool:
    """The field is missing or null."""
    return bytes(raw) in (b"", b"null")
