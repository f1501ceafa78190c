"""Read upstream's KaiwoJob as one workload and its program.

As upstream documents it: without Ray it is one pod; with Ray, `gpus` in total are spread over as few pods as hold them,
and unlike there never more than `gpus`: 9 are a pod of 5 and one of 4;
`gpus`, `gpusPerReplica` and `gpuVendor` decide about GPUs, whatever the containers say; a job that has neither a
template nor resources gets 4 CPU and 32 GiB for each GPU.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.manifests.kinds.annotations import Annotations
from kaiwo.manifests.kinds.container_resources import Requirements, read_requirements
from kaiwo.manifests.kinds.job import MAX_PODS, JobPlan, read_job_spec, read_priority_settings, require_template
from kaiwo.manifests.kinds.object_metadata import (
    GpuTotal,
    ManifestObject,
    ManifestWork,
    ObjectSettings,
    build_workload,
    finish_metadata,
)
from kaiwo.manifests.kinds.pod_spec import RESTARTS, ObjectGpus, PodOverrides, read_env
from kaiwo.manifests.text.field_errors import show
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.values.gpu_model_names import read_vendor
from kaiwo.manifests.values.names import check_labels, read_level
from kaiwo.manifests.values.quantities import MAX_GPUS, MIB, read_duration_s, read_memory_bytes, to_mib
from kaiwo.model.amounts import count, memory
from kaiwo.model.gpus.gpu_models import GPU_MODELS, RESOURCE_VENDORS, VENDOR_MODELS
from kaiwo.model.request import ANY_PARTITION, Request
from kaiwo.model.workload import Role

GPUS_PER_NODE = 8  # what upstream learns from the cluster
SMALLER = "smaller"  # the role of the pods with one GPU less
CPU_MILLI_PER_GPU = 4000
MEMORY_PER_GPU = 32 << 30
MAX_TOTAL_GPUS = 100_000
_NOT_MOUNTED = ("storage", "secretVolumes", "imagePullSecrets")
_RAY_TEMPLATES = ("rayJob", "rayCluster", "rayService")


def read_kaiwojob(item: ManifestObject) -> ManifestWork:
    item.require_spec()
    spec = item.spec
    job = spec.inner("job")
    is_ray = _is_ray(spec)
    has_template = spec.has("job") and not is_ray
    total = None
    annotations = _read_annotations(item, job)
    size = _read_size(spec, is_ray)
    gpus = size.gpus
    resources, is_by_gpu = _read_resources(spec, gpus.whole, has_template)
    overrides = PodOverrides(resources, gpus, spec.text("entrypoint"), spec.text("image"), read_env(spec), "Never")
    if has_template:
        plan = _read_template(spec, job, annotations, overrides)
        roles: tuple[Role, ...] = (plan.role,)
    else:
        one_container = {"template": {"spec": {"containers": [{"name": "main"}]}}}
        fields = FieldReader(one_container, item.owner, item.warnings, "spec.job.spec")
        plan = read_job_spec(fields, annotations, 0, overrides)
        roles = _roles(plan.role.request, size, is_by_gpu)
        total = GpuTotal(size.total, is_by_gpu) if size.total and not plan.role.request.partition else None
    workload = build_workload(item, annotations, roles, _read_settings(item, job, plan))
    _warn_about_ignored_fields(spec, is_ray, size.pods + size.smaller_pods)
    spec.finish()
    item.finish()
    return ManifestWork(workload, plan.program, item.owner, total=total)


def _is_ray(spec: FieldReader) -> bool:
    for name in _RAY_TEMPLATES:
        spec.inner(name)  # it must be a mapping, although nothing in it is used
    return spec.flag("ray") or any(spec.has(name) for name in _RAY_TEMPLATES)


def _read_annotations(item: ManifestObject, job: FieldReader) -> Annotations:
    annotations = Annotations(item.owner)
    annotations.add(job.inner("spec").inner("template").inner("metadata"))
    annotations.add(job.inner("metadata"))
    annotations.add(item.metadata)
    return annotations


def _read_template(spec: FieldReader, job: FieldReader, annotations: Annotations, overrides: PodOverrides) -> JobPlan:
    require_template(job.inner("spec"))
    plan = read_job_spec(job.inner("spec"), annotations, RESTARTS, overrides)
    job.choice("apiVersion", ("batch/v1",))
    job.choice("kind", ("Job",))
    finish_metadata(job.inner("metadata"))
    job.skip("spec", "status")
    job.finish()
    if plan.role.count > 1 and spec.has("replicas"):
        spec.warn("replicas", "is not used: the job's parallelism counts")
    return plan


def _read_settings(item: ManifestObject, job: FieldReader, plan: JobPlan) -> ObjectSettings:
    spec = item.spec
    pod_spec = job.inner("spec").inner("template").inner("spec")
    class_field = next((name for name in ("workloadPriorityClass", "priorityClass") if spec.has(name)), "priorityClass")
    written = read_priority_settings(pod_spec)
    labels = spec.text_map("podTemplateSpecLabels")
    return ObjectSettings(
        queue=spec.text("clusterQueue") or spec.text("queue"),
        user=spec.text("user"),
        priority_class=spec.text(class_field) or written.priority_class,
        class_path=spec.path_of(class_field) if spec.has(class_field) else written.class_path,
        priority=written.priority,
        time_limit_s=spec.read("duration", read_duration_s, plan.time_limit_s),
        held=plan.held,
        levels={
            name: spec.read(field, read_level, "")
            for name, field in (
                ("required_level", "requiredTopologyLabel"),
                ("preferred_level", "preferredTopologyLabel"),
            )
            if spec.has(field)
        },
        labels=check_labels(labels, spec.path_of("podTemplateSpecLabels")),
    )


class _Size(NamedTuple):
    pods: int
    smaller_pods: int  # with one GPU less
    gpus: ObjectGpus  # of each of the `pods`
    total: int = 0  # GPUs that are divided over the pods; 0: each pod says its own


def _roles(request: Request, size: _Size, is_by_gpu: bool) -> tuple[Role, ...]:
    """One role of equal pods; where they cannot share the GPUs evenly, another one whose pods have one GPU less."""
    if not size.smaller_pods:
        return (Role(request, count=size.pods),)
    shares = (request.gpus,) * size.pods + (request.gpus - 1,) * size.smaller_pods
    return divided_roles(request, shares, is_by_gpu)


def divided_roles(request: Request, shares: Sequence[int], is_by_gpu: bool) -> tuple[Role, ...]:
    """A role for each size of pods, the largest first. `request` is that of a pod of any size."""
    roles = []
    for number, (gpus, pods) in enumerate(sorted(Counter(shares).items(), reverse=True)):
        each = replace(request, gpus=gpus)
        if is_by_gpu:
            each = replace(each, cpu_milli=gpus * CPU_MILLI_PER_GPU, memory_mib=to_mib(gpus * MEMORY_PER_GPU))
        name = Role(each).name if not number else SMALLER if number == 1 else f"{SMALLER}-{number}"
        roles.append(Role(each, name, count=pods))
    return tuple(roles)


def _read_size(spec: FieldReader, is_ray: bool) -> _Size:
    branch = spec.inner("gpuResources")
    models = spec.texts("gpuModels") or branch.texts("models")
    vendor = spec.read("gpuVendor", read_vendor, "") or branch.read("vendor", read_vendor, "")
    if not vendor and not models:
        vendor = "amd"
    if spec.value("replicas") == 0:
        raise spec.path_of("replicas").error("is 0, which asks for no pods; write at least 1")
    replicas = spec.integer("replicas", 1, 1, MAX_PODS)
    in_all = spec.integer("gpus", 0, 0, MAX_TOTAL_GPUS)
    each = spec.integer("gpusPerReplica", 0, 0, MAX_TOTAL_GPUS) or branch.integer("count", 0, 0, MAX_TOTAL_GPUS)
    given_each = each
    field = "spec.gpus" if in_all and not each else "spec.gpusPerReplica"
    memory_mib, devices = _read_total_memory(branch, vendor)
    is_partitioned = branch.flag("partitioned")
    if is_partitioned and memory_mib is not None:
        is_partitioned = False
        branch.warn("partitioned", "is not used with totalVram: memory comes from GPUs that are not partitioned")
    branch.finish()
    pods, smaller_pods = replicas if is_ray else 1, 0
    if is_ray and in_all and not (spec.has("replicas") and each):
        pods, smaller_pods, each = split_replicas(in_all)
    if replicas > 1 and not is_ray and not spec.has("job"):
        spec.warn("replicas", "is not used: without `ray: true` a KaiwoJob is one pod")
    partition = ANY_PARTITION if is_partitioned else ""
    given = ObjectGpus(each or in_all, field, vendor, models, memory_mib, devices, partition)
    is_divided = is_ray and in_all and not (spec.has("replicas") and given_each) and memory_mib is None
    return _Size(pods, smaller_pods, given, in_all if is_divided else 0)


class ReplicaSplit(NamedTuple):
    pods: int
    smaller_pods: int  # with one GPU less
    each: int


def split_replicas(gpus: int) -> ReplicaSplit:
    """The fewest pods that fit on a node each and have exactly these GPUs together, as equal as possible."""
    pods = -(-gpus // GPUS_PER_NODE)
    each = -(-gpus // pods)
    smaller_pods = pods * each - gpus
    return ReplicaSplit(pods - smaller_pods, smaller_pods, each)


def _read_total_memory(branch: FieldReader, vendor: str) -> tuple[int | None, int | None]:
    """Memory in total, as memory on each of the fewest devices that have it."""
    value, path = branch.value("totalVram"), branch.path_of("totalVram")
    if value is None:
        return None, None
    if isinstance(value, str) and value.startswith("($"):
        raise path.error(f"is {show(value)}, which is a template; fill it in first")
    size = read_memory_bytes(value, path)
    if size < MIB:
        raise path.error(f'is {show(value)}, which is less than 1 MiB; write "96Gi"')
    total_mib = to_mib(size)
    names = VENDOR_MODELS.get(vendor, tuple(GPU_MODELS))
    devices = -(-total_mib // max(GPU_MODELS[name].memory_mib for name in names))
    if devices > MAX_GPUS:
        raise path.error(f"is {show(value)}, which is more than {MAX_GPUS} GPUs have; ask for less")
    each_mib = -(-total_mib // devices)
    branch.warn("totalVram", f"is read as {memory(each_mib)} on each of {count(devices, 'device')}")
    return each_mib, devices


def _read_resources(spec: FieldReader, gpus: int, has_template: bool) -> tuple[Requirements, bool]:
    """What each pod asks for besides GPUs, and whether that follows from its number of GPUs."""
    requests, limits = read_requirements(spec)
    if any(name in RESOURCE_VENDORS for name in requests | limits):
        spec.warn("resources", "names GPUs, which are not used: gpus, gpusPerReplica and gpuVendor count")
    requests, limits = (
        {name: amount for name, amount in part.items() if name not in RESOURCE_VENDORS} for part in (requests, limits)
    )
    is_by_gpu = not requests and not limits and gpus > 0 and not has_template
    if is_by_gpu:
        requests = {"cpu": gpus * CPU_MILLI_PER_GPU, "memory": gpus * MEMORY_PER_GPU}
    return (requests, limits), is_by_gpu


def _warn_about_ignored_fields(spec: FieldReader, is_ray: bool, pods: int) -> None:
    spec.ignore("not mounted here", *_NOT_MOUNTED)
    spec.ignore("not used: the fields around it count", *_RAY_TEMPLATES)
    spec.flag("dangerous")
    spec.text("version")
    spec.skip("priorityClass", "workloadPriorityClass", "queue", "clusterQueue", "job")
    if is_ray:
        together = ": its worker pods are placed together" if pods > 1 else ""
        spec.warn("ray", f"starts no Ray head here{together}")
        spec.ignore("not used with Ray", "job")
