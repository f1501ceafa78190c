"""Conditions in the status of Kubernetes objects, why a workload waits, and times as Kubernetes writes them.

In:    a problem or none, and the conditions before.   Out: a condition with the time of its last change.
"""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class WaitReason(NamedTuple):
    """Why a workload waits, for people."""

    workload: str
    sentence: str
    would_nodes_help: bool


def condition(
    kind: str, reasons: tuple[str, str], problem: str, before: Iterable[Mapping[str, Any]], now: str
) -> dict[str, Any]:
    """True without a problem. `reasons`: for True and for False."""
    status, reason = ("False", reasons[1]) if problem else ("True", reasons[0])
    same = (each for each in before if (each.get("type"), each.get("status")) == (kind, status))
    since = next((each.get("lastTransitionTime") for each in same), None) or now
    return {"type": kind, "status": status, "reason": reason, "message": problem, "lastTransitionTime": str(since)}


def utc_now() -> str:
    """In whole seconds: `2026-01-31T12:00:00Z`."""
    return utc_now_micros()[:19] + "Z"


def utc_now_micros() -> str:
    """With microseconds, for Events and Leases."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
