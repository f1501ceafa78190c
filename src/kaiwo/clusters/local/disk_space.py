"""How much room the disk of the home folder has left, and when that is too little to start work."""

import os
from pathlib import Path

import msgspec

KEEP_FREE_BYTES, KEEP_FREE_PERCENT = 500 * 10**6, 5  # the smaller of the two


class DiskLimits(msgspec.Struct, frozen=True):
    keep_free_bytes: int = -1  # no work starts with less than this; -1: 500 MB, or 5 % of a small disk
    log_bytes: int = (
        500 * 10**6
    )  # of one run's log; of a longer one the first and the last half are kept; 0: everything


DEFAULT_DISK_LIMITS = DiskLimits()


def why_disk_is_low(home: Path, limits: DiskLimits) -> str:
    """A sentence for whoever waits; empty: there is enough room, or nobody can tell."""
    try:
        found = os.statvfs(home)
    except OSError:
        return ""
    free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    wanted = limits.keep_free_bytes
    if wanted < 0:
        wanted = min(KEEP_FREE_BYTES, size * KEEP_FREE_PERCENT // 100)
    if free >= wanted:
        return ""
    return (
        f"the disk with {home} has {free / 1e6:,.0f} MB free, and Kaiwo starts nothing below {wanted / 1e6:,.0f} MB; "
        "free some space there, or lower --keep-free"
    )
