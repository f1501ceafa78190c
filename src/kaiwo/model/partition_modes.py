"""Which partition modes an AMD GPU can be in, and what one partition then is.

In:    a model's name, and where it runs: bare metal, as a virtual function, or as an APU.
Out:   modes (compute, memory), shapes (count, XCDs, CUs, MiB each), and which partitions share an IO die.
Never: guesses. A model that is not in the table has no partitions. How many partitions a machine really shows is for
       discovery to say: nodes of eight MI300X in CPX show 63 devices as often as 64.

The rules are those of the amdgpu driver (aqua_vanjaram.c): the number of XCDs says which compute modes exist, the
compute mode says which memory modes go with it, and the chip's memory says which of those it can do.
"""

from functools import cache
from typing import Literal, NamedTuple

import msgspec

from kaiwo.model.gpu import WHOLE_MILLI, Gpu
from kaiwo.model.gpu_models import CHIPS, GPU_MODELS, Chip

Platform = Literal["bare-metal", "vf", "apu"]

COMPUTE_MODES = ("SPX", "DPX", "TPX", "QPX", "CPX")
MEMORY_MODES = ("NPS1", "NPS2", "NPS4", "NPS8")
WHOLE_MODE = "SPX"

_COMPUTE_OF_XCDS: dict[int, tuple[str, ...]] = {
    8: ("SPX", "DPX", "QPX", "CPX"),
    6: ("SPX", "TPX", "CPX"),
    4: ("SPX", "DPX", "CPX"),
    2: ("SPX", "CPX"),
    1: ("SPX",),  # a virtual function of one XCD is whole: the driver does not call that CPX
}
_MEMORY_OF_COMPUTE: dict[str, tuple[str, ...]] = {
    "SPX": ("NPS1",),
    "DPX": ("NPS1", "NPS2"),
    "TPX": ("NPS1", "NPS4"),
    "QPX": ("NPS1", "NPS4"),
    "CPX": ("NPS1", "NPS4"),
}
_PARTS = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}


class Mode(NamedTuple):
    compute: str
    memory: str


class ModeChange(msgspec.Struct, gc=False, frozen=True):
    """One GPU that is to be in another mode."""

    gpu: str
    before: Mode
    after: Mode


class PartitionShape(msgspec.Struct, gc=False, frozen=True):
    count: int
    xcds: int
    compute_units: int
    memory_mib: int


def platforms(model: str) -> tuple[Platform, ...]:
    """Where a model with partitions can run."""
    chip = CHIPS.get(model)
    if chip is None:
        return ()
    return ("apu",) if chip.is_apu else ("bare-metal", "vf")


@cache  # the planner asks for every GPU, and there are few answers
def legal_modes(model: str, platform: Platform | None = None, xcds: int = 0) -> tuple[Mode, ...]:
    """Every mode the device can be in. `xcds`: what a virtual function was given, when that is not all of them."""
    chip = CHIPS.get(model)
    if chip is None or (platform is not None and platform not in platforms(model)):
        return ()
    given = xcds or chip.xcds
    if given > chip.xcds or (given != chip.xcds and platform != "vf"):
        return ()
    return tuple(
        Mode(compute, memory)
        for compute in _COMPUTE_OF_XCDS.get(given, ())
        for memory in _memory_modes(chip, compute, given)
    )


@cache
def next_modes(model: str, now: Mode, platform: Platform | None = None) -> tuple[Mode, ...]:
    """The modes that this machine can change to by itself, now's included.

    A virtual function is what its host made it. An APU's memory mode is set in the firmware; its compute mode is free.
    On bare metal the compute mode is free per idle GPU, the memory mode per drained node.
    """
    legal = legal_modes(model, platform)
    if platform == "vf":
        return tuple(mode for mode in legal if mode == now)
    if platform == "apu" or (model in CHIPS and CHIPS[model].is_apu):
        return tuple(mode for mode in legal if mode.memory == now.memory)
    return legal


def partition_shape(model: str, compute: str, memory: str = "NPS1", memory_mib: int = 0) -> PartitionShape | None:
    """None when the mode is not legal. `memory_mib`: what the driver says the GPU has, when that is known."""
    if Mode(compute, memory) not in legal_modes(model):
        return None
    chip = CHIPS[model]
    count = partition_count(model, compute)
    total_mib = memory_mib or GPU_MODELS[model].memory_mib
    return PartitionShape(count, chip.xcds // count, chip.compute_units // count, total_mib // count)


def partition_count(model: str, compute: str) -> int:
    """How many partitions a compute mode makes; 1 for whatever is not partitioned."""
    chip = CHIPS.get(model)
    if chip is None or compute not in _COMPUTE_OF_XCDS[chip.xcds]:
        return 1
    return chip.xcds if compute == "CPX" else _PARTS[compute]


@cache
def smallest_partition_milli(profile: str, models: tuple[str, ...] = ()) -> int:
    """The least that one partition of a profile is of a physical GPU, whichever of these models (or of all) it is of.

    Not every profile is of AMD's modes: no GPU of anybody else is cut finer than the finest of theirs.
    """
    compute = profile.partition("+")[0]
    modes = (compute,) if compute in COMPUTE_MODES else COMPUTE_MODES
    chips = [model for model in models if model in CHIPS] or list(CHIPS)
    return WHOLE_MILLI // max(partition_count(model, mode) for model in chips for mode in modes)


def partition_milli(index: int, count: int) -> int:
    """A partition's part of the physical GPU's milli; the parts of six make 1000 too."""
    return (index + 1) * WHOLE_MILLI // count - index * WHOLE_MILLI // count


def partition_gpu(gpu: Gpu, mode: Mode) -> tuple[Gpu, ...]:
    """The devices that a whole GPU shows in a mode: itself when it is not cut, none when the mode is not legal."""
    shape = partition_shape(gpu.model, mode.compute, mode.memory, gpu.memory_mib)
    if shape is None or shape.count == 1:
        return (gpu,) if shape or mode.compute == WHOLE_MODE else ()
    profile = "+".join(mode)
    return tuple(
        Gpu(
            f"{gpu.id}-p{index}", gpu.model, shape.memory_mib, gpu.healthy, gpu.reason,
            gpu.id, profile, partition_milli(index, shape.count),
        )
        for index in range(shape.count)
    )  # fmt: skip


def partition_index(device: str) -> int:
    """A partition's number within its GPU, from the id that discovery gave it; -1 when it tells none."""
    _, mark, number = device.rpartition("-p")
    return int(number) if mark and number.isdecimal() else -1


def mode_with_partitions(model: str, count: int) -> str:
    """The compute mode that makes so many partitions; empty when none does."""
    chip = CHIPS.get(model)
    if chip is None:
        return ""
    return next((mode for mode in _COMPUTE_OF_XCDS[chip.xcds] if partition_count(model, mode) == count), "")


def io_dies(model: str, compute: str, index: int) -> tuple[int, ...]:
    """The IO dies under the XCDs of one partition."""
    chip, count = CHIPS.get(model), partition_count(model, compute)
    if chip is None or not 0 <= index < count:
        return ()
    each, per_die = chip.xcds // count, chip.xcds // chip.io_dies
    return tuple(dict.fromkeys(xcd // per_die for xcd in range(index * each, (index + 1) * each)))


def _memory_modes(chip: Chip, compute: str, xcds: int) -> tuple[str, ...]:
    wanted = _MEMORY_OF_COMPUTE[compute]
    if chip.is_cdna4 and compute in ("QPX", "CPX"):
        wanted += ("NPS2",)
    parts = xcds if compute == "CPX" else _PARTS[compute]
    # Each part of memory serves as many partitions as the next; of an APU's four parts one is the CPU's.
    pools = {mode: 3 if chip.is_apu and mode == "NPS4" else int(mode[3:]) for mode in chip.memory_modes}
    return tuple(mode for mode in chip.memory_modes if mode in wanted and parts % pools[mode] == 0)
