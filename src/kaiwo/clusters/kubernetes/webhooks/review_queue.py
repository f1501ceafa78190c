"""Review a KaiwoQueue before it is created, changed or deleted: by itself, and as part of the queue tree.

A setting that works, but not as it reads, is a warning. Never refuses a change for a mistake that existed before: one
mistake must not prevent the correction of another.
"""

from collections.abc import Mapping

import msgspec

from kaiwo.clusters.kubernetes.decode.kaiwo_objects import QueueObject, read_queue
from kaiwo.clusters.kubernetes.webhooks.admission_review import ALLOWED, AdmissionRequest, AdmissionVerdict
from kaiwo.clusters.queue_access import describe_living, first_names
from kaiwo.model.queue import Queue, implicit_default_queue
from kaiwo.model.queue_validation import check_queue_tree

Queues = Mapping[str, Queue]
_read = msgspec.json.Decoder(QueueObject).decode


def review_queue(request: AdmissionRequest, queues: Queues, living: Mapping[str, int]) -> AdmissionVerdict:
    """`living`: how many workloads each queue has."""
    if request.operation == "DELETE":
        return _review_deletion(request.name, queues, living)
    queue = read_queue(_read(request.object))
    if isinstance(queue, str):
        return AdmissionVerdict(queue, reason="unreadable")
    after = {**queues, queue.name: queue}
    warnings: list[str] = []
    if queue.parent not in {each.parent for each in queues.values()} and (count := living.get(queue.parent)):
        takes_none = f"queue {queue.parent} gets a child queue and takes no more work"
        warnings.append(f"{takes_none}; move its {describe_living(count)} to a leaf queue")
    return _compare(queues, after, queue.name, warnings)


def read_queues(items: list[QueueObject]) -> dict[str, Queue]:
    """The queues of a list, without those that cannot be read, as in the scheduler."""
    readable = [queue for item in items if isinstance(queue := read_queue(item), Queue)]
    default = implicit_default_queue(queue.name for queue in readable)
    return {queue.name: queue for queue in (default, *readable)}


def _review_deletion(name: str, queues: Queues, living: Mapping[str, int]) -> AdmissionVerdict:
    children = sorted(queue.name for queue in queues.values() if queue.parent == name)
    if children:
        refusal = f"queue {name} has child queues ({first_names(children)}); delete those first"
        return AdmissionVerdict(refusal, reason="children")
    if count := living.get(name):
        warning = f"queue {name} has {describe_living(count)}; waiting work starts only when the queue exists again"
        return AdmissionVerdict(warnings=(warning,))
    return ALLOWED


def _compare(before: Queues, after: Queues, name: str, warnings: list[str]) -> AdmissionVerdict:
    known = {finding.sentence for finding in check_queue_tree(before.values())}
    fresh = [finding for finding in check_queue_tree(after.values()) if finding.sentence not in known]
    errors = [finding for finding in fresh if finding.is_error]
    if errors:
        own = next((finding for finding in errors if finding.queue == name), errors[0])
        return AdmissionVerdict(f"KaiwoQueue '{own.queue}': spec.{own.field}: {own.sentence}", reason="tree")
    return AdmissionVerdict(warnings=(*warnings, *(finding.sentence for finding in fresh)))
