"""Write a workload, a queue or a reservation as a manifest that can be applied again.

In:    the stored value.   Out: a document whose reading gives the same value, or a refusal that says why it cannot.
Never: writes a secret, or a document that reads as anything else.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import fields, replace

from kaiwo.manifests.kinds.object_metadata import ManifestDefaults
from kaiwo.manifests.parse import parse
from kaiwo.manifests.short_form.submission_form import API_VERSION, KIND
from kaiwo.model.errors import RefusedError
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.queue import UNLIMITED, Queue, QueueAmounts
from kaiwo.model.request import Request
from kaiwo.model.reservation import AtEnd, Reservation
from kaiwo.model.workload import ROOT, Role, SubGroup, Workload
from kaiwo.model.workload_fields import FIELDS, ValueKind, WorkloadField
from kaiwo.model.workload_record import Program

Document = dict[str, Any]
# What the cluster sets, and what is written once for all.
_SET_BY_CLUSTER = frozenset(
    {
        "submitted_s", "after", "after_failed", "not_before_s", "not_before_why", "checkpoint_s", "broken_since_s",
        "may_go", "stays_why", "learned_s", "array_slots", "class_priority", "image",
    }
)  # fmt: skip


def workload_document(workload: Workload, program: Program) -> Document:
    """The short form. Variables whose values are secret are left out: nobody may read them."""
    namespace, _, name = workload.name.partition("/")
    request, *_ = [role.request for role in workload.roles]
    document: Document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": name,
        "namespace": namespace,
        "queue": workload.queue,
        "user": workload.user,
        "type": workload.kind,
        "priority": workload.priority,
        **_request_fields(request),
        **_size_fields(workload),
        "command": list(program.command),
        "image": program.image,
        "env": program.env,
        "workdir": program.workdir,
        "retries": program.retries,
        "simulate": f"{program.simulated_s}s" if program.simulated_s else None,
        "after": [name.removesuffix("-*") for name in (*workload.after, *workload.after_failed)],
        "hold": workload.held or None,
        "labels": workload.labels,
        **{field.short: _setting(workload, field.name, field.kind) for field in FIELDS},
    }
    document = _without_empty(document)
    defaults = ManifestDefaults(submitted_s=workload.submitted_s)
    ((read, read_program),) = parse(document, defaults).submissions
    kept = {name: getattr(read, name) for name in _SET_BY_CLUSTER}
    other = _differences(replace(workload, **kept), read) + _differences(replace(program, secret_env={}), read_program)
    if other:
        raise RefusedError(
            f"workload {workload.name} cannot be written as a manifest: the short form does not express {other[0]}; "
            "keep the manifest that it was made from"
        )
    return document


def queue_document(queue: Queue) -> Document:
    models = {
        model: _without_empty({"quota": _gpus(each.quota), "limit": _gpus(each.limit)})
        for model, each in queue.gpu_models.items()
    }
    spec: Document = {
        "displayName": queue.display_name,
        "parentQueue": queue.parent,
        "priority": queue.priority,
        "maxPriority": queue.max_priority,
        "resources": _without_empty(
            {
                "gpu": _without_empty({**_amounts(queue.gpu, _gpus), "models": models}),
                "cpu": _amounts(queue.cpu, lambda milli: None if milli == UNLIMITED else f"{milli}m"),
                "memory": _amounts(queue.memory, lambda mib: None if mib == UNLIMITED else f"{mib}Mi"),
            }
        ),
        "fairness": _without_empty(
            {
                "policy": queue.fairness.policy and queue.fairness.policy.value,
                "reclaimStrategy": queue.fairness.reclaim_strategy and queue.fairness.reclaim_strategy.value,
                "minRuntime": None if queue.fairness.min_runtime_s is None else f"{queue.fairness.min_runtime_s}s",
                "evictionsPerHour": queue.fairness.evictions_per_hour,
            }
        ),
        "namespaces": list(queue.namespaces),
        "users": list(queue.users),
        "shareWith": list(queue.share_with),
        "strategy": queue.strategy or None,
        "maxThreads": queue.max_threads_milli // 10 or None,
        "defaultThreads": queue.default_threads_milli // 10 or None,
        "maxShareMemory": f"{queue.max_share_mib}Mi" if queue.max_share_mib else None,
    }
    if queue.is_implicit:
        raise RefusedError(f"queue {queue.name} was defined by nobody, so it has no manifest; apply one to define it")
    document = _object("KaiwoQueue", queue.name, spec)
    (read,) = parse(document).queues
    same = replace(read, created_s=queue.created_s, is_implicit=queue.is_implicit)
    if other := _differences(queue, same):
        raise RefusedError(f"queue {queue.name} cannot be written as a manifest: {other[0]} would be lost")
    return document


def reservation_document(reservation: Reservation) -> Document:
    kind, owner = reservation.owner.kind_and_name
    spec: Document = {
        "gpus": reservation.gpus or None,
        "gpuModels": list(reservation.gpu_models),
        "nodeSelector": dict(reservation.node_selector),
        "nodes": list(reservation.nodes),
        "devices": [{"node": device.node, "gpu": device.gpu} for device in reservation.devices],
        "owner": {kind: owner} if owner else None,
        "start": timestamp_text(reservation.start_s),
        "end": timestamp_text(reservation.end_s),
        "atEnd": None if reservation.at_end is AtEnd.KEEP else reservation.at_end.value,
    }
    document = _object("KaiwoReservation", reservation.name, spec)
    (read,) = parse(document).reservations
    same = replace(read, created_s=reservation.created_s, picked=reservation.picked)
    if other := _differences(reservation, same):
        raise RefusedError(f"reservation {reservation.name} cannot be written as a manifest: {other[0]} would be lost")
    return document


def _object(kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": _without_empty(spec)}


def _request_fields(request: Request) -> Document:
    is_share = request.is_fraction or request.is_memory
    selector = {rule.key: rule.values[0] for rule in request.node_rules if rule.operator == "In" and rule.values}
    return {
        "gpus": request.gpus if not is_share else None,
        "gpuFraction": f"{request.fraction_milli / WHOLE_MILLI:g}" if is_share and request.fraction_milli else None,
        "gpuMemory": request.gpu_mib or None,
        "gpuDevices": request.gpus if is_share and request.gpus > 1 else None,
        "gpuModels": list(request.gpu_models),
        "gpuPartition": request.partition,
        "gpuIsolation": request.isolation,
        "gpuIsolationGrade": request.least_grade,
        "gpuShareWith": ",".join(request.share_with),
        "gpuThreads": request.threads_milli // 10 or None,
        "cpu": f"{request.cpu_milli}m",
        "memory": f"{request.memory_mib}Mi" if request.memory_mib else "0",
        "nodeSelector": selector,
        "tolerations": [
            _without_empty({name: getattr(each, name) for name in ("key", "operator", "value", "effect")})
            for each in request.tolerations
        ],
    }


def _size_fields(workload: Workload) -> Document:
    if len(workload.roles) == 1 and not workload.groups:
        (role,) = workload.roles
        return {"pods": role.count, "minPods": None if role.minimum < 0 else role.minimum}
    root = next((group for group in workload.groups if group.name == ROOT), None)
    groups = [_group(group) for group in workload.groups if group.name != ROOT]
    return {
        "pods": None,
        "minSubGroups": root.minimum if root is not None and root.minimum >= 0 else None,
        "subGroups": [*groups, *(_role(role, workload.roles[0].request) for role in workload.roles)],
    }


def _group(group: SubGroup) -> Document:
    return _without_empty(
        {
            "name": group.name,
            "parent": group.parent,
            "minSubGroups": None if group.minimum < 0 else group.minimum,
            **_levels(group),
        }
    )


def _role(role: Role, usual: Request) -> Document:
    own = role.request
    return _without_empty(
        {
            "name": role.name,
            "pods": role.count,
            "minPods": None if role.minimum < 0 else role.minimum,
            "parent": role.group,
            "leader": role.leads or None,
            "gpus": own.gpus if own.gpus != usual.gpus else None,
            "cpu": f"{own.cpu_milli}m" if own.cpu_milli != usual.cpu_milli else None,
            "memory": f"{own.memory_mib}Mi" if own.memory_mib != usual.memory_mib else None,
            **_levels(role),
        }
    )


def _levels(part: Role | SubGroup) -> Document:
    levels = part.levels
    if levels is None:
        return {}
    return {"topology": levels.topology, "requiredLevel": levels.required, "preferredLevel": levels.preferred}


def setting_text(workload: Workload, field: WorkloadField) -> str | None:
    """A setting as an annotation has it; None: it is not set."""
    if field.kind is ValueKind.BOOLEAN:
        return str(getattr(workload, field.name)).lower()
    value = _setting(workload, field.name, field.kind)
    return None if value is None else str(value)


def gpu_texts(request: Request) -> tuple[str | None, str | None]:
    """The fraction and the memory of a GPU that a share asks for, as annotations have them."""
    if not (request.is_fraction or request.is_memory):
        return None, None
    fraction = f"{request.fraction_milli / WHOLE_MILLI:g}" if request.fraction_milli else None
    return fraction, f"{request.gpu_mib}Mi" if request.gpu_mib else None


def _setting(workload: Workload, name: str, kind: ValueKind) -> Any:
    value = getattr(workload, name)
    if kind is ValueKind.BOOLEAN:
        return None if value else False  # the only such setting is true by default
    if kind is ValueKind.DURATION:
        return f"{value}s" if value else None
    if kind is ValueKind.BANDWIDTH:
        return f"{value}MB/s" if value else None
    return timestamp_text(value) if kind is ValueKind.TIMESTAMP else value or None


def _amounts(amounts: QueueAmounts, write: Callable[[int], str | None]) -> Document:
    weight = None if amounts.weight == 1 else amounts.weight
    found = {"quota": write(amounts.quota), "limit": write(amounts.limit), "overQuotaWeight": weight}
    return _without_empty(found)


def _gpus(milli: int) -> str | None:
    return None if milli == UNLIMITED else f"{milli / WHOLE_MILLI:.3f}".rstrip("0").rstrip(".")


def timestamp_text(at_s: int) -> str | None:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at_s else None


def _without_empty(document: Mapping[str, Any]) -> Document:
    """Without fields that have no value. Maps that users wrote stay as they are: a variable may well be empty."""
    return {name: value for name, value in document.items() if value is not None and value not in ("", [], {})}


def _differences(first: Any, second: Any) -> list[str]:
    names = [field.name for field in fields(first)]
    return [name.replace("_", " ") for name in names if getattr(first, name) != getattr(second, name)]
