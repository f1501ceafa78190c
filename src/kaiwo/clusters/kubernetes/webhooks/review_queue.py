"""Review a KaiwoQueue before it is created, changed or deleted: by itself, and as part of the queue tree.

In:    the change, and every queue as it is now.   Out: a verdict; what works, but not as it reads, is a warning.
Never: refuses for a mistake that was there before: an old one must not prevent the repair of another.
"""

from collections.abc import Mapping

import msgspec

from kaiwo.clusters.kubernetes.decode.kaiwo_objects import QueueObject, read_queue
from kaiwo.clusters.kubernetes.webhooks.admission_review import ALLOWED, AdmissionRequest, AdmissionVerdict
from kaiwo.clusters.queue_access import first_names
from kaiwo.model.queue import Queue
from kaiwo.model.queue_validation import QueueFinding, check_queue_tree

_read = msgspec.json.Decoder(QueueObject).decode


def review_queue(request: AdmissionRequest, queues: Mapping[str, Queue], living: Mapping[str, int]) -> AdmissionVerdict:
    """`living`: how many workloads each queue has."""
    if request.operation == "DELETE":
        return _review_deletion(request.name, queues, living)
    queue = read_queue(_read(request.object))
    if isinstance(queue, str):
        return AdmissionVerdict(queue, reason="unreadable")
    after = {**queues, queue.name: queue}
    warnings: list[str] = []
    if queue.parent not in {each.parent for each in queues.values()} and (count := living.get(queue.parent)):
        work = _living_words(count)
        warnings.append(
            f"queue {queue.parent} gets a child queue and takes no more work; move its {work} to a leaf queue"
        )
    return _compare(queues, after, queue.name, warnings)


def read_queues(items: list[QueueObject], default: Queue) -> dict[str, Queue]:
    """The queues of a list, without those that cannot be read, as in the scheduler."""
    found = {default.name: default}
    for item in items:
        queue = read_queue(item)
        if isinstance(queue, Queue):
            found[queue.name] = queue
    return found


def _review_deletion(name: str, queues: Mapping[str, Queue], living: Mapping[str, int]) -> AdmissionVerdict:
    children = sorted(queue.name for queue in queues.values() if queue.parent == name)
    if children:
        return AdmissionVerdict(
            f"queue {name} has child queues ({first_names(children)}); delete those first", reason="children"
        )
    if count := living.get(name):
        warning = f"queue {name} has {_living_words(count)}; waiting work starts only when the queue exists again"
        return AdmissionVerdict(warnings=(warning,))
    return ALLOWED


def _compare(
    before: Mapping[str, Queue], after: Mapping[str, Queue], name: str, warnings: list[str]
) -> AdmissionVerdict:
    known = {finding.sentence for finding in check_queue_tree(before.values())}
    fresh = [finding for finding in check_queue_tree(after.values()) if finding.sentence not in known]
    errors = [finding for finding in fresh if finding.is_error]
    if errors:
        own = next((finding for finding in errors if finding.queue == name), errors[0])
        return AdmissionVerdict(_sentence(own), reason="tree")
    return AdmissionVerdict(warnings=(*warnings, *(finding.sentence for finding in fresh)))


def _living_words(count: int) -> str:
    return "1 living workload" if count == 1 else f"{count} living workloads"


def _sentence(finding: QueueFinding) -> str:
    return f"KaiwoQueue '{finding.queue}': spec.{finding.field}: {finding.sentence}"
