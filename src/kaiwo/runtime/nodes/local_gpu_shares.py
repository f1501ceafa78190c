"""This machine's GPUs, shared by the local cluster's runs with whatever limits the platform has.

In:    runs and the devices they hold.   Out: `clusters.local.shares.RunShare`, built on `devices.sharing`.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from kaiwo.clusters.local.share_provider import RunShare
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Inventory
from kaiwo.devices.sharing.current_inventory import CurrentInventory
from kaiwo.devices.sharing.prepare_grants import GpuSharing
from kaiwo.devices.sharing.share_types import GrantRequest, Refusal
from kaiwo.model.errors import ClusterError
from kaiwo.model.gpu import Share
from kaiwo.runtime.log import emit


class MachineShares:
    """Looks at the machine when the first run needs it, and again when its devices may be others."""

    def __init__(
        self, folder: Path, look: Callable[[], Inventory] = lambda: discover(has_telemetry=False), root: str = "/"
    ) -> None:
        self._folder, self._look, self._root = folder, look, root
        self._opened: tuple[CurrentInventory, GpuSharing] | None = None

    def prepare(self, run_id: str, devices: Sequence[Share], isolation: str = "", least_grade: str = "") -> RunShare:
        """The best way of keeping apart that the devices have, or the one that was asked for."""
        try:
            sharing = self._open_for([share.gpu for share in devices])
            grant = sharing.prepare(GrantRequest(run_id, tuple(devices), isolation, least_grade))
        except ClusterError as error:
            raise OSError(str(error)) from error
        if isinstance(grant, Refusal):
            raise OSError(grant.reason)
        emit("gpu-granted", run=run_id, method=grant.method, grade=grant.grade, note=grant.note)
        # In the order in which the process counts its devices: the first name is device 0.
        names = ",".join(one.name or one.device.id for one in grant.held)
        return RunShare({**grant.environment, "KAIWO_GPUS": names}, grant.cgroup)

    def release(self, run_id: str) -> None:
        """The last one to leave a device ends what served it."""
        self._open()[1].release(run_id)

    def grade_of(self, run_id: str) -> str:
        """As the grant says."""
        grants = self._opened[1].grants if self._opened is not None else ()
        return next((grant.grade for grant in grants if grant.owner == run_id), "")

    def keep_only(self, run_ids: Collection[str]) -> None:
        """Release what a former Kaiwo left behind."""
        if run_ids or self._folder.exists():
            self._open()[1].release_others(run_ids)

    def keep_alive(self) -> None:
        """Start daemons again that are gone."""
        if self._opened is not None:
            for line in self._opened[1].maintain_daemons():
                emit("gpu-sharing-tended", level="warning", detail=line)

    def _open(self) -> tuple[CurrentInventory, GpuSharing]:
        if self._opened is None:
            present = CurrentInventory(self._look, self._root)
            self._opened = present, GpuSharing(str(self._folder), present.inventory)
        return self._opened

    def _open_for(self, ids: Collection[str]) -> GpuSharing:
        """With the numbers that these devices have at this moment: after a change of mode they are others."""
        present, sharing = self._open()
        before = present.inventory
        present.ensure_current(ids)
        if present.inventory is not before:
            sharing.refresh(present.inventory)
        return sharing
