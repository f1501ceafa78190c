"""A snapshot: the frozen state that `decide` sees.

It borrows the live state's tables instead of copying 100,000 workloads: patching the state makes the snapshot stale,
and using a stale one raises an error.
"""

from typing import TYPE_CHECKING

from kaiwo.model.errors import KaiwoError

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState


class StaleSnapshotError(KaiwoError):
    """The state was patched after this snapshot was taken."""


class Snapshot:
    """The state at one version, and the time of this cycle."""

    __slots__ = ("now_s", "state", "version")

    def __init__(self, state: "ClusterState", now_s: int) -> None:
        self.state = state
        self.version = state.version
        self.now_s = now_s

    def read(self) -> "ClusterState":
        """The state; raises StaleSnapshotError when it was patched since."""
        if self.state.version != self.version:
            raise StaleSnapshotError(
                f"the state moved from version {self.version} to {self.state.version}; take a new snapshot"
            )
        return self.state
