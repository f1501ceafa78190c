"""This machine's GPUs, shared by the local cluster's runs with whatever limits the platform has.

In:    runs and the devices they hold.   Out: `clusters.local.shares.Kept`, built on `devices.sharing`.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from kaiwo.clusters.local.shares import Kept
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Inventory
from kaiwo.devices.sharing.sharing import Sharing
from kaiwo.devices.sharing.words import Ask, Refusal
from kaiwo.model.errors import ClusterError
from kaiwo.model.gpu import Share
from kaiwo.runtime.log import emit


class MachineShares:
    """Looks at the machine when the first run needs it."""

    def __init__(self, folder: Path, look: Callable[[], Inventory] = lambda: discover(has_telemetry=False)) -> None:
        self._folder, self._look = folder, look
        self._sharing: Sharing | None = None

    def prepare(self, run_id: str, devices: Sequence[Share], isolation: str = "", least_grade: str = "") -> Kept:
        """The best way of keeping apart that the devices have, or the one that was asked for."""
        try:
            grant = self._open().prepare(Ask(run_id, tuple(devices), isolation, least_grade))
        except ClusterError as error:
            raise OSError(str(error)) from error
        if isinstance(grant, Refusal):
            raise OSError(grant.reason)
        emit("gpu-granted", run=run_id, method=grant.method, grade=grant.grade, note=grant.note)
        return Kept(grant.environment, grant.cgroup)

    def release(self, run_id: str) -> None:
        """The last one to leave a device ends what served it."""
        self._open().release(run_id)

    def grade_of(self, run_id: str) -> str:
        """As the grant says."""
        grants = self._sharing.grants if self._sharing is not None else ()
        return next((grant.grade for grant in grants if grant.owner == run_id), "")

    def keep_only(self, run_ids: Collection[str]) -> None:
        """Release what a former Kaiwo left behind."""
        if run_ids or self._folder.exists():
            self._open().keep_only(run_ids)

    def tend(self) -> None:
        """Start daemons again that are gone."""
        if self._sharing is not None:
            for line in self._sharing.tend():
                emit("gpu-sharing-tended", level="warning", detail=line)

    def _open(self) -> Sharing:
        if self._sharing is None:
            self._sharing = Sharing(str(self._folder), self._look())
        return self._sharing
