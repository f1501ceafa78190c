"""Shares of a GPU: how they are kept apart, and what that is worth."""

from kaiwo.devices.sharing.machine_shares import Sharing, this_platform
from kaiwo.devices.sharing.share_types import Ask, Device, Grant, Held, Platform, Refusal
from kaiwo.model.gpu import RANKS, meets

__all__ = ["RANKS", "Ask", "Device", "Grant", "Held", "Platform", "Refusal", "Sharing", "meets", "this_platform"]
