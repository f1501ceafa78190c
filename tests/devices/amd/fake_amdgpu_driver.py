"""An amdgpu driver made of files: it answers writes as the kernel does, and shows what came of them.

A compute mode acts at once: EBUSY while work runs on the GPU, EINVAL when it does not go with the memory mode. A memory
mode is noted for the whole hive and acts when the driver is loaded again; noting the present one changes nothing, so a
noted one cannot be taken back. After a load each GPU is in the compute mode that the driver likes best.
"""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

from kaiwo.model.gpus.gpu_models import CHIPS
from kaiwo.model.gpus.partition_modes import Mode, partition_count
from tests.devices.amd_trees import (
    KFD,
    PCI,
    Box,
    address,
    cpu_properties,
    write,
    write_node,
    write_partition,
    write_pci,
)

COMPUTE_FILE, MEMORY_FILE = "current_compute_partition", "current_memory_partition"

KINDS = {8: "SPX DPX QPX CPX", 6: "SPX TPX CPX", 4: "SPX DPX CPX", 2: "SPX CPX", 1: "SPX CPX"}


def kernel_allows(xcds: int, compute: str, memory: str, is_apu: bool = False, is_gfx950: bool = False) -> bool:
    """The driver's conditions, one by one."""
    nps = int(memory[3:])
    pools = 3 if is_apu and nps == 4 else nps  # of the four on an APU one is the CPU's
    by_two = {2} if is_gfx950 else set()
    goes_with = {"SPX": {1}, "DPX": {1, 2}, "TPX": {1, 4}, "QPX": {1, 4} | by_two, "CPX": {1, 4} | by_two}
    counts = {
        "SPX": xcds > 0,
        "DPX": xcds % 4 == 0,
        "TPX": xcds % 3 == 0 and pools in (1, 3),
        "QPX": xcds // 4 >= 2,
        "CPX": xcds > 1 and xcds % pools == 0,
    }
    return compute in KINDS.get(xcds, "").split() and nps in goes_with[compute] and counts[compute]


def liked_best(xcds: int, memory: str, is_apu: bool = False) -> str:
    """What the driver chooses by itself when it is loaded."""
    pools = 3 if is_apu and memory == "NPS4" else int(memory[3:])
    if pools == 1:
        return "SPX"
    if pools == xcds:
        return "CPX"
    if pools == xcds // 2:
        return "TPX" if is_apu else "QPX"
    return "DPX"


class Kernel:
    """A machine of equal GPUs."""

    def __init__(self, root: Path, gpus: int = 8, model: str = "MI300X", compute: str = "SPX", memory: str = "NPS1"):
        self.root, self.model = root, model
        self.compute = [compute] * gpus
        self.memory, self.noted = memory, memory
        self.busy: set[int] = set()
        self.deaf: set[int] = set()  # takes a write and does nothing
        self.halfway: set[int] = set()  # takes a write into its file, and the topology stays as it was
        self.lost: Callable[[int, int], bool] = lambda gpu, part: False
        self.is_loaded = True
        self._shown: dict[int, Mode] = {}
        self.writes: list[str] = []
        self.before_each: Callable[[str], None] = lambda what: None
        self.show()

    @property
    def modes(self) -> list[Mode]:
        return [Mode(compute, self.memory) for compute in self.compute]

    def write(self, path: str, text: str) -> None:
        """What sysfs does with a write."""
        place = Path(path)
        gpu = self._at(place.parent.name)
        self._step(f"{place.name} {gpu} {text}")
        if place.name == COMPUTE_FILE:
            self._set_compute(gpu, text, path)
        elif place.name == MEMORY_FILE:
            if text not in CHIPS[self.model].memory_modes:
                raise OSError(errno.EINVAL, "Invalid argument", path)
            if text != self.memory:
                self.noted = text
        self.show()

    def run(self, command: tuple[str, ...]) -> None:
        """modprobe, and amd-smi as far as it sets modes."""
        if command[0] == "modprobe":
            self._step(" ".join(command))
            self._modprobe(is_removal="-r" in command)
            self.show()
            return
        name = {"--compute-partition": COMPUTE_FILE, "--memory-partition": MEMORY_FILE}[command[4]]
        self.write(str(self.root / PCI / address(self._named(command[3])) / name), command[5])

    def _named(self, selection: str) -> int:
        """The GPU that amd-smi means: an address, or a number, and its numbers count every partition."""
        rows = [
            (gpu, part) for gpu, mode in enumerate(self.compute) for part in range(partition_count(self.model, mode))
        ]
        gpu, part = rows[int(selection)] if selection.isdigit() else (self._at(selection), 0)
        if part:
            raise OSError(errno.EINVAL, f"amd-smi: GPU {selection} is a secondary partition")
        return gpu

    def _at(self, name: str) -> int:
        return next(at for at in range(len(self.compute)) if address(at) == name)

    def _step(self, what: str) -> None:
        self.before_each(what)
        self.writes.append(what)

    def _set_compute(self, gpu: int, text: str, path: str) -> None:
        chip = CHIPS[self.model]
        if not kernel_allows(chip.xcds, text, self.memory, chip.is_apu, chip.is_cdna4):
            raise OSError(errno.EINVAL, "Invalid argument", path)
        if gpu in self.busy:
            raise OSError(errno.EBUSY, "Device or resource busy", path)
        if gpu in self.halfway:
            Path(path).write_text(f"{text}\n")
        elif gpu not in self.deaf:
            self.compute[gpu] = text

    def _modprobe(self, is_removal: bool) -> None:
        if is_removal and self.busy:
            raise OSError(errno.EBUSY, "modprobe: FATAL: Module amdgpu is in use.")
        if is_removal or self.is_loaded:
            self.is_loaded = not is_removal
            return
        self.is_loaded, self.memory = True, self.noted
        chip = CHIPS[self.model]
        self.compute = [liked_best(chip.xcds, self.memory, chip.is_apu)] * len(self.compute)

    def show(self) -> None:
        """Write anew what changed. Every GPU keeps its numbers, so that the others' files can stay."""
        if not self.is_loaded:
            shutil.rmtree(self.root / "sys", ignore_errors=True)
            self._shown.clear()
            return
        if not self._shown:
            write(self.root / KFD / "0", cpu_properties())
        for gpu, mode in enumerate(self.modes):
            if self._shown.get(gpu) != mode:
                self._hide(gpu)
                self._show(gpu)
                self._shown[gpu] = mode

    def _show(self, gpu: int) -> None:
        box = Box(self.model, len(self.compute), self.compute[gpu], self.memory)
        write_pci(self.root / PCI / address(gpu), box, gpu)
        for part in range(box.parts):
            if self.lost(gpu, part) and box.compute == "CPX":
                continue
            write_node(self.root / KFD / str(8 * gpu + part + 1), box, gpu, part)
            if part:
                write_partition(self._partition(gpu, part), gpu, part)

    def _hide(self, gpu: int) -> None:
        shutil.rmtree(self.root / PCI / address(gpu), ignore_errors=True)
        for part in range(8):
            shutil.rmtree(self.root / KFD / str(8 * gpu + part + 1), ignore_errors=True)
            shutil.rmtree(self._partition(gpu, part), ignore_errors=True)

    def _partition(self, gpu: int, part: int) -> Path:
        return self.root / "sys/devices/platform" / f"amdgpu_xcp_{8 * gpu + part}"
