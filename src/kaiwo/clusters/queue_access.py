"""Check whether a queue, and every queue above it, takes work of a namespace and a user."""

from collections.abc import Iterable, Mapping

from kaiwo.model.errors import RefusedError
from kaiwo.model.queue import Queue, queue_that_refuses
from kaiwo.model.workload import Workload

MAX_NAMED = 5


def check_queue_access(queues: Mapping[str, Queue], workload: Workload, knows_user: bool = True) -> None:
    """Raise RefusedError if the queue does not take this work. Without `knows_user` only the namespace is checked."""
    refusal = queue_that_refuses(queues, workload, knows_user)
    if refusal is None:
        return
    queue, field = refusal
    if field == "namespaces":
        namespace = workload.name.partition("/")[0]
        raise RefusedError(
            f"queue {queue.name} takes work of the namespaces {first_names(queue.namespaces)} only, and workload "
            f"{workload.name} is in {namespace}; choose another queue, or add {namespace} to spec.namespaces of "
            f"{queue.name}",
            "queue",
        )
    whose = f"is {workload.user}'s" if workload.user else "has no user"
    raise RefusedError(
        f"queue {queue.name} takes work of the users {first_names(queue.users)} only, and workload {workload.name} "
        f"{whose}; choose another queue, or add the user to spec.users of {queue.name}",
        "queue",
    )


def first_names(names: Iterable[str], most: int = MAX_NAMED) -> str:
    """The first names of a list, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def describe_living(count: int) -> str:
    return "1 living workload" if count == 1 else f"{count} living workloads"
