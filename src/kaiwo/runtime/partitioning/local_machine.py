"""Change the modes of this machine's own GPUs: the executor with its record, its way and its check of who is there.

In:    the changes of one node.   Out: what became of them, after the machine was looked at again.
"""

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from kaiwo.devices.agent_messages import Hello
from kaiwo.devices.amd.change_partitions import ChangeOutcome, PartitionSite, change_partitions, resume
from kaiwo.devices.amd.partition_mode_writers import (
    COMPUTE_FILE,
    PCI_DEVICES,
    ModeWriter,
    SmiModeWriter,
    SysfsModeWriter,
)
from kaiwo.devices.discover import discover
from kaiwo.devices.sharing.prepare_grants import detect_isolation_support
from kaiwo.model.partition_modes import ModeChange


class Machine:
    """One real machine."""

    def __init__(self, node: str, root: str, folder: Path, tenant: Callable[[str], str]) -> None:
        self.node, self.root = node, root
        self._folder, self._tenant = folder, tenant

    async def carry_out(self, changes: Sequence[ModeChange]) -> ChangeOutcome:
        """All of them or none."""
        return await asyncio.to_thread(change_partitions, self._site(changes[0].gpu), changes)

    async def resume(self) -> ChangeOutcome | None:
        """Finish what a crash left."""
        return await asyncio.to_thread(lambda: resume(self._site("")))

    def hello(self) -> Hello:
        """The machine as it is now."""
        found = discover(self.root, has_telemetry=False)
        return Hello(self.node, "", "", msgspec.structs.replace(found, node=self.node), detect_isolation_support())

    @property
    def words(self) -> str:
        """How it is told, for people."""
        return f"the driver's files under {os.path.join(self.root, PCI_DEVICES)}, or amd-smi"

    def _site(self, gpu: str) -> PartitionSite:
        return PartitionSite(self._way(gpu), str(self._folder / "record.json"), self.root, self._tenant)

    def _way(self, gpu: str) -> ModeWriter:
        """The driver's own file where we may write it."""
        path = os.path.join(self.root, PCI_DEVICES, gpu, COMPUTE_FILE)
        if not gpu or os.access(path, os.W_OK) or os.path.realpath(self.root) != "/" or not shutil.which("amd-smi"):
            return SysfsModeWriter(self.root)
        return SmiModeWriter()
