"""Read a workload in the short form.

In:    a mapping with the fields of `Submission`.   Out: one Workload and Program, or one for each task of an array.
Never: rounds, guesses or drops anything: a mistake is an error, in our own words.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from kaiwo.manifests.kinds.node_affinity import MAX_RULES, check_toleration, selector_rules
from kaiwo.manifests.kinds.object_metadata import Defaults, check_user
from kaiwo.manifests.short_form.subgroups import read_sub_groups
from kaiwo.manifests.short_form.submission_form import (
    MAX_PODS,
    MAX_RETRIES,
    SUBMISSION_FORM,
    SubGroupForm,
    Submission,
    TolerationForm,
)
from kaiwo.manifests.text.field_errors import FieldPath, join, name_type, quote_name, show, suggest
from kaiwo.manifests.text.field_reader import check_integer, unknown_field
from kaiwo.manifests.values.gpu_request import (
    GpuFieldNames,
    GpuRequest,
    WrittenGpus,
    read_grade,
    read_isolation,
    read_partition,
    resolve_gpus,
)
from kaiwo.manifests.values.names import (
    ARRAY_LABEL,
    INDEX_LABEL,
    MAX_NAME,
    check_command,
    check_env,
    check_labels,
    read_array,
    read_name,
    read_namespace,
    read_reference,
)
from kaiwo.manifests.values.priorities import MAX_PRIORITY, TYPE_PRIORITIES
from kaiwo.manifests.values.quantities import (
    MAX_GPUS,
    read_cpu_milli,
    read_duration_s,
    read_fraction_milli,
    read_gpu_mib,
    read_memory_mib,
    read_whole_gpus,
)
from kaiwo.manifests.values.setting_values import READERS, read_form_settings
from kaiwo.model.request import Request, Toleration
from kaiwo.model.workload import Role, SubGroup, Workload
from kaiwo.model.workload_fields import FIELDS
from kaiwo.model.workload_record import Program

FORM_FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(SUBMISSION_FORM))
_ERROR = re.compile(r"(?P<fact>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_KUBERNETES_WORDS = {
    "metadata": "name: train",
    "spec": "gpus: 4",
    "containers": 'command: ["python", "train.py"]',
    "template": "pods: 8",
    "resources": "cpu: 4",
    "replicas": "pods: 8",
    "parallelism": "pods: 8",
    "args": 'command: ["python", "train.py"]',
    "gpusPerReplica": "gpus: 4",
}
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "empty",
}
_EXAMPLES = {
    "gpus": "write a whole number, such as 4; for a part of one GPU write gpuFraction",
    "gpuFraction": 'write it as "0.5"',
    "gpuMemory": "write MiB, such as 16000",
    "gpuModels": 'write ["MI300X"]',
    "gpuPartition": 'write it as "CPX"',
    "cpu": 'write it as 4 or "500m"',
    "memory": 'write it as "16Gi"',
    "command": 'write a list, such as ["python", "train.py"]',
    "env": 'write a mapping to text in quotes, such as PORT: "8080"',
    "labels": 'write a mapping to text in quotes, such as team: "7"',
    "nodeSelector": 'write a mapping to text in quotes, such as zone: "1"',
    "tolerations": "write a list of mappings, such as [{key: gpu, operator: Exists}]",
    "subGroups": "write a list of mappings, such as [{name: replica-0, pods: 2}]",
    "simulate": 'write it as "10m"',
    "array": 'write it in quotes, such as "0-9"',
    "after": 'write a list of names, such as ["prepare"]',
    **{field.short: example for field in FIELDS if (example := READERS[field.kind].example)},
}


def read_form(document: Mapping[str, Any], owner: str) -> Submission:
    """The form, its types checked."""
    for name, value in document.items():
        if name not in FORM_FIELDS:
            raise _unknown(name, owner)
        if value is None:
            raise FieldPath(owner, name).error("is empty; give it a value, or leave it out")
    if "name" not in document:
        raise FieldPath(owner, "name").error("is missing; give the workload one, such as `name: train`")
    try:
        return msgspec.convert(dict(document), SUBMISSION_FORM)
    except msgspec.ValidationError as error:
        raise _explain(str(error), document, owner) from None


def _unknown(name: str, owner: str) -> Exception:
    if name in _KUBERNETES_WORDS:
        return FieldPath(owner, name).error(
            f"is not a field of the short form; its fields stand at the top, such as `{_KUBERNETES_WORDS[name]}`, "
            "or set `kind` for a Kubernetes object"
        )
    return unknown_field(name, FORM_FIELDS, FieldPath(owner, name))


def _explain(message: str, document: Mapping[str, Any], owner: str) -> Exception:
    """msgspec says where and which type; the rest is ours. Values are not shown: they may be secrets."""
    match = _ERROR.fullmatch(message)
    fact, where = (match["fact"], match["path"] or "it") if match else (message, "it")
    field = re.split(r"[.\[]", where, maxsplit=1)[0]
    where = where.replace("[...]", f".{_first_not_text(document.get(field))}")
    path = FieldPath(owner, where)
    way_out = _EXAMPLES.get(field, "change it")
    if types := re.fullmatch(r"Expected `(.*)`, got `(.*)`", fact):
        expected = " or ".join(dict.fromkeys(_WORDS.get(word, word) for word in types[1].split(" | ")))
        got = name_type(document[field]) if where == field and field in document else _WORDS.get(types[2], types[2])
        if field == "gpus" and isinstance(document[field], float):
            read_whole_gpus(document[field], path, "gpuFraction")
        default = "put it in quotes" if expected == "text" else f"write {expected}"
        return path.error(f"must be {expected}, not {got}; {_EXAMPLES.get(field, default)}")
    if fact.startswith("Invalid enum value"):
        return path.error(f"{_wrong_choice(document.get(field), field)}")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", fact):
        inner = SubGroupForm if field == "subGroups" else TolerationForm
        names = [item.encode_name for item in msgspec.structs.fields(inner)]
        return unknown_field(unknown[1], names, FieldPath(owner, f"{path.field}.{unknown[1]}"))
    return path.error(f"does not fit the form ({fact}); {way_out}")


def _first_not_text(value: object) -> str:
    """The key whose value is of the wrong type: msgspec does not name it."""
    wrong = (key for key, item in value.items() if not isinstance(item, str)) if isinstance(value, dict) else iter(())
    return join([next(wrong, "?")])


def _wrong_choice(value: object, field: str) -> str:
    choices = {
        "type": ("training", "batch", "inference", "notebook"),
        "kind": ("Workload",),
        "apiVersion": ("kaiwo.ai/v1alpha2",),
        "tolerations": ("operator Equal or Exists", "effect NoSchedule, PreferNoSchedule or NoExecute"),
    }.get(field, ())
    if isinstance(value, str):
        return f"is {show(value)}; write {', '.join(choices)}{suggest(value, choices)}"
    return f"has a value that is not known; write {', '.join(choices)}"


T = TypeVar("T")

MAX_AFTER = 1000
MAX_ARRAY_BYTES = 100_000_000  # of all tasks together, as they are stored
MAX_IMAGE = 1000


def read_short_form(
    document: Mapping[str, Any], where: str, defaults: Defaults, warnings: list[str]
) -> Iterator[tuple[Workload, Program]]:
    """One pair, or as many as its array has tasks."""
    written = document.get("name")
    owner = f"workload {quote_name(written)}" if isinstance(written, str) and written else where
    form = read_form(document, owner)
    reader = _FormReader(form, owner, defaults, warnings)
    workload, program = reader.workload(), reader.program()
    no_indices: tuple[int, ...] = ()
    indices = reader.optional(form.array, "array", read_array, no_indices)
    return iter(((workload, program),)) if not indices else _tasks(workload, program, indices, owner)


def _tasks(
    workload: Workload, program: Program, indices: tuple[int, ...], owner: str
) -> Iterator[tuple[Workload, Program]]:
    array = workload.name.partition("/")[2]
    if len(indices) * len(msgspec.msgpack.encode((workload, program))) > MAX_ARRAY_BYTES:
        raise FieldPath(owner, "array").error(
            f"has {len(indices):,} tasks, too many for a form of this size; move the command's text into a file"
        )
    longest = len(f"{array}-{max(indices)}")
    if longest > MAX_NAME:
        raise FieldPath(owner, "name").error(
            f"is too long for an array: with its index it has {longest} signs and the most is {MAX_NAME}; shorten it"
        )
    for index in indices:
        yield (
            msgspec.structs.replace(
                workload,
                name=f"{workload.name}-{index}",
                labels=workload.labels | {ARRAY_LABEL: array, INDEX_LABEL: str(index)},
            ),
            program,
        )


class _FormReader:
    def __init__(self, form: Submission, owner: str, defaults: Defaults, warnings: list[str]) -> None:
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
        simulated_s = self.optional(form.simulate, "simulate", read_duration_s, 0)
        if simulated_s and form.command:
            raise self.path_of("simulate").error("is for work without a command; remove one of the two")
        if form.command and not form.command[0].strip():
            raise self.path_of("command").error('starts with an empty word; write ["python", "train.py"]')
        if form.workdir and not form.workdir.startswith("/"):
            raise self.path_of("workdir").error("must be an absolute path; start it with /")
        if len(form.image) > MAX_IMAGE:
            raise self.path_of("image").error(f"has more than {MAX_IMAGE} signs; shorten it")
        return Program(
            command=check_command(form.command, self.path_of("command")),
            image=form.image,
            env=check_env(form.env, self.path_of("env")),
            workdir=form.workdir,
            simulated_s=simulated_s,
            retries=self._integer(form.retries, "retries", 0, 0, MAX_RETRIES),
        )

    def _roles(self) -> tuple[tuple[Role, ...], tuple[SubGroup, ...]]:
        if self.form.sub_groups:
            return read_sub_groups(self.form, self._request(), self.owner)
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
        gpu = self._gpu()
        return Request(
            cpu_milli=read_cpu_milli(form.cpu, self.path_of("cpu")),
            memory_mib=read_memory_mib(form.memory, self.path_of("memory")),
            gpus=gpu.gpus,
            gpu_milli=gpu.gpu_milli,
            gpu_mib=gpu.gpu_mib,
            gpu_models=gpu.gpu_models,
            partition=gpu.partition,
            isolation=gpu.isolation,
            least_grade=gpu.least_grade,
            node_rules=selector_rules(form.node_selector, self.path_of("nodeSelector")),
            tolerations=self._tolerations(),
        )

    def _gpu(self) -> GpuRequest:
        form = self.form
        written = WrittenGpus(
            read_whole_gpus(form.gpus, self.path_of("gpus"), "gpuFraction"),
            self.optional(form.gpu_fraction, "gpuFraction", read_fraction_milli, None),
            self.optional(form.gpu_memory, "gpuMemory", read_gpu_mib, None),
            None
            if isinstance(form.gpu_devices, UnsetType)
            else self._integer(form.gpu_devices, "gpuDevices", 1, 1, MAX_GPUS),
            tuple(form.gpu_models),
            sharing=None if isinstance(form.gpu_sharing, UnsetType) else form.gpu_sharing,
            partition=self.optional(form.gpu_partition, "gpuPartition", read_partition, ""),
            isolation=self.optional(form.gpu_isolation, "gpuIsolation", read_isolation, ""),
            least_grade=self.optional(form.gpu_isolation_grade, "gpuIsolationGrade", read_grade, ""),
        )
        words = GpuFieldNames(self.owner, "gpus", "gpuFraction", "gpuMemory", "gpuDevices", "gpuModels")
        return resolve_gpus(written, words, self.warnings)

    def _tolerations(self) -> tuple[Toleration, ...]:
        if len(self.form.tolerations) > MAX_RULES:
            raise self.path_of("tolerations").error(f"has more than {MAX_RULES} entries; use fewer")
        return tuple(
            check_toleration(
                Toleration(item.key, item.operator, item.value, item.effect), self.path_of(f"tolerations[{index}]")
            )
            for index, item in enumerate(self.form.tolerations)
        )

    def _after(self, namespace: str) -> tuple[str, ...]:
        if len(self.form.after) > MAX_AFTER:
            raise self.path_of("after").error(f"names more than {MAX_AFTER} workloads; use fewer")
        names = tuple(
            dict.fromkeys(
                read_reference(name, self.path_of(f"after[{index}]"), namespace)
                for index, name in enumerate(self.form.after)
            )
        )
        if f"{namespace}/{self.form.name}" in names:
            raise self.path_of("after").error("names the workload itself; remove it")
        return names

    def _integer(self, value: int | UnsetType, field: str, default: int, least: int, most: int) -> int:
        return default if isinstance(value, UnsetType) else check_integer(value, self.path_of(field), least, most)
