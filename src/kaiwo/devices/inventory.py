"""The inventory of a machine's GPUs, the same for every vendor.

There is one PhysicalGpu for each card, OAM module or die with its own PCI address. Unknown values are None, an empty
text or an empty tuple; they are never made up.
"""

from typing import Literal

import msgspec

Health = Literal["healthy", "degraded", "failed"]
NO_MEMORY, NO_UNITS = "its memory size is unknown", "its number of compute units is unknown"


class Link(msgspec.Struct, frozen=True):
    to: str  # the other GPU's id
    kind: str  # xgmi | nvlink | pcie | ...
    weight: int | None = None  # the driver's measure of distance; smaller is nearer
    hops: int | None = None
    count: int | None = None  # number of parallel links
    bandwidth_mb_s: int | None = None  # one direction, all links together
    is_switched: bool = False  # over a switch: the same bandwidth serves all others together


class Telemetry(msgspec.Struct, frozen=True):
    utilisation_percent: int | None = None
    memory_used_mib: int | None = None
    memory_busy_percent: int | None = None
    temperature_c: int | None = None  # the hottest sensor of the chip
    memory_temperature_c: int | None = None
    power_w: int | None = None
    power_limit_w: int | None = None


class Errors(msgspec.Struct, frozen=True):
    """Error counters since the driver was loaded."""

    corrected: int | None = None
    uncorrected: int | None = None
    bad_pages: int | None = None


class Partition(msgspec.Struct, frozen=True):
    """A partition of a GPU: an XCP of AMD, or a MIG device of NVIDIA."""

    id: str
    index: int  # within its GPU
    order: int | None = None  # its index in the vendor's runtime
    memory_mib: int = 0
    compute_units: int = 0
    simds: int = 0
    xcds: int = 0
    render: str = ""  # renderD129
    card: str = ""  # card1
    device: str = ""  # amdgpu_xcp_3
    node: int | None = None  # its KFD node
    profile: str = ""  # 1g.10gb
    uuid: str = ""
    health: Health = "healthy"
    reason: str = ""


class PhysicalGpu(msgspec.Struct, frozen=True):
    id: str  # its PCI address; if unknown, its index in the driver's list
    vendor: str  # amd | nvidia | fake
    model: str  # MI300X, H200; an unknown model keeps its driver's name
    product: str = ""  # the vendor's product name
    order: int | None = None  # its index in the vendor's runtime; None if its partitions have them
    pci: str = ""  # 0000:05:00.0
    device_id: str = ""  # 0x74a1
    target: str = ""  # gfx942, sm_90
    platform: str = ""  # bare-metal | vf | apu
    serial: str = ""  # the chip's serial number or UUID
    numa: int | None = None
    memory_mib: int = 0
    memory_from: str = ""  # driver | table (the data sheet)
    compute_units: int = 0
    simds: int = 0
    xcds: int = 0
    compute_mode: str = ""  # SPX ... CPX; MIG
    memory_mode: str = ""  # NPS1 ... NPS8
    compute_modes: tuple[str, ...] = ()  # the supported modes
    memory_modes: tuple[str, ...] = ()
    hive: str = ""  # GPUs of one hive are connected without the CPU
    render: str = ""
    card: str = ""
    node: int | None = None
    links: tuple[Link, ...] = ()
    telemetry: Telemetry = Telemetry()
    errors: Errors = Errors()
    health: Health = "healthy"
    reason: str = ""  # why it is not healthy
    partitions: tuple[Partition, ...] = ()  # empty if it is not partitioned


class Nic(msgspec.Struct, frozen=True):
    """A network card that can move data of GPUs."""

    name: str
    pci: str
    numa: int | None = None
    speed_mbit_s: int | None = None
    near: tuple[str, ...] = ()  # the GPUs under the same PCIe switch


class Inventory(msgspec.Struct, frozen=True):
    node: str
    gpus: tuple[PhysicalGpu, ...] = ()
    notes: tuple[str, ...] = ()
    nics: tuple[Nic, ...] = ()


def worse_health(first: Health, second: Health) -> Health:
    order: tuple[Health, ...] = ("healthy", "degraded", "failed")
    return max(first, second, key=order.index)


def join_reasons(parts: list[str]) -> str:
    """One line for `reason`, without duplicates."""
    return "; ".join(dict.fromkeys(part for part in parts if part))


def split_reasons(reason: str) -> list[str]:
    """The parts of a `reason`, as `join_reasons` joined them."""
    return [part for part in reason.split("; ") if part]
