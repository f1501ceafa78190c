"""A KaiwoQueue of the cluster in our words, read by the code that reads files.

In:    the object.   Out: a Queue, or the sentence why it cannot be used.
"""

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.last_readable_version import Found, find, parse_own
from kaiwo.clusters.kubernetes.decode.quantities import seconds
from kaiwo.clusters.kubernetes.decode.wire_objects import QueueObject
from kaiwo.model.queue import Queue

FoundQueue = Found[QueueObject, Queue]


def find_queue(item: QueueObject) -> FoundQueue:
    """What cannot be used stays on the books: its pods must not run without a limit."""
    return find(item, read_queue)


def read_queue(item: QueueObject) -> Queue | str:
    """One queue."""
    parsed = parse_own("KaiwoQueue", item)
    if isinstance(parsed, str):
        return parsed
    return replace(parsed.queues[0], created_s=seconds(item.metadata.creation_timestamp))
