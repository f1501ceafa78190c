"""Whether a queue may be stored, changed or taken away: alone, and as part of the tree.

In:    the change, and every queue as it stands.   Out: a Verdict; what works but not as it reads is a warning.
Never: refuses for a mistake that was there before: one of long ago must not keep anybody from mending another.
"""

from collections.abc import Mapping

import msgspec

from kaiwo.clusters.kubernetes.decode.kaiwo_objects import read_queue
from kaiwo.clusters.kubernetes.decode.wire_objects import QueueObject
from kaiwo.clusters.kubernetes.webhooks.admission_review import PASS, AdmissionRequest, Verdict
from kaiwo.model.queue import Queue
from kaiwo.model.queue_validation import Finding, check_tree

_read = msgspec.json.Decoder(QueueObject).decode


def judge_queue(request: AdmissionRequest, queues: Mapping[str, Queue], living: Mapping[str, int]) -> Verdict:
    """`living`: how many workloads each queue has."""
    if request.operation == "DELETE":
        return _judge_removal(request.name, queues, living)
    queue = read_queue(_read(request.object))
    if isinstance(queue, str):
        return Verdict(queue, reason="unreadable")
    after = {**queues, queue.name: queue}
    warnings: list[str] = []
    if queue.parent not in {each.parent for each in queues.values()} and (count := living.get(queue.parent)):
        what = f"{count} living workload{'s' if count > 1 else ''}"
        warnings.append(f"queue {queue.parent} gets a child, so it takes no more work; move its {what} to a leaf")
    return _compare(queues, after, queue.name, warnings)


def read_queues(items: list[QueueObject], default: Queue) -> dict[str, Queue]:
    """The queues of a list; one that cannot be read is left out, as the scheduler does."""
    found = {default.name: default}
    for item in items:
        queue = read_queue(item)
        if isinstance(queue, Queue):
            found[queue.name] = queue
    return found


def _judge_removal(name: str, queues: Mapping[str, Queue], living: Mapping[str, int]) -> Verdict:
    children = sorted(queue.name for queue in queues.values() if queue.parent == name)
    if children:
        return Verdict(
            f"queue {name} has child queues ({', '.join(children[:5])}); remove those first", reason="children"
        )
    if count := living.get(name):
        work = "1 living workload" if count == 1 else f"{count} living workloads"
        return Verdict(warnings=(f"queue {name} has {work}; what waits there waits until the queue is there again",))
    return PASS


def _compare(before: Mapping[str, Queue], after: Mapping[str, Queue], name: str, warnings: list[str]) -> Verdict:
    known = {finding.sentence for finding in check_tree(before.values())}
    news = [finding for finding in check_tree(after.values()) if finding.sentence not in known]
    errors = [finding for finding in news if finding.is_error]
    if errors:
        own = next((finding for finding in errors if finding.queue == name), errors[0])
        return Verdict(_place(own), reason="tree")
    return Verdict(warnings=(*warnings, *(finding.sentence for finding in news)))


def _place(finding: Finding) -> str:
    return f"KaiwoQueue '{finding.queue}': spec.{finding.field}: {finding.sentence}"
