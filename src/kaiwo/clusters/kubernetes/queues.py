"""A KaiwoQueue of the cluster in our words, read by the code that reads files.

In:    the object.   Out: a Queue, or the sentence why it cannot be used.
"""

from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.objects import QueueObject
from kaiwo.clusters.kubernetes.quantities import seconds
from kaiwo.manifests import parse
from kaiwo.model.errors import ConfigError
from kaiwo.model.queue import Queue


class FoundQueue(NamedTuple):
    """A KaiwoQueue that is there, whether or not it can be used."""

    item: QueueObject
    queue: Queue | None  # None: it cannot be used
    fault: str = ""  # why

    @property
    def name(self) -> str:
        return self.item.metadata.name


def find_queue(item: QueueObject) -> FoundQueue:
    """What cannot be used stays on the books: its people must be told, and its pods must not run without a limit."""
    found = read_queue(item)
    return FoundQueue(item, None, found) if isinstance(found, str) else FoundQueue(item, found)


def read_queue(item: QueueObject) -> Queue | str:
    """One queue. The schema lets nothing wrong in, but an older version of it may have."""
    document = {
        "apiVersion": "kaiwo.ai/v1alpha2",
        "kind": "KaiwoQueue",
        "metadata": {"name": item.metadata.name},
        "spec": item.spec or {},
    }
    try:
        (queue,) = parse(document).queues
    except ConfigError as error:
        return str(error)
    return replace(queue, created_s=seconds(item.metadata.creation_timestamp))
