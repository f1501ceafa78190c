"""One frozen picture: what `decide` sees.

It borrows the live picture's tables instead of copying 100,000 workloads; patching the picture makes it stale,
and whoever uses a stale snapshot is told so.
"""

from typing import TYPE_CHECKING

from kaiwo.model.errors import KaiwoError

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import Picture


class StaleSnapshotError(KaiwoError):
    """The picture was patched after this snapshot was taken."""


class Snapshot:
    """The picture at one version, with the time that this cycle believes in."""

    __slots__ = ("now_s", "picture", "version")

    def __init__(self, picture: "Picture", now_s: int) -> None:
        self.picture = picture
        self.version = picture.version
        self.now_s = now_s

    def read(self) -> "Picture":
        """The picture, if it is still the one this snapshot was taken of."""
        if self.picture.version != self.version:
            raise StaleSnapshotError(
                f"the picture moved from version {self.version} to {self.picture.version}; take a new snapshot"
            )
        return self.picture
