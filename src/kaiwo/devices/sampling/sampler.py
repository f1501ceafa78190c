"""Sample all GPUs of a machine, with the processes on them and their owners, and its network ports.

Never: raises because of a bad GPU: that GPU is degraded, with the reason.
"""

import importlib
import os
import re
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from kaiwo.devices.agent_messages import GpuSample, PartitionUse, ProcessUse, Sample
from kaiwo.devices.amd.machine_paths import MachinePaths
from kaiwo.devices.amd.sysfs_files import read_number
from kaiwo.devices.amd.telemetry import AmdGpuSampler
from kaiwo.devices.inventory import Health, Inventory, PhysicalGpu, join_reasons, worse_health
from kaiwo.devices.sampling.amd_processes import KfdProcesses
from kaiwo.devices.sampling.network_ports import NetworkPortSampler
from kaiwo.devices.sampling.nvidia_gpus import NvidiaSampler
from kaiwo.devices.sharing.isolation_method import oversubscription

RUN = re.compile(rb"(?:^|\0)KAIWO_RUN=([0-9a-zA-Z-]{1,64})\0")
POD = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})")
MAX_BYTES = 1 << 20


class Sampler:
    """Keeps files and libraries open between samples; create a new one when the devices change."""

    def __init__(self, inventory: Inventory, root: str = "/", nvml: Any = None, *, sees_processes: bool = True) -> None:
        """`sees_processes`: False in a container with process ids of its own. The drivers name the node's."""
        self.inventory = inventory
        paths = MachinePaths(root)
        mine = [gpu for gpu in inventory.gpus if gpu.vendor == "amd"]
        folders = {gpu.id: paths.pci_folder(gpu.pci) for gpu in mine if gpu.pci}
        self._amd = {name: AmdGpuSampler(folder) for name, folder in folders.items() if folder}
        self._kfd = _processes(paths, inventory)
        self.notes: list[str] = []
        self._nvidia = self._open_nvidia(nvml)
        self._owners = ProcessOwners(root, sees_processes)
        self._ports = NetworkPortSampler(root)
        self._number = 0

    def sample(self, time_s: float) -> Sample:
        uses = self._kfd.sample() if self._kfd else []
        nvidia = {sample.id: sample for sample in self._nvidia.sample()} if self._nvidia else {}
        found = []
        for gpu in self.inventory.gpus:
            sample = nvidia.get(gpu.id) or self._amd_sample(gpu, uses)
            found.append(self._with_owners(_with_inventory(gpu, sample)))
        self._owners.keep_only(use.pid for sample in found for use in sample.processes)
        self._number += 1
        return Sample(
            self.inventory.node, self._number, time_s, tuple(found), tuple(self.notes), self._ports.sample(time_s)
        )

    def close(self) -> None:
        for gpu in self._amd.values():
            gpu.close()
        if self._nvidia:
            self._nvidia.close()

    def _with_owners(self, sample: GpuSample) -> GpuSample:
        if not sample.processes:
            return sample
        uses = tuple(replace(use, owner=self._owners.owner(use.pid)) for use in sample.processes)
        return replace(sample, processes=uses)

    def _amd_sample(self, gpu: PhysicalGpu, uses: list[ProcessUse]) -> GpuSample:
        """A GPU without sysfs files, such as a fake one, keeps the values of discovery."""
        ids = {gpu.id, *(part.id for part in gpu.partitions)}
        mine = tuple(use for use in uses if use.device in ids)
        is_reported = self._kfd is not None and self._kfd.exists
        parts = tuple(
            _partition(part.id, part.compute_units, mine) if is_reported else PartitionUse(part.id)
            for part in gpu.partitions
        )
        oversubscribed = _oversubscription(gpu, mine)
        reader = self._amd.get(gpu.id)
        if reader is None:
            return GpuSample(gpu.id, gpu.telemetry, gpu.errors, "healthy", "", (), oversubscribed, parts, mine)
        telemetry, errors, problems = reader.sample()
        health: Health = "degraded" if problems else "healthy"
        if errors.uncorrected or not os.path.isdir(reader.folder):
            health = "failed"
        if errors.uncorrected:
            problems.insert(0, f"the hardware counted {errors.uncorrected} uncorrectable errors")
        return GpuSample(gpu.id, telemetry, errors, health, join_reasons(problems), (), oversubscribed, parts, mine)

    def _open_nvidia(self, nvml: Any) -> NvidiaSampler | None:
        gpus = [gpu for gpu in self.inventory.gpus if gpu.vendor == "nvidia"]
        if not gpus:
            return None
        try:
            library = nvml or importlib.import_module("pynvml")
        except ImportError:
            self.notes.append("NVIDIA GPUs are not sampled: pip install 'kaiwo[nvidia]'")
            return None
        try:
            return NvidiaSampler(library, gpus)
        except library.NVMLError as error:
            self.notes.append(f"NVIDIA GPUs are not sampled: {error}")
            return None


def _with_inventory(gpu: PhysicalGpu, sample: GpuSample) -> GpuSample:
    """Keep problems that discovery found, until the next discovery."""
    if gpu.health == "healthy":
        return sample
    health = worse_health(gpu.health, sample.health)
    return replace(sample, health=health, reason=join_reasons([gpu.reason, sample.reason]))


def _processes(paths: MachinePaths, inventory: Inventory) -> KfdProcesses | None:
    if not paths.kfd:
        return None
    devices: dict[int, str] = {}
    units: dict[str, int] = {}
    for gpu in inventory.gpus:
        for part in gpu.partitions or (gpu,):
            number = None if part.node is None else read_number(os.path.join(paths.kfd, str(part.node), "gpu_id"))
            if gpu.vendor == "amd" and number:
                devices[number] = part.id
                units[part.id] = part.compute_units
    folder = os.path.normpath(os.path.join(paths.kfd, "..", "..", "proc"))
    return KfdProcesses(folder, devices, units) if devices else None


def _partition(name: str, units: int, uses: tuple[ProcessUse, ...]) -> PartitionUse:
    mine = [use for use in uses if use.device == name]
    memory = _sum([use.memory_mib for use in mine])
    busy = _sum([use.busy_percent for use in mine]) if units else None
    return PartitionUse(name, memory, None if busy is None else min(100, busy), len({use.pid for use in mine}))


def _sum(values: list[int | None]) -> int | None:
    """The sum of known values: 0 without values, None if all are unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known or not values else None


def _oversubscription(gpu: PhysicalGpu, uses: tuple[ProcessUse, ...]) -> str:
    for device in dict.fromkeys(use.device for use in uses):
        here = [use for use in uses if use.device == device]
        if word := oversubscription(gpu.vendor, len({use.pid for use in here}), sum(use.queues or 0 for use in here)):
            return word
    return ""


class ProcessOwners:
    def __init__(self, root: str, sees_processes: bool) -> None:
        self._folder, self._sees_processes = os.path.join(root, "proc"), sees_processes
        self._known: dict[int, str] = {}

    def owner(self, pid: int) -> str:
        """The owner of a process; it never changes, so it is read once. Empty: it is unknown."""
        if not self._sees_processes:
            return ""  # a process of ours may have the same number
        if pid not in self._known:
            self._known[pid] = self._pod(pid) or self._run(pid)
        return self._known[pid]

    def keep_only(self, pids: Iterable[int]) -> None:
        """Forget other processes, because pids are reused."""
        living = set(pids)
        self._known = {pid: owner for pid, owner in self._known.items() if pid in living}

    def _pod(self, pid: int) -> str:
        """`/kubepods.slice/kubepods-burstable-pod1b2c..._....slice/...`, with dashes or underscores."""
        found = POD.search(self._read(pid, "cgroup").decode("latin-1"))
        return found[1].replace("_", "-") if found else ""

    def _run(self, pid: int) -> str:
        found = RUN.search(self._read(pid, "environ"))
        return found[1].decode() if found else ""

    def _read(self, pid: int, name: str) -> bytes:
        try:
            with open(os.path.join(self._folder, str(pid), name), "rb") as file:
                return file.read(MAX_BYTES)
        except OSError:
            return b""
