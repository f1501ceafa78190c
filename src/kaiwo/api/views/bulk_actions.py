"""Requests and answers of the routes that act on many workloads."""

from typing import Annotated

import msgspec

from kaiwo.api.views import Problem

MOST_NAMES = 1000  # in one request: they are one change, and others wait for it


class NamesForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which workloads: `namespace/name` each."""

    names: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MOST_NAMES)]


class ActionResult(msgspec.Struct, frozen=True):
    """The result for one workload: what was done, or why not."""

    name: str
    done: str  # empty: nothing
    problem: Problem | None = None


class BulkOutcome(msgspec.Struct, frozen=True):
    """One result for each name, in their order; a duplicate name has one."""

    results: list[ActionResult]
