"""What the amdgpu driver shows of processes that compute, for trees that nobody has at hand."""

from pathlib import Path

from tests.devices.amd_trees import write_files

PROC = "sys/class/kfd/kfd/proc"


def write_process(root: Path, pid: int, memory_mib: dict[int, int], busy_units: int = 0, queues: int = 1) -> Path:
    """`memory_mib`: by the kernel's number of a GPU. Every GPU with memory has that many queues."""
    folder = root / PROC / str(pid)
    files: dict[str, object] = {"pasid": 32_770}
    number = 0
    for gpu, mib in memory_mib.items():
        files |= {f"vram_{gpu}": mib << 20, f"sdma_{gpu}": 0, f"stats_{gpu}/cu_occupancy": busy_units if mib else 0}
        for _ in range(queues if mib else 0):
            files |= {f"queues/{number}/gpuid": gpu, f"queues/{number}/size": 4096, f"queues/{number}/type": 0}
            number += 1
    write_files(folder, files)
    return folder
