"""GPU model names, from PCI device ids and what the driver reports.

In:    PCI device ids, product names, instruction sets, memory sizes.   Out: the short names of `model.gpu.GPU_MODELS`.
Never: gives a chip the name of another model; an unknown chip keeps its driver's name.
"""

import re

from kaiwo.model.gpu import GPU_MODELS

AMD_DEVICES: dict[int, str] = {
    0x66A1: "MI50",
    0x738C: "MI100",
    0x738E: "MI100",
    0x7408: "MI250X",
    0x740C: "MI250X",  # MI250 too: see amd_model
    0x740F: "MI210",
    0x7410: "MI210",
    0x74A0: "MI300A",
    0x74A1: "MI300X",
    0x74A2: "MI308X",
    0x74A5: "MI325X",
    0x74A8: "MI308X",
    0x74A9: "MI300X",
    0x74B5: "MI300X",
    0x74B6: "MI308X",
    0x74B9: "MI325X",
    0x74BC: "MI308X",
    0x74BD: "MI300X",
    0x75A0: "MI350X",
    0x75A3: "MI355X",
    0x75B0: "MI350X",
    0x75B3: "MI355X",
    0x6860: "MI25",
    0x6861: "Radeon-Pro-WX-9100",
}
VIRTUAL_FUNCTIONS = frozenset({0x7410, 0x74B5, 0x74B6, 0x74B9, 0x74BC, 0x74BD, 0x75B0, 0x75B3, 0x686C})
# APUs compute in the machine's memory; their dedicated memory is small.
APU_TARGETS = frozenset({90002, 90009, 90012, 100103, 100303, 100305, 100306, 110003, 110500, 110501, 110502, 110503})
# The models of each instruction set, by the driver's number.
_MODELS_OF_TARGET = {
    90010: ("MI210", "MI250X"),
    90402: ("MI300A", "MI300X", "MI325X"),
    90500: ("MI350X",),
}
_INSTINCT = re.compile(r"\bMI\d{2,3}[AX]?\b", re.IGNORECASE)
_MIB_OF_DEVICE = {"MI250": 64 << 10, "MI250X": 64 << 10, "MI100": 32 << 10}
_MI250_UNITS = 104  # per die; an MI250X has 110


def amd_model(device_id: int, product: str, target: int, memory_mib: int, compute_units: int) -> str:
    """The model from the product name or device id; as a last resort from instruction set and memory size."""
    if found := _INSTINCT.search(product):
        return found[0].upper()
    if device_id in AMD_DEVICES:
        is_mi250 = device_id == 0x740C and compute_units == _MI250_UNITS
        return "MI250" if is_mi250 else AMD_DEVICES[device_id]
    candidates = _MODELS_OF_TARGET.get(target, ())
    if candidates and memory_mib:
        return min(candidates, key=lambda name: abs(GPU_MODELS[name].memory_mib - memory_mib))
    if product:
        return short_product(product)
    return target_name(target) or (f"amd-{device_id:04x}" if device_id else "AMD")


def nominal_mib(model: str) -> int:
    """Memory of one PCI device by its data sheet; 0 if unknown. An MI250 is two devices in one package."""
    if model in _MIB_OF_DEVICE:
        return _MIB_OF_DEVICE[model]
    return GPU_MODELS[model].memory_mib if model in GPU_MODELS else 0


def nvidia_model(product: str) -> str:
    """`NVIDIA H100 80GB HBM3` is an H100; an unknown product keeps its own name."""
    words = product.replace("-", " ").split()
    return next((word for word in words if word in GPU_MODELS), "-".join(words) or "NVIDIA")


def target_name(version: int) -> str:
    """90402 is gfx942: the major version in decimal, minor and stepping in hexadecimal."""
    if version <= 0:
        return ""
    return f"gfx{version // 10_000}{version // 100 % 100:x}{version % 100:x}"


def rocr_uuid(unique_id: int) -> str:
    """ROCr's name for the KFD node with this unique_id; empty for 0."""
    return f"GPU-{unique_id:016X}" if unique_id else ""


def parse_target(name: str) -> int:
    """gfx942 is 90402 and gfx90a 90010, which rocm-smi writes as gfx9402 and gfx9010; 0 for any other text."""
    text = name.strip().lower()
    if found := re.fullmatch(r"gfx9(\d)(\d\d)", text):
        return 90_000 + int(found[1]) * 100 + int(found[2])
    if found := re.fullmatch(r"gfx(\d{1,2})([0-9a-f])([0-9a-f])", text):
        return int(found[1]) * 10_000 + int(found[2], 16) * 100 + int(found[3], 16)
    return 0


def short_product(product: str) -> str:
    """`Navi 22 [Radeon RX 6700/6700 XT / 6800M]` as Radeon-RX-6700."""
    inner = re.search(r"\[([^\]]+)\]", product)
    text = (inner[1] if inner else product).split("/")[0]
    text = re.sub(r"^(AMD|Advanced Micro Devices,? Inc\.?)\s+", "", text.strip(), flags=re.IGNORECASE)
    name = "-".join(re.findall(r"[\w.+]+", text))
    return name if name.startswith(("Radeon", "Instinct")) else f"AMD-{name}".rstrip("-")
