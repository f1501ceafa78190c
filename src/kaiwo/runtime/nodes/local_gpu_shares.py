"""Give the local cluster's runs their shares of this machine's GPUs, isolated as well as the platform allows."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from kaiwo.clusters.local.processes import RunShare
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Inventory
from kaiwo.devices.sharing.current_inventory import CurrentInventory
from kaiwo.devices.sharing.prepare_grants import GpuSharing
from kaiwo.devices.sharing.share_types import GrantRequest, Refusal
from kaiwo.model.errors import ClusterError
from kaiwo.model.gpus.gpu import Share
from kaiwo.runtime.log import emit


class LocalGpuShares:
    """Implements ShareProvider. Discovers the machine when the first run needs it, and again after mode changes."""

    def __init__(
        self, folder: Path, find: Callable[[], Inventory] = lambda: discover(has_telemetry=False), root: str = "/"
    ) -> None:
        self._folder, self._find, self._root = folder, find, root
        self._opened: tuple[CurrentInventory, GpuSharing] | None = None

    def prepare(self, run_id: str, devices: Sequence[Share], isolation: str = "", least_grade: str = "") -> RunShare:
        """Uses the requested isolation method, else the best one of the devices."""
        try:
            current, sharing = self._open()
            before = current.inventory
            current.ensure_current([share.gpu for share in devices])
            if current.inventory is not before:  # a change of modes renumbered the devices
                sharing.refresh(current.inventory)
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
        self._open()[1].release(run_id)

    def grade_of(self, run_id: str) -> str:
        grants = self._opened[1].grants if self._opened is not None else ()
        return next((grant.grade for grant in grants if grant.owner == run_id), "")

    def keep_only(self, run_ids: Collection[str]) -> None:
        if run_ids or self._folder.exists():
            self._open()[1].release_others(run_ids)

    def keep_alive(self) -> None:
        if self._opened is not None:
            for line in self._opened[1].maintain_daemons():
                emit("gpu-sharing-tended", level="warning", detail=line)

    def _open(self) -> tuple[CurrentInventory, GpuSharing]:
        if self._opened is None:
            current = CurrentInventory(self._find, self._root)
            self._opened = current, GpuSharing(str(self._folder), current.inventory)
        return self._opened
