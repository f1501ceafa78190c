"""Close a device until its partition mode has changed, reopen it, and read which change it waits for.

Such a device is not unhealthy; it only takes no new work.
"""

from typing import Literal, NamedTuple

from msgspec.structs import replace

from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.partition_modes import COMPUTE_MODES, Mode, read_mode

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
    reason = _REASONS["changing" if is_changing else "draining"] + goal.profile
    return replace(gpu, healthy=False, reason=reason, next_mode=goal.profile, is_changing=is_changing)


def reopen(gpu: Gpu) -> Gpu:
    """The device without a pending change; any other problem stays."""
    if pending_change(gpu) is None:
        return gpu
    return replace(gpu, healthy=True, reason="", next_mode="", is_changing=False)


def pending_change(gpu: Gpu) -> PendingChange | None:
    if gpu.healthy:
        return None
    if gpu.next_mode:
        return PendingChange("changing" if gpu.is_changing else "draining", read_mode(gpu.next_mode))
    return _change_in_0_1_0(gpu.reason)


def _change_in_0_1_0(reason: str) -> PendingChange | None:
    """0.1.0 wrote the change only into the reason; its journals and state files are still read."""
    for state, words in _REASONS.items():
        if reason.startswith(words) and (goal := read_mode(reason.removeprefix(words))).compute in COMPUTE_MODES:
            return PendingChange(state, goal)
    return None
