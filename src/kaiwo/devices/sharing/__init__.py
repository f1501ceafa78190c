"""Shares of a GPU: how they are kept apart, and what that is worth."""

from kaiwo.devices.sharing.sharing import Sharing, this_platform
from kaiwo.devices.sharing.words import RANKS, Ask, Device, Grant, Held, Platform, Refusal, meets

__all__ = ["RANKS", "Ask", "Device", "Grant", "Held", "Platform", "Refusal", "Sharing", "meets", "this_platform"]
