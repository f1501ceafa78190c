"""GPU sharing: which devices a pod gets, and how it is isolated from others."""

from kaiwo.devices.sharing.prepare_grants import GpuSharing, detect_isolation_support
from kaiwo.devices.sharing.share_types import GpuDevice, Grant, GrantedDevice, GrantRequest, IsolationSupport, Refusal
from kaiwo.model.gpu import GRADE_RANKS, is_grade_enough

__all__ = [
    "GRADE_RANKS",
    "GpuDevice",
    "GpuSharing",
    "Grant",
    "GrantRequest",
    "GrantedDevice",
    "IsolationSupport",
    "Refusal",
    "detect_isolation_support",
    "is_grade_enough",
]
