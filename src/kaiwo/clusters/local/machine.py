"""This machine as a node, with the GPUs it really has.

In:    NVIDIA's management library, or the amdgpu driver's topology in sysfs.   Out: a node, or None without a GPU.
Never: fails because a driver is missing or odd: then there is no GPU to use.
"""

import os
import platform
from pathlib import Path

from kaiwo.clusters.local.cluster_file import HOST_LABEL, MODEL_LABEL
from kaiwo.model.gpu import GPU_MODELS, Gpu
from kaiwo.model.node import Node

KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
MEMINFO = Path("/proc/meminfo")
# What the driver calls a device, and the model it is when its memory has that size.
GFX_MODELS = {90010: ("MI210", "MI250X"), 90402: ("MI300A", "MI300X", "MI308X", "MI325X"), 90500: ("MI350X", "MI355X")}


def real_node(kfd_nodes: Path = KFD_NODES) -> Node | None:
    """A node for this machine; None when it has no GPU that we can use."""
    gpus = nvidia_gpus() or amd_gpus(kfd_nodes)
    if not gpus:
        return None
    name = platform.node() or "localhost"
    return Node(
        name=name,
        cpu_milli=1000 * len(os.sched_getaffinity(0)),
        memory_mib=memory_mib(),
        gpus=gpus,
        labels={HOST_LABEL: name, MODEL_LABEL: gpus[0].model},
    )


def nvidia_gpus() -> tuple[Gpu, ...]:
    """Every device NVML knows, in the order of the bus."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return tuple(
            Gpu(f"gpu-{index}", model_name(_text(pynvml.nvmlDeviceGetName(handle))), _nvidia_mib(pynvml, handle))
            for index, handle in enumerate(handles)
        )
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def amd_gpus(kfd_nodes: Path = KFD_NODES) -> tuple[Gpu, ...]:
    """Every GPU of the kernel's compute topology, in its order: the one that ROCr counts in."""
    gpus: list[Gpu] = []
    for folder in sorted(
        (path for path in _entries(kfd_nodes) if path.name.isdecimal()), key=lambda path: int(path.name)
    ):
        properties = _properties(folder / "properties")
        if properties.get("simd_count", 0) > 0:
            mib = _kfd_mib(folder)
            gpus.append(Gpu(f"gpu-{len(gpus)}", amd_model(properties.get("gfx_target_version", 0), mib), mib))
    return tuple(gpus)


def amd_model(gfx_version: int, mib: int) -> str:
    """The model whose memory is nearest; an unknown chip keeps the name of its instruction set."""
    models = GFX_MODELS.get(gfx_version)
    if models is None:
        return f"gfx{gfx_version // 10_000}{gfx_version // 100 % 100:x}{gfx_version % 100:x}"
    return min(models, key=lambda name: abs(GPU_MODELS[name].memory_mib - mib))


def model_name(product: str) -> str:
    """`NVIDIA H100 80GB HBM3` is an H100; a product we do not know keeps its own name."""
    words = product.replace("-", " ").split()
    return next((word for word in words if word in GPU_MODELS), "-".join(words))


def memory_mib() -> int:
    """What this machine has in all."""
    for line in MEMINFO.read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    return 0


def _nvidia_mib(pynvml, handle) -> int:
    return pynvml.nvmlDeviceGetMemoryInfo(handle).total >> 20


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _kfd_mib(folder: Path) -> int:
    """Local memory of all banks (heap types 1 and 2)."""
    banks = [_properties(bank / "properties") for bank in _entries(folder / "mem_banks")]
    return sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in (1, 2)) >> 20


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _properties(path: Path) -> dict[str, int]:
    try:
        pairs = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
