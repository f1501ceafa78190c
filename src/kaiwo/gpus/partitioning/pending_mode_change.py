"""The partition mode change that a device waits for, as text in `Gpu.reason`; only this module writes and reads it.

Such a device is not unhealthy; it only takes no new work.
"""

from typing import Literal, NamedTuple

from msgspec.structs import replace

from kaiwo.model.gpu import Gpu
from kaiwo.model.partition_modes import COMPUTE_MODES, Mode

ChangeState = Literal["draining", "changing"]
_REASONS: dict[ChangeState, str] = {
    "draining": "closed to new work until it is idle: it changes to ",
    "changing": "its partition mode is being changed to ",
}


class PendingChange(NamedTuple):
    state: ChangeState
    goal: Mode


def close_for_change(gpu: Gpu, goal: Mode, is_changing: bool) -> Gpu:
    """The device, closed to new work because of this change."""
    reason = _REASONS["changing" if is_changing else "draining"]
    return replace(gpu, healthy=False, reason=reason + "+".join(goal))


def reopen(gpu: Gpu) -> Gpu:
    """The device without a pending change; any other problem stays."""
    return replace(gpu, healthy=True, reason="") if pending_change(gpu) else gpu


def pending_change(gpu: Gpu) -> PendingChange | None:
    for state, reason in _REASONS.items() if not gpu.healthy else ():
        if gpu.reason.startswith(reason):
            compute, _, memory = gpu.reason.removeprefix(reason).partition("+")
            return PendingChange(state, Mode(compute, memory)) if compute in COMPUTE_MODES else None
    return None
