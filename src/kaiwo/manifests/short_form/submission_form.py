"""The submission form: our own short way to write a workload, as JSON or YAML.

One Struct is the form, its schema in the API's document, and its documentation. The patterns in it are for readers and
generators: `short_form` checks the same rules and answers in sentences.
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


def _text(description: str, pattern: str = "", most: int = 0) -> Meta:
    rules: dict[str, Any] = {"pattern": f"^{pattern}$"} if pattern else {}
    return Meta(description=description, extra_json_schema=rules | ({"maxLength": most} if most else {}))


def _number(description: str, least: int, most: int) -> Meta:
    return Meta(description=description, extra_json_schema={"minimum": least, "maximum": most})


class TolerationForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Lets the pods onto nodes with a matching taint."""

    key: Annotated[str, Meta(description="empty, with `operator: Exists`: every taint")] = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Annotated[
        Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"], Meta(description="empty: every effect")
    ] = ""


class SubGroupForm(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Pods that start together or not at all; or, without `pods`, a part of the tree with other sub-groups in it."""

    name: Annotated[str, _text("unique in its workload", LABEL, MAX_NAME)]
    pods: Annotated[int, _number("how many equal pods; none: it holds other sub-groups", 0, MAX_PODS)] = 0
    min_pods: Annotated[int, _number("of these pods; all of them when left out", 1, MAX_PODS)] | UnsetType = UNSET
    parent: Annotated[str, _text("the sub-group that it is a part of", most=MAX_NAME)] = ""
    min_sub_groups: (
        Annotated[int, _number("so many of the parts inside it will do; all when left out", 1, MAX_SUB_GROUPS)]
        | UnsetType
    ) = UNSET
    leader: Annotated[bool, Meta(description="starts before the others, and goes last")] = False
    gpus: Annotated[int, _number("of each of these pods; as the workload when left out", 0, MAX_GPUS)] | UnsetType = (
        UNSET
    )
    cpu: Annotated[str | float, Meta(description="as the workload when left out")] | UnsetType = UNSET
    memory: Annotated[str | int, Meta(description="as the workload when left out")] | UnsetType = UNSET


class Submission(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A workload in short form: equal pods that start together."""

    api_version: Literal["kaiwo.ai/v1alpha2"] = "kaiwo.ai/v1alpha2"
    kind: Literal["Workload"] = "Workload"
    name: Annotated[str, _text("unique among living workloads of its namespace", NAME, MAX_NAME)]
    namespace: Annotated[str, _text("`default` when left out", LABEL, MAX_NAME)] | UnsetType = UNSET
    queue: Annotated[str, _text("`default` when left out", NAME, MAX_NAME)] | UnsetType = UNSET
    user: Annotated[str, _text("who it is for; the submitter when left out", most=253)] | UnsetType = UNSET
    type: Literal["training", "batch", "inference", "notebook"] = "batch"
    priority: (
        Annotated[int, _number("higher first; by type when left out", -MAX_PRIORITY, MAX_PRIORITY)] | UnsetType
    ) = UNSET
    gpus: Annotated[int, _number("whole GPUs of each pod", 0, MAX_GPUS)] = 0
    gpu_fraction: Annotated[str | float, Meta(description='a part of one GPU: "0.01" to "1"')] | UnsetType = UNSET
    gpu_memory: (
        Annotated[int | str, Meta(description=f'memory of one GPU: MiB up to {MAX_GPU_MIB}, or "16Gi"')] | UnsetType
    ) = UNSET
    gpu_devices: Annotated[int, _number("the fraction or memory on each of so many GPUs", 1, MAX_GPUS)] | UnsetType = (
        UNSET
    )
    gpu_models: Annotated[list[str], Meta(description='any of these, such as "MI300X"; empty: any')] = []
    gpu_partition: (
        Annotated[str, Meta(description='`gpus` counts partitions: "CPX", "CPX+NPS4", "any"')] | UnsetType
    ) = UNSET
    gpu_sharing: (
        Annotated[bool, Meta(description="others may come to the whole GPUs: it counts as half of each")] | UnsetType
    ) = UNSET
    gpu_isolation: (
        Annotated[str, Meta(description="of a share: mps, cu-mask or time-slicing; the best there is when left out")]
        | UnsetType
    ) = UNSET
    gpu_isolation_grade: (
        Annotated[str, Meta(description="the least that will do: memory-capped, cu-mask, mps or time-slicing")]
        | UnsetType
    ) = UNSET
    cpu: Annotated[str | float, Meta(description='cores of each pod: "4", "500m"')] = DEFAULT_CPU
    memory: Annotated[str | int, Meta(description='memory of each pod: "16Gi"')] = DEFAULT_MEMORY
    pods: Annotated[int, _number("how many equal pods", 1, MAX_PODS)] = 1
    min_pods: Annotated[int, _number("start with so many; all of them when left out", 1, MAX_PODS)] | UnsetType = UNSET
    sub_groups: Annotated[
        list[SubGroupForm],
        Meta(description="the pods, in place of `pods`: each sub-group starts whole"),
    ] = []
    min_sub_groups: (
        Annotated[int, _number("start with so many sub-groups; all when left out", 1, MAX_SUB_GROUPS)] | UnsetType
    ) = UNSET
    node_selector: Annotated[dict[str, str], Meta(description="labels that the node must have")] = {}
    tolerations: list[TolerationForm] = []
    command: Annotated[list[str], Meta(description="runs as a local process; without one the work is simulated")] = []
    image: Annotated[str, _text("a container image; its work is simulated here", most=1000)] = ""
    env: dict[str, str] = {}
    workdir: Annotated[str, _text("an absolute folder; the run's own when left out", most=4000)] = ""
    retries: Annotated[int, _number("how often it is started again after a failure", 0, MAX_RETRIES)] = 0
    array: (
        Annotated[str, Meta(description=f'one workload for each index: "0-9", "1,3,5"; at most {MAX_TASKS}')]
        | UnsetType
    ) = UNSET
    after: Annotated[
        list[str],
        Meta(description="must succeed first: `name` or `namespace/name` of a workload, or of an array: all its tasks"),
    ] = []
    hold: Annotated[bool, Meta(description="wait until it is released")] = False
    labels: dict[str, str] = {}
    simulate: Annotated[Duration, Meta(description="how long work without a command takes")] | UnsetType = UNSET


def _setting(field: WorkloadField) -> tuple[str, Any, Any]:
    described: Any = Annotated[READERS[field.kind].form_type, Meta(description=field.help)]
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
