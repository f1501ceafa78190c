"""Settle what is asked of the GPUs: whole ones, a fraction of each, or memory on each.

In:    what one pod's fields and annotations say.   Out: the GPU part of a Request.
Never: guesses between two wishes that contradict each other: that is one ConfigError with the way out.

Also: What somebody asks of the GPUs, as it was written, and what the wishes are called there.
Also: Whole GPUs that others may use, too: `gpu-sharing: "true"`, as shares that the ledger can count.
"""

import re
from typing import NamedTuple

from kaiwo.manifests.text.field_errors import Place, show, suggest
from kaiwo.manifests.values.gpu_model_names import read_models, vendor_of
from kaiwo.manifests.values.quantities import MAX_GPUS
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpu import BY_TURNS, RANKS, SHARED_MILLI, SHARERS, WHOLE_MILLI, meets
from kaiwo.model.partition_modes import CHIPS, WHOLE_MODE, legal_modes
from kaiwo.model.request import ANY_PARTITION


class GpuWords(NamedTuple):
    """What the wishes are called where they were written."""

    owner: str
    whole: str
    fraction: str
    memory: str
    devices: str
    models: str
    sharing: str = "gpuSharing"
    isolation: str = "gpuIsolation"
    whole_may_stand_beside: bool = False  # a whole GPU beside a fraction only names the vendor
    partition: str = "gpuPartition"
    grade: str = "gpuIsolationGrade"
    kubelet_counts_whole: bool = False  # on Kubernetes nobody else comes to what it handed out whole


class GpuWish(NamedTuple):
    """What was written; None: nothing."""

    whole: int = 0
    fraction_milli: int | None = None
    memory_mib: int | None = None
    devices: int | None = None
    models: tuple[str, ...] = ()
    vendor: str = ""
    sharing: bool | None = None
    isolation: str = ""
    partition: str = ""
    least_grade: str = ""


SHARE_RESOURCE = "kaiwo.ai/gpu-share"  # what a kubelet counts of shares; elsewhere it asks for nothing


def as_shares(wish: GpuWish, words: GpuWords, warnings: list[str]) -> GpuWish:
    """Whole GPUs that may be shared become a share of each, unless somebody hands them out whole all the same."""
    if not wish.sharing:
        return wish
    _check(wish, words)
    if wish.fraction_milli is not None or wish.memory_mib is not None:
        return wish
    place, count = Place(words.owner, words.sharing), _count(wish, words)
    if not count:
        warnings.append(place.sentence(f"is ignored: no GPU is asked for; count them with {words.devices}"))
        return wish
    if wish.whole and words.kubelet_counts_whole:
        warnings.append(
            place.sentence(
                f"stands beside {words.whole}, and the kubelet hands out whole GPUs: it gets {count} whole, alone; to "
                f'share write {words.devices}: "{count}" and the resource {SHARE_RESOURCE}: {count} instead'
            )
        )
        return wish._replace(devices=None)
    shared = wish._replace(whole=0, fraction_milli=SHARED_MILLI, devices=count, isolation=wish.isolation or BY_TURNS)
    each = f"each of {count} GPUs" if count > 1 else "the GPU"
    warnings.append(
        place.sentence(
            f"counts as {SHARED_MILLI / WHOLE_MILLI:g} of {each}: up to {SHARERS} such workloads share one "
            f"by {shared.isolation}"
        )
    )
    return shared


def _check(wish: GpuWish, words: GpuWords) -> None:
    """What cannot be had beside others."""
    if wish.partition:
        raise Place(words.owner, words.sharing).error(
            f"lets others on whole GPUs, and {words.partition} asks for partitions, which are had alone; remove one "
            "of the two"
        )
    if wish.fraction_milli == WHOLE_MILLI:
        raise Place(words.owner, words.fraction).error(
            f"is all of a GPU, and {words.sharing} lets others on it; remove {words.fraction}, and count the GPUs with "
            f"{words.devices}"
        )
    if wish.fraction_milli is not None or wish.memory_mib is not None:
        return
    if wish.isolation == "partition":
        raise Place(words.owner, words.isolation).error(
            f'is "partition", which is had alone, and {words.sharing} lets others on the GPUs; remove one of the two'
        )
    is_by_turns = wish.isolation in ("", BY_TURNS)  # what other methods are worth, the devices say
    if wish.least_grade == "partition" or (is_by_turns and not meets(BY_TURNS, wish.least_grade)):
        raise _too_much(wish, words)


def _too_much(wish: GpuWish, words: GpuWords) -> ConfigError:
    place = Place(words.owner, words.grade)
    if wish.least_grade == "partition":
        return place.error(
            f'is "partition", which nobody has beside others, and {words.sharing} lets others on the GPUs; remove one '
            "of the two"
        )
    return place.error(
        f'is "{wish.least_grade}", and {words.sharing} alone is {BY_TURNS}; add {words.isolation}: cu-mask (AMD) or '
        "mps (NVIDIA), or remove one of the two"
    )


def _count(wish: GpuWish, words: GpuWords) -> int:
    """How many GPUs are meant: whole ones, or devices where no whole ones can be named."""
    if wish.whole and wish.devices not in (None, wish.whole):
        raise Place(words.owner, words.devices).error(
            f"is {wish.devices} and {words.whole} is {wish.whole}; beside {words.sharing} both count the GPUs: keep one"
        )
    return wish.whole or wish.devices or 0


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
