"""The JSON of rocm-smi, ROCm 4.3 and later: a flat list of sentences for each card.

In:    one decoded answer, {"card0": {...}, "system": {...}}.   Out: devices filled in.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kaiwo.devices.amd.quantity import first, mib, whole, word
from kaiwo.devices.models import parse_target
from kaiwo.model.partitions import COMPUTE_MODES, MEMORY_MODES

if TYPE_CHECKING:
    from kaiwo.devices.amd.smi import SmiGpu

_CARD = re.compile(r"card(\d{1,4})")
_PAIR = re.compile(r"\(Topology\) (Weight|Hops|Link type) between DRM devices (\d{1,4}) and (\d{1,4})")
_IDS = ("Device Name", "Card Series", "Card series")


def take(document: dict[str, Any], found: "dict[int, SmiGpu]", device: "Callable[..., SmiGpu]") -> None:
    """Cards keep their numbers; what lies between them is told once for the whole machine."""
    for name, card in document.items():
        if (match := _CARD.fullmatch(name)) and isinstance(card, dict):
            _take_card(card, device(found, int(match[1])))
    system = document.get("system")
    pairs: dict[tuple[int, int], dict[str, Any]] = {}
    for name, value in system.items() if isinstance(system, dict) else ():
        if match := _PAIR.fullmatch(name):
            pairs.setdefault((int(match[2]), int(match[3])), {})[match[1]] = value
    for (one, other), facts in pairs.items():
        kind = word(facts.get("Link type")).lower()
        for here, there in ((one, other), (other, one)):
            if kind and here in found and there in found:
                found[here].links[there] = (kind, whole(facts.get("Weight")), whole(facts.get("Hops")))


def _take_card(card: dict[str, Any], gpu: "SmiGpu") -> None:
    gpu.pci = word(first(card, "PCI Bus", "PCI Bus Address")).lower()
    gpu.product = next((text for name in _IDS if (text := word(card.get(name))) and not text.startswith("0x")), "")
    gpu.device_id = whole(first(card, "Device ID", "GPU ID")) or 0
    gpu.target = parse_target(word(card.get("GFX Version")))
    gpu.serial = word(card.get("Unique ID")).lower()
    gpu.memory_mib = mib(card.get("VRAM Total Memory (B)"), "B") or 0
    gpu.numa = whole(card.get("(Topology) Numa Node"), 0, 4096)
    compute, memory = word(card.get("Compute Partition")).upper(), word(card.get("Memory Partition")).upper()
    gpu.compute_mode = compute if compute in COMPUTE_MODES else ""
    gpu.memory_mode = memory if memory in MEMORY_MODES else ""
    watt = first(card, "Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)")
    heat = first(card, "Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)")
    busy = first(card, "GPU Memory Read/Write Activity (%)", "GPU memory use (%)")
    gpu.seen = {
        "utilisation_percent": whole(card.get("GPU use (%)"), 0, 100),
        "memory_busy_percent": whole(busy, 0, 100),
        "memory_used_mib": mib(card.get("VRAM Total Used Memory (B)"), "B"),
        "temperature_c": whole(heat, 1, 200),
        "memory_temperature_c": whole(card.get("Temperature (Sensor memory) (C)"), 1, 200),
        "power_w": whole(watt, 0, 20_000),
        "power_limit_w": whole(card.get("Max Graphics Package Power (W)"), 1, 20_000),
    }
