"""Change the partition modes of this machine's GPUs, completely or not at all.

Never: changes a GPU in use, writes an illegal mode, or trusts a write: the result is compared with the wanted modes,
       and rolled back if it differs.
Every step is recorded on disk before it is taken; after a crash `resume` continues where it stopped.
"""

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast

import msgspec

from kaiwo.devices.amd.discover_gpus import read_gpus
from kaiwo.devices.amd.machine_paths import MachinePaths
from kaiwo.devices.amd.partition_mode_writers import ModeWriter, driver_compute_mode
from kaiwo.devices.atomic_write import write_atomically
from kaiwo.devices.inventory import PhysicalGpu
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.partition_modes import Mode, ModeChange, Platform, next_modes, partition_count


class ChangeRecord(msgspec.Struct, frozen=True):
    changes: tuple[ModeChange, ...]
    way: Literal["forward", "back"] = "forward"
    reason: str = ""  # why it is rolled back
    is_memory_asked: bool = False  # a memory mode was written, which takes effect when the driver is loaded again


def read_record(path: str) -> ChangeRecord | None:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=ChangeRecord)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{path} records a partition change and can't be read ({error}); "
            "check the GPUs' modes with `kaiwo discover`, then remove the file"
        ) from error


def write_record(path: str, record: ChangeRecord) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    write_atomically(path, msgspec.json.encode(record))


Status = Literal["done", "dry-run", "refused", "busy", "rolled-back", "stuck"]


class ChangeOutcome(msgspec.Struct, frozen=True):
    status: Status
    reason: str = ""
    devices: int = 0  # present now
    missing: int = 0  # of those expected in these modes; real nodes of 64 partitions show 63
    actions: tuple[str, ...] = ()  # the steps of a dry run


class PartitionSite(msgspec.Struct, frozen=True):
    writer: ModeWriter
    record: str  # path of the record of a change in progress
    root: str = "/"
    tenant: Callable[[str], str] | None = None  # the workload on a GPU; empty if there is none
    plugin_devices: Callable[[], int] | None = None  # number of devices that the device plugin offers
    most_missing: int = 1  # devices that may be missing without a failure


def change_partitions(site: PartitionSite, changes: Sequence[ModeChange], is_dry: bool = False) -> ChangeOutcome:
    """Change these GPUs. An interrupted earlier change is finished first."""
    if not is_dry and (cut_short := resume(site)) is not None and cut_short.status == "stuck":
        return cut_short
    found = current_gpus(site.root)
    refusal = find_refusal(changes, found, site.tenant)
    if refusal is not None:
        return refusal
    if is_dry:
        return ChangeOutcome("dry-run", actions=tuple(_actions(site, changes, found)))
    record = ChangeRecord(tuple(changes))
    write_record(site.record, record)
    return _roll_forward(site, record)


def resume(site: PartitionSite) -> ChangeOutcome | None:
    record = read_record(site.record)
    if record is None:
        return None
    return _roll_forward(site, record) if record.way == "forward" else _roll_back(site, record)


def current_gpus(root: str) -> dict[str, PhysicalGpu]:
    return {gpu.id: gpu for gpu in read_gpus(MachinePaths(root), has_telemetry=False)[0]}


def find_refusal(
    changes: Sequence[ModeChange], found: Mapping[str, PhysicalGpu], tenant: Callable[[str], str] | None
) -> ChangeOutcome | None:
    memories = {change.after.memory for change in changes if change.after.memory != change.before.memory}
    for change in changes:
        gpu = found.get(change.gpu)
        if gpu is None:
            return ChangeOutcome("refused", f"there is no GPU {change.gpu}")
        now = Mode(gpu.compute_mode, gpu.memory_mode)
        if now != change.before:
            return ChangeOutcome("refused", f"{change.gpu} is in {'+'.join(now)}, not in {'+'.join(change.before)}")
        platform = cast(Platform, gpu.platform) if gpu.platform else None
        if change.after not in next_modes(gpu.model, now, platform):
            return ChangeOutcome(
                "refused", f"{change.gpu} ({gpu.model}, {gpu.platform}) cannot be {'+'.join(change.after)}"
            )
    named = {change.gpu for change in changes}
    if memories and (len(memories) > 1 or named != {gpu.id for gpu in found.values() if gpu.compute_mode}):
        return ChangeOutcome(
            "refused", "all GPUs of a node have the same memory mode: name every GPU, with one memory mode"
        )
    for gpu_id in sorted(named):
        if tenant and (holder := tenant(gpu_id)):
            return ChangeOutcome("busy", f"{gpu_id} is in use by {holder}")
    return None


def _roll_forward(site: PartitionSite, record: ChangeRecord) -> ChangeOutcome:
    targets = {change.gpu: change.after for change in record.changes}
    try:
        _apply(site, record, targets)
        problem, seen = _check(site, targets)
        if not problem:
            os.unlink(site.record)
            return seen
        is_busy = False
    except OSError as error:
        problem, is_busy = _error_text(error), error.errno == errno.EBUSY
    latest = read_record(site.record) or record
    return _roll_back(site, msgspec.structs.replace(latest, way="back", reason=problem), is_busy)


def _roll_back(site: PartitionSite, record: ChangeRecord, is_busy: bool = False) -> ChangeOutcome:
    write_record(site.record, record)
    before = {change.gpu: change.before for change in record.changes}
    try:
        _apply(site, record, before)
        problem, seen = _check(site, before)
    except OSError as error:
        return ChangeOutcome("stuck", f"{record.reason}; rolling back failed: {_error_text(error)}")
    if problem:
        return ChangeOutcome("stuck", f"{record.reason}; after rolling back: {problem}", seen.devices, seen.missing)
    os.unlink(site.record)
    return ChangeOutcome("busy" if is_busy else "rolled-back", record.reason, seen.devices, seen.missing)


def _apply(site: PartitionSite, record: ChangeRecord, targets: Mapping[str, Mode]) -> None:
    """Write only modes that differ, so that it can be repeated."""
    if record.is_memory_asked:
        # The driver may be unloaded; and a written memory mode can't be withdrawn before it takes effect.
        site.writer.reload()
        record = msgspec.structs.replace(record, is_memory_asked=False)
        write_record(site.record, record)
    found = current_gpus(site.root)
    asking = [gpu for gpu, mode in targets.items() if gpu in found and found[gpu].memory_mode != mode.memory]
    if asking:
        write_record(site.record, msgspec.structs.replace(record, is_memory_asked=True))
        for gpu in sorted(asking):
            site.writer.set_mode(gpu, "memory", targets[gpu].memory)
        site.writer.reload()
        write_record(site.record, msgspec.structs.replace(record, is_memory_asked=False))
        found = current_gpus(site.root)
    for gpu in sorted(targets):
        if gpu not in found:
            raise OSError(errno.ENODEV, f"{gpu} is gone")
        # The file may differ from the topology, if a write was accepted without effect.
        if {found[gpu].compute_mode, _driver_mode(site, found[gpu])} != {targets[gpu].compute}:
            site.writer.set_mode(gpu, "compute", targets[gpu].compute)


def _check(site: PartitionSite, targets: Mapping[str, Mode]) -> tuple[str, ChangeOutcome]:
    """The difference from the wanted modes, and the result."""
    found = current_gpus(site.root)
    devices = sum(max(1, len(gpu.partitions)) for gpu in found.values())
    missing = 0
    for gpu, mode in sorted(targets.items()):
        here = found.get(gpu)
        if here is None:
            return f"{gpu} is gone", ChangeOutcome("stuck", devices=devices)
        if (here.compute_mode, here.memory_mode) != tuple(mode):
            shown = f"{here.compute_mode}+{here.memory_mode}"
            return f"{gpu} shows {shown} after {'+'.join(mode)} was set", ChangeOutcome("stuck", devices=devices)
        if (driver_mode := _driver_mode(site, here)) != mode.compute:
            return f"{gpu} says {driver_mode} after {mode.compute} was set", ChangeOutcome("stuck", devices=devices)
        missing += partition_count(here.model, mode.compute) - max(1, len(here.partitions))
    seen = ChangeOutcome("done", "" if not missing else f"{missing} of the devices are missing", devices, missing)
    if missing > site.most_missing:
        return f"{missing} devices are missing; at most {site.most_missing} may be", seen
    if site.plugin_devices and (offered := site.plugin_devices()) != devices:
        return f"the device plugin offers {offered} devices, the machine shows {devices}", seen
    return "", seen


def _driver_mode(site: PartitionSite, gpu: PhysicalGpu) -> str:
    """The compute mode in the driver's file, or else as discovered."""
    return driver_compute_mode(site.root, gpu.pci) or gpu.compute_mode


def _actions(site: PartitionSite, changes: Sequence[ModeChange], found: Mapping[str, PhysicalGpu]) -> list[str]:
    asking = [change for change in changes if change.after.memory != found[change.gpu].memory_mode]
    words = [site.writer.describe(change.gpu, "memory", change.after.memory) for change in asking]
    if asking:
        words.append("unload and load the amdgpu driver")
    words += [
        site.writer.describe(change.gpu, "compute", change.after.compute)
        for change in changes
        if asking or change.after.compute != found[change.gpu].compute_mode
    ]
    count = sum(partition_count(found[change.gpu].model, change.after.compute) for change in changes)
    return [*words, f"expect {count} devices on {len(changes)} GPUs"]


def _error_text(error: OSError) -> str:
    return f"{error.strerror or type(error).__name__}{f' ({error.filename})' if error.filename else ''}"
