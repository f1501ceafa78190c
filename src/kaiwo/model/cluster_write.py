"""One thing that the scheduler did to the cluster by itself, for the audit."""

from typing import Any

import msgspec


class ClusterWrite(msgspec.Struct, frozen=True, gc=False):
    """`object`: its kind and name, such as `workload/default/train`."""

    action: str  # start | evict | bind | patch ...
    object: str
    reason: str = ""
    old: Any = None
    new: Any = None
    by: str = "scheduler"
    account: str = ""  # of the cluster's API; empty: this machine
    outcome: str = "done"  # done | refused | failed
    detail: str = ""


def ignore_write(write: ClusterWrite) -> None:
    """Nobody keeps an audit."""
