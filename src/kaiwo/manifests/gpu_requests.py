"""Settle what is asked of the GPUs: whole ones, a fraction of each, or memory on each.

In:    what one pod's fields and annotations say.   Out: the GPU part of a Request.
Never: guesses between two wishes that contradict each other: that is one ConfigError with the way out.
"""

import re
from typing import NamedTuple

from kaiwo.manifests.gpu_models import read_models, vendor_of
from kaiwo.manifests.gpu_sharing import as_shares
from kaiwo.manifests.gpu_wishes import GpuWish, GpuWords
from kaiwo.manifests.places import Place, show, suggest
from kaiwo.manifests.quantities import MAX_GPUS
from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.isolation import RANKS
from kaiwo.model.partitions import CHIPS, WHOLE_MODE, legal_modes
from kaiwo.model.request import ANY_PARTITION

ISOLATIONS = ("mps", "time-slicing", "cu-mask", "partition")
GRADES = tuple(grade for grade in RANKS if grade != "none")
_VENDOR_OF_ISOLATION = {"mps": "nvidia", "cu-mask": "amd"}
_MODES = {mode for model in CHIPS for mode in legal_modes(model)}
_OTHERS = {"mps": "time-slicing, cu-mask or partition", "cu-mask": "mps, time-slicing or partition"}


class GpuRequest(NamedTuple):
    """The GPU part of a Request."""

    gpus: int = 0
    gpu_milli: int = WHOLE_MILLI
    gpu_mib: int = 0
    gpu_models: tuple[str, ...] = ()
    partition: str = ""
    isolation: str = ""
    least_grade: str = ""


def settle(wish: GpuWish, words: GpuWords, warnings: list[str]) -> GpuRequest:
    """One wish, free of contradictions."""
    wish = as_shares(wish, words, warnings)
    is_shared = wish.fraction_milli is not None or wish.memory_mib is not None
    _check_sharing(wish, words, is_shared)
    if is_shared:
        gpus = _count_shared(wish, words)
    else:
        gpus = wish.whole or (1 if wish.partition else 0)
        if wish.devices is not None:
            raise Place(words.owner, words.devices).error(
                f"counts the devices of a fraction or a memory request; add {words.fraction} or {words.memory}, "
                f"or ask for whole GPUs with {words.whole}"
            )
    vendor = _vendor(wish, words)
    place = Place(words.owner, words.models)
    models = read_models(wish.models, place, vendor, warnings)
    if not gpus:
        if wish.models:
            warnings.append(place.sentence(f"is ignored: no GPU is asked for; add {words.whole}"))
        return GpuRequest()
    milli = wish.fraction_milli or WHOLE_MILLI
    _check_isolation(wish, words, is_shared, warnings)
    return GpuRequest(gpus, milli, wish.memory_mib or 0, models, wish.partition, wish.isolation, wish.least_grade)


def read_partition(value: object, place: Place) -> str:
    """A mode in which a GPU is cut, with its memory mode or without; `any`; or a profile of NVIDIA's."""
    text = str(value).strip()
    if text.lower() == ANY_PARTITION or re.fullmatch(r"[0-9]{1,2}g\.[0-9]{1,3}gb", text.lower()):
        return text.lower()
    compute, _, memory = text.upper().partition("+")
    if any(mode.compute == compute != WHOLE_MODE and memory in ("", mode.memory) for mode in _MODES):
        return text.upper()
    raise place.error(f"is {show(value)}, which no GPU can be cut into; write CPX, CPX+NPS4, DPX, QPX, TPX or any")


def read_isolation(value: object, place: Place) -> str:
    """One of the four kinds."""
    if value not in ISOLATIONS:
        hint = suggest(value, ISOLATIONS) if isinstance(value, str) else ""
        raise place.error(f"is {show(value)}; write {', '.join(ISOLATIONS[:-1])} or {ISOLATIONS[-1]}{hint}")
    return str(value)


def read_grade(value: object, place: Place) -> str:
    """One of the grades that a share can have."""
    if value not in GRADES:
        hint = suggest(value, GRADES) if isinstance(value, str) else ""
        raise place.error(f"is {show(value)}; write {', '.join(GRADES[:-1])} or {GRADES[-1]}{hint}")
    return str(value)


def _check_isolation(wish: GpuWish, words: GpuWords, is_shared: bool, warnings: list[str]) -> None:
    """Whole GPUs and partitions have the best grade there is; only a share can ask for one it cannot have."""
    if wish.isolation == "partition" and is_shared:
        asked = words.fraction if wish.memory_mib is None else words.memory
        raise Place(words.owner, words.isolation).error(
            f'is "partition", and {asked} asks for a share, which is none; write {words.partition} instead of it'
        )
    if wish.isolation not in ("", "partition") and not is_shared:
        place = Place(words.owner, words.isolation)
        warnings.append(place.sentence(f"is not needed: nobody shares what it asks for; use {words.fraction} to share"))


def _check_sharing(wish: GpuWish, words: GpuWords, is_shared: bool) -> None:
    if wish.partition and is_shared:
        asked = words.fraction if wish.memory_mib is None else words.memory
        raise Place(words.owner, words.partition).error(
            f"asks for partitions, which are taken whole, and {asked} for a share; remove one of the two"
        )
    if wish.fraction_milli is not None and wish.memory_mib is not None:
        raise Place(words.owner, words.memory).error(
            f"and {words.fraction} are both set, and a share is asked for by one of them; remove one"
        )
    if is_shared and wish.sharing is False:
        asked = words.fraction if wish.memory_mib is None else words.memory
        raise Place(words.owner, words.sharing).error(
            f'is "false", but {asked} asks for a share of a GPU; remove one of the two'
        )


def _count_shared(wish: GpuWish, words: GpuWords) -> int:
    devices = 1 if wish.devices is None else wish.devices
    asked = words.fraction if wish.memory_mib is None else words.memory
    if wish.whole and not words.whole_may_stand_beside:
        raise Place(words.owner, words.whole).error(
            f"asks for whole GPUs and {asked} for a share of one; remove one of the two, or write {words.devices} "
            "for a share on each of several"
        )
    if wish.whole not in (0, 1, devices):
        raise Place(words.owner, words.whole).error(
            f"is {wish.whole} beside {asked}; for a share on each of {min(wish.whole, MAX_GPUS)} devices "
            f'write {words.devices}: "{min(wish.whole, MAX_GPUS)}"'
        )
    return devices


def _vendor(wish: GpuWish, words: GpuWords) -> str:
    if not wish.isolation:
        return wish.vendor
    place = Place(words.owner, words.isolation)
    needed = _VENDOR_OF_ISOLATION.get(wish.isolation, "")
    asked = wish.vendor or vendor_of(read_models(wish.models, place, "", []))
    if needed and asked and asked != needed:
        maker = {"amd": "AMD", "nvidia": "NVIDIA"}[asked]
        raise place.error(
            f'is "{wish.isolation}", which does not exist on {maker} GPUs; write {_OTHERS[wish.isolation]}'
        )
    return asked or needed
