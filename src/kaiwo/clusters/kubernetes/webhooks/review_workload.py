"""Whether what work says of itself makes sense: the readers of `kaiwo apply`, before it is stored.

In:    one object with its annotations.   Out: one sentence with the way out, or nothing; and warnings.

Also: One answer for one question of the API server.
"""

from collections.abc import Mapping

import msgspec

from kaiwo.clusters.kubernetes.cache.checkpoint_annotations import checkpoint_annotation
from kaiwo.clusters.kubernetes.decode.pod_request import check_beside, kubelet_words
from kaiwo.clusters.kubernetes.decode.workload_annotations import read_workload_settings
from kaiwo.clusters.kubernetes.gangs.metadata import MOST_PODS
from kaiwo.clusters.kubernetes.webhooks.admission_review import PASS, AdmissionRequest, Verdict, is_nothing
from kaiwo.clusters.kubernetes.webhooks.submitting_user import House, Person, person_of
from kaiwo.clusters.kubernetes.webhooks.workload_defaults import USER, default_work, is_for, keep_stamp, named_users
from kaiwo.clusters.kubernetes.webhooks.workload_objects import (
    Place,
    Texts,
    Work,
    names_kaiwo,
    read_work,
    whole_gpus,
    words_of,
)
from kaiwo.clusters.queue_access import check_queue_access
from kaiwo.manifests.kinds.annotations import OUR_PREFIX, SCHEDULER_ANNOTATIONS, Annotations, read_number
from kaiwo.manifests.text.field_errors import FieldPath as Field
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.values.gpu_request import resolve_gpus
from kaiwo.manifests.values.timestamps import read_past_timestamp_s
from kaiwo.model.errors import ConfigError, RefusedError
from kaiwo.model.queue import Queue
from kaiwo.model.workload import Workload

# An object that somebody copied from a cluster may carry the others.
NOT_FOR_PEOPLE = tuple(
    OUR_PREFIX + name for name in ("granted-devices", "kept-space", "planned-start", "planned-place", "fills-until")
)
assert all(key.removeprefix(OUR_PREFIX) in SCHEDULER_ANNOTATIONS for key in NOT_FOR_PEOPLE)


def check_work(
    work: Work, notes: Texts, person: Person, queues: Mapping[str, Queue], house: House, before: Texts | None = None
) -> Verdict:
    """The refusal with its reason, or nothing, and warnings.

    `notes`: the object's own annotations with the defaults. `before`: those that it had, if it is not new.
    """
    warnings: list[str] = []
    reason = "stamp"
    try:
        _check_stamps(work, person, house, before or {})
        reason = "gpu-request"
        said = [(notes, work.said[-1][1])]
        for place in work.places:
            pair = (place.notes, place.labels)
            _check_gpus(work.owner, place, [*([] if work.is_pod else [pair]), *said], warnings)
        reason = "annotation"
        wishes = read_workload_settings(work.owner, [*work.said[:-1], *said], 0, False, queues.__contains__)
        warnings += saved_warnings(work)
        reason = "queue"
        _check_queue(work, wishes, person, queues, warnings)
    except (ConfigError, RefusedError) as error:
        return Verdict(str(error), reason=reason)
    return Verdict(warnings=tuple(warnings))


def saved_warnings(work: Work) -> list[str]:
    """Programs write when they last saved their work. A slip is told, and is no reason to refuse anything."""
    warnings = []
    for key, text in filter(None, (checkpoint_annotation(notes) for notes, _ in work.said)):
        try:
            read_past_timestamp_s(text, Field(work.owner, key))
        except ConfigError as error:
            warnings.append(f"{error}; until then it is ignored")
    return warnings


def _check_stamps(work: Work, person: Person, house: House, before: Texts) -> None:
    """Nobody brings work in another's name, and nobody grants himself devices."""
    if person.is_controller_of(work):
        return
    for key, name in named_users(work):
        if not person.may_name(name, house):
            raise ConfigError(
                f'{work.owner}: {key} is "{name}", but {person.name} brings it; leave it out, and your name is written '
                "there"
            )
    for key in NOT_FOR_PEOPLE:
        if key in before and work.notes.get(key) != before[key]:
            raise ConfigError(f"{work.owner}: {key} is written by the scheduler; leave it as it is")
        if key not in before and any(key in notes for notes, _ in work.said):
            raise ConfigError(f"{work.owner}: {key} is written by the scheduler; remove it")


def _check_gpus(owner: str, place: Place, said: list[tuple[Texts, Texts]], warnings: list[str]) -> None:
    """Annotations of one pod, with those of the object above it: slips, contradictions, sizes of gangs."""
    annotations = Annotations(owner)
    for notes, labels in said:
        annotations.add(FieldReader({"annotations": notes, "labels": labels}, owner, []))
    count, resource = whole_gpus(place)
    wish = annotations.written_gpus(count, "", ())
    words = kubelet_words(annotations, resource)
    settled = resolve_gpus(wish, words, warnings)
    if count and (wish.fraction_milli is not None or wish.memory_mib is not None):
        check_beside(owner, resource, count, settled.gpus)
        asked = words.fraction if wish.memory_mib is None else words.memory
        warnings.append(
            f"{owner}: {resource} stands beside {asked}, and the kubelet hands out whole GPUs: it gets {count} whole; "
            f"remove {resource} to share"
        )
    for name in ("gang-size", "min-pods"):
        annotations.read(name, lambda value, where: read_number(value, where, 1, MOST_PODS), 1)


def _check_queue(
    work: Work, wishes: Workload, person: Person, queues: Mapping[str, Queue], warnings: list[str]
) -> None:
    """A queue that is not there yet may come: the work waits for it. One that is there must want it."""
    queue = wishes.queue
    if queue not in queues:
        warnings.append(f"{work.owner}: queue {queue} does not exist; it waits until somebody creates it")
        return
    if any(other.parent == queue for other in queues.values()):
        warnings.append(f"{work.owner}: queue {queue} has child queues and takes no work itself; name one of those")
    name = f"{work.namespace}/{work.metadata.get('name') or work.metadata.get('generateName', '')}"
    knows_user = bool(wishes.user) or not person.is_controller_of(work)
    check_queue_access(queues, Workload(name, (), queue, wishes.user), knows_user)


def judge_work(request: AdmissionRequest, queues: Mapping[str, Queue], house: House, is_invited: bool) -> Verdict:
    """Work that comes or changes."""
    work = _read(request, request.object)
    person = person_of(request.user_info)
    if request.operation == "UPDATE" and not is_nothing(request.old_object):
        return _judge_change(work, _read(request, request.old_object), request, queues, house)
    defaults = default_work(work, person, queues, house, is_invited)
    if not defaults.is_for_us:
        return PASS
    found = check_work(work, defaults.notes, person, queues, house)
    return found if found.refusal else found._replace(patch=defaults.patch)


def _judge_change(
    work: Work, old: Work, request: AdmissionRequest, queues: Mapping[str, Queue], house: House
) -> Verdict:
    """What it says of itself may change, who brought it may not."""
    person = person_of(request.user_info)
    if not is_for(work, house.scheduler) and not names_kaiwo(work.said):
        return PASS
    stamp = old.notes.get(USER, "")
    if stamp and work.notes.get(USER, stamp) != stamp and not person.may_name(stamp, house):
        return Verdict(f'{work.owner}: {USER} says who brought it, "{stamp}", and stays as it is', reason="stamp")
    patch = keep_stamp(work, old)
    if words_of(work) == words_of(old):
        # What was wrong before is no reason to refuse a change of something else.
        return Verdict(patch=patch, warnings=tuple(saved_warnings(work)))
    notes = {USER: stamp} | work.notes if stamp else work.notes
    # Whoever changes it need not be who brought it: the stamp that was there is not his word.
    known = person._replace(name=stamp) if stamp and not person.is_controller_of(work) else person
    found = check_work(work, notes, known, queues, house, old.notes)
    return found if found.refusal else found._replace(patch=patch)


def _read(request: AdmissionRequest, raw: msgspec.Raw) -> Work:
    return read_work(bytes(raw), request.kind.kind, request.kind.group, request.namespace)
