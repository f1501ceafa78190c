"""One answer for one question of the API server.

In:    a review, and what is known of the cluster.   Out: a Verdict.
Never: refuses what it cannot read: the API server has checked it, and the scheduler says why it waits.
"""

from collections.abc import Mapping

import msgspec

from kaiwo.clusters.kubernetes.webhooks.checking import check_work, saved_warnings
from kaiwo.clusters.kubernetes.webhooks.defaulting import USER, default_work, is_for, keep_stamp
from kaiwo.clusters.kubernetes.webhooks.persons import House, person_of
from kaiwo.clusters.kubernetes.webhooks.reviews import PASS, AdmissionRequest, Verdict, is_nothing
from kaiwo.clusters.kubernetes.webhooks.work import Work, names_kaiwo, read_work, words_of
from kaiwo.model.queue import Queue


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
