"""The marketing names of AMD's devices, from the list that libdrm installs.

In:    a root, a device id, a revision.   Out: `AMD Radeon RX 6700 XT`, or nothing.
"""

import os

from kaiwo.devices.amd.files import parse_number, read_bytes

PLACES = ("usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids", "amdgpu.ids")
MOST_BYTES = 1 << 20


def product_name(root: str, device_id: int, revision: int | None) -> str:
    """The name for that revision; for another one of the same device when that is not listed."""
    for place in PLACES:
        try:
            text = read_bytes(os.path.join(root, place), MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            continue
        if names := _names(text, device_id):
            return names.get(revision) or next(iter(names.values()))
    return ""


def _names(text: str, device_id: int) -> dict[int | None, str]:
    found: dict[int | None, str] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",", 2)]
        if len(parts) == 3 and parts[2] and parse_number(f"0x{parts[0]}") == device_id:
            found.setdefault(parse_number(f"0x{parts[1]}"), parts[2])
    return found
