"""What work gets that did not say it: our scheduler, its queue, and who brought it.

In:    one object, who asks, the queues.   Out: the steps of a JSON patch, and the annotations as they will be.
Never: touches work that did not ask for Kaiwo and is in no namespace that did.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kaiwo.clusters.kubernetes.webhooks.admission_review import Step
from kaiwo.clusters.kubernetes.webhooks.submitting_user import House, Person
from kaiwo.clusters.kubernetes.webhooks.workload_objects import (
    BUILT_IN,
    DEFAULT_SCHEDULER,
    Json,
    Place,
    Texts,
    Work,
    names_kaiwo,
)
from kaiwo.manifests.kinds.annotations import KUEUE_QUEUE, OUR_PREFIX, UPSTREAM_PREFIX
from kaiwo.model.queue import DEFAULT_QUEUE, Queue

QUEUE, USER = OUR_PREFIX + "queue", OUR_PREFIX + "user"


class Defaults(NamedTuple):
    """What is added."""

    patch: tuple[Step, ...] = ()
    notes: Texts = {}  # the object's annotations as they will be
    is_for_us: bool = False


def default_work(work: Work, person: Person, queues: Mapping[str, Queue], house: House, is_invited: bool) -> Defaults:
    """`is_invited`: the namespace sends all its work to us."""
    taken = [place for place in work.places if _is_taken(work, place, is_invited)]
    if not taken and not is_for(work, house.scheduler):
        return Defaults(notes=work.notes)
    patch = [_add(f"{place.path}/spec/schedulerName", house.scheduler) for place in taken]
    notes: Texts = {}
    if not person.is_controller_of(work):
        if not says_queue(work):
            notes[QUEUE] = queue_of(work.namespace, queues)
        if not named_users(work):
            notes[USER] = person.name
    patch += annotate("/metadata", work.metadata, notes)
    if not work.is_pod and work.group in BUILT_IN and USER in notes:
        for place in work.places:  # the pods of a Deployment have an owner that we do not follow
            patch += annotate(f"{place.path}/metadata", place.metadata, {USER: notes[USER]})
    return Defaults(tuple(patch), work.notes | notes, True)


def keep_stamp(work: Work, old: Work) -> tuple[Step, ...]:
    """Whoever replaces the whole object does not mean to forget who brought it."""
    stamp = old.notes.get(USER)
    return () if stamp is None or USER in work.notes else tuple(annotate("/metadata", work.metadata, {USER: stamp}))


def is_for(work: Work, scheduler: str) -> bool:
    """Some of its pods name this scheduler."""
    return any(place.scheduler == scheduler for place in work.places)


def says_queue(work: Work) -> bool:
    """It names its queue in one of the ways that count."""
    return any(
        notes.get(prefix + "queue") or labels.get(OUR_PREFIX + "queue") or labels.get(KUEUE_QUEUE)
        for notes, labels in work.said
        for prefix in (OUR_PREFIX, UPSTREAM_PREFIX)
    )


def queue_of(namespace: str, queues: Mapping[str, Queue]) -> str:
    """The one leaf that is for this namespace; where there is none or a choice, the default queue."""
    parents = {queue.parent for queue in queues.values()}
    found = [name for name, queue in queues.items() if namespace in queue.namespaces and name not in parents]
    return found[0] if len(found) == 1 else DEFAULT_QUEUE


def named_users(work: Work) -> list[tuple[str, str]]:
    """Every annotation that says whose work it is, with the name."""
    keys = (USER, UPSTREAM_PREFIX + "user")
    return [(key, notes[key]) for notes, _ in work.said for key in keys if notes.get(key)]


def annotate(path: str, metadata: Json | None, notes: Texts) -> list[Step]:
    """Add annotations to what has some, none, or not even metadata."""
    if not notes:
        return []
    if metadata is None:
        return [_add(path, {"annotations": notes})]
    if metadata.get("annotations") is None:
        return [_add(f"{path}/annotations", notes)]
    return [_add(f"{path}/annotations/{key.replace('/', '~1')}", value) for key, value in notes.items()]


def _is_taken(work: Work, place: Place, is_invited: bool) -> bool:
    """It left the choice of a scheduler open, and is meant for us."""
    if place.scheduler not in ("", DEFAULT_SCHEDULER) or place.spec.get("nodeName"):
        return False
    if work.kind == "DaemonSet" or work.controller.get("kind") == "DaemonSet":
        return False  # what runs on every node belongs to the cluster
    return is_invited or names_kaiwo(work.said)


def _add(path: str, value: object) -> Step:
    return {"op": "add", "path": path, "value": value}
