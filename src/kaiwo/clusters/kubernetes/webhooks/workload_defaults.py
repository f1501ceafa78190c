"""Fill in the defaults of a workload: the scheduler's name, its queue, the user who submits it, and where its pods
find their ranks.

Never changes a workload that neither asks for Kaiwo itself nor is in a namespace that does.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kaiwo.clusters.kubernetes.webhooks.admission_review import PatchStep
from kaiwo.clusters.kubernetes.webhooks.rank_files import add_rank_files
from kaiwo.clusters.kubernetes.webhooks.submitting_user import Requester, WebhookPolicy
from kaiwo.clusters.kubernetes.webhooks.workload_objects import (
    BUILT_IN,
    DEFAULT_SCHEDULER,
    Json,
    PodTemplate,
    Strings,
    WorkloadObject,
    mentions_kaiwo,
)
from kaiwo.clusters.queue_access import queues_of_namespaces
from kaiwo.manifests.kinds.annotations import KUEUE_QUEUE, OUR_PREFIX, UPSTREAM_PREFIX
from kaiwo.model.queue import DEFAULT_QUEUE, Queue

QUEUE, USER = OUR_PREFIX + "queue", OUR_PREFIX + "user"


class AppliedDefaults(NamedTuple):
    patch: tuple[PatchStep, ...] = ()
    annotations: Strings = {}  # the object's annotations as they will be
    is_for_us: bool = False


def default_workload(
    work: WorkloadObject, requester: Requester, queues: Mapping[str, Queue], policy: WebhookPolicy, is_invited: bool
) -> AppliedDefaults:
    """`is_invited`: the namespace sends all its work to Kaiwo."""
    claimed = [template for template in work.templates if _is_claimed(work, template, is_invited)]
    if not claimed and not is_scheduled_by(work, policy.scheduler):
        return AppliedDefaults(annotations=work.annotations)
    patch = [_add(f"{template.path}/spec/schedulerName", policy.scheduler) for template in claimed]
    added: Strings = {}
    if not requester.created_by_controller(work, policy):
        if not names_queue(work):
            added[QUEUE] = queue_of(work.namespace, queues)
        if not named_users(work):
            added[USER] = requester.username
    patch += annotate("/metadata", work.metadata, added)
    if not work.is_pod and work.group in BUILT_IN and USER in added:
        for template in work.templates:  # the owners of a Deployment's pods are not followed
            patch += annotate(f"{template.path}/metadata", template.metadata, {USER: added[USER]})
    patch += add_rank_files(work)
    return AppliedDefaults(tuple(patch), work.annotations | added, True)


def keep_user(work: WorkloadObject, old: WorkloadObject) -> tuple[PatchStep, ...]:
    """Restore the user who submitted it, when the whole object was replaced without that annotation."""
    user = old.annotations.get(USER)
    return () if user is None or USER in work.annotations else tuple(annotate("/metadata", work.metadata, {USER: user}))


def is_scheduled_by(work: WorkloadObject, scheduler: str) -> bool:
    return any(template.scheduler == scheduler for template in work.templates)


def names_queue(work: WorkloadObject) -> bool:
    return any(
        annotations.get(prefix + "queue") or labels.get(OUR_PREFIX + "queue") or labels.get(KUEUE_QUEUE)
        for annotations, labels in work.metadata_layers
        for prefix in (OUR_PREFIX, UPSTREAM_PREFIX)
    )


def queue_of(namespace: str, queues: Mapping[str, Queue]) -> str:
    """The only leaf queue for this namespace; if there is none or more than one, the default queue."""
    return queues_of_namespaces(queues).get(namespace, DEFAULT_QUEUE)


def named_users(work: WorkloadObject) -> list[tuple[str, str]]:
    keys = (USER, UPSTREAM_PREFIX + "user")
    return [(key, annotations[key]) for annotations, _ in work.metadata_layers for key in keys if annotations.get(key)]


def annotate(path: str, metadata: Json | None, added: Strings) -> list[PatchStep]:
    """Add annotations, whether the object has some, none, or no metadata at all."""
    if not added:
        return []
    if metadata is None:
        return [_add(path, {"annotations": added})]
    if metadata.get("annotations") is None:
        return [_add(f"{path}/annotations", added)]
    return [_add(f"{path}/annotations/{key.replace('/', '~1')}", value) for key, value in added.items()]


def _is_claimed(work: WorkloadObject, template: PodTemplate, is_invited: bool) -> bool:
    """Whether it names no scheduler of its own, and is meant for Kaiwo."""
    if template.scheduler not in ("", DEFAULT_SCHEDULER) or template.spec.get("nodeName"):
        return False
    if work.kind == "DaemonSet" or work.controller.get("kind") == "DaemonSet":
        return False  # it runs on every node, for the cluster itself
    return is_invited or mentions_kaiwo(work.metadata_layers)


def _add(path: str, value: object) -> PatchStep:
    return {"op": "add", "path": path, "value": value}
