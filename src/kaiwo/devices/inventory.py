"""What a machine has, the same for every vendor.

One PhysicalGpu for each card, OAM module or die with a PCI address of its own; its partitions when it is cut. What
is not known is None, an empty text or an empty tuple; it is never made up.
"""

from typing import Literal

import msgspec

Health = Literal["healthy", "degraded", "failed"]


class Link(msgspec.Struct, frozen=True):
    """How one GPU reaches another."""

    to: str  # the other GPU's id
    kind: str  # xgmi | nvlink | pcie | ...
    weight: int | None = None  # the driver's measure of distance; small is near
    hops: int | None = None
    count: int | None = None  # links side by side
    bandwidth_mb_s: int | None = None  # in one direction, all of them together


class Telemetry(msgspec.Struct, frozen=True):
    """What the GPU was doing when somebody looked."""

    utilisation_percent: int | None = None
    memory_used_mib: int | None = None
    memory_busy_percent: int | None = None
    temperature_c: int | None = None  # the hottest place of the chip that is told
    memory_temperature_c: int | None = None
    power_w: int | None = None
    power_limit_w: int | None = None


class Errors(msgspec.Struct, frozen=True):
    """What the hardware counted since the driver was loaded."""

    corrected: int | None = None
    uncorrected: int | None = None
    bad_pages: int | None = None


class Partition(msgspec.Struct, frozen=True):
    """One part of a GPU that work can run on by itself: an XCP of AMD's, a MIG device of NVIDIA's."""

    id: str
    index: int  # within its GPU
    order: int | None = None  # the number the vendor's runtime gives it on this machine
    memory_mib: int = 0
    compute_units: int = 0
    simds: int = 0
    xcds: int = 0
    render: str = ""  # renderD129
    card: str = ""  # card1
    device: str = ""  # amdgpu_xcp_3
    node: int | None = None  # of the kernel's compute topology
    profile: str = ""  # 1g.10gb
    uuid: str = ""
    health: Health = "healthy"
    reason: str = ""


class PhysicalGpu(msgspec.Struct, frozen=True):
    """One GPU as it was built."""

    id: str  # its PCI address; where that is not known, its number in the driver's list
    vendor: str  # amd | nvidia | fake
    model: str  # MI300X, H200; what the driver calls it when we know no name
    product: str = ""  # in the vendor's words
    order: int | None = None  # the number the vendor's runtime gives it; None when its partitions have them
    pci: str = ""  # 0000:05:00.0
    device_id: str = ""  # 0x74a1
    target: str = ""  # gfx942, sm_90
    platform: str = ""  # bare-metal | vf | apu
    serial: str = ""  # the chip's own number, or its UUID
    numa: int | None = None
    memory_mib: int = 0
    memory_from: str = ""  # driver | table: the data sheet, when the driver does not say
    compute_units: int = 0
    simds: int = 0
    xcds: int = 0
    compute_mode: str = ""  # SPX ... CPX; MIG
    memory_mode: str = ""  # NPS1 ... NPS8
    compute_modes: tuple[str, ...] = ()  # that it could be in
    memory_modes: tuple[str, ...] = ()
    hive: str = ""  # GPUs of one hive reach each other without the CPU
    render: str = ""
    card: str = ""
    node: int | None = None
    links: tuple[Link, ...] = ()
    telemetry: Telemetry = Telemetry()
    errors: Errors = Errors()
    health: Health = "healthy"
    reason: str = ""  # why it is not healthy
    partitions: tuple[Partition, ...] = ()  # empty when it is whole


class Nic(msgspec.Struct, frozen=True):
    """A way out of the machine. Only topology dumps name these so far."""

    name: str
    pci: str
    numa: int | None = None
    speed_mbit_s: int | None = None
    near: tuple[str, ...] = ()  # the GPUs under the same PCIe switch


class Inventory(msgspec.Struct, frozen=True):
    """All GPUs of one machine, and what is odd about them."""

    node: str
    gpus: tuple[PhysicalGpu, ...] = ()
    notes: tuple[str, ...] = ()
    nics: tuple[Nic, ...] = ()


def worse_health(first: Health, second: Health) -> Health:
    """The one to tell."""
    order: tuple[Health, ...] = ("healthy", "degraded", "failed")
    return max(first, second, key=order.index)


def join_reasons(parts: list[str]) -> str:
    """Several reasons in one line, each once."""
    return "; ".join(dict.fromkeys(part for part in parts if part))
