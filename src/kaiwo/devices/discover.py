"""Find every GPU of a machine.

In:    a root folder, and what AMD's tools printed, if somebody has that.   Out: one Inventory for all vendors.
Never: needs a driver, a tool or a library to be there; what is missing is a note.
"""

import os

from kaiwo.devices.amd.discover_gpus import read_gpus
from kaiwo.devices.amd.machine_paths import KFD_PATHS, MachinePaths
from kaiwo.devices.amd.merge_smi import merge_smi
from kaiwo.devices.amd.smi_tools import NO_JSON, SmiGpu, read_smi, run_smi
from kaiwo.devices.inventory import Inventory, PhysicalGpu
from kaiwo.model.errors import ConfigError

LIVE = "/"


def discover(root: str = LIVE, smi_text: str = "", has_telemetry: bool = True) -> Inventory:
    """The GPUs under a root; only the live root is asked for NVIDIA's, and lets us run AMD's tools."""
    is_live = os.path.realpath(root) == LIVE
    paths = MachinePaths(root)
    gpus, notes = read_gpus(paths, has_telemetry)
    reported = _run_tool_if_needed(gpus, notes) if is_live and not smi_text else []
    if smi_text:
        reported, odd = read_smi(smi_text)
        notes += odd
        is_silent = bool(odd) and odd != [NO_JSON]  # it lists devices, and has nothing but N/A to say of them
        if not reported and not (gpus and is_silent):
            raise ConfigError("no JSON of amd-smi or rocm-smi in it names a GPU; make it with: amd-smi static --json")
    if reported:
        gpus, more = merge_smi(gpus, reported)
        notes += more
    if is_live:
        from kaiwo.devices.nvidia.discover_gpus import read_gpus as read_nvidia

        found, odd = read_nvidia(has_telemetry)
        gpus, notes = gpus + found, notes + odd
    if trouble := paths.topology_problem():
        notes.append(trouble)
    return Inventory(_node_name(paths, is_live), tuple(gpus), tuple(dict.fromkeys(notes)))


def _run_tool_if_needed(gpus: list[PhysicalGpu], notes: list[str]) -> list[SmiGpu]:
    """amd-smi takes a second: it is asked only when the files leave something open."""
    if not any(gpu.memory_from != "driver" or gpu.health == "degraded" for gpu in gpus):
        return []
    reported, odd = run_smi()
    notes += odd
    return reported


def _node_name(paths: MachinePaths, is_live: bool) -> str:
    if is_live:
        return os.uname().nodename or "localhost"
    return paths.hostname() or os.path.basename(os.path.abspath(paths.root)) or "machine"


def searched_paths(root: str = LIVE) -> list[str]:
    """Where the search went, for a person who expected more."""
    places = [os.path.join(root, "sys", place) for place in KFD_PATHS[:2]]
    if os.path.realpath(root) == LIVE:
        return [f"AMD: {places[0]} (made by the amdgpu driver)", "NVIDIA: the library libnvidia-ml.so.1, through NVML"]
    return [f"AMD: {path}" for path in [*places, *(os.path.join(root, place) for place in KFD_PATHS[4:6])]]


def nearby_roots(root: str, most: int = 8) -> list[str]:
    """Folders in this one that would have worked as a root."""
    try:
        names = sorted(os.listdir(root))[:200]
    except OSError:
        return []
    folders = [os.path.join(root, name) for name in names]
    return [folder for folder in folders if os.path.isdir(folder) and MachinePaths(folder).kfd][:most]
