"""Find KFD topology, PCI devices and partition devices under a root: a live system or a copy of its /sys.

Never: looks outside the root.
"""

import os
import re
from collections.abc import Iterator

from kaiwo.devices.amd.sysfs_files import error_text, list_entries, numbered_entries, read_number, read_text

KFD_PATHS = (
    "class/kfd/kfd/topology/nodes",
    "devices/virtual/kfd/kfd/topology/nodes",
    "kfd/kfd/topology/nodes",
    "kfd/topology/nodes",
    "topology/nodes",
    "nodes",
    ".",
)
PCI_PATHS = ("bus/pci/devices", "bus/pci/drivers/amdgpu", "module/amdgpu/drivers/pci:amdgpu")
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", re.IGNORECASE)
XCP = re.compile(r"amdgpu_xcp[_.](\d{1,5})")
RENDER = re.compile(r"renderD\d{1,5}")
CARD = re.compile(r"card\d{1,5}")
AMD_VENDOR = 0x1002
DISPLAY, ACCELERATOR = 0x03, 0x12
_MAX_DEPTH = 12


class MachinePaths:
    def __init__(self, root: str = "/") -> None:
        self.root = root
        self.sys = os.path.join(root, "sys")
        if not os.path.isdir(self.sys):
            self.sys = root  # the root is itself a copy of /sys
        self.kfd = self._find_kfd()
        self._walked: dict[str, str] | None = None

    def pci_folder(self, address: str, render: int = 0) -> str:
        """The sysfs folder of a PCI device, by address or render node; empty if there is none."""
        for path in PCI_PATHS:
            folder = os.path.join(self.sys, path, address)
            if os.path.isdir(folder):
                return folder
        if render:
            folder = os.path.join(self.sys, "class/drm", f"renderD{render}", "device")
            if os.path.isdir(folder) and not XCP.match(os.path.basename(os.path.realpath(folder))):
                return folder
        return self._walk_devices().get(address, "")

    def amd_addresses(self) -> list[str]:
        """The PCI addresses of the amdgpu driver, whether or not KFD lists them."""
        found = {name.lower() for path in PCI_PATHS[1:] for name in self._addresses(path)}
        if not found:  # a copy may lack the driver's list
            top = os.path.join(self.sys, PCI_PATHS[0])
            found = {name.lower() for name in self._addresses(PCI_PATHS[0]) if is_amd_gpu(os.path.join(top, name))}
        return sorted(found or {name for name, folder in self._walk_devices().items() if is_amd_gpu(folder)})

    def topology_problem(self) -> str:
        for path in KFD_PATHS[:2]:
            folder = os.path.join(self.sys, path)
            try:
                names = os.listdir(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                return f"{folder}: {error_text(error)}"
            return "" if self.kfd else f"{folder} has {len(names)} entries but no node"
        return ""

    def partition_devices(self) -> dict[int, tuple[str, str]]:
        """The driver's partition devices: render number to (device, card), in both spellings of the kernel."""
        found: dict[int, tuple[str, str]] = {}
        for path in ("devices/platform", "bus/platform/devices"):
            folder = os.path.join(self.sys, path)
            names = filter(XCP.fullmatch, list_entries(folder))
            for name in sorted(names, key=lambda name: int(name[len("amdgpu_xcp_") :])):
                card, render = drm_names(os.path.join(folder, name))
                if render and int(render[7:]) not in found:
                    found[int(render[7:])] = (name, card)
        return found

    def hostname(self) -> str:
        for path in ("proc/sys/kernel/hostname", "etc/hostname"):
            if name := read_text(os.path.join(self.root, path)):
                return name
        return ""

    def _find_kfd(self) -> str:
        for base in dict.fromkeys((self.sys, self.root)):
            for path in KFD_PATHS:
                folder = os.path.normpath(os.path.join(base, path))
                if any(_looks_like_node(os.path.join(folder, str(number))) for number in numbered_entries(folder)):
                    return folder
        return ""

    def _addresses(self, path: str) -> list[str]:
        return [name for name in list_entries(os.path.join(self.sys, path)) if ADDRESS.fullmatch(name)]

    def _walk_devices(self) -> dict[str, str]:
        """PCI devices by address, found by walking /sys/devices: a copy may lack the links to them."""
        if self._walked is None:
            top = os.path.join(self.sys, "devices")
            pci = [name for name in list_entries(top) if name.startswith("pci") or ADDRESS.fullmatch(name)]
            self._walked = {a: f for name in pci for a, f in _descend(os.path.join(top, name), 0)}
        return self._walked


def is_amd_gpu(folder: str) -> bool:
    """True for an AMD display or accelerator function with a graphics driver."""
    if read_number(os.path.join(folder, "vendor")) != AMD_VENDOR:
        return False
    kind = read_number(os.path.join(folder, "class"))
    if kind is not None and kind >> 16 not in (DISPLAY, ACCELERATOR):
        return False
    return os.path.isdir(os.path.join(folder, "drm"))


def drm_names(folder: str) -> tuple[str, str]:
    """The DRM names of a device, (card0, renderD128), or empty."""
    names = list_entries(os.path.join(folder, "drm"))
    card = next(filter(CARD.fullmatch, names), "")
    return card, next(filter(RENDER.fullmatch, names), "")


def _looks_like_node(folder: str) -> bool:
    return any(os.path.lexists(os.path.join(folder, name)) for name in ("properties", "io_links", "gpu_id"))


def _descend(folder: str, depth: int) -> Iterator[tuple[str, str]]:
    name = os.path.basename(folder)
    if ADDRESS.fullmatch(name):
        yield name.lower(), folder
    if depth < _MAX_DEPTH:
        for child in list_entries(folder):
            if ADDRESS.fullmatch(child) and not os.path.islink(os.path.join(folder, child)):
                yield from _descend(os.path.join(folder, child), depth + 1)
