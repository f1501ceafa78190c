"""GPU sharing: which devices a pod gets, and how it is isolated from others."""

from kaiwo.devices.sharing.prepare_grants import GpuSharing, detect_isolation_support
from kaiwo.devices.sharing.share_types import GpuDevice, Grant, GrantedDevice, GrantRequest, IsolationSupport, Refusal
from kaiwo.model.gpu import RANKS, meets

__all__ = [
    "RANKS",
    "GpuDevice",
    "GpuSharing",
    "Grant",
    "GrantRequest",
    "GrantedDevice",
    "IsolationSupport",
    "Refusal",
    "detect_isolation_support",
    "meets",
]
