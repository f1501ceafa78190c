"""The legal partition modes of AMD GPUs, and the partitions in each mode.

A model that is not in the table has no partitions. A machine may show fewer partitions than its mode makes: nodes of
eight MI300X in CPX show 63 devices as often as 64.

The rules are those of the amdgpu driver (aqua_vanjaram.c): the number of XCDs determines the compute modes, the compute
mode determines the memory modes that go with it, and the chip's memory determines which of those are possible.
"""

from functools import cache, lru_cache
from typing import Literal, NamedTuple

import msgspec

from kaiwo.model.gpus.gpu import WHOLE_MILLI, Gpu
from kaiwo.model.gpus.gpu_models import CHIPS, GPU_MODELS, Chip

Platform = Literal["bare-metal", "vf", "apu"]

COMPUTE_MODES = ("SPX", "DPX", "TPX", "QPX", "CPX")
MEMORY_MODES = ("NPS1", "NPS2", "NPS4", "NPS8")
WHOLE_MODE = "SPX"

_COMPUTE_OF_XCDS: dict[int, tuple[str, ...]] = {
    8: ("SPX", "DPX", "QPX", "CPX"),
    6: ("SPX", "TPX", "CPX"),
    4: ("SPX", "DPX", "CPX"),
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
    memory: str  # may be empty in a request: any

    @property
    def profile(self) -> str:
        """As a device shows it: `CPX+NPS4`."""
        return "+".join(filter(None, self))


@lru_cache(1024)  # called for every device, with few different results
def read_mode(profile: str) -> Mode:
    """The mode that a profile or a request names; any other text is its own compute mode."""
    compute, _, memory = profile.partition("+")
    return Mode(compute, memory)


class ModeChange(msgspec.Struct, gc=False, frozen=True):
    gpu: str
    before: Mode
    after: Mode


class PartitionShape(msgspec.Struct, gc=False, frozen=True):
    count: int
    xcds: int
    compute_units: int
    memory_mib: int


def platforms(model: str) -> tuple[Platform, ...]:
    chip = CHIPS.get(model)
    if chip is None:
        return ()
    return ("apu",) if chip.is_apu else ("bare-metal", "vf")


@cache  # called for every GPU, with few different results
def legal_modes(model: str, platform: Platform | None = None) -> tuple[Mode, ...]:
    chip = CHIPS.get(model)
    if chip is None or (platform is not None and platform not in platforms(model)):
        return ()
    return tuple(
        Mode(compute, memory) for compute in _COMPUTE_OF_XCDS[chip.xcds] for memory in _memory_modes(chip, compute)
    )


@cache
def next_modes(model: str, now: Mode, platform: Platform | None = None) -> tuple[Mode, ...]:
    """The modes that this machine can change to by itself, including the current one.

    The host sets the mode of a virtual function, and the firmware the memory mode of an APU. On bare metal the compute
    mode can be changed for each idle GPU, and the memory mode for a drained node.
    """
    legal = legal_modes(model, platform)
    if platform == "vf":
        return tuple(mode for mode in legal if mode == now)
    if platform == "apu" or (model in CHIPS and CHIPS[model].is_apu):
        return tuple(mode for mode in legal if mode.memory == now.memory)
    return legal


def partition_shape(model: str, compute: str, memory: str = "NPS1", memory_mib: int = 0) -> PartitionShape | None:
    """None if the mode is not legal. `memory_mib`: of the whole GPU, if the driver reports it."""
    if Mode(compute, memory) not in legal_modes(model):
        return None
    chip = CHIPS[model]
    count = partition_count(model, compute)
    total_mib = memory_mib or GPU_MODELS[model].memory_mib
    return PartitionShape(count, chip.xcds // count, chip.compute_units // count, total_mib // count)


def partition_count(model: str, compute: str) -> int:
    """The number of partitions in a compute mode; 1 if it is not partitioned."""
    chip = CHIPS.get(model)
    if chip is None or compute not in _COMPUTE_OF_XCDS[chip.xcds]:
        return 1
    return chip.xcds if compute == "CPX" else _PARTS[compute]


@cache
def smallest_partition_milli(profile: str, models: tuple[str, ...] = ()) -> int:
    """The smallest partition with this profile, as a part of its GPU, over these models (or all models).

    For profiles of other vendors it is that of AMD's finest mode, since none has smaller partitions.
    """
    compute = read_mode(profile).compute
    modes = (compute,) if compute in COMPUTE_MODES else COMPUTE_MODES
    chips = [model for model in models if model in CHIPS] or list(CHIPS)
    return WHOLE_MILLI // max(partition_count(model, mode) for model in chips for mode in modes)


def partition_milli(index: int, count: int) -> int:
    """A partition's part of its GPU; the parts always add up to 1000, also those of six partitions."""
    return (index + 1) * WHOLE_MILLI // count - index * WHOLE_MILLI // count


def partition_gpu(gpu: Gpu, mode: Mode) -> tuple[Gpu, ...]:
    """The devices of a GPU in a mode: itself if it is not partitioned, none if the mode is not legal."""
    shape = partition_shape(gpu.model, mode.compute, mode.memory, gpu.memory_mib)
    if shape is None or shape.count == 1:
        return (gpu,) if shape or mode.compute == WHOLE_MODE else ()
    profile = mode.profile
    return tuple(
        Gpu(
            f"{gpu.id}-p{index}", gpu.model, shape.memory_mib, gpu.healthy, gpu.reason,
            gpu.id, profile, partition_milli(index, shape.count),
            next_mode=gpu.next_mode, is_changing=gpu.is_changing,
        )
        for index in range(shape.count)
    )  # fmt: skip


def partition_index(device: str) -> int:
    """A partition's index within its GPU, from the end of its id; -1 if it has none."""
    _, mark, number = device.rpartition("-p")
    return int(number) if mark and number.isdecimal() else -1


def mode_with_partitions(model: str, count: int) -> str:
    """The compute mode with this many partitions; empty if there is none."""
    chip = CHIPS.get(model)
    if chip is None:
        return ""
    return next((mode for mode in _COMPUTE_OF_XCDS[chip.xcds] if partition_count(model, mode) == count), "")


def io_dies(model: str, compute: str, index: int) -> tuple[int, ...]:
    chip, count = CHIPS.get(model), partition_count(model, compute)
    if chip is None or not 0 <= index < count:
        return ()
    each, per_die = chip.xcds // count, chip.xcds // chip.io_dies
    return tuple(dict.fromkeys(xcd // per_die for xcd in range(index * each, (index + 1) * each)))


def _memory_modes(chip: Chip, compute: str) -> tuple[str, ...]:
    wanted = _MEMORY_OF_COMPUTE[compute]
    if chip.is_cdna4 and compute in ("QPX", "CPX"):
        wanted += ("NPS2",)
    parts = chip.xcds if compute == "CPX" else _PARTS[compute]
    # Every memory pool serves equally many partitions; of an APU's four pools one belongs to the CPU.
    pools = {mode: 3 if chip.is_apu and mode == "NPS4" else int(mode[3:]) for mode in chip.memory_modes}
    return tuple(mode for mode in chip.memory_modes if mode in wanted and parts % pools[mode] == 0)
