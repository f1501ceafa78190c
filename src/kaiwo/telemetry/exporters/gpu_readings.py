"""What the exporters of AMD and NVIDIA say about the GPUs of a node.

In:    the text of an endpoint.   Out: for each GPU or partition: use, memory, power and temperature, where they are
       known and possible.
"""

import re
from typing import NamedTuple

import msgspec

from kaiwo.telemetry.exporters.text_format import MetricSample, read_metrics

MAX_GPUS = 1024


class GpuReading(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one GPU, or of a partition of it. None: not known."""

    index: int  # of the GPU on its node, as its vendor counts them
    partition: int = 0
    pci: str = ""
    utilisation_percent: int | None = None
    memory_used_mib: int | None = None
    memory_mib: int | None = None
    power_w: int | None = None
    temperature_c: int | None = None


class Meaning(NamedTuple):
    field: str
    most: int
    rank: int = 0  # of two metrics with the same meaning, the lower one counts


# By metric. AMD counts memory in MB of 2**20 bytes, NVIDIA in MiB.
MEANINGS = {
    "gpu_gfx_activity": Meaning("utilisation_percent", 100),
    "gpu_used_vram": Meaning("memory_used_mib", 1 << 24),
    "gpu_total_vram": Meaning("memory_mib", 1 << 24),
    "gpu_package_power": Meaning("power_w", 100_000),
    "gpu_average_package_power": Meaning("power_w", 100_000, 1),
    "gpu_junction_temperature": Meaning("temperature_c", 200),
    "gpu_edge_temperature": Meaning("temperature_c", 200, 1),
    "DCGM_FI_DEV_GPU_UTIL": Meaning("utilisation_percent", 100),
    "DCGM_FI_DEV_FB_USED": Meaning("memory_used_mib", 1 << 24),
    "DCGM_FI_DEV_FB_FREE": Meaning("free_mib", 1 << 24),
    "DCGM_FI_DEV_FB_TOTAL": Meaning("memory_mib", 1 << 24),
    "DCGM_FI_DEV_POWER_USAGE": Meaning("power_w", 100_000),
    "DCGM_FI_DEV_GPU_TEMP": Meaning("temperature_c", 200),
}
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
PREFIX = "amd_"  # newer exporters of AMD may write it
NAMES = frozenset((*MEANINGS, *(PREFIX + name for name in MEANINGS if name.startswith("gpu_"))))


def read_gpus(text: str) -> tuple[list[GpuReading], str]:
    """The readings in the order of their GPUs, and what is wrong with the text; empty if nothing is."""
    found = read_metrics(text, NAMES)
    facts: dict[tuple[int, int], dict[str, tuple[int, int]]] = {}  # by GPU and partition, by field: rank and value
    places: dict[tuple[int, int], str] = {}
    impossible = 0
    for sample in found.samples:
        key = _key(sample)
        meaning = MEANINGS[sample.name.removeprefix(PREFIX)]
        if key is None or not 0 <= sample.value <= meaning.most:
            impossible += 1
            continue
        if key not in facts and len(facts) >= MAX_GPUS:
            continue
        mine = facts.setdefault(key, {})
        if meaning.field not in mine or meaning.rank < mine[meaning.field][0]:
            mine[meaning.field] = meaning.rank, round(sample.value)
        places.setdefault(key, _pci(sample.labels))
    readings = [_reading(key, places[key], {name: value for name, (_, value) in mine.items()})
                for key, mine in sorted(facts.items())]  # fmt: skip
    if not readings:
        return [], "it says nothing about GPUs that Kaiwo knows: it must be an exporter of AMD or NVIDIA"
    left_out = found.unreadable + impossible
    return readings, f"{left_out} of its samples cannot be read or are impossible" if left_out else ""


def _reading(key: tuple[int, int], pci: str, facts: dict[str, int]) -> GpuReading:
    free, used = facts.pop("free_mib", None), facts.get("memory_used_mib")
    if free is not None and used is not None:
        facts.setdefault("memory_mib", free + used)
    return GpuReading(key[0], key[1], pci, **facts)


def _key(sample: MetricSample) -> tuple[int, int] | None:
    is_nvidia = sample.name.startswith("DCGM")
    index = _number(sample.labels.get("gpu" if is_nvidia else "gpu_id", ""))
    # An instance of NVIDIA's MIG has numbers of its own, and shares its GPU's sensors: Kaiwo does not place on them.
    partition = 0 if is_nvidia else _number(sample.labels.get("gpu_partition_id") or "0")
    if index is None or partition is None or "GPU_I_ID" in sample.labels:
        return None
    return index, partition


def _pci(labels: dict[str, str]) -> str:
    """`0000:c1:00.0`; NVIDIA writes eight digits of the domain."""
    text = (labels.get("pci_bus_id") or labels.get("pcie_bus_id") or "").lower()
    return text[-12:] if _PCI.fullmatch(text) else ""


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 4 else None
