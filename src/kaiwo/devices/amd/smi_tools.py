"""Run amd-smi or rocm-smi, and read the JSON of all their versions (rocm-smi from ROCm 4.3 on).

Never: relies on a field or its type; any value may be `N/A`.
"""

import json
import re
import shutil
from typing import Any

import msgspec

from kaiwo.devices.gpu_names import parse_target
from kaiwo.model.gpus.partition_modes import COMPUTE_MODES, MEMORY_MODES

_CARD = re.compile(r"card(\d{1,4})")
_PAIR = re.compile(r"\(Topology\) (Weight|Hops|Link type) between DRM devices (\d{1,4}) and (\d{1,4})")
_IDS = ("Device Name", "Card Series", "Card series")


class SmiGpu(msgspec.Struct):
    """One device in the tool's numbering: a GPU or a partition."""

    index: int
    pci: str = ""
    partition: int = 0
    product: str = ""
    device_id: int = 0
    target: int = 0
    serial: str = ""
    memory_mib: int = 0
    compute_units: int = 0
    numa: int | None = None
    compute_mode: str = ""
    memory_mode: str = ""
    compute_modes: tuple[str, ...] = ()
    memory_modes: tuple[str, ...] = ()
    telemetry: dict[str, int | None] = {}  # the fields of Telemetry
    corrected: int | None = None
    uncorrected: int | None = None
    links: dict[int, tuple[str, int | None, int | None]] = {}  # by the other's index: kind, weight, hops


def _read_rocm_smi(document: dict[str, Any], found: dict[int, SmiGpu]) -> None:
    for name, card in document.items():
        if (match := _CARD.fullmatch(name)) and isinstance(card, dict):
            _read_card(card, _device(found, int(match[1])))
    system = document.get("system")
    pairs: dict[tuple[int, int], dict[str, Any]] = {}
    for name, value in system.items() if isinstance(system, dict) else ():
        if match := _PAIR.fullmatch(name):
            pairs.setdefault((int(match[2]), int(match[3])), {})[match[1]] = value
    for (one, other), facts in pairs.items():
        kind = text_value(facts.get("Link type")).lower()
        for here, there in ((one, other), (other, one)):
            if kind and here in found and there in found:
                found[here].links[there] = (kind, whole(facts.get("Weight")), whole(facts.get("Hops")))


def _read_card(card: dict[str, Any], gpu: SmiGpu) -> None:
    gpu.pci = text_value(first_value(card, "PCI Bus", "PCI Bus Address")).lower()
    gpu.product = next(
        (text for name in _IDS if (text := text_value(card.get(name))) and not text.startswith("0x")), ""
    )
    gpu.device_id = whole(first_value(card, "Device ID", "GPU ID")) or 0
    gpu.target = parse_target(text_value(card.get("GFX Version")))
    gpu.serial = text_value(card.get("Unique ID")).lower()
    gpu.memory_mib = mib(card.get("VRAM Total Memory (B)"), "B") or 0
    gpu.numa = whole(card.get("(Topology) Numa Node"), 0, 4096)
    gpu.compute_mode = mode_in(card.get("Compute Partition"), COMPUTE_MODES)
    gpu.memory_mode = mode_in(card.get("Memory Partition"), MEMORY_MODES)
    watt = first_value(card, "Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)")
    heat = first_value(card, "Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)")
    busy = first_value(card, "GPU Memory Read/Write Activity (%)", "GPU memory use (%)")
    gpu.telemetry = {
        "utilisation_percent": whole(card.get("GPU use (%)"), 0, 100),
        "memory_busy_percent": whole(busy, 0, 100),
        "memory_used_mib": mib(card.get("VRAM Total Used Memory (B)"), "B"),
        "temperature_c": whole(heat, 1, 200),
        "memory_temperature_c": whole(card.get("Temperature (Sensor memory) (C)"), 1, 200),
        "power_w": whole(watt, 0, 20_000),
        "power_limit_w": whole(card.get("Max Graphics Package Power (W)"), 1, 20_000),
    }


MAX_FAILURES = 50
TIMEOUT_S = 20.0
NO_JSON = "the tool's output contains no JSON"
ROCM_TOOLS = "/opt/rocm/bin"


def read_smi(text: str) -> tuple[list[SmiGpu], list[str]]:
    found: dict[int, SmiGpu] = {}
    documents = list(json_documents(text))
    for document in documents:
        if isinstance(document, dict) and any(name.startswith("card") for name in document):
            _read_rocm_smi(document, found)
        else:
            _read_amd_smi(document, found)
    notes = [] if documents else [NO_JSON]
    gpus = [found[index] for index in sorted(found)]
    silent = [gpu for gpu in gpus if not (gpu.pci or gpu.product or gpu.memory_mib or gpu.compute_mode)]
    notes += [f"the tool lists device {gpu.index} without address, name, memory or mode" for gpu in silent]
    return [gpu for gpu in gpus if gpu not in silent], notes


def json_documents(text: str) -> list[Any]:
    """All JSON documents in a text, which may have warnings and legends between them."""
    decoder, found, position, failures = json.JSONDecoder(), [], 0, 0
    while failures < MAX_FAILURES:
        starts = [start for sign in "[{" if (start := text.find(sign, position)) >= 0]
        if not starts:
            break
        try:
            document, position = decoder.raw_decode(text, min(starts))
            found.append(document)
        except (ValueError, RecursionError):
            position, failures = min(starts) + 1, failures + 1
    return found


def run_smi() -> tuple[list[SmiGpu], list[str]]:
    import subprocess

    for tool, arguments in (("amd-smi", ["static", "--json"]), ("rocm-smi", ["--showallinfo", "--json"])):
        path = shutil.which(tool) or shutil.which(tool, path=ROCM_TOOLS)
        if not path:
            continue
        try:
            done = subprocess.run([path, *arguments], capture_output=True, timeout=TIMEOUT_S, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            return [], [f"{tool} did not answer ({type(error).__name__})"]
        return read_smi(done.stdout.decode("utf-8", "replace"))
    return [], []


def _device(found: dict[int, SmiGpu], index: int) -> SmiGpu:
    return found.setdefault(index, SmiGpu(index, telemetry={}, links={}))


def _read_amd_smi(document: Any, found: dict[int, SmiGpu]) -> None:
    if isinstance(document, dict):
        rows = document.get("gpu_data")
        if isinstance(rows, list):
            _read_amd_smi(rows, found)
        for name in ("current_partition", "memory_partition", "partition_profiles"):
            _read_profiles(document.get(name), found)
        if "gpu" in document:
            _read_row(document, found)
    for row in document if isinstance(document, list) else ():
        if isinstance(row, dict):
            _read_row(row, found)


def _read_row(row: dict[str, Any], found: dict[int, SmiGpu]) -> None:
    index = whole(first_value(row, "gpu", "gpu_id"))
    if index is None or index > 4096:
        return
    gpu = _device(found, index)
    _read_static(row, gpu)
    _read_metric(row, gpu)
    links = row.get("links")
    for link in links if isinstance(links, list) else ():
        other = whole(value_at(link, "gpu"))
        if other is not None and other != index and (kind := text_value(value_at(link, "link_type"))):
            gpu.links[other] = (kind.lower(), whole(value_at(link, "weight")), whole(value_at(link, "num_hops")))


def _read_static(row: dict[str, Any], gpu: SmiGpu) -> None:
    asic, vram, parts = row.get("asic"), row.get("vram"), row.get("partition")
    gpu.pci = (text_value(first_value(row, "bdf")) or text_value(value_at(row, "bus", "bdf")) or gpu.pci).lower()
    gpu.product = (
        text_value(first_value(asic, "market_name"))
        or gpu.product
        or text_value(value_at(row, "board", "product_name"))
    )
    gpu.device_id = whole(value_at(asic, "device_id")) or gpu.device_id
    gpu.target = parse_target(text_value(value_at(asic, "target_graphics_version"))) or gpu.target
    gpu.serial = text_value(value_at(asic, "asic_serial")).lower() or gpu.serial
    gpu.compute_units = whole(value_at(asic, "num_compute_units")) or gpu.compute_units
    gpu.memory_mib = mib(first_value(vram, "size", "size_mb", "vram_size_mb", "vram_size")) or gpu.memory_mib
    gpu.memory_mib = gpu.memory_mib or mib(value_at(row, "mem_usage", "total_vram")) or 0
    numa = whole(value_at(row, "numa", "node"), 0, 4096)
    gpu.numa = gpu.numa if numa is None else numa
    gpu.partition = (
        whole(first_value(row, "partition_id"), 0, 7) or whole(value_at(parts, "partition_id"), 0, 7) or gpu.partition
    )
    compute = first_value(parts, "accelerator_partition", "compute_partition") or first_value(row, "compute_partition")
    gpu.compute_mode = mode_in(compute, COMPUTE_MODES) or gpu.compute_mode
    memory = first_value(parts, "memory_partition") or first_value(row, "memory_partition")
    gpu.memory_mode = mode_in(memory, MEMORY_MODES) or gpu.memory_mode


def _read_metric(row: dict[str, Any], gpu: SmiGpu) -> None:
    usage, power, heat = row.get("usage"), row.get("power"), row.get("temperature")
    used = first_value(row.get("mem_usage"), "used_vram") or first_value(row.get("fb_usage"), "vram_used", "used_vram")
    watt = first_value(power, "socket_power", "current_socket_power", "average_socket_power", "current_power")
    limit = row.get("limit")
    cap = first_value(limit, "max_power", "socket_power") or value_at(limit, "ppt0", "max_power_limit")
    gpu.telemetry |= {
        name: value
        for name, value in (
            ("utilisation_percent", whole(first_value(usage, "gfx_activity", "gfx_usage"), 0, 100)),
            ("memory_busy_percent", whole(first_value(usage, "umc_activity", "mem_usage"), 0, 100)),
            ("memory_used_mib", mib(used)),
            ("temperature_c", whole(first_value(heat, "hotspot", "junction", "edge"), 1, 200)),
            ("memory_temperature_c", whole(first_value(heat, "mem", "vram"), 1, 200)),
            ("power_w", whole(watt, 0, 20_000)),
            ("power_limit_w", whole(cap, 1, 20_000)),
        )
        if value is not None
    }
    ecc = row.get("ecc")
    corrected = whole(first_value(ecc, "total_correctable_count", "total_correctable", "correctable"))
    gpu.corrected = gpu.corrected if corrected is None else corrected
    uncorrected = whole(first_value(ecc, "total_uncorrectable_count", "total_uncorrectable", "uncorrectable"))
    gpu.uncorrected = gpu.uncorrected if uncorrected is None else uncorrected


def _read_profiles(rows: Any, found: dict[int, SmiGpu]) -> None:
    """Read partition profiles; rows without an index belong to the device of the row before."""
    gpu: SmiGpu | None = None
    for row in rows if isinstance(rows, list) else ():
        index = whole(value_at(row, "gpu_id"), 0, 4096)
        gpu = _device(found, index) if index is not None else gpu
        if gpu is None:
            continue
        gpu.memory_mode = (
            mode_in(first_value(row, "current_memory_partition", "memory"), MEMORY_MODES) or gpu.memory_mode
        )
        reported = text_value(value_at(row, "accelerator_type"))
        if "num_partitions" not in row:
            gpu.compute_mode = mode_in(reported, COMPUTE_MODES) or gpu.compute_mode
            gpu.partition = whole(value_at(row, "partition_id"), 0, 7) or gpu.partition
        elif mode := mode_in(reported, COMPUTE_MODES):
            gpu.compute_modes = tuple(m for m in COMPUTE_MODES if m in (*gpu.compute_modes, mode))
            gpu.compute_mode = mode if reported.endswith("*") else gpu.compute_mode
        if "num_partitions" not in row and (caps := text_value(value_at(row, "memory_partition_caps"))):
            gpu.memory_modes = tuple(mode for mode in MEMORY_MODES if mode in caps.upper())


def mode_in(value: Any, modes: tuple[str, ...]) -> str:
    """The mode in a text, without the star that marks the current one."""
    text = text_value(value).rstrip("* ").upper()
    return text if text in modes else ""


_NUMBER = re.compile(r"\s*(?:\(\s*)?(-?\d{1,20}(?:\.\d{1,12})?)\s*([A-Za-z%]*)")
_MIB = {"": 1, "B": 1 / (1 << 20), "KB": 1 / 1024, "MB": 1, "GB": 1024, "TB": 1 << 20}


def number(value: Any) -> float | None:
    found = _split(value)
    return found[0] if found else None


def whole(value: Any, least: int = 0, most: int = 1 << 62) -> int | None:
    """A whole number within bounds, decimal or hexadecimal."""
    if isinstance(value, str) and re.fullmatch(r"\s*0[xX][0-9a-fA-F]{1,16}\s*", value):
        found: float | None = int(value, 16)
    else:
        found = number(value)
    return round(found) if found is not None and least <= found <= most else None


def mib(value: Any, unit: str = "MB") -> int | None:
    """Memory in MiB; the tools write MB and GB for MiB and GiB."""
    found = _split(value)
    if found is None or found[0] < 0:
        return None
    reported = (found[1] or unit).upper().replace("IB", "B")
    return int(found[0] * _MIB[reported]) if reported in _MIB else None


def text_value(value: Any) -> str:
    """The text; empty for N/A and the like."""
    text = value.strip() if isinstance(value, str) else ""
    return "" if text.upper() in ("N/A", "NA", "NONE", "UNKNOWN", "NULL") or text.upper().startswith("N/A ") else text


def value_at(data: Any, *names: str) -> Any:
    for name in names:
        if not isinstance(data, dict):
            return None
        data = data.get(name)
    return data


def first_value(data: Any, *names: str) -> Any:
    """The first of these entries that has a value."""
    for name in names:
        value = value_at(data, name)
        if value is not None and (not isinstance(value, str) or text_value(value)):
            return value
    return None


def _split(value: Any) -> tuple[float, str] | None:
    if isinstance(value, dict):
        inner = _split(value.get("value"))
        unit = value.get("unit")
        return (inner[0], unit if isinstance(unit, str) else inner[1]) if inner else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        found = _NUMBER.match(value)
        return (float(found[1]), found[2]) if found else None
    return (float(value), "") if abs(value) < 1e19 else None
