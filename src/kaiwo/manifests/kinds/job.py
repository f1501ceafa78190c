"""Read a Pod or a batch Job as one workload and its program.

The pods of a Job start together, unless there are more completions than may run at once, `kaiwo.ai/gang: "false"`
says otherwise, or a minimum is given.
"""

import msgspec

from kaiwo.manifests.kinds.annotations import KUEUE_GROUP, KUEUE_GROUP_SIZE, KUEUE_MINIMUM, Annotations, read_number
from kaiwo.manifests.kinds.object_metadata import (
    ManifestObject,
    ManifestWork,
    ObjectSettings,
    build_workload,
    finish_metadata,
)
from kaiwo.manifests.kinds.pod_spec import (
    NO_OVERRIDES,
    RESTARTS,
    PodOverrides,
    PodPlan,
    read_deadline_s,
    read_pod,
    require_containers,
)
from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.values.names import read_name
from kaiwo.manifests.values.setting_values import read_flag
from kaiwo.model.workload import Role
from kaiwo.model.workload_record import Program

MAX_PODS = 10_000
MAX_RETRIES = 1000
_JOB_IGNORED = (
    "ttlSecondsAfterFinished", "podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes",
    "podReplacementPolicy", "manualSelector", "selector", "managedBy",
)  # fmt: skip


class JobPlan(msgspec.Struct, frozen=True):
    pod: PodPlan
    role: Role
    program: Program
    time_limit_s: int
    held: bool


def read_pod_object(item: ManifestObject) -> ManifestWork:
    annotations = Annotations(item.owner)
    annotations.add(item.metadata)
    settings = read_priority_settings(item.spec)
    require_containers(item.spec)
    plan = read_pod(item.spec, annotations)
    settings = msgspec.structs.replace(settings, time_limit_s=plan.time_limit_s, held=plan.is_gated)
    workload = build_workload(item, annotations, (Role(plan.request),), settings)
    item.finish()
    gang, size = _read_gang(annotations)
    leads = annotations.read("leader", read_flag, False)
    if leads and not gang:
        raise annotations.path_of("leader").error("marks the leader of a gang, but no gang is named; add kaiwo.ai/gang")
    return ManifestWork(workload, plan.program, item.owner, gang, size, leads)


def read_job_object(item: ManifestObject) -> ManifestWork:
    annotations = Annotations(item.owner)
    if item.fields.has("spec"):
        require_template(item.spec)
    template = item.spec.inner("template")
    annotations.add(template.inner("metadata"))
    annotations.add(item.metadata)
    settings = read_priority_settings(template.inner("spec"))
    plan = read_job_spec(item.spec, annotations, default_retries=RESTARTS)
    settings = msgspec.structs.replace(settings, time_limit_s=plan.time_limit_s, held=plan.held)
    workload = build_workload(item, annotations, (plan.role,), settings)
    item.finish()
    return ManifestWork(workload, plan.program, item.owner)


def read_job_spec(
    spec: FieldReader, annotations: Annotations, default_retries: int, overrides: PodOverrides = NO_OVERRIDES
) -> JobPlan:
    """The spec of a Job, alone or inside a KaiwoJob."""
    template = spec.inner("template")
    if template.has("spec"):
        require_containers(template.inner("spec"))
    pod = read_pod(template.inner("spec"), annotations, overrides)
    count = _read_count(spec)
    role = Role(pod.request, count=count, minimum=_read_minimum(spec, annotations, count))
    retries = spec.integer("backoffLimit", default_retries, 0, (1 << 31) - 1)
    program = msgspec.structs.replace(pod.program, retries=min(retries, MAX_RETRIES))
    is_held = spec.flag("suspend") or pod.is_gated
    plan = JobPlan(pod, role, program, read_deadline_s(spec, pod.time_limit_s), is_held)
    spec.choice("completionMode", ("Indexed", "NonIndexed"))
    spec.ignore("not used here: ended work is kept and can be submitted again", *_JOB_IGNORED)
    finish_metadata(template.inner("metadata"))
    template.skip("spec")
    template.finish()
    spec.finish()
    return plan


def require_template(spec: FieldReader) -> None:
    """Refuse a Job's spec without a template. Examples in documentation may give only the template's `metadata`."""
    if not spec.inner("template").names():
        fact = "is empty" if spec.has("template") else "is missing"
        raise spec.path_of("template").error(f"{fact}; write the pods' spec with their containers below it")


def read_priority_settings(spec: FieldReader) -> ObjectSettings:
    return ObjectSettings(
        priority_class=spec.text("priorityClassName"),
        class_path=spec.path_of("priorityClassName"),
        priority=spec.integer("priority", 0, -(1 << 31), 2_000_001_000) if spec.has("priority") else None,
    )


def _read_gang(annotations: Annotations) -> tuple[str, int]:
    name = annotations.read("gang", read_name, "")
    if not name and (group := annotations.labels.get(KUEUE_GROUP)):
        name = read_name(group, FieldPath(annotations.owner, KUEUE_GROUP))
    size = 0
    for field in (KUEUE_GROUP_SIZE, "gang-size"):
        size = annotations.read(field, lambda value, path: read_number(value, path, 1, MAX_PODS), size)
    if size and not name:
        fact = "counts the pods of a gang, but no gang is named"
        raise annotations.path_of("gang-size").error(f"{fact}; add kaiwo.ai/gang")
    return name, size


def _read_count(spec: FieldReader) -> int:
    for name in ("parallelism", "completions"):
        if spec.value(name) == 0:
            hint = ", or write `suspend: true` to hold it" if name == "parallelism" else ""
            raise spec.path_of(name).error(f"is 0, which asks for no pods; write at least 1{hint}")
    parallelism = spec.integer("parallelism", 1, 1, MAX_PODS)
    completions = spec.integer("completions", parallelism, 1, MAX_PODS)
    if completions > parallelism > 1:
        spec.warn("parallelism", f"is not a cap here: up to {completions} pods run at once when there is room")
    return completions


def _read_minimum(spec: FieldReader, annotations: Annotations, count: int) -> int:
    """How many pods must fit before any starts; -1: all of them."""
    for name in ("min-pods", KUEUE_MINIMUM):
        asked = annotations.read(name, lambda value, path: read_number(value, path, 1, count), 0)
        if asked:
            return -1 if asked == count else asked
    together = annotations.read("gang", read_flag, spec.integer("parallelism", 1, 1, MAX_PODS) >= count)
    return -1 if together or count == 1 else 1
