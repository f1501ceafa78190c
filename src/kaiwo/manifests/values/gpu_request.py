"""Resolve a GPU request: whole GPUs, a fraction of each, memory on each (or both), or partitions.

Whole GPUs that others may share (`gpu-sharing: "true"`) become shares that the ledger can count.
Never: guesses between fields that contradict each other: that is one ConfigError that says how to fix it.
"""

import re
from typing import NamedTuple

from kaiwo.manifests.text.field_errors import FieldPath, show, suggest
from kaiwo.manifests.values.gpu_model_names import common_vendor, read_models
from kaiwo.manifests.values.quantities import MAX_GPUS
from kaiwo.model.gpus.gpu import (
    ANYONE,
    EQUALITIES,
    GRADE_RANKS,
    MAX_SHARERS,
    NOBODY,
    SHARED_MILLI,
    TIME_SLICING,
    WHOLE_MILLI,
    ShareRule,
    is_grade_enough,
    parse_share_rule,
)
from kaiwo.model.gpus.gpu_models import CHIPS
from kaiwo.model.gpus.partition_modes import WHOLE_MODE, legal_modes, read_mode
from kaiwo.model.request import ANY_PARTITION


class GpuFieldNames(NamedTuple):
    """The names of the fields or annotations, for messages."""

    owner: str
    whole: str
    fraction: str
    memory: str
    devices: str
    models: str
    sharing: str = "gpuSharing"
    isolation: str = "gpuIsolation"
    allows_whole: bool = False  # a whole GPU beside a fraction only names the vendor
    partition: str = "gpuPartition"
    grade: str = "gpuIsolationGrade"
    share_with: str = "gpuShareWith"
    threads: str = "gpuThreads"
    kubelet_counts_whole: bool = False  # the kubelet gives a GPU that it allocated whole to no other pod

    def share(self, written: "WrittenGpus") -> str:
        """The field that asks for a share of a GPU."""
        return self.fraction if written.memory_mib is None else self.memory


class WrittenGpus(NamedTuple):
    """The GPU request as it was written. None: not written."""

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
    share_with: ShareRule = ()
    threads_milli: int = 0

    @property
    def is_share(self) -> bool:
        return self.fraction_milli is not None or self.memory_mib is not None


SHARE_RESOURCE = "kaiwo.ai/gpu-share"  # the kubelet counts shares by it; elsewhere it asks for nothing


def as_shares(written: WrittenGpus, names: GpuFieldNames, warnings: list[str]) -> WrittenGpus:
    """Turn whole GPUs that may be shared into a share of each, unless the kubelet allocates them whole anyway."""
    if not written.sharing:
        return written
    _check_shareable(written, names)
    if written.is_share:
        return written
    if written.whole and written.devices not in (None, written.whole):
        raise FieldPath(names.owner, names.devices).error(
            f"is {written.devices} and {names.whole} is {written.whole}; with {names.sharing} both count the GPUs: "
            "keep one"
        )
    path, count = FieldPath(names.owner, names.sharing), written.whole or written.devices
    if not count:
        warnings.append(path.sentence(f"is ignored: no GPU is asked for; count them with {names.devices}"))
        return written
    if written.whole and names.kubelet_counts_whole:
        warnings.append(
            path.sentence(
                f"has no effect on {names.whole}: the kubelet allocates whole GPUs, and the pod gets {count} alone; to "
                f'share write {names.devices}: "{count}" and the resource {SHARE_RESOURCE}: {count} instead'
            )
        )
        return written._replace(devices=None)
    shared = written._replace(
        whole=0, fraction_milli=SHARED_MILLI, devices=count, isolation=written.isolation or TIME_SLICING
    )
    each = f"each of {count} GPUs" if count > 1 else "the GPU"
    warnings.append(
        path.sentence(
            f"counts as {SHARED_MILLI / WHOLE_MILLI:g} of {each}: up to {MAX_SHARERS} such workloads share one "
            f"by {shared.isolation}"
        )
    )
    return shared


def _check_shareable(written: WrittenGpus, names: GpuFieldNames) -> None:
    if written.partition:
        raise FieldPath(names.owner, names.sharing).error(
            f"shares whole GPUs, and {names.partition} asks for partitions, which are not shared; remove one of the two"
        )
    if written.fraction_milli == WHOLE_MILLI:
        raise FieldPath(names.owner, names.fraction).error(
            f"is all of a GPU, and {names.sharing} shares it; remove {names.fraction}, and count the GPUs with "
            f"{names.devices}"
        )
    if written.is_share:
        return
    for field, value in ((names.isolation, written.isolation), (names.grade, written.least_grade)):
        if value == "partition":
            fact = f'is "partition", which is not shared, but {names.sharing} shares the GPUs'
            raise FieldPath(names.owner, field).error(f"{fact}; remove one of the two")
    is_time_slicing = written.isolation in ("", TIME_SLICING)  # the grades of other methods depend on the devices
    if is_time_slicing and not is_grade_enough(TIME_SLICING, written.least_grade):
        raise FieldPath(names.owner, names.grade).error(
            f'is "{written.least_grade}", and {names.sharing} alone is {TIME_SLICING}; add {names.isolation}: cu-mask '
            "(AMD) or mps (NVIDIA), or remove one of the two"
        )


ISOLATIONS = ("mps", "time-slicing", "cu-mask", "partition")
GRADES = tuple(grade for grade in GRADE_RANKS if grade != "none")
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
    device_mib: int = 0
    share_with: ShareRule = ()
    threads_milli: int = 0


def resolve_gpus(written: WrittenGpus, names: GpuFieldNames, warnings: list[str]) -> GpuRequest:
    """The GPU part of a Request; raises ConfigError for contradictions."""
    written = _with_threads(as_shares(written, names, warnings), names)
    _check_sharing(written, names)
    if written.is_share:
        gpus = _count_shared(written, names)
    else:
        gpus = written.whole or (1 if written.partition else 0)
        if written.devices is not None:
            raise FieldPath(names.owner, names.devices).error(
                f"counts the devices of a fraction or a memory request; add {names.fraction} or {names.memory}, "
                f"or ask for whole GPUs with {names.whole}"
            )
    vendor = _vendor(written, names)
    path = FieldPath(names.owner, names.models)
    models = read_models(written.models, path, vendor, warnings)
    if not gpus:
        if written.models:
            warnings.append(path.sentence(f"is ignored: no GPU is asked for; add {names.whole}"))
        return GpuRequest()
    _check_isolation(written, names, warnings)
    milli, memory_mib, device_mib = written.fraction_milli or WHOLE_MILLI, written.memory_mib or 0, 0
    if written.fraction_milli == WHOLE_MILLI:  # all of a device that has this much
        memory_mib, device_mib = 0, memory_mib
    rule = written.share_with if milli < WHOLE_MILLI or memory_mib else ()
    if written.share_with and not rule:
        path = FieldPath(names.owner, names.share_with)
        warnings.append(path.sentence(f"is not needed: what it requests is not shared; use {names.fraction} to share"))
    return GpuRequest(
        gpus, milli, memory_mib, models, written.partition, written.isolation, written.least_grade, device_mib, rule,
        written.threads_milli,
    )  # fmt: skip


def read_partition(value: object, path: FieldPath) -> str:
    """A partition mode, with or without its memory mode; `any`; or an NVIDIA profile."""
    text = str(value).strip()
    if text.lower() == ANY_PARTITION or re.fullmatch(r"[0-9]{1,2}g\.[0-9]{1,3}gb", text.lower()):
        return text.lower()
    compute, memory = read_mode(text.upper())
    if any(mode.compute == compute != WHOLE_MODE and memory in ("", mode.memory) for mode in _MODES):
        return text.upper()
    raise path.error(
        f"is {show(value)}, which is not a partition mode of a GPU; write CPX, CPX+NPS4, DPX, QPX, TPX or any"
    )


def read_isolation(value: object, path: FieldPath) -> str:
    return _read_choice(value, path, ISOLATIONS)


def read_grade(value: object, path: FieldPath) -> str:
    return _read_choice(value, path, GRADES)


def read_share_with(value: object, path: FieldPath) -> ShareRule:
    rule = parse_share_rule(value) if isinstance(value, str) else None
    if rule is None:
        words = (ANYONE, NOBODY, *EQUALITIES)
        hint = suggest(value, words) if isinstance(value, str) else ""
        raise path.error(
            f"is {show(value)}; write anyone, nobody, or what must be equal: queue, namespace, user, or several of "
            f'them, such as "queue,user"{hint}'
        )
    return rule


def read_threads_milli(value: object, path: FieldPath) -> int:
    """A percentage of a GPU's multiprocessors, such as "60"."""
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= 100):
        raise path.error(f'is {show(value)}; write the percentage of the multiprocessors, from 1 to 100, such as "60"')
    return int(text) * 10


def _with_threads(written: WrittenGpus, names: GpuFieldNames) -> WrittenGpus:
    """Threads are a setting of MPS, so a request for them asks for MPS."""
    if not written.threads_milli:
        return written
    path = FieldPath(names.owner, names.threads)
    if not written.fraction_milli or written.fraction_milli == WHOLE_MILLI or written.partition:
        raise path.error(f"is for a share by MPS, which has a fraction of the GPU; add {names.fraction}, or remove it")
    asked = written.vendor or common_vendor(read_models(written.models, path, "", []))
    if written.isolation == "cu-mask" or asked == "amd":
        raise path.error(
            "is a setting of MPS, and AMD GPUs have none: the compute units of a share there are its fraction; "
            "remove it"
        )
    if written.isolation not in ("", "mps"):
        raise path.error(f'is a setting of MPS, and {names.isolation} is "{written.isolation}"; remove one of the two')
    return written._replace(isolation="mps")


def _read_choice(value: object, path: FieldPath, known: tuple[str, ...]) -> str:
    if value not in known:
        hint = suggest(value, known) if isinstance(value, str) else ""
        raise path.error(f"is {show(value)}; write {', '.join(known[:-1])} or {known[-1]}{hint}")
    return str(value)


def _check_isolation(written: WrittenGpus, names: GpuFieldNames, warnings: list[str]) -> None:
    """Whole GPUs and partitions have the best grade there is; only a share can ask for one it cannot have."""
    path = FieldPath(names.owner, names.isolation)
    if written.isolation == "partition" and written.is_share:
        fact = f'is "partition", and {names.share(written)} asks for a share, which is not a partition'
        raise path.error(f"{fact}; write {names.partition} instead of it")
    if written.isolation not in ("", "partition") and not written.is_share:
        warnings.append(path.sentence(f"is not needed: what it requests is not shared; use {names.fraction} to share"))


def _check_sharing(written: WrittenGpus, names: GpuFieldNames) -> None:
    if written.partition and written.is_share:
        fact = f"asks for partitions, which are taken whole, and {names.share(written)} for a share"
        raise FieldPath(names.owner, names.partition).error(f"{fact}; remove one of the two")
    if written.is_share and written.sharing is False:
        fact = f'is "false", but {names.share(written)} asks for a share of a GPU'
        raise FieldPath(names.owner, names.sharing).error(f"{fact}; remove one of the two")


def _count_shared(written: WrittenGpus, names: GpuFieldNames) -> int:
    devices = 1 if written.devices is None else written.devices
    asked = names.share(written)
    if written.whole and not names.allows_whole:
        raise FieldPath(names.owner, names.whole).error(
            f"asks for whole GPUs and {asked} for a share of one; remove one of the two, or write {names.devices} "
            "for a share on each of several"
        )
    if written.whole not in (0, 1, devices):
        raise FieldPath(names.owner, names.whole).error(
            f"is {written.whole} beside {asked}; for a share on each of {min(written.whole, MAX_GPUS)} devices "
            f'write {names.devices}: "{min(written.whole, MAX_GPUS)}"'
        )
    return devices


def _vendor(written: WrittenGpus, names: GpuFieldNames) -> str:
    if not written.isolation:
        return written.vendor
    path = FieldPath(names.owner, names.isolation)
    needed = _VENDOR_OF_ISOLATION.get(written.isolation, "")
    asked = written.vendor or common_vendor(read_models(written.models, path, "", []))
    if needed and asked and asked != needed:
        maker = {"amd": "AMD", "nvidia": "NVIDIA"}[asked]
        fact = f'is "{written.isolation}", which does not exist on {maker} GPUs'
        raise path.error(f"{fact}; write {_OTHERS[written.isolation]}")
    return asked or needed
