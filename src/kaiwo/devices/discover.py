"""Discover all GPUs of a machine.

Never: requires a driver, tool or library; what is missing becomes a note.
"""

import os

from kaiwo.devices.amd.discover_gpus import read_gpus
from kaiwo.devices.amd.machine_paths import KFD_PATHS, MachinePaths
from kaiwo.devices.amd.merge_smi import merge_smi
from kaiwo.devices.amd.smi_tools import NO_JSON, SmiGpu, read_smi, run_smi
from kaiwo.devices.inventory import Inventory
from kaiwo.devices.network_cards import read_network_cards
from kaiwo.model.errors import ConfigError

LIVE = "/"


def discover(root: str = LIVE, smi_text: str = "", has_telemetry: bool = True) -> Inventory:
    """The GPUs under a root. Only on the live root can NVML and AMD's tools be used."""
    is_live = os.path.realpath(root) == LIVE
    paths = MachinePaths(root)
    gpus, notes = read_gpus(paths, has_telemetry)
    reported: list[SmiGpu] = []
    if smi_text:
        reported, problems = read_smi(smi_text)
        notes += problems
        is_silent = bool(problems) and problems != [NO_JSON]  # it lists devices, but all their values are N/A
        if not reported and not (gpus and is_silent):
            raise ConfigError("no GPU in this JSON of amd-smi or rocm-smi; create it with: amd-smi static --json")
    elif is_live and any(gpu.memory_from != "driver" or gpu.health == "degraded" for gpu in gpus):
        reported, problems = run_smi()  # it takes a second, so only if sysfs left something unknown
        notes += problems
    if reported:
        gpus, more = merge_smi(gpus, reported)
        notes += more
    if is_live:
        from kaiwo.devices.nvidia.discover_gpus import read_gpus as read_nvidia

        found, problems = read_nvidia(has_telemetry)
        gpus, notes = gpus + found, notes + problems
    if problem := paths.topology_problem():
        notes.append(problem)
    nics = read_network_cards(paths, gpus)
    return Inventory(_node_name(paths, is_live), tuple(gpus), tuple(dict.fromkeys(notes)), nics)


def _node_name(paths: MachinePaths, is_live: bool) -> str:
    if is_live:
        return os.uname().nodename or "localhost"
    return paths.hostname() or os.path.basename(os.path.abspath(paths.root)) or "machine"


def searched_paths(root: str = LIVE) -> list[str]:
    places = [os.path.join(root, "sys", place) for place in KFD_PATHS[:2]]
    if os.path.realpath(root) == LIVE:
        return [f"AMD: {places[0]} (made by the amdgpu driver)", "NVIDIA: the library libnvidia-ml.so.1, through NVML"]
    return [f"AMD: {path}" for path in [*places, *(os.path.join(root, place) for place in KFD_PATHS[4:6])]]


def nearby_roots(root: str, most: int = 8) -> list[str]:
    try:
        names = sorted(os.listdir(root))[:200]
    except OSError:
        return []
    folders = [os.path.join(root, name) for name in names]
    return [folder for folder in folders if os.path.isdir(folder) and MachinePaths(folder).kfd][:most]
