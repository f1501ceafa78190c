"""Reservations."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from kaiwo.model.reservation import AtEnd, ReservationPhase


class DeviceView(msgspec.Struct, frozen=True):
    """One physical GPU."""

    node: str
    gpu: str


class ReservationView(msgspec.Struct, frozen=True):
    """GPUs that are reserved for an owner from a start to an end."""

    name: str
    phase: ReservationPhase
    owner_kind: str  # queue | user | workload | pool
    owner: str  # empty for a pool
    gpus: int  # physical GPUs that it has, or will have
    missing: int  # requested GPUs that do not exist or were not found yet
    gpu_milli: int  # all of it
    used_milli: int  # held by work that may use it
    start_s: int  # 0: since it was made
    end_s: int  # 0: never
    at_end: AtEnd
    created_s: int
    is_exact: bool  # nodes or devices were named; else the scheduler picked them
    gpu_models: list[str]
    node_selector: dict[str, str]
    nodes: list[str]  # reserved whole
    devices: list[DeviceView]
    others: list[str]  # workloads of others that still run on its GPUs
    message: str


class OwnerForm(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The owner of a reservation: exactly one of these."""

    queue: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    workload: str | UnsetType = UNSET


class ReservationForm(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The form that creates a reservation. `manifests.kinds.reservation` reads it; this describes it."""

    name: str
    gpus: Annotated[int, Meta(ge=1, description="Number of GPUs, which the scheduler picks.")] | UnsetType = UNSET
    gpu_models: list[str] | UnsetType = UNSET
    node_selector: dict[str, str] | UnsetType = UNSET
    nodes: Annotated[list[str], Meta(description="These nodes with all their GPUs.")] | UnsetType = UNSET
    devices: Annotated[list[DeviceView], Meta(description="Exactly these GPUs.")] | UnsetType = UNSET
    owner: (
        Annotated[OwnerForm, Meta(description="Owner (default: none, a pool for all work that names it).")] | UnsetType
    ) = UNSET
    start: Annotated[str, Meta(description='"2026-01-31T18:00:00Z", or "2h" from now')] | UnsetType = UNSET
    end: Annotated[str, Meta(description='"2026-02-01T06:00:00Z", or "8h" after the start')] | UnsetType = UNSET
    at_end: Literal["keep", "evict"] | UnsetType = UNSET
