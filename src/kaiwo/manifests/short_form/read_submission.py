"""Read a workload in the short form: one Workload and its Program, or one of each for every task of an array.

Never: rounds, guesses or drops anything: a mistake is an error that says what to write.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from kaiwo.manifests.kinds.node_affinity import MAX_RULES, check_toleration, selector_rules
from kaiwo.manifests.kinds.object_metadata import ManifestDefaults, check_user
from kaiwo.manifests.short_form.submission_form import (
    MAX_PODS,
    MAX_RETRIES,
    MAX_SUB_GROUPS,
    SubGroupForm,
    Submission,
    read_form,
)
from kaiwo.manifests.text.field_errors import FieldPath, quote_name
from kaiwo.manifests.text.field_reader import check_integer
from kaiwo.manifests.values import quantities
from kaiwo.manifests.values.gpu_request import (
    GpuFieldNames,
    GpuRequest,
    WrittenGpus,
    read_grade,
    read_isolation,
    read_partition,
    read_share_with,
    read_threads_milli,
    resolve_gpus,
)
from kaiwo.manifests.values.names import (
    ARRAY_LABEL,
    INDEX_LABEL,
    MAX_NAME,
    SLOTS_LABEL,
    ArrayTasks,
    check_command,
    check_env,
    check_labels,
    read_array,
    read_level,
    read_name,
    read_namespace,
    read_reference,
)
from kaiwo.manifests.values.priorities import MAX_PRIORITY, TYPE_PRIORITIES
from kaiwo.manifests.values.setting_values import read_form_settings
from kaiwo.model.network.constraint import TopologyConstraint
from kaiwo.model.request import Request, Toleration
from kaiwo.model.workload import ROOT, Role, SubGroup, Workload, subgroup_problem
from kaiwo.model.workload_record import Program

T = TypeVar("T")

MAX_AFTER = 1000
MAX_ARRAY_BYTES = 100_000_000  # of all tasks together, as they are stored
MAX_IMAGE = 1000


def read_short_form(
    document: Mapping[str, Any], where: str, defaults: ManifestDefaults, warnings: list[str]
) -> Iterator[tuple[Workload, Program]]:
    """One workload, or one for each task of its array."""
    written = document.get("name")
    owner = f"workload {quote_name(written)}" if isinstance(written, str) and written else where
    form = read_form(document, owner)
    reader = _FormReader(form, owner, defaults, warnings)
    workload, program = reader.workload(), reader.program()
    if form.array is UNSET:
        return iter(((workload, program),))
    return _tasks(workload, program, read_array(form.array, FieldPath(owner, "array")), owner)


def _tasks(workload: Workload, program: Program, tasks: ArrayTasks, owner: str) -> Iterator[tuple[Workload, Program]]:
    array, indices = workload.name.partition("/")[2], tasks.indices
    shared = {ARRAY_LABEL: array, **({SLOTS_LABEL: str(tasks.at_once)} if tasks.at_once else {})}
    if len(indices) * len(msgspec.msgpack.encode((workload, program))) > MAX_ARRAY_BYTES:
        raise FieldPath(owner, "array").error(
            f"has {len(indices):,} tasks, too many for a form of this size; move the command's text into a file"
        )
    longest = len(f"{array}-{max(indices)}")
    if longest > MAX_NAME:
        fact = f"with its index it has {longest} characters and the maximum is {MAX_NAME}"
        raise FieldPath(owner, "name").error(f"is too long for an array: {fact}; shorten it")
    for index in indices:
        labels = workload.labels | shared | {INDEX_LABEL: str(index)}
        yield msgspec.structs.replace(workload, name=f"{workload.name}-{index}", labels=labels), program


class _FormReader:
    def __init__(self, form: Submission, owner: str, defaults: ManifestDefaults, warnings: list[str]) -> None:
        self.form = form
        self.owner = owner
        self.defaults = defaults
        self.warnings = warnings

    def path_of(self, field: str) -> FieldPath:
        return FieldPath(self.owner, field)

    def optional(self, value: Any | UnsetType, field: str, reader: Callable[[object, FieldPath], T], default: T) -> T:
        return default if value is UNSET else reader(value, self.path_of(field))

    def workload(self) -> Workload:
        form = self.form
        roles, groups = self._roles()
        namespace = self.optional(form.namespace, "namespace", read_namespace, self.defaults.namespace)
        user = self.defaults.user if isinstance(form.user, UnsetType) else form.user
        return Workload(
            name=f"{namespace}/{read_name(form.name, self.path_of('name'))}",
            roles=roles,
            queue=self.optional(form.queue, "queue", read_name, self.defaults.queue),
            user=check_user(user, self.path_of("user")),
            kind=form.type,
            priority=self._integer(form.priority, "priority", TYPE_PRIORITIES[form.type], -MAX_PRIORITY, MAX_PRIORITY),
            submitted_s=self.defaults.submitted_s,
            held=form.hold,
            after=self._after(namespace),
            labels=check_labels(form.labels, self.path_of("labels")),
            groups=groups,
            **read_form_settings(form, self.owner, self.defaults.submitted_s),
        )

    def program(self) -> Program:
        form = self.form
        simulated_s = self.optional(form.simulate, "simulate", quantities.read_duration_s, 0)
        if simulated_s and form.command:
            raise self.path_of("simulate").error("is for work without a command; remove one of the two")
        if form.command and not form.command[0].strip():
            raise self.path_of("command").error('starts with an empty word; write ["python", "train.py"]')
        if form.workdir and not form.workdir.startswith("/"):
            raise self.path_of("workdir").error("must be an absolute path; start it with /")
        if len(form.image) > MAX_IMAGE:
            raise self.path_of("image").error(f"has more than {MAX_IMAGE} characters; shorten it")
        return Program(
            command=check_command(form.command, self.path_of("command")),
            image=form.image,
            env=check_env(form.env, self.path_of("env")),
            secret_env=self._secret_env(),
            workdir=form.workdir,
            simulated_s=simulated_s,
            retries=self._integer(form.retries, "retries", 0, 0, MAX_RETRIES),
        )

    def _secret_env(self) -> dict[str, str]:
        form, path = self.form, self.path_of("secretEnv")
        if both := sorted(form.env.keys() & form.secret_env.keys()):
            raise path.error(f"has the variable {both[0]}, which env has, too; remove one of the two")
        if form.secret_env and not form.command:
            raise path.error("is for work with a command; add the command, or remove it")
        return check_env(form.secret_env, path)

    def _roles(self) -> tuple[tuple[Role, ...], tuple[SubGroup, ...]]:
        if self.form.sub_groups:
            return _read_sub_groups(self.form, self._request(), self.owner)
        if self.form.min_sub_groups is not UNSET:
            raise self.path_of("minSubGroups").error("needs subGroups; add them, or use minPods")
        return (self._role(),), ()

    def _role(self) -> Role:
        form = self.form
        if form.pods == 0:
            raise self.path_of("pods").error("is 0, which asks for no pods; write at least 1")
        pods = self._integer(form.pods, "pods", 1, 1, MAX_PODS)
        minimum = self._integer(form.min_pods, "minPods", -1, 1, MAX_PODS)
        if minimum > pods:
            raise self.path_of("minPods").error(f"is {minimum} and pods is {pods}; lower minPods, or raise pods")
        return Role(self._request(), count=pods, minimum=minimum)  # as written: `why` proposes another by its flag

    def _request(self) -> Request:
        form = self.form
        return Request(
            cpu_milli=quantities.read_cpu_milli(form.cpu, self.path_of("cpu")),
            memory_mib=quantities.read_memory_mib(form.memory, self.path_of("memory")),
            **self._gpu()._asdict(),
            node_rules=selector_rules(form.node_selector, self.path_of("nodeSelector")),
            tolerations=self._tolerations(),
        )

    def _gpu(self) -> GpuRequest:
        form = self.form
        written = WrittenGpus(
            quantities.read_whole_gpus(form.gpus, self.path_of("gpus"), "gpuFraction"),
            self.optional(form.gpu_fraction, "gpuFraction", quantities.read_fraction_milli, None),
            self.optional(form.gpu_memory, "gpuMemory", quantities.read_gpu_mib, None),
            self.optional(form.gpu_devices, "gpuDevices", _read_devices, None),
            tuple(form.gpu_models),
            sharing=self.optional(form.gpu_sharing, "gpuSharing", lambda value, _: bool(value), None),
            partition=self.optional(form.gpu_partition, "gpuPartition", read_partition, ""),
            isolation=self.optional(form.gpu_isolation, "gpuIsolation", read_isolation, ""),
            least_grade=self.optional(form.gpu_isolation_grade, "gpuIsolationGrade", read_grade, ""),
            share_with=self.optional(form.gpu_share_with, "gpuShareWith", read_share_with, ()),
            threads_milli=self.optional(form.gpu_threads, "gpuThreads", read_threads_milli, 0),
        )
        words = GpuFieldNames(self.owner, "gpus", "gpuFraction", "gpuMemory", "gpuDevices", "gpuModels")
        return resolve_gpus(written, words, self.warnings)

    def _tolerations(self) -> tuple[Toleration, ...]:
        if len(self.form.tolerations) > MAX_RULES:
            raise self.path_of("tolerations").error(f"has more than {MAX_RULES} entries; use fewer")
        return tuple(
            check_toleration(Toleration(*msgspec.structs.astuple(item)), self.path_of(f"tolerations[{index}]"))
            for index, item in enumerate(self.form.tolerations)
        )

    def _after(self, namespace: str) -> tuple[str, ...]:
        if len(self.form.after) > MAX_AFTER:
            raise self.path_of("after").error(f"names more than {MAX_AFTER} workloads; use fewer")
        names = [
            read_reference(name, self.path_of(f"after[{index}]"), namespace)
            for index, name in enumerate(self.form.after)
        ]
        if f"{namespace}/{self.form.name}" in names:
            raise self.path_of("after").error("names the workload itself; remove it")
        return tuple(dict.fromkeys(names))

    def _integer(self, value: int | UnsetType, field: str, default: int, least: int, most: int) -> int:
        return default if isinstance(value, UnsetType) else check_integer(value, self.path_of(field), least, most)


def _read_devices(value: Any, path: FieldPath) -> int:
    return check_integer(value, path, 1, quantities.MAX_GPUS)


def _read_sub_groups(form: Submission, request: Request, owner: str) -> tuple[tuple[Role, ...], tuple[SubGroup, ...]]:
    """An entry with pods is a role; one without pods groups others. If all must run, the tree is left out."""
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
    roles = tuple(_sub_group_role(entry, request, where) for entry, where in entries if entry.pods)
    groups = [SubGroup(ROOT, ROOT, _minimum(form.min_sub_groups, FieldPath(owner, "minSubGroups"), MAX_SUB_GROUPS))]
    groups += [_group(entry, where) for entry, where in entries if not entry.pods]
    names = [entry.name for entry in form.sub_groups]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise path.error(f"names {quote_name(twice)} twice; give each its own name")
    if fault := subgroup_problem(tuple(groups), roles):
        raise path.error(fault)
    if sum(role.count for role in roles) > MAX_PODS:
        raise path.error(f"asks for more than {MAX_PODS} pods in all; use fewer")
    is_needed = any(group.minimum >= 0 or group.levels is not None for group in groups)
    return roles, tuple(groups) if is_needed else ()


def _sub_group_role(entry: SubGroupForm, request: Request, path: FieldPath) -> Role:
    name = read_name(entry.name, path.inner("name"))
    pods = check_integer(entry.pods, path.inner("pods"), 1, MAX_PODS)
    minimum = _minimum(entry.min_pods, path.inner("minPods"), MAX_PODS)
    if minimum > pods:
        raise path.inner("minPods").error(f"is {minimum} and pods is {pods}; lower minPods, or raise pods")
    if entry.min_sub_groups is not UNSET:
        raise path.inner("minSubGroups").error("cannot be used with pods; use minPods, or remove pods")
    minimum = -1 if minimum == pods else minimum
    levels = _levels(entry, path)
    own = _sub_group_request(entry, request, path)
    return Role(own, name, pods, minimum, _parent(entry, path), entry.leader, levels)


def _group(entry: SubGroupForm, path: FieldPath) -> SubGroup:
    if entry.min_pods is not UNSET or any(value is not UNSET for value in (entry.gpus, entry.cpu, entry.memory)):
        raise path.inner("pods").error("is missing, but the entry says what its pods need; write how many there are")
    if entry.leader:
        raise path.inner("leader").error("is set on an entry without pods; set it on the one whose pods lead")
    minimum = _minimum(entry.min_sub_groups, path.inner("minSubGroups"), MAX_SUB_GROUPS)
    return SubGroup(read_name(entry.name, path.inner("name")), _parent(entry, path), minimum, _levels(entry, path))


def _levels(entry: SubGroupForm, path: FieldPath) -> TopologyConstraint | None:
    """The levels of its own; None: only those of the sub-groups around it count."""
    if not (entry.required_level or entry.preferred_level):
        if entry.topology:
            raise path.inner("topology").error("is set without a level; add requiredLevel or preferredLevel")
        return None
    topology = read_name(entry.topology, path.inner("topology")) if entry.topology else ""
    required = read_level(entry.required_level, path.inner("requiredLevel")) if entry.required_level else ""
    preferred = read_level(entry.preferred_level, path.inner("preferredLevel")) if entry.preferred_level else ""
    return TopologyConstraint(topology, required, preferred)


def _parent(entry: SubGroupForm, path: FieldPath) -> str:
    return read_name(entry.parent, path.inner("parent")) if entry.parent else ROOT


def _sub_group_request(entry: SubGroupForm, request: Request, path: FieldPath) -> Request:
    if not isinstance(entry.gpus, UnsetType):
        gpus = check_integer(entry.gpus, path.inner("gpus"), 0, quantities.MAX_GPUS)
        if request.is_memory or request.is_fraction or request.is_partition:
            raise path.inner("gpus").error(
                "cannot be used with a share of GPUs that all pods ask for; remove one of the two"
            )
        request = msgspec.structs.replace(request, gpus=gpus)
    if not isinstance(entry.cpu, UnsetType):
        cpu_milli = quantities.read_cpu_milli(entry.cpu, path.inner("cpu"))
        request = msgspec.structs.replace(request, cpu_milli=cpu_milli)
    if not isinstance(entry.memory, UnsetType):
        request = msgspec.structs.replace(
            request, memory_mib=quantities.read_memory_mib(entry.memory, path.inner("memory"))
        )
    return request


def _minimum(value: int | UnsetType, path: FieldPath, most: int) -> int:
    return -1 if isinstance(value, UnsetType) else check_integer(value, path, 1, most)
