"""The table of GPU models: one row holds everything that Kaiwo knows about a model.

To add a model, add its row. The models that requests may name, the legal partition modes, the names that discovery
finds by PCI id and the expected memory sizes all follow from the rows. Sources: the vendors' data sheets, the amdgpu
driver and the PCI id list.
"""

import msgspec

# The extended resource that Kubernetes users ask for, and the vendor whose device plugin offers it.
RESOURCE_VENDORS = {"amd.com/gpu": "amd", "nvidia.com/gpu": "nvidia"}
GPU_RESOURCES, VENDORS = tuple(RESOURCE_VENDORS), tuple(RESOURCE_VENDORS.values())


class Chip(msgspec.Struct, gc=False, frozen=True):
    """How a GPU with several XCDs (compute dies) is built; this decides its partition modes."""

    xcds: int
    compute_units: int
    io_dies: int  # those that carry XCDs
    memory_modes: tuple[str, ...]
    is_apu: bool = False
    is_cdna4: bool = False  # gfx950: QPX and CPX go with NPS2 too


class GpuModel(msgspec.Struct, gc=False, frozen=True):
    """One row of the table."""

    name: str
    vendor: str
    memory_gib: int = 0  # of the whole package; 0: there are several sizes
    pci_ids: tuple[int, ...] = ()
    virtual_ids: tuple[int, ...] = ()  # PCI ids of virtual functions
    target: int = 0  # the driver's number of its instruction set: 90402 is gfx942
    pci_devices: int = 1  # in one package
    device_units: int = 0  # compute units of one PCI device, to tell apart two models with the same PCI id
    chip: Chip | None = None  # None: it can't be partitioned
    is_legacy: bool = False  # discovery knows its name, but requests and virtual nodes don't

    @property
    def memory_mib(self) -> int:
        return self.memory_gib << 10

    @property
    def all_pci_ids(self) -> tuple[int, ...]:
        return self.pci_ids + self.virtual_ids


_MI300 = Chip(8, 304, 4, ("NPS1", "NPS2", "NPS4"))
_MI350 = Chip(8, 256, 2, ("NPS1", "NPS2"), is_cdna4=True)

# Of models that share a PCI id, or an instruction set and a memory size, the first one is the default.
MODEL_TABLE = (
    GpuModel("MI210", "amd", 64, (0x740F,), (0x7410,), 90010),
    GpuModel("MI250X", "amd", 128, (0x7408, 0x740C), target=90010, pci_devices=2),
    GpuModel(
        "MI300A", "amd", 128, (0x74A0,), target=90402,
        chip=Chip(6, 228, 3, ("NPS1", "NPS4"), is_apu=True),  # the fourth IO die carries the CPU
    ),
    GpuModel("MI300X", "amd", 192, (0x74A1, 0x74A9), (0x74B5, 0x74BD), 90402, chip=_MI300),
    GpuModel(
        "MI308X", "amd", 192, (0x74A2, 0x74A8), (0x74B6, 0x74BC), 90402,
        # Half the XCDs on the same four IO dies: in NPS4 each has a quarter of the memory to itself.
        chip=Chip(4, 80, 4, ("NPS1", "NPS2", "NPS4")),
    ),
    GpuModel("MI325X", "amd", 256, (0x74A5,), (0x74B9,), 90402, chip=_MI300),
    GpuModel("MI350X", "amd", 288, (0x75A0,), (0x75B0,), 90500, chip=_MI350),
    GpuModel("MI355X", "amd", 288, (0x75A3,), (0x75B3,), 90500, chip=_MI350),
    GpuModel("A100", "nvidia", 80),
    GpuModel("H100", "nvidia", 80),
    GpuModel("H200", "nvidia", 141),
    GpuModel("B200", "nvidia", 192),
    GpuModel("L40S", "nvidia", 48),
    GpuModel("MI25", "amd", pci_ids=(0x6860,), virtual_ids=(0x686C,), is_legacy=True),
    GpuModel("MI50", "amd", pci_ids=(0x66A1,), is_legacy=True),
    GpuModel("MI100", "amd", 32, (0x738C, 0x738E), is_legacy=True),
    GpuModel("MI250", "amd", 128, (0x740C,), pci_devices=2, device_units=104, is_legacy=True),
    GpuModel("Radeon-Pro-WX-9100", "amd", pci_ids=(0x6861,), is_legacy=True),
)  # fmt: skip

GPU_MODELS = {model.name: model for model in MODEL_TABLE if not model.is_legacy}
CHIPS = {model.name: model.chip for model in MODEL_TABLE if model.chip is not None}
VENDOR_MODELS = {
    vendor: tuple(sorted(model.name for model in GPU_MODELS.values() if model.vendor == vendor)) for vendor in VENDORS
}
