"""Compare what we discover with what nvidia-smi says.

In:    an inventory.   Out: a line for every fact that differs.
"""

import subprocess

from kaiwo.devices.inventory import Inventory

FIELDS = "pci.bus_id,uuid,name,memory.total,power.limit,compute_cap,index,ecc.errors.uncorrected.volatile.total"


def disagreements(inventory: Inventory) -> list[str]:
    """Empty when all is the same."""
    command = ["nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    gpus = [gpu for gpu in inventory.gpus if gpu.vendor == "nvidia"]
    found = [f"{len(gpus)} GPUs discovered, {len(lines)} reported by nvidia-smi"] if len(gpus) != len(lines) else []
    for gpu, line in zip(gpus, lines, strict=False):
        bus, uuid, name, memory, limit, capability, index, errors = (cell.strip() for cell in line.split(","))
        facts = {
            "pci": (gpu.pci, bus.lower()[4:]),
            "uuid": (gpu.serial, uuid),
            "product": (gpu.product, name),
            "memory_mib": (gpu.memory_mib, int(memory)),
            "power_limit_w": (gpu.telemetry.power_limit_w, round(float(limit))),
            "target": (gpu.target, f"sm_{capability.replace('.', '')}"),
            "order": (gpu.order, int(index)),
            "uncorrected": (gpu.errors.uncorrected, int(errors) if errors.isdecimal() else None),
        }
        found += [f"{gpu.id} {fact}: {ours}, {theirs}" for fact, (ours, theirs) in facts.items() if ours != theirs]
    return found


def driver_version() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
