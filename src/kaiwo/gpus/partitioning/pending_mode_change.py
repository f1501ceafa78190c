"""What a device says while its GPU waits for another partition mode, or is being changed.

In:    a device.   Out: whether it is set aside, and for which mode; it is not ill, it only takes no work.
"""

from msgspec.structs import replace

from kaiwo.model.gpu import Gpu
from kaiwo.model.partition_modes import COMPUTE_MODES, Mode

CLOSED_PREFIX = "closed to new work until it is idle"
CHANGING_PREFIX = "its partition mode is being changed"
_TO = {CLOSED_PREFIX: ": it changes to ", CHANGING_PREFIX: " to "}
_STATES = {CLOSED_PREFIX: "draining", CHANGING_PREFIX: "changing"}


def close_for_change(gpu: Gpu, goal: Mode, is_changing: bool) -> Gpu:
    """The device, taking no work because of that change."""
    prefix = CHANGING_PREFIX if is_changing else CLOSED_PREFIX
    return replace(gpu, healthy=False, reason=f"{prefix}{_TO[prefix]}{'+'.join(goal)}")


def reopen(gpu: Gpu) -> Gpu:
    """The device with no change to wait for; what is wrong with it otherwise stays."""
    return replace(gpu, healthy=True, reason="") if change_state(gpu) else gpu


def change_state(gpu: Gpu) -> str:
    """`draining` or `changing`; empty: it is neither."""
    if gpu.healthy:
        return ""
    return next((state for prefix, state in _STATES.items() if gpu.reason.startswith(prefix)), "")


def goal_mode(gpu: Gpu) -> Mode | None:
    """The mode for which it is set aside."""
    if not change_state(gpu):
        return None
    compute, _, memory = gpu.reason.rpartition(" ")[2].partition("+")
    return Mode(compute, memory) if compute in COMPUTE_MODES else None
