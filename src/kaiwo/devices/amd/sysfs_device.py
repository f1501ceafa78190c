"""Read one AMD GPU from its sysfs folder: product, memory, modes and error counters.

Never: lets a wrong value in one file affect the others.
"""

import os
import re

import msgspec

from kaiwo.devices.amd.machine_paths import drm_names
from kaiwo.devices.amd.sysfs_files import list_entries, plausible_bytes, read_bytes, read_number, read_text
from kaiwo.devices.inventory import Errors
from kaiwo.model.gpus.partition_modes import COMPUTE_MODES, MEMORY_MODES

_COUNTS = re.compile(rb"(ue|ce)\s*[:=]\s*(\d{1,18})", re.IGNORECASE)
_PAGE = re.compile(rb"^0x[0-9a-f]+\s*:\s*0x[0-9a-f]+\s*:\s*[RPF]", re.IGNORECASE | re.MULTILINE)
VRAM_TOTAL = "mem_info_vram_total"


class SysfsFacts(msgspec.Struct, frozen=True):
    product: str = ""
    device_id: int = 0
    revision: int | None = None
    memory_mib: int = 0
    memory_problem: str = ""  # why the size in its file is ignored
    numa: int | None = None
    compute_mode: str = ""
    memory_mode: str = ""
    compute_modes: tuple[str, ...] = ()
    memory_modes: tuple[str, ...] = ()
    hive: str = ""
    serial: str = ""
    card: str = ""
    render: str = ""
    errors: Errors = Errors()


def read_facts(folder: str) -> SysfsFacts:
    """What does not change while workloads run."""

    def at(name: str) -> str:
        return os.path.join(folder, name)

    card, render = drm_names(folder)
    numa = read_number(at("numa_node"))
    memory_mib, memory_problem = _memory(at(VRAM_TOTAL))
    return SysfsFacts(
        product=read_text(at("product_name")),
        device_id=read_number(at("device")) or 0,
        revision=read_number(at("revision")),
        memory_mib=memory_mib,
        memory_problem=memory_problem,
        numa=numa if numa is not None and 0 <= numa < 4096 else None,
        compute_mode=_one_of(COMPUTE_MODES, read_text(at("current_compute_partition"))),
        memory_mode=_one_of(MEMORY_MODES, read_text(at("current_memory_partition"))),
        compute_modes=_all_of(COMPUTE_MODES, read_text(at("available_compute_partition"))),
        memory_modes=_all_of(MEMORY_MODES, read_text(at("available_memory_partition"))),
        hive=hexadecimal(read_number(at("xgmi_hive_info/xgmi_hive_id"))),
        serial=_serial(read_text(at("unique_id"))),
        card=card,
        render=render,
        errors=read_errors(at("ras")),
    )


def read_errors(folder: str) -> Errors:
    """RAS counters, summed over all blocks."""
    names = [name for name in list_entries(folder) if name.endswith("_err_count") or name.startswith("aca_")]
    if not names:
        return Errors()
    found = [pair for name in names for pair in _COUNTS.findall(_bytes(os.path.join(folder, name)))]
    corrected = sum(int(count) for kind, count in found if kind.lower() == b"ce") if found else None
    uncorrected = sum(int(count) for kind, count in found if kind.lower() == b"ue") if found else None
    pages = _bytes(os.path.join(folder, "gpu_vram_bad_pages"))
    bad_pages = len(_PAGE.findall(pages)) if pages else None
    return Errors(corrected, uncorrected, bad_pages)


def _memory(path: str) -> tuple[int, str]:
    """MiB and a problem; a missing file is no problem, but one without a size is."""
    reported = read_number(path)
    if reported is None:
        return 0, f"{VRAM_TOTAL} contains no number" if os.path.isfile(path) and os.access(path, os.R_OK) else ""
    size, problem = plausible_bytes(reported, VRAM_TOTAL)
    return size >> 20, problem


def hexadecimal(number: int | None) -> str:
    """A 64-bit id as the driver's tools write it; empty for 0."""
    return f"0x{number:016x}" if number and number > 0 else ""


def _serial(text: str) -> str:
    return f"0x{text.lower():>016}" if re.fullmatch(r"[0-9a-fA-F]{1,16}", text) and text.strip("0") else ""


def _one_of(modes: tuple[str, ...], text: str) -> str:
    return text.upper() if text.upper() in modes else ""


def _all_of(modes: tuple[str, ...], text: str) -> tuple[str, ...]:
    reported = re.split(r"[\s,]+", text.upper())
    return tuple(mode for mode in modes if mode in reported)


def _bytes(path: str) -> bytes:
    try:
        return read_bytes(path)
    except OSError:
        return b""
