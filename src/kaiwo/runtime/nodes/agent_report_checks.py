"""Check what node agents report: an impossible value is dropped and noted, and the rest of the node still counts.

No number is made up: a dropped value is unknown, and a device of unknown memory is degraded.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import astuple, replace

from kaiwo.devices.agent_messages import GpuSample, PortSample, Sample
from kaiwo.devices.inventory import Errors, Inventory, Partition, PhysicalGpu, Telemetry, join_reasons, worse_health
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu import WHOLE_MILLI, Gpu
from kaiwo.model.node import DeviceLinks

T = TypeVar("T", PhysicalGpu, Partition)
MAX_DEVICES = 1024
MAX_MIB = 1 << 24
MAX_LINK = 10**9  # MB/s, and the numbers of NUMA nodes
MAX_CARDS = 1024
CARD_NAME = r"[\w.:-]{0,64}"
MAX_PARALLEL_LINKS = 1024  # links between two GPUs
MAX_COUNT = 1 << 53  # the largest integer that JSON readers hold exactly
MAX_NOTES = 16
MAX_PORTS, MAX_NAME, MAX_PORT_MB_S = 64, 64, 1_000_000  # of network adapters; 8 Tbit/s
_PERCENT, _CELSIUS, _WATT, _COUNT = (0, 100), (-60, 200), (0, 20_000), (0, MAX_COUNT)
_BOUNDS = {
    "utilisation_percent": _PERCENT, "memory_busy_percent": _PERCENT, "busy_percent": _PERCENT,
    "temperature_c": _CELSIUS, "memory_temperature_c": _CELSIUS, "power_w": _WATT, "power_limit_w": _WATT,
    "corrected": _COUNT, "uncorrected": _COUNT, "bad_pages": _COUNT, "queues": _COUNT,
}  # fmt: skip
_MEMORY = ("memory_used_mib", "memory_mib")


_NO_ERRORS = Errors()
_TELEMETRY_BOUNDS = [(0, 0) if name in _MEMORY else _BOUNDS[name] for name in Telemetry.__struct_fields__]


class CheckedInventory(NamedTuple):
    inventory: Inventory
    implausible: Mapping[str, str]  # by GPU: why it is degraded, whatever its agent reports
    notes: tuple[str, ...]


def check_inventory(reported: Inventory) -> CheckedInventory:
    implausible: dict[str, str] = {}
    notes: list[str] = []
    gpus = []
    for gpu in reported.gpus:
        fresh, problems, minor = _gpu(gpu)
        if problems:
            implausible[gpu.id] = join_reasons(problems)
        notes += [f"{gpu.id}: {text}" for text in (*problems, *minor)]
        gpus.append(fresh)
    return CheckedInventory(
        replace(reported, gpus=tuple(gpus)) if notes else reported, implausible, tuple(notes[:MAX_NOTES])
    )


def check_sample(reported: Sample, inventory: Inventory, implausible: Mapping[str, str]) -> Sample:
    memory = {gpu.id: gpu.memory_mib for gpu in inventory.gpus}
    notes: list[str] = []
    gpus = tuple(
        _sample(gpu, 2 * memory.get(gpu.id, 0) or MAX_MIB, implausible.get(gpu.id, ""), notes) for gpu in reported.gpus
    )
    ports = tuple(_port(port, notes) for port in reported.ports[:MAX_PORTS])
    if not notes and not implausible and len(ports) == len(reported.ports):
        return reported
    return replace(reported, gpus=gpus, ports=ports, notes=(*reported.notes, *notes[:MAX_NOTES]))


def check_devices(gpus: tuple[Gpu, ...]) -> None:
    """ConfigError for what no machine has: the cluster state trusts these numbers."""
    if len(gpus) > MAX_DEVICES:
        raise ConfigError(f"the inventory has {len(gpus)} devices; a node has at most {MAX_DEVICES:,}", "inventory")
    ids = [gpu.id for gpu in gpus]
    if len(set(ids)) != len(ids):
        raise ConfigError("two devices of the inventory have the same id; each needs its own", "inventory")
    for gpu in gpus:
        if not gpu.id or len(gpu.id) > 200 or not (gpu.id + gpu.model + gpu.profile).isprintable():
            raise ConfigError("a device of the inventory has no printable id of at most 200 characters", "inventory")
        if not 0 <= gpu.memory_mib <= MAX_MIB or not 0 < gpu.milli <= WHOLE_MILLI:
            raise ConfigError(f"device {gpu.id} says {gpu.memory_mib} MiB and {gpu.milli} milli", "inventory")


def check_wiring(wiring: DeviceLinks) -> None:
    if any(not -1 <= value <= MAX_LINK for row in (wiring.numa, wiring.total_mb_s, *wiring.mb_s) for value in row):
        raise ConfigError("a link or a NUMA node of the inventory is out of range", "inventory")
    if len(wiring.nic_names) > MAX_CARDS or not all(re.fullmatch(CARD_NAME, name) for name in wiring.nic_names):
        raise ConfigError("a network card of the inventory has no plain name, or there are too many", "inventory")


def _gpu(gpu: PhysicalGpu) -> tuple[PhysicalGpu, list[str], list[str]]:
    """The GPU without impossible values, the problems that degrade it, and those that do not."""
    problems = _memory_problem(gpu)
    parts = tuple(_degraded(part, _memory_problem(part)) for part in gpu.partitions)
    minor = [
        f"partition {part.index}: {part.reason}" for part, old in zip(parts, gpu.partitions, strict=True) if part != old
    ]
    links = tuple(
        link
        for link in gpu.links
        if 0 <= (link.bandwidth_mb_s or 0) <= MAX_LINK and 0 <= (link.count or 0) <= MAX_PARALLEL_LINKS
    )
    is_numa = gpu.numa is None or 0 <= gpu.numa <= MAX_LINK
    minor += [] if len(links) == len(gpu.links) else ["a link with impossible values is left out"]
    minor += [] if is_numa else [f"it says NUMA node {gpu.numa}, which is impossible"]
    if not problems and not minor:
        return gpu, [], []
    fresh = replace(gpu, partitions=parts, links=links, numa=gpu.numa if is_numa else None)
    return _degraded(fresh, problems), problems, minor


def _memory_problem(device: PhysicalGpu | Partition) -> list[str]:
    is_size = 0 <= device.memory_mib <= MAX_MIB
    return [] if is_size else [f"its agent says {device.memory_mib} MiB, which no GPU has"]


def _degraded(device: T, problems: list[str]) -> T:
    if not problems:
        return device
    reason = join_reasons([*problems, device.reason])
    return replace(device, memory_mib=0, health=worse_health(device.health, "degraded"), reason=reason)


def _sample(gpu: GpuSample, most_mib: int, implausible: str, notes: list[str]) -> GpuSample:
    if not implausible and _is_plain(gpu, most_mib):
        return gpu
    before = len(notes)
    telemetry = _within(gpu.telemetry, most_mib, gpu.id, notes)
    errors = _within(gpu.errors, most_mib, gpu.id, notes)
    parts = tuple(_within(part, most_mib, part.id, notes) for part in gpu.partitions)
    uses = tuple(_within(use, most_mib, f"process {use.pid} on {gpu.id}", notes) for use in gpu.processes)
    if len(notes) > before:
        gpu = replace(gpu, telemetry=telemetry, errors=errors, partitions=parts, processes=uses)
    if implausible:
        gpu = replace(gpu, health=worse_health(gpu.health, "degraded"), reason=join_reasons([implausible, gpu.reason]))
    return gpu


def _is_plain(gpu: GpuSample, most_mib: int) -> bool:
    """Nearly every sample is possible, and a thousand agents send them: one look at each number."""
    if gpu.partitions or gpu.processes or gpu.errors != _NO_ERRORS:
        return False
    return all(value is None or least <= value <= (bound or most_mib)
               for value, (least, bound) in zip(astuple(gpu.telemetry), _TELEMETRY_BOUNDS, strict=True))  # fmt: skip


def _port(port: PortSample, notes: list[str]) -> PortSample:
    name = "".join(char if char.isprintable() else "?" for char in port.device)[:MAX_NAME]
    is_known = 0 <= port.mb_s <= MAX_PORT_MB_S
    rates = [
        rate if rate is None or 0 <= rate <= MAX_PORT_MB_S else None for rate in (port.sent_mb_s, port.received_mb_s)
    ]
    checked = replace(port, device=name, mb_s=port.mb_s if is_known else 0, sent_mb_s=rates[0], received_mb_s=rates[1])
    if checked != port:
        notes.append(f"port {port.number} of {name} has impossible values, which are ignored")
    return checked


@cache
def _bounded_fields(names: tuple[str, ...]) -> tuple[tuple[str, int, int], ...]:
    """Those that have bounds; the upper one of memory is 0, because it depends on the device."""
    bounds = {**_BOUNDS, **dict.fromkeys(_MEMORY, (0, 0))}
    return tuple((name, *bounds[name]) for name in names if name in bounds)


def _within(reported: Any, most_mib: int, subject: str, notes: list[str]) -> Any:
    wrong: dict[str, None] = {}
    for name, least, bound in _bounded_fields(reported.__struct_fields__):
        value, most = getattr(reported, name), bound or most_mib
        if value is not None and not least <= value <= most:
            wrong[name] = None
            notes.append(f"{subject}: {name} {value} is impossible and ignored")
    return replace(reported, **wrong) if wrong else reported
