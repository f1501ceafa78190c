"""Change the partition modes of this machine's own GPUs."""

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from kaiwo.devices.agent_messages import Hello
from kaiwo.devices.amd.change_partitions import ChangeOutcome, PartitionSite, change_partitions, resume
from kaiwo.devices.amd.partition_mode_writers import PCI_DEVICES, ModeWriter, SmiModeWriter, SysfsModeWriter, mode_file
from kaiwo.devices.discover import discover
from kaiwo.devices.sharing.prepare_grants import detect_isolation_support
from kaiwo.model.gpus.partition_modes import ModeChange


class LocalMachine:
    """An Executor for the machine that Kaiwo runs on. `tenant` names the process that uses a GPU, if there is one."""

    def __init__(self, node: str, root: str, folder: Path, tenant: Callable[[str], str]) -> None:
        self.node, self.root = node, root
        self._folder, self._tenant = folder, tenant

    async def carry_out(self, changes: Sequence[ModeChange]) -> ChangeOutcome:
        return await asyncio.to_thread(change_partitions, self._site(changes[0].gpu), changes)

    async def resume(self) -> ChangeOutcome | None:
        return await asyncio.to_thread(lambda: resume(self._site("")))

    def hello(self) -> Hello:
        found = discover(self.root, has_telemetry=False)
        return Hello(self.node, "", "", msgspec.structs.replace(found, node=self.node), detect_isolation_support())

    @property
    def description(self) -> str:
        return f"writing the driver's files under {os.path.join(self.root, PCI_DEVICES)}, or with amd-smi"

    def _site(self, gpu: str) -> PartitionSite:
        return PartitionSite(self._mode_writer(gpu), str(self._folder / "record.json"), self.root, self._tenant)

    def _mode_writer(self, gpu: str) -> ModeWriter:
        """The driver's own file where Kaiwo may write it, else amd-smi."""
        path = mode_file(self.root, gpu, "compute")
        if not gpu or os.access(path, os.W_OK) or os.path.realpath(self.root) != "/" or not shutil.which("amd-smi"):
            return SysfsModeWriter(self.root)
        return SmiModeWriter()
