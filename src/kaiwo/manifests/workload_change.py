"""Read a change of a workload in the words of the short form, and apply it.

In:    {"priority": 5, "time": "2h", "gpus": 4} and a workload; null clears a setting.   Out: the changed workload.
Never: changes the age, the name, the user or the command.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from kaiwo.manifests.short_form.submission_form import MAX_PODS
from kaiwo.manifests.text.field_errors import FieldPath, show
from kaiwo.manifests.text.field_reader import check_integer, unknown_field
from kaiwo.manifests.values import quantities
from kaiwo.manifests.values.gpu_request import GpuFieldNames, WrittenGpus, resolve_gpus
from kaiwo.manifests.values.names import read_name
from kaiwo.manifests.values.priorities import MAX_PRIORITY
from kaiwo.manifests.values.setting_values import READERS, SHORT_NAMES, check_levels
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.model.workload_fields import FIELDS

GPU_FIELDS = ("gpus", "gpuFraction", "gpuMemory", "gpuDevices")
MODELS = "gpuModels"
SIZE_FIELDS = (*GPU_FIELDS, MODELS, "cpu", "memory", "pods", "minPods")
SETTINGS = {field.short: field for field in FIELDS}
CHANGEABLE = ("priority", "queue", "hold", *SIZE_FIELDS, *SETTINGS)
WHILE_RUNNING = ("priority", "time", "estimate")


def apply_change(document: Mapping[str, Any], workload: Workload, now_s: int, warnings: list[str]) -> Workload:
    """The workload with these fields; raises ConfigError for what cannot be read."""
    owner = f"workload {workload.name}"
    for name in document:
        if name not in CHANGEABLE:
            raise unknown_field(name, CHANGEABLE, FieldPath(owner, name))
    changed = _with_settings(document, workload, now_s)
    if size := {name: document[name] for name in SIZE_FIELDS if name in document}:
        changed = replace(changed, roles=(_resized(size, _only_role(workload, next(iter(size))), owner, warnings),))
    return changed


def raised_fields(before: Workload, after: Workload) -> list[str]:
    """What the change gives the workload more of, at the cost of others: such a change is for operators."""
    found = []
    if after.priority > before.priority:
        found.append("priority")
    if before.time_limit_s and (after.time_limit_s > before.time_limit_s or not after.time_limit_s):
        found.append("time")
    if before.expires_s and (after.expires_s > before.expires_s or not after.expires_s):
        found.append("expires")
    if before.preemptible and not after.preemptible:
        found.append("preemptible")
    if after.restart_s > before.restart_s:
        found.append("restartCost")
    old, new = before.roles, after.roles
    if old != new and any(now > then for then, now in zip(_amounts(old), _amounts(new), strict=True)):
        found.append("size")
    return found


def _amounts(roles: tuple[Role, ...]) -> tuple[int, ...]:
    """All that the pods ask for together: GPU, GPU memory, CPU, memory, and the pods themselves."""
    each = [(role.count, role.request) for role in roles]
    return (
        sum(count * request.charge_milli for count, request in each),
        sum(count * request.gpus * request.gpu_mib for count, request in each),
        sum(count * request.cpu_milli for count, request in each),
        sum(count * request.memory_mib for count, request in each),
        sum(count for count, _ in each),
    )


def _with_settings(document: Mapping[str, Any], workload: Workload, now_s: int) -> Workload:
    owner = f"workload {workload.name}"
    found: dict[str, Any] = {}
    if "priority" in document:
        path = FieldPath(owner, "priority")
        found["priority"] = check_integer(_required(document, path), path, -MAX_PRIORITY, MAX_PRIORITY)
    if "queue" in document:
        path = FieldPath(owner, "queue")
        found["queue"] = read_name(_required(document, path), path)
    if "hold" in document:
        found["held"] = _boolean(document["hold"], FieldPath(owner, "hold"))
    for short, field in SETTINGS.items():
        if short not in document:
            continue
        value, path = document[short], FieldPath(owner, short)
        if isinstance(field.default, bool):
            found[field.name] = field.default if value is None else _boolean(value, path)
        else:
            found[field.name] = field.default if value is None else READERS[field.kind].read_form(value, path, now_s)
    changed = replace(workload, **found)
    settings = {field.name: getattr(changed, field.name) for field in FIELDS}
    check_levels(settings, lambda short: FieldPath(owner, short), SHORT_NAMES)
    return changed


def _only_role(workload: Workload, field: str) -> Role:
    if len(workload.roles) == 1 and not workload.groups:
        return workload.roles[0]
    raise FieldPath(f"workload {workload.name}", field).error(
        "is for work whose pods are all equal, and this has several kinds of pods; cancel it and submit it again"
    )


def _resized(size: Mapping[str, Any], role: Role, owner: str, warnings: list[str]) -> Role:
    request = role.request
    if any(name in size for name in (*GPU_FIELDS, MODELS)):
        request = _with_gpus(size, request, owner, warnings)
    if "cpu" in size:
        request = replace(request, cpu_milli=_read(size, "cpu", owner, quantities.read_cpu_milli))
    if "memory" in size:
        request = replace(request, memory_mib=_read(size, "memory", owner, quantities.read_memory_mib))
    count, minimum = role.count, role.minimum
    if "pods" in size:
        count = check_integer(size["pods"], FieldPath(owner, "pods"), 1, MAX_PODS)
    if "minPods" in size:
        written = size["minPods"]
        minimum = -1 if written is None else check_integer(written, FieldPath(owner, "minPods"), 1, MAX_PODS)
    if minimum > count:
        raise FieldPath(owner, "minPods").error(f"is {minimum} and pods is {count}; lower minPods, or raise pods")
    return replace(role, request=request, count=count, minimum=minimum)


def _with_gpus(size: Mapping[str, Any], request: Request, owner: str, warnings: list[str]) -> Request:
    """A share given beside whole GPUs replaces them, and whole GPUs replace a share; what is not named stays."""
    is_share = any(size.get(name) is not None for name in GPU_FIELDS[1:])
    if "gpus" in size and is_share:
        raise FieldPath(owner, "gpus").error("asks for whole GPUs beside a share of one; give one of the two")
    had_share = request.is_fraction or request.is_memory
    keeps_share = had_share and "gpus" not in size
    fraction = request.fraction_milli or None if keeps_share else None
    memory = request.gpu_mib or None if keeps_share else None
    devices = request.gpus if keeps_share else None
    whole = 0 if had_share or is_share else request.gpus
    if "gpuFraction" in size:
        fraction = _read_or_none(size, "gpuFraction", owner, quantities.read_fraction_milli)
    if "gpuMemory" in size:
        memory = _read_or_none(size, "gpuMemory", owner, quantities.read_gpu_mib)
    if "gpuDevices" in size:
        path = FieldPath(owner, "gpuDevices")
        devices = check_integer(_required(size, path), path, 1, quantities.MAX_GPUS)
    written = WrittenGpus(
        whole=_read(size, "gpus", owner, _whole_gpus) if "gpus" in size else whole,
        fraction_milli=fraction,
        memory_mib=memory,
        devices=devices,
        models=_models(size[MODELS], FieldPath(owner, MODELS)) if MODELS in size else request.gpu_models,
        partition="" if fraction or memory else request.partition,
        isolation=request.isolation if fraction or memory else "",
        least_grade=request.least_grade,
        share_with=request.share_with if fraction or memory else (),
        threads_milli=request.threads_milli if fraction else 0,
    )
    names = GpuFieldNames(owner, "gpus", "gpuFraction", "gpuMemory", "gpuDevices", "gpuModels")
    return replace(request, **resolve_gpus(written, names, warnings)._asdict())


def _models(value: object, path: FieldPath) -> tuple[str, ...]:
    """None: any model."""
    names = value.split(",") if isinstance(value, str) else value or []
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise path.error(f"is {show(value)}; write models like MI300X,MI250X")
    return tuple(dict.fromkeys(names))


def _whole_gpus(value: object, path: FieldPath) -> int:
    return quantities.read_whole_gpus(value, path, "gpuFraction")


def _read(size: Mapping[str, Any], name: str, owner: str, reader: Callable[[object, FieldPath], int]) -> int:
    path = FieldPath(owner, name)
    return reader(_required(size, path), path)


def _read_or_none(
    size: Mapping[str, Any], name: str, owner: str, reader: Callable[[object, FieldPath], int]
) -> int | None:
    return None if size[name] is None else reader(size[name], FieldPath(owner, name))


def _required(document: Mapping[str, Any], path: FieldPath) -> object:
    value = document[path.field]
    if value is None:
        raise path.error("cannot be cleared; give it a value")
    return value


def _boolean(value: object, path: FieldPath) -> bool:
    if not isinstance(value, bool):
        raise path.error(f"is {show(value)}; write true or false")
    return value
