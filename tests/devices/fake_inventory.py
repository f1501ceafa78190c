"""Fake GPUs for tests and demos.

In:    a model, a count, a mode, and failed GPUs.   Out: an Inventory. A mode that the model lacks is a ConfigError.
"""

from collections.abc import Mapping

from kaiwo.devices.gpu_names import nominal_mib
from kaiwo.devices.inventory import Inventory, Link, Partition, PhysicalGpu, Telemetry
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu_models import CHIPS, GPU_MODELS
from kaiwo.model.gpus.partition_modes import WHOLE_MODE, legal_modes, partition_shape

FIRST_RENDER = 128
LINK_MB_S = {"amd": 48_000, "nvidia": 450_000}


def fake_inventory(
    model: str = "MI300X",
    count: int = 8,
    mode: tuple[str, str] = (WHOLE_MODE, "NPS1"),
    ill: Mapping[int, str] | None = None,
    node: str = "fake",
) -> Inventory:
    """`count` equal GPUs, all linked, on two NUMA nodes. `ill` maps the index of a failed GPU to its reason."""
    if model not in GPU_MODELS:
        raise ConfigError(f"'{model}' is not a known GPU model; use one of {', '.join(GPU_MODELS)}", "model")
    if model in CHIPS and mode not in legal_modes(model):
        legal = ", ".join("+".join(pair) for pair in legal_modes(model))
        raise ConfigError(f"{model} has no mode {'+'.join(mode)}; choose from {legal}", "mode")
    ids = [f"{number // 8:04x}:{16 + 16 * (number % 8):02x}:00.0" for number in range(count)]
    sick = ill or {}
    return Inventory(node, tuple(_gpu(model, number, ids, mode, sick.get(number, "")) for number in range(count)))


def _gpu(model: str, number: int, ids: list[str], mode: tuple[str, str], reason: str) -> PhysicalGpu:
    chip, vendor = CHIPS.get(model), GPU_MODELS[model].vendor
    parts = _partitions(model, number, ids[number], mode) if chip and mode[0] != WHOLE_MODE else ()
    kind = "xgmi" if vendor == "amd" else "nvlink"
    return PhysicalGpu(
        id=ids[number],
        vendor="fake",
        model=model,
        product=f"made-up {model}",
        order=None if parts else number,
        pci=ids[number],
        platform="bare-metal",
        numa=2 * number // len(ids),
        memory_mib=nominal_mib(model),
        memory_from="table",
        compute_units=chip.compute_units if chip else 0,
        xcds=chip.xcds if chip else 0,
        compute_mode=mode[0] if chip else "",
        memory_mode=mode[1] if chip else "",
        compute_modes=tuple(dict.fromkeys(legal.compute for legal in legal_modes(model))),
        memory_modes=tuple(sorted({legal.memory for legal in legal_modes(model)})),
        hive="0x0000000000000001",
        links=tuple(Link(other, kind, 15, 1, 1, LINK_MB_S[vendor]) for other in ids if other != ids[number]),
        telemetry=Telemetry(0, 0, 0, 40, 40, 120, 750),
        health="failed" if reason else "healthy",
        reason=reason,
        partitions=parts,
    )


def _partitions(model: str, number: int, name: str, mode: tuple[str, str]) -> tuple[Partition, ...]:
    shape = partition_shape(model, *mode)
    assert shape is not None, "the mode was checked"
    first = number * shape.count
    return tuple(
        Partition(
            id=f"{name}-p{index}",
            index=index,
            order=first + index,
            memory_mib=shape.memory_mib,
            compute_units=shape.compute_units,
            simds=4 * shape.compute_units,
            xcds=shape.xcds,
            render=f"renderD{FIRST_RENDER + first + index}",
        )
        for index in range(shape.count)
    )
