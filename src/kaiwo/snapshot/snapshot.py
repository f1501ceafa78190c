"""One frozen state: what `decide` sees.

It borrows the live state's tables instead of copying 100,000 workloads; patching the picture makes it stale,
and whoever uses a stale snapshot is told so.
"""

from typing import TYPE_CHECKING

from kaiwo.model.errors import KaiwoError

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState


class StaleSnapshotError(KaiwoError):
    """The state was patched after this snapshot was taken."""


class Snapshot:
    """The state at one version, with the time that this cycle believes in."""

    __slots__ = ("now_s", "state", "version")

    def __init__(self, state: "ClusterState", now_s: int) -> None:
        self.state = state
        self.version = state.version
        self.now_s = now_s

    def read(self) -> "ClusterState":
        """The state, if it is still the one this snapshot was taken of."""
        if self.state.version != self.version:
            raise StaleSnapshotError(
                f"the state moved from version {self.version} to {self.state.version}; take a new snapshot"
            )
        return self.state
