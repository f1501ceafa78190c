"""Read a pod's spec: what it asks for and what it runs.

In:    the spec of a Pod or of a pod template, and the annotations around it.   Out: a Request and a Program.
A command becomes a local process only where `kaiwo.ai/run-locally: "true"` says so: an image's command means nothing
outside its image. All other work takes simulated time.
Fields that change nothing here are checked too: any cluster would refuse what breaks the rules of Kubernetes.
"""

from typing import NamedTuple

from kaiwo.manifests.kinds.annotations import Annotations
from kaiwo.manifests.kinds.container_resources import Amounts, Requirements, pod_amounts
from kaiwo.manifests.kinds.node_affinity import read_node_rules, read_tolerations
from kaiwo.manifests.text.field_errors import FieldPath, show
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.values import quantities
from kaiwo.manifests.values.gpu_request import SHARE_RESOURCE, resolve_gpus
from kaiwo.manifests.values.names import check_command, check_env, read_container_name, read_name
from kaiwo.manifests.values.setting_values import read_flag
from kaiwo.model.gpus.gpu_models import RESOURCE_VENDORS
from kaiwo.model.request import Request
from kaiwo.model.workload_record import Program

SCHEDULERS = ("kaiwo-scheduler", "default-scheduler")  # ours, and the default of a cluster
MAX_GRACE_S = (1 << 31) - 1
DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")


def read_deadline_s(spec: FieldReader, default: int) -> int:
    """`activeDeadlineSeconds`: a number of seconds, and nothing else, as in Kubernetes."""
    return spec.integer("activeDeadlineSeconds", default, 1, quantities.MAX_DURATION_S)


def require_containers(spec: FieldReader) -> None:
    """Refuse a pod's spec without containers, or with containers whose names are missing or not unique."""
    containers = spec.items("containers")
    every = [*containers, *spec.items("initContainers")]
    names = [container.read("name", read_container_name, "") for container in every]
    for container, name in zip(every, names, strict=True):
        if not name or names.count(name) > 1:
            fact = "appears twice" if name else "is missing"
            raise container.path_of("name").error(f"{fact}; give each container a name of its own, such as main")
    if not containers:
        fact = "is empty" if spec.has("containers") else "is missing"
        way_out = "a pod needs a container, such as - {name: main, image: train}"
        raise spec.path_of("containers").error(f"{fact}; {way_out}")


RESTARTS = 6  # how often Kubernetes retries a Job's pod by default
RESTART_POLICIES = {"Never": 0, "OnFailure": RESTARTS, "Always": RESTARTS}
NOT_RUN = "not used here: work with an image takes simulated time"
_POD_IGNORED = (
    "volumes", "imagePullSecrets", "securityContext", "serviceAccountName", "serviceAccount",
    "automountServiceAccountToken", "hostNetwork", "hostPID", "hostIPC", "hostUsers", "hostname", "subdomain",
    "hostAliases", "dnsConfig", "runtimeClassName", "readinessGates", "setHostnameAsFQDN", "shareProcessNamespace",
    "os", "preemptionPolicy", "ephemeralContainers", "hostnameOverride", "workloadRef", "schedulingGroup", "nodeName",
    "overhead",
)  # fmt: skip
_CONTAINER_IGNORED = (
    "imagePullPolicy", "volumeMounts", "volumeDevices", "ports", "securityContext", "livenessProbe", "readinessProbe",
    "startupProbe", "lifecycle", "terminationMessagePath", "terminationMessagePolicy", "stdin", "stdinOnce", "tty",
    "envFrom", "resizePolicy", "restartPolicyRules",
)  # fmt: skip


class ObjectGpus(NamedTuple):
    """GPUs that an object asks for outside its containers; they replace the containers' own."""

    whole: int
    field: str
    vendor: str
    models: tuple[str, ...] = ()
    memory_mib: int | None = None  # on each of `devices`
    devices: int | None = None
    partition: str = ""


class PodOverrides(NamedTuple):
    """What the object around a pod adds to it."""

    resources: Requirements = ({}, {})  # for what a container does not request
    gpus: ObjectGpus | None = None
    entrypoint: str = ""  # runs instead of the first container's command
    image: str = ""  # of a container that names none
    env: dict[str, str] = {}
    restart: str = "Always"


NO_OVERRIDES = PodOverrides()


class PodPlan(NamedTuple):
    request: Request
    program: Program
    time_limit_s: int
    is_gated: bool


def read_pod(spec: FieldReader, annotations: Annotations, overrides: PodOverrides = NO_OVERRIDES) -> PodPlan:
    if spec.has("resourceClaims"):
        fact = "asks for device claims, which are not supported"
        raise spec.path_of("resourceClaims").error(f"{fact}; ask with amd.com/gpu")
    request = _build_request(spec, annotations, pod_amounts(spec, overrides.resources), overrides.gpus)
    program = _read_program(spec, annotations, overrides)
    limit_s = read_deadline_s(spec, 0)
    _check_unused_fields(spec)
    gated = bool(spec.items("schedulingGates"))
    spec.ignore("not used yet: only node rules and taints are", "topologySpreadConstraints")
    spec.ignore(NOT_RUN, *_POD_IGNORED)
    spec.skip("resourceClaims", "priority", "priorityClassName", "resources", "status")
    spec.finish()
    return PodPlan(request, program, limit_s, gated)


def _check_unused_fields(spec: FieldReader) -> None:
    scheduler = spec.read("schedulerName", read_name, SCHEDULERS[0])
    if scheduler not in SCHEDULERS:
        spec.warn("schedulerName", f"names {show(scheduler)}, but Kaiwo schedules whatever is submitted here")
    spec.integer("terminationGracePeriodSeconds", 0, 0, MAX_GRACE_S)
    spec.flag("enableServiceLinks")
    spec.choice("dnsPolicy", DNS_POLICIES)


def read_env(owner: FieldReader) -> dict[str, str]:
    """`env` as Kubernetes writes it. Values from secrets and other objects are left out, with a warning."""
    env: dict[str, str] = {}
    elsewhere = 0
    for item in owner.items("env"):
        name = item.text("name")
        if item.inner("valueFrom").names():
            elsewhere += 1
        else:
            env[name] = item.text("value")
        if item.has("valueFrom") and item.text("value"):
            fact = "and value are both set, and a variable has only one of them"
            raise item.path_of("valueFrom").error(f"{fact}; remove one")
        item.finish()
    if elsewhere:
        owner.warn("env", f"takes {elsewhere} of its values from secrets or other objects, which are not set here")
    return check_env(env, owner.path_of("env"))


def _build_request(spec: FieldReader, annotations: Annotations, amounts: Amounts, gpus: ObjectGpus | None) -> Request:
    named = {name: amounts[name] for name in RESOURCE_VENDORS if amounts.get(name)}
    if gpus is None or (named and not gpus.whole and gpus.memory_mib is None):
        gpus = _container_gpus(named, annotations.owner, gpus.models if gpus else ())
    elif named and gpus.whole not in named.values():
        spec.warnings.append(f"{spec.owner}: {gpus.field} counts, not the GPUs that the containers ask for")
    if gpus.whole > quantities.MAX_GPUS:
        fact = f"asks for {gpus.whole} GPUs in one pod and the maximum is {quantities.MAX_GPUS}"
        raise FieldPath(spec.owner, gpus.field).error(f"{fact}; spread them over more pods")
    written = annotations.written_gpus(gpus.whole, gpus.vendor, gpus.models)
    if gpus.memory_mib is not None:
        written = written._replace(memory_mib=gpus.memory_mib, devices=gpus.devices)
    elif gpus.partition and not written.partition:
        written = written._replace(partition=gpus.partition)
    models_field = "spec.gpuModels" if gpus.models else annotations.path_of("gpu-models").field
    gpu = resolve_gpus(written, annotations.gpu_field_names(gpus.field, models_field), spec.warnings)
    cpu_milli, memory_mib = amounts.get("cpu", 0), quantities.to_mib(amounts.get("memory", 0))
    if cpu_milli > quantities.MAX_CPU_MILLI or memory_mib > quantities.MAX_MEMORY_MIB:
        raise spec.path_of("containers").error("ask for too much together; lower their requests")
    counted = (*RESOURCE_VENDORS, SHARE_RESOURCE, "cpu", "memory")
    extended = sorted((name, amount) for name, amount in amounts.items() if amount and name not in counted)
    return Request(
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        **gpu._asdict(),
        extended=tuple(extended),
        node_rules=read_node_rules(spec),
        tolerations=read_tolerations(spec),
    )


def _container_gpus(named: Amounts, owner: str, models: tuple[str, ...]) -> ObjectGpus:
    if len(named) > 1:
        fact = "are both requested, but one pod runs on one vendor's GPUs"
        raise FieldPath(owner, " and ".join(named)).error(f"{fact}; keep one")
    for resource, count in named.items():
        return ObjectGpus(count, resource, RESOURCE_VENDORS[resource], models)
    return ObjectGpus(0, "amd.com/gpu", "", models)


def _read_program(spec: FieldReader, annotations: Annotations, overrides: PodOverrides) -> Program:
    containers = spec.items("containers")
    if not containers:
        spec.warn("containers", "is missing: the pod requests nothing and runs nothing")
    programs = [_read_container(item) for item in containers]
    for item in spec.items("initContainers"):
        _read_container(item)
    policy = spec.choice("restartPolicy", RESTART_POLICIES, overrides.restart)
    if spec.value("restartPolicy") == "Always":
        spec.warn("restartPolicy", f"is read as: start again up to {RESTARTS} times after a failure")
    first = programs[0] if programs else Program()
    command = ("/bin/sh", "-c", overrides.entrypoint) if overrides.entrypoint else first.command
    locally = annotations.read("run-locally", read_flag, False)
    if locally and not command:
        fact = 'is "true", but there is no command to run'
        raise annotations.path_of("run-locally").error(f"{fact}; add one to the container")
    if locally and len(programs) > 1:
        spec.warn("containers", "has several containers, and only the first one's command is run")
    if locally and first.workdir and not first.workdir.startswith("/"):
        raise spec.path_of("containers[0].workingDir").error("must be an absolute path; start it with /")
    if command and not locally:
        spec.warnings.append(
            f"{spec.owner}: its command is not run, the work takes simulated time; to run it as a process on this "
            'machine add the annotation kaiwo.ai/run-locally: "true"'
        )
    return Program(
        command=check_command(command, spec.path_of("command")) if locally else (),
        image=first.image or overrides.image,
        env=first.env | overrides.env,
        workdir=first.workdir if locally else "",
        simulated_s=annotations.read("simulate", quantities.read_duration_s, 0),
        retries=RESTART_POLICIES[policy],
    )


def _read_container(item: FieldReader) -> Program:
    program = Program(
        command=(*item.texts("command"), *item.texts("args")),
        image=item.text("image"),
        env=read_env(item),
        workdir=item.text("workingDir"),
    )
    item.choice("restartPolicy", RESTART_POLICIES)
    item.skip("name", "resources")
    item.ignore(NOT_RUN, *_CONTAINER_IGNORED)
    item.finish()
    return program
