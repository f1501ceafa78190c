"""The submission form: the short form of a workload, as JSON or YAML, and the check of its types.

One Struct is the form, its JSON schema and its documentation. The patterns in it are for readers and generators:
`read_submission` checks the same rules and answers in sentences.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from kaiwo.manifests.text.field_errors import FieldPath, join, name_type, show, suggest
from kaiwo.manifests.text.field_reader import unknown_field
from kaiwo.manifests.values.names import LABEL, MAX_NAME, MAX_TASKS, NAME
from kaiwo.manifests.values.priorities import MAX_PRIORITY
from kaiwo.manifests.values.quantities import MAX_GPU_MIB, MAX_GPUS, read_whole_gpus
from kaiwo.manifests.values.setting_values import READERS, Duration
from kaiwo.model.workload_fields import FIELDS, ValueKind, WorkloadField

API_VERSION = "kaiwo.ai/v1alpha2"
KIND = "Workload"
MAX_PODS = 10_000
MAX_SUB_GROUPS = 1000
MAX_RETRIES = 1000
DEFAULT_CPU = "1"
DEFAULT_MEMORY = "1Gi"


def _about(description: str, **rules: Any) -> Meta:
    return Meta(description=description, extra_json_schema=rules)


def _text(description: str, pattern: str = "", most: int = 0) -> Meta:
    rules: dict[str, Any] = {"pattern": f"^{pattern}$"} if pattern else {}
    return _about(description, **rules, **({"maxLength": most} if most else {}))


def _number(description: str, least: int, most: int) -> Meta:
    return _about(description, minimum=least, maximum=most)


class TolerationForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Allows the pods on nodes with a matching taint."""

    key: Annotated[str, _about("Empty with `operator: Exists`: every taint.")] = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Annotated[Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"], _about("Empty: every effect.")] = ""


class SubGroupForm(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Pods that start together or not at all. Without `pods`, it groups other sub-groups."""

    name: Annotated[str, _text("Name, unique in the workload.", LABEL, MAX_NAME)]
    pods: Annotated[
        int, _number("Number of identical pods (default: none; it groups other sub-groups).", 0, MAX_PODS)
    ] = 0
    min_pods: Annotated[
        int | UnsetType, _number("Start once this many of these pods fit (default: all).", 1, MAX_PODS)
    ] = UNSET
    parent: Annotated[str, _text("Sub-group that it belongs to.", most=MAX_NAME)] = ""
    min_sub_groups: Annotated[
        int | UnsetType, _number("Number of its sub-groups that must start (default: all).", 1, MAX_SUB_GROUPS)
    ] = UNSET
    leader: Annotated[bool, _about("Starts before the other sub-groups, and is stopped last.")] = False
    gpus: Annotated[int | UnsetType, _number("GPUs of each of these pods (default: as the workload).", 0, MAX_GPUS)] = (
        UNSET
    )
    cpu: Annotated[str | float | UnsetType, _about("Default: as the workload.")] = UNSET
    memory: Annotated[str | int | UnsetType, _about("Default: as the workload.")] = UNSET
    topology: Annotated[str, _about("Topology that its levels are of (default: the first that has them).")] = ""
    required_level: Annotated[str, _about("All its pods run in one domain of this level.")] = ""
    preferred_level: Annotated[str, _about("All its pods run in one domain of this level if one has room.")] = ""


class Submission(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A workload in short form: equal pods that start together."""

    api_version: Literal["kaiwo.ai/v1alpha2"] = "kaiwo.ai/v1alpha2"
    kind: Literal["Workload"] = "Workload"
    name: Annotated[str, _text("Name, unique among the unfinished workloads of its namespace.", NAME, MAX_NAME)]
    namespace: Annotated[str | UnsetType, _text("Namespace (default: `default`).", LABEL, MAX_NAME)] = UNSET
    queue: Annotated[str | UnsetType, _text("Queue to submit to (default: `default`).", NAME, MAX_NAME)] = UNSET
    user: Annotated[str | UnsetType, _text("User it belongs to (default: the submitter).", most=253)] = UNSET
    type: Literal["training", "batch", "inference", "notebook"] = "batch"
    priority: Annotated[
        int | UnsetType,
        _number("Higher priorities start first within a queue (default: by type).", -MAX_PRIORITY, MAX_PRIORITY),
    ] = UNSET
    gpus: Annotated[int, _number("Whole GPUs for each pod.", 0, MAX_GPUS)] = 0
    gpu_fraction: Annotated[str | float | UnsetType, _about('Fraction of one GPU, from "0.01" to "1".')] = UNSET
    gpu_memory: Annotated[
        int | str | UnsetType,
        _about(
            f'Memory of one GPU: MiB up to {MAX_GPU_MIB}, or such as "16Gi". With a fraction, the larger need counts.'
        ),
    ] = UNSET
    gpu_devices: Annotated[
        int | UnsetType, _number("Number of GPUs to take that fraction or memory of.", 1, MAX_GPUS)
    ] = UNSET
    gpu_models: Annotated[list[str], _about('Only these GPU models, such as "MI300X" (default: any).')] = []
    gpu_partition: Annotated[
        str | UnsetType, _about('Use GPU partitions, which `gpus` counts: "CPX", "CPX+NPS4" or "any".')
    ] = UNSET
    gpu_sharing: Annotated[bool | UnsetType, _about("Let others share its whole GPUs; it counts as half of each.")] = (
        UNSET
    )
    gpu_isolation: Annotated[
        str | UnsetType,
        _about("How fractions are isolated: mps, cu-mask or time-slicing (default: the best available)."),
    ] = UNSET
    gpu_isolation_grade: Annotated[
        str | UnsetType, _about("Weakest acceptable grade: memory-capped, cu-mask, mps or time-slicing.")
    ] = UNSET
    gpu_share_with: Annotated[
        str | UnsetType,
        _about(
            "Who may share its GPU: anyone (the default), nobody, or work of the same queue, namespace or user, such "
            'as "queue,user".'
        ),
    ] = UNSET
    gpu_threads: Annotated[
        int | UnsetType,
        _number("Percentage of the multiprocessors that a share by MPS may use (default: its fraction).", 1, 100),
    ] = UNSET
    cpu: Annotated[str | float, _about('CPUs for each pod, such as "4" or "500m".')] = DEFAULT_CPU
    memory: Annotated[str | int, _about('Memory for each pod, such as "16Gi".')] = DEFAULT_MEMORY
    pods: Annotated[int, _number("Number of identical pods, which start together.", 1, MAX_PODS)] = 1
    min_pods: Annotated[
        int | UnsetType, _number("Start once this many pods fit; add the rest later (default: all).", 1, MAX_PODS)
    ] = UNSET
    sub_groups: Annotated[
        list[SubGroupForm], _about("Sub-groups of pods, instead of `pods`; the pods of each start together.")
    ] = []
    min_sub_groups: Annotated[
        int | UnsetType, _number("Start once this many sub-groups fit (default: all).", 1, MAX_SUB_GROUPS)
    ] = UNSET
    node_selector: Annotated[dict[str, str], _about("Only nodes with these labels.")] = {}
    tolerations: list[TolerationForm] = []
    command: Annotated[list[str], _about("Command to run as a local process (default: the work is simulated).")] = []
    image: Annotated[str, _text("Container image; without containers its work is simulated.", most=1000)] = ""
    env: dict[str, str] = {}
    secret_env: Annotated[
        dict[str, str], _about("Environment variables whose values are stored encrypted and never shown.")
    ] = {}
    workdir: Annotated[
        str, _text("Working folder of the command, as an absolute path (default: a new folder).", most=4000)
    ] = ""
    retries: Annotated[int, _number("Restart it up to this many times if it fails.", 0, MAX_RETRIES)] = 0
    array: Annotated[
        str | UnsetType,
        _about(
            f'Submit one workload for each index, such as "0-9", "1,3,5" or "0-99:2"; at most {MAX_TASKS}. "0-999%50" '
            "runs 50 of them at once."
        ),
    ] = UNSET
    after: Annotated[
        list[str], _about("Start after these workloads, or all tasks of these arrays, succeeded: `namespace/name`.")
    ] = []
    hold: Annotated[bool, _about("Do not start it until it is released.")] = False
    labels: dict[str, str] = {}
    simulate: Annotated[Duration, _about("Simulated run time of work without a command.")] | UnsetType = UNSET


def _setting(field: WorkloadField) -> tuple[str, Any, Any]:
    described: Any = Annotated[READERS[field.kind].form_type, _about(field.help)]
    if field.kind is ValueKind.BOOLEAN:
        return field.name, described, field.default
    return field.name, described | UnsetType, UNSET


# The whole form: the fields above and the settings in the table of workload fields.
SUBMISSION_FORM = cast(
    "type[Submission]",
    msgspec.defstruct(
        "Submission",
        [_setting(field) for field in FIELDS],
        bases=(Submission,),
        rename={field.name: field.short for field in FIELDS},
        namespace={"__doc__": Submission.__doc__},
        module=__name__,
        kw_only=True,
    ),
)
FORM_FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(SUBMISSION_FORM))
_ERROR = re.compile(r"(?P<fact>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_KUBERNETES_FIELDS = {
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
_TYPES = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
    "object": "a mapping", "null": "empty",
}  # fmt: skip
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
    "secretEnv": 'write a mapping to text in quotes, such as API_KEY: "..."',
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
    """Convert the document to the form, and check its types."""
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
    if name in _KUBERNETES_FIELDS:
        return FieldPath(owner, name).error(
            f"is not a field of the short form; its fields are at the top level, such as `{_KUBERNETES_FIELDS[name]}`, "
            "or set `kind` for a Kubernetes object"
        )
    return unknown_field(name, FORM_FIELDS, FieldPath(owner, name))


def _explain(message: str, document: Mapping[str, Any], owner: str) -> Exception:
    """Turn msgspec's message into our own sentence. Values are not shown: they may be secrets."""
    match = _ERROR.fullmatch(message)
    fact, where = (match["fact"], match["path"] or "it") if match else (message, "it")
    field = re.split(r"[.\[]", where, maxsplit=1)[0]
    where = where.replace("[...]", f".{_first_not_text(document.get(field))}")
    path = FieldPath(owner, where)
    way_out = _EXAMPLES.get(field, "change it")
    if types := re.fullmatch(r"Expected `(.*)`, got `(.*)`", fact):
        expected = " or ".join(dict.fromkeys(_TYPES.get(word, word) for word in types[1].split(" | ")))
        got = name_type(document[field]) if where == field and field in document else _TYPES.get(types[2], types[2])
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
