"""The submission form: the short form of a workload, as JSON or YAML.

One Struct is the form, its JSON schema and its documentation. The patterns in it are for readers and generators:
`read_submission` checks the same rules and answers in sentences.
"""

from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from kaiwo.manifests.values.names import LABEL, MAX_NAME, MAX_TASKS, NAME
from kaiwo.manifests.values.priorities import MAX_PRIORITY
from kaiwo.manifests.values.quantities import MAX_GPU_MIB, MAX_GPUS
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
        int | str | UnsetType, _about(f'Memory of one GPU: MiB up to {MAX_GPU_MIB}, or such as "16Gi".')
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
    workdir: Annotated[
        str, _text("Working folder of the command, as an absolute path (default: a new folder).", most=4000)
    ] = ""
    retries: Annotated[int, _number("Restart it up to this many times if it fails.", 0, MAX_RETRIES)] = 0
    array: Annotated[
        str | UnsetType, _about(f'Submit one workload for each index, such as "0-9" or "1,3,5"; at most {MAX_TASKS}.')
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


def submission_schema() -> dict[str, Any]:
    """The JSON Schema of the form, standing alone."""
    return msgspec.json.schema(SUBMISSION_FORM)
