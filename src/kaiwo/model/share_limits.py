"""Bounds and defaults of one share of a GPU: its memory, and the multiprocessors that it may use under MPS.

Queues and nodes set them. A share keeps to the stricter bound of the two, and takes the default of the nearest one that
has one: the workload's own number first, then that of its queue, then that of the node.
"""

import re
from collections.abc import Mapping

import msgspec

# Labels of nodes. One that cannot be read counts as the strictest.
MAX_THREADS = "kaiwo.ai/gpu-max-threads"  # the most threads of a share beyond the share, in percent
DEFAULT_THREADS = "kaiwo.ai/gpu-default-threads"  # of a share by MPS that does not ask for any, in percent
MAX_SHARE_MEMORY = "kaiwo.ai/gpu-max-share-memory"  # of one share on one device: `16Gi`, or a number of MiB

ANY_MIB = 1 << 40  # more than any device has: no bound
_UNIT_MIB = {"": 1, "Mi": 1, "Gi": 1 << 10, "Ti": 1 << 20}


class ShareLimits(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """What a workload's queue, and those above it, say about each of its shares."""

    max_mib: int = ANY_MIB
    queue: str = ""  # the queue that has this bound
    max_threads_milli: int = 0  # beyond the share itself; 0: no more than the share
    default_threads_milli: int = 0  # of shares that do not ask for any; 0: as the node says, otherwise as the share


NO_LIMITS = ShareLimits()


def most_share_mib(labels: Mapping[str, str]) -> int:
    """The most memory of one share on a device of this node. Where the label cannot be read, there are no shares."""
    if (written := labels.get(MAX_SHARE_MEMORY)) is None:
        return ANY_MIB
    found = re.fullmatch("([0-9]{1,8})(Mi|Gi|Ti)?", written)
    return min(ANY_MIB, int(found[1]) * _UNIT_MIB[found[2] or ""]) if found else 0


def threads_on_node(threads_milli: int, share_milli: int, labels: Mapping[str, str]) -> int:
    """The threads that a share gets there. A label that cannot be read allows no more than the share."""
    if (written := labels.get(MAX_THREADS)) is None:
        return threads_milli
    return min(threads_milli, max(share_milli, _read_percent(written)))


def default_threads(limits: ShareLimits, share_milli: int, labels: Mapping[str, str]) -> int:
    """The threads of a share by MPS that asks for none; 0: nobody says, and it gets as many as its share."""
    threads_milli = limits.default_threads_milli or _read_percent(labels.get(DEFAULT_THREADS, ""))
    return threads_on_node(min(threads_milli, max(share_milli, limits.max_threads_milli)), share_milli, labels)


def _read_percent(written: str) -> int:
    """In milli; 0 if it is not a percentage."""
    return 10 * int(written) if re.fullmatch("[0-9]{1,3}", written) and int(written) <= 100 else 0
