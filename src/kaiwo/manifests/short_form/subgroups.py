"""Read the sub-groups of the short form.

In:    the entries of `subGroups`, and what a pod asks for.   Out: roles and their tree.
An entry with pods is a role; one without pods groups others. When all of them must run, the tree says nothing and is
left out.
"""

import msgspec
from msgspec import UNSET, UnsetType

from kaiwo.manifests.short_form.submission_form import MAX_PODS, MAX_SUB_GROUPS, SubGroupForm, Submission
from kaiwo.manifests.text.field_errors import FieldPath, quote_name
from kaiwo.manifests.text.field_reader import check_integer
from kaiwo.manifests.values.names import read_name
from kaiwo.manifests.values.quantities import MAX_GPUS, read_cpu_milli, read_memory_mib
from kaiwo.model.request import Request
from kaiwo.model.workload import ROOT, Role, SubGroup, subgroup_problem


def read_sub_groups(form: Submission, request: Request, owner: str) -> tuple[tuple[Role, ...], tuple[SubGroup, ...]]:
    """All roles, and the tree that they are in."""
    path = FieldPath(owner, "subGroups")
    if len(form.sub_groups) > MAX_SUB_GROUPS:
        raise path.error(f"has more than {MAX_SUB_GROUPS} entries; use fewer")
    if form.pods != 1 or form.min_pods is not UNSET:
        raise path.error("already says how many pods there are; remove pods and minPods")
    entries = [(entry, FieldPath(owner, f"subGroups[{at}]")) for at, entry in enumerate(form.sub_groups)]
    if form.gpu_sharing is True and any(entry.gpus is not UNSET for entry in form.sub_groups):
        raise FieldPath(owner, "gpuSharing").error(
            "is for the GPUs that all pods ask for; write gpus beside it, and not in subGroups"
        )
    roles = tuple(_role(entry, request, where) for entry, where in entries if entry.pods)
    groups = [SubGroup(ROOT, ROOT, _integer(form.min_sub_groups, FieldPath(owner, "minSubGroups"), MAX_SUB_GROUPS))]
    groups += [_group(entry, where) for entry, where in entries if not entry.pods]
    names = [entry.name for entry in form.sub_groups]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise path.error(f"names {quote_name(twice)} twice; give each its own name")
    if fault := subgroup_problem(tuple(groups), roles):
        raise path.error(fault)
    if sum(role.count for role in roles) > MAX_PODS:
        raise path.error(f"asks for more than {MAX_PODS} pods in all; use fewer")
    is_needed = all(group.minimum < 0 for group in groups)
    return roles, () if is_needed else tuple(groups)


def _role(entry: SubGroupForm, request: Request, path: FieldPath) -> Role:
    name = read_name(entry.name, _inner(path, "name"))
    pods = check_integer(entry.pods, _inner(path, "pods"), 1, MAX_PODS)
    minimum = _integer(entry.min_pods, _inner(path, "minPods"), MAX_PODS)
    if minimum > pods:
        raise _inner(path, "minPods").error(f"is {minimum} and pods is {pods}; lower minPods, or raise pods")
    if entry.min_sub_groups is not UNSET:
        raise _inner(path, "minSubGroups").error("cannot be used with pods; use minPods, or remove pods")
    minimum = -1 if minimum == pods else minimum
    return Role(_request(entry, request, path), name, pods, minimum, _parent(entry, path), entry.leader)


def _group(entry: SubGroupForm, path: FieldPath) -> SubGroup:
    if entry.min_pods is not UNSET or any(value is not UNSET for value in (entry.gpus, entry.cpu, entry.memory)):
        raise _inner(path, "pods").error("is missing, but the entry says what its pods need; write how many there are")
    if entry.leader:
        raise _inner(path, "leader").error("is set on an entry without pods; set it on the one whose pods lead")
    minimum = _integer(entry.min_sub_groups, _inner(path, "minSubGroups"), MAX_SUB_GROUPS)
    return SubGroup(read_name(entry.name, _inner(path, "name")), _parent(entry, path), minimum)


def _parent(entry: SubGroupForm, path: FieldPath) -> str:
    return read_name(entry.parent, _inner(path, "parent")) if entry.parent else ROOT


def _request(entry: SubGroupForm, request: Request, path: FieldPath) -> Request:
    if not isinstance(entry.gpus, UnsetType):
        gpus = check_integer(entry.gpus, _inner(path, "gpus"), 0, MAX_GPUS)
        if request.is_memory or request.is_fraction or request.is_partition:
            raise _inner(path, "gpus").error(
                "cannot be used with a share of GPUs that all pods ask for; remove one of the two"
            )
        request = msgspec.structs.replace(request, gpus=gpus)
    if not isinstance(entry.cpu, UnsetType):
        request = msgspec.structs.replace(request, cpu_milli=read_cpu_milli(entry.cpu, _inner(path, "cpu")))
    if not isinstance(entry.memory, UnsetType):
        request = msgspec.structs.replace(request, memory_mib=read_memory_mib(entry.memory, _inner(path, "memory")))
    return request


def _integer(value: int | UnsetType, path: FieldPath, most: int) -> int:
    return -1 if isinstance(value, UnsetType) else check_integer(value, path, 1, most)


def _inner(path: FieldPath, field: str) -> FieldPath:
    return FieldPath(path.owner, f"{path.field}.{field}")
