"""A KaiwoQueue of the cluster in our words, read by the code that reads files.

In:    the object.   Out: a Queue, or the sentence why it cannot be used.
"""

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.objects import QueueObject
from kaiwo.clusters.kubernetes.quantities import seconds
from kaiwo.manifests import parse
from kaiwo.model.errors import ConfigError
from kaiwo.model.queue import Queue


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
