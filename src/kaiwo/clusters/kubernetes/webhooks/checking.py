"""Whether what work says of itself makes sense: the readers of `kaiwo apply`, before it is stored.

In:    one object with its annotations.   Out: one sentence with the way out, or nothing; and warnings.
"""

from collections.abc import Mapping

from kaiwo.clusters.admission import check_welcome
from kaiwo.clusters.kubernetes.asks import check_beside, kubelet_words
from kaiwo.clusters.kubernetes.gangs.metadata import MOST_PODS
from kaiwo.clusters.kubernetes.saved import saved_note
from kaiwo.clusters.kubernetes.webhooks.defaulting import named_users
from kaiwo.clusters.kubernetes.webhooks.persons import House, Person
from kaiwo.clusters.kubernetes.webhooks.reviews import Verdict
from kaiwo.clusters.kubernetes.webhooks.work import Place, Texts, Work, whole_gpus
from kaiwo.clusters.kubernetes.wishes import Wishes, read_wishes
from kaiwo.manifests.annotations import OURS, WRITTEN, Annotations, read_number
from kaiwo.manifests.fields import Fields
from kaiwo.manifests.gpu_requests import settle
from kaiwo.manifests.moments import read_past_moment_s
from kaiwo.manifests.places import Place as Field
from kaiwo.model.errors import ConfigError, RefusedError
from kaiwo.model.queue import Queue
from kaiwo.model.workload import Workload

# An object that somebody copied from a cluster may carry the others.
NOT_FOR_PEOPLE = tuple(
    OURS + name for name in ("granted-devices", "kept-space", "planned-start", "planned-place", "fills-until")
)
assert all(key.removeprefix(OURS) in WRITTEN for key in NOT_FOR_PEOPLE)


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
        wishes = read_wishes(work.owner, [*work.said[:-1], *said], 0, False, queues.__contains__)
        warnings += saved_warnings(work)
        reason = "queue"
        _check_queue(work, wishes, person, queues, warnings)
    except (ConfigError, RefusedError) as error:
        return Verdict(str(error), reason=reason)
    return Verdict(warnings=tuple(warnings))


def saved_warnings(work: Work) -> list[str]:
    """Programs write when they last saved their work. A slip is told, and is no reason to refuse anything."""
    warnings = []
    for key, text in filter(None, (saved_note(notes) for notes, _ in work.said)):
        try:
            read_past_moment_s(text, Field(work.owner, key))
        except ConfigError as error:
            warnings.append(f"{error}; until then it counts as not said")
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
        annotations.add(Fields({"annotations": notes, "labels": labels}, owner, []))
    count, resource = whole_gpus(place)
    wish = annotations.gpu_wish(count, "", ())
    words = kubelet_words(annotations, resource)
    settled = settle(wish, words, warnings)
    if count and (wish.fraction_milli is not None or wish.memory_mib is not None):
        check_beside(owner, resource, count, settled.gpus)
        asked = words.fraction if wish.memory_mib is None else words.memory
        warnings.append(
            f"{owner}: {resource} stands beside {asked}, and the kubelet hands out whole GPUs: it gets {count} whole; "
            f"remove {resource} to share"
        )
    for name in ("gang-size", "min-pods"):
        annotations.read(name, lambda value, where: read_number(value, where, 1, MOST_PODS), 1)


def _check_queue(work: Work, wishes: Wishes, person: Person, queues: Mapping[str, Queue], warnings: list[str]) -> None:
    """A queue that is not there yet may come: the work waits for it. One that is there must want it."""
    queue = wishes.queue
    if queue not in queues:
        warnings.append(f"{work.owner}: queue {queue} does not exist; it waits until somebody creates it")
        return
    if any(other.parent == queue for other in queues.values()):
        warnings.append(f"{work.owner}: queue {queue} has child queues and takes no work itself; name one of those")
    name = f"{work.namespace}/{work.metadata.get('name') or work.metadata.get('generateName', '')}"
    knows_user = bool(wishes.user) or not person.is_controller_of(work)
    check_welcome(queues, Workload(name, (), queue, wishes.user), knows_user)
