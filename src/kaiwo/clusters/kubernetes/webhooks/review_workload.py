"""Review a workload before it is created or changed, with the code that reads files for `kaiwo apply`.

The verdict contains defaults as a patch, warnings, or a refusal that says what to do. A mistake that existed before is
no reason to refuse a change.
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.checkpoint_annotations import checkpoint_annotation
from kaiwo.clusters.kubernetes.cache.progress_annotations import progress_annotation
from kaiwo.clusters.kubernetes.decode.pod_request import check_share_count, kubelet_field_names
from kaiwo.clusters.kubernetes.decode.workload_annotations import read_workload_settings
from kaiwo.clusters.kubernetes.gangs.metadata import MAX_PODS
from kaiwo.clusters.kubernetes.webhooks.admission_review import ALLOWED, AdmissionRequest, AdmissionVerdict, is_absent
from kaiwo.clusters.kubernetes.webhooks.submitting_user import Requester, WebhookPolicy
from kaiwo.clusters.kubernetes.webhooks.workload_defaults import (
    USER,
    default_workload,
    is_scheduled_by,
    keep_user,
    named_users,
)
from kaiwo.clusters.kubernetes.webhooks.workload_objects import (
    PodTemplate,
    Strings,
    WorkloadObject,
    mentions_kaiwo,
    read_workload_object,
    settings_of,
    whole_gpus,
)
from kaiwo.clusters.queue_access import check_priority, check_queue_access, check_shares
from kaiwo.manifests.kinds.annotations import OUR_PREFIX, Annotations, read_number
from kaiwo.manifests.kinds.key_table import RESERVED
from kaiwo.manifests.text.field_errors import FieldPath as Field
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.values.gpu_request import GpuRequest, resolve_gpus
from kaiwo.manifests.values.priorities import MAX_PRIORITY
from kaiwo.manifests.values.progress import read_progress_text
from kaiwo.manifests.values.timestamps import read_past_timestamp_s
from kaiwo.model.errors import ConfigError, RefusedError
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload

WRITTEN_BY_SCHEDULER = tuple(OUR_PREFIX + name for name in RESERVED)


def review_workload(
    request: AdmissionRequest, queues: Mapping[str, Queue], policy: WebhookPolicy, is_invited: bool
) -> AdmissionVerdict:
    work = _read(request, request.object)
    requester = request.user_info
    if request.operation == "UPDATE" and not is_absent(request.old_object):
        return _review_change(work, _read(request, request.old_object), request, queues, policy)
    defaults = default_workload(work, requester, queues, policy, is_invited)
    if not defaults.is_for_us:
        return ALLOWED
    found = check_workload(work, defaults.annotations, requester, queues, policy)
    return found if found.refusal else found._replace(patch=defaults.patch)


def _review_change(
    work: WorkloadObject,
    old: WorkloadObject,
    request: AdmissionRequest,
    queues: Mapping[str, Queue],
    policy: WebhookPolicy,
) -> AdmissionVerdict:
    """The settings of a workload may change; the annotation with the user who submitted it may not."""
    requester = request.user_info
    if not is_scheduled_by(work, policy.scheduler) and not mentions_kaiwo(work.metadata_layers):
        return ALLOWED
    user = old.annotations.get(USER, "")
    if user and work.annotations.get(USER, user) != user and not requester.may_submit_for(user, policy):
        refusal = f'{work.owner}: {USER} names the user who submitted it and cannot change; set it back to "{user}"'
        return AdmissionVerdict(refusal, reason="stamp")
    patch = keep_user(work, old)
    if settings_of(work) == settings_of(old):
        # A mistake that existed before is no reason to refuse another change.
        return AdmissionVerdict(patch=patch, warnings=tuple(program_warnings(work)))
    annotations = {USER: user} | work.annotations if user else work.annotations
    # The user who changes it need not be the one who submitted it, whose annotation stays.
    is_by_controller = requester.created_by_controller(work, policy)
    submitter = replace(requester, username=user) if user and not is_by_controller else requester
    found = check_workload(work, annotations, submitter, queues, policy, old.annotations)
    return found if found.refusal else found._replace(patch=patch)


def check_workload(
    work: WorkloadObject,
    annotations: Strings,
    requester: Requester,
    queues: Mapping[str, Queue],
    policy: WebhookPolicy,
    before: Strings | None = None,
) -> AdmissionVerdict:
    """A refusal with its reason, or warnings.

    `annotations`: those of the object, with defaults. `before`: those that it had before the change.
    """
    warnings: list[str] = []
    reason = "stamp"
    try:
        _check_reserved_annotations(work, requester, policy, before or {})
        reason = "gpu-request"
        own = [(annotations, work.metadata_layers[-1][1])]
        gpus: list[GpuRequest] = []
        for template in work.templates:
            layer = (template.annotations, template.labels)
            gpus.append(_check_gpus(work.owner, template, [*([] if work.is_pod else [layer]), *own], warnings))
        reason = "annotation"
        settings = read_workload_settings(work.owner, [*work.metadata_layers[:-1], *own], 0, False, queues.__contains__)
        warnings += program_warnings(work)
        reason = "queue"
        _check_queue(work, settings, requester, queues, policy, warnings)
        if settings.queue in queues and not requester.created_by_controller(work, policy):
            name = f"{work.namespace}/{work.metadata.get('name') or work.metadata.get('generateName', '')}"
            check_shares(queues, name, settings.queue, [Request(**each._asdict()) for each in gpus])
    except (ConfigError, RefusedError) as error:
        return AdmissionVerdict(str(error), reason=reason)
    return AdmissionVerdict(warnings=tuple(warnings))


def program_warnings(work: WorkloadObject) -> list[str]:
    """Programs write when they last saved their work, and how fast they are. A mistake there is only a warning."""
    warnings = []
    for key, text in filter(None, (progress_annotation(annotations) for annotations, _ in work.metadata_layers)):
        try:
            read_progress_text(text, Field(work.owner, key), "", 0)
        except ConfigError as error:
            warnings.append(f"{error}; until then it is ignored")
    for key, text in filter(None, (checkpoint_annotation(annotations) for annotations, _ in work.metadata_layers)):
        try:
            read_past_timestamp_s(text, Field(work.owner, key))
        except ConfigError as error:
            warnings.append(f"{error}; until then it is ignored")
    return warnings


def _check_reserved_annotations(
    work: WorkloadObject, requester: Requester, policy: WebhookPolicy, before: Strings
) -> None:
    """Refuse work in another user's name, and annotations that only the scheduler may write."""
    if requester.created_by_controller(work, policy):
        return
    for key, name in named_users(work):
        if not requester.may_submit_for(name, policy):
            mismatch = f'{work.owner}: {key} is "{name}", but {requester.username} submits it'
            raise ConfigError(f"{mismatch}; remove {key}, and Kaiwo sets it to your name")
    for key in WRITTEN_BY_SCHEDULER:
        if key in before and work.annotations.get(key) != before[key]:
            raise ConfigError(f"{work.owner}: {key} is written by the scheduler; do not change it")
        if key not in before and any(key in annotations for annotations, _ in work.metadata_layers):
            raise ConfigError(f"{work.owner}: {key} is written by the scheduler; remove it")


def _check_gpus(
    owner: str, template: PodTemplate, layers: list[tuple[Strings, Strings]], warnings: list[str]
) -> GpuRequest:
    """Check the GPU request of one pod template, with the annotations of its object, and the sizes of gangs."""
    annotations = Annotations(owner)
    for own, labels in layers:
        annotations.add(FieldReader({"annotations": own, "labels": labels}, owner, []))
    count, resource = whole_gpus(template)
    written = annotations.written_gpus(count, "", ())
    field_names = kubelet_field_names(annotations, resource)
    resolved = resolve_gpus(written, field_names, warnings)
    if count and (written.fraction_milli is not None or written.memory_mib is not None):
        check_share_count(owner, resource, count, resolved.gpus)
        asked = field_names.fraction if written.memory_mib is None else field_names.memory
        warnings.append(
            f"{owner}: it requests both {resource} and {asked}; the kubelet assigns whole GPUs, so it gets {count} "
            f"whole; remove {resource} to share"
        )
    for name in ("gang-size", "min-pods"):
        annotations.read(name, lambda value, where: read_number(value, where, 1, MAX_PODS), 1)
    return resolved


def _check_queue(
    work: WorkloadObject,
    settings: Workload,
    requester: Requester,
    queues: Mapping[str, Queue],
    policy: WebhookPolicy,
    warnings: list[str],
) -> None:
    """A queue that does not exist yet is a warning: the work waits for it. One that exists must take the work."""
    queue = settings.queue
    if queue not in queues:
        warnings.append(f"{work.owner}: queue {queue} does not exist; the work waits until it is created")
        return
    if any(other.parent == queue for other in queues.values()):
        warnings.append(f"{work.owner}: queue {queue} has child queues and takes no work; name one of those")
    name = f"{work.namespace}/{work.metadata.get('name') or work.metadata.get('generateName', '')}"
    is_by_controller = requester.created_by_controller(work, policy)
    knows_user = bool(settings.user) or not is_by_controller
    check_queue_access(queues, Workload(name, (), queue, settings.user), knows_user)
    try:
        check_priority(queues, replace(settings, name=name, class_priority=_most_of_class(work)))
    except RefusedError as error:
        if not is_by_controller:
            raise
        # Its owner was admitted before the maximum was set: without its pods it could never end.
        warnings.append(f"{error}; until then, its priority counts as the maximum")


def _most_of_class(work: WorkloadObject) -> int:
    """What its PriorityClass may be worth at most: only the scheduler, which holds to it, knows the classes."""
    return MAX_PRIORITY if any(template.spec.get("priorityClassName") for template in work.templates) else 0


def _read(request: AdmissionRequest, raw: msgspec.Raw) -> WorkloadObject:
    return read_workload_object(bytes(raw), request.kind.kind, request.kind.group, request.namespace)
