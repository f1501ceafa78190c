"""GPU model names and plausible memory sizes, from PCI device ids and what the driver reports.

Never: gives a chip the name of another model; an unknown chip keeps its driver's name.
"""

import re

from kaiwo.model.amounts import memory
from kaiwo.model.gpus.gpu_models import CHIPS, GPU_MODELS, MODEL_TABLE

_AMD_MODELS = [model for model in MODEL_TABLE if model.vendor == "amd"]
AMD_MODEL_NAMES = frozenset(model.name for model in _AMD_MODELS)
VIRTUAL_FUNCTIONS = frozenset(pci_id for model in _AMD_MODELS for pci_id in model.virtual_ids)
MODELS_BY_PCI_ID = {
    pci_id: [model for model in _AMD_MODELS if pci_id in model.all_pci_ids]
    for each in _AMD_MODELS
    for pci_id in each.all_pci_ids
}
# APUs compute in the machine's memory; their dedicated memory is small.
APU_TARGETS = frozenset({90002, 90009, 90012, 100103, 100303, 100305, 100306, 110003, 110500, 110501, 110502, 110503})
_INSTINCT = re.compile(r"\bMI\d{2,3}[AX]?\b", re.IGNORECASE)
_DEVICE_MIB = {model.name: model.memory_mib // model.pci_devices for model in MODEL_TABLE}


def amd_model(device_id: int, product: str, target: int, memory_mib: int, compute_units: int) -> str:
    """The model from the product name or device id; as a last resort from instruction set and memory size."""
    if found := _INSTINCT.search(product):
        return found[0].upper()
    if named := MODELS_BY_PCI_ID.get(device_id):
        exact = (model for model in named if model.device_units == compute_units)
        return next(exact, named[0]).name
    alike = [model for model in _AMD_MODELS if target and model.target == target]
    if alike and memory_mib:
        return min(alike, key=lambda model: abs(model.memory_mib - memory_mib)).name
    if product:
        return short_product(product)
    return target_name(target) or (f"amd-{device_id:04x}" if device_id else "AMD")


def nominal_mib(model: str) -> int:
    """Memory of one PCI device by its data sheet; 0 if unknown. An MI250 is two devices in one package."""
    return _DEVICE_MIB.get(model, 0)


def is_plausible(mib: int, model: str, parts: int, is_virtual: bool) -> bool:
    """True if it is near the data sheet's size; a missing digit makes a number ten times smaller.

    A virtual function has what its host gave it, and an APU shares memory with the CPU; both may have much less.
    """
    nominal = nominal_mib(model)
    is_apu = model in CHIPS and CHIPS[model].is_apu
    least = nominal // parts // (16 if is_virtual or is_apu else 2)
    return not nominal or least <= mib <= 2 * nominal


def implausible_text(file: str, mib: int, model: str) -> str:
    return f"{file} says {memory(mib)}, which is implausible for an {model}"


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
