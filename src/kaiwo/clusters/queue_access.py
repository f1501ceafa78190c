"""Check whether a queue, and every queue above it, takes work of a namespace, of a user and with a priority."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kaiwo.manifests.text.field_errors import suggest
from kaiwo.model.amounts import memory, thousandths
from kaiwo.model.errors import RefusedError
from kaiwo.model.priority_cap import priority_cap
from kaiwo.model.queue import Queue, queue_that_refuses, share_limits, thread_bound
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload

MAX_NAMED = 5


def check_queue_takes_work(queues: Mapping[str, Queue], name: str, children: Iterable[str]) -> None:
    """Raise RefusedError if there is no such queue, or if it only divides among the queues below it."""
    if name not in queues:
        known = sorted(queues)
        hint = suggest(name, known) or f"; there are: {first_names(known)}"
        raise RefusedError(f"queue {name} does not exist{hint}", "queue")
    if names := first_names(children):
        raise RefusedError(f"queue {name} has child queues and takes no work; use one of: {names}", "queue")


def check_reservation_exists(reservations: Iterable[str], workload: Workload) -> None:
    name, known = workload.reservation, sorted(reservations)
    if name and name not in known:
        there = f"there are: {first_names(known)}" if known else "there are none"
        raise RefusedError(
            f"workload {workload.name} asks for reservation {name}, which does not exist"
            f"{suggest(name, known) or f'; {there}'}",
            "reservation",
        )


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


def check_priority(queues: Mapping[str, Queue], workload: Workload) -> None:
    """Raise RefusedError if its priority is above the maximum of its queue."""
    cap = priority_cap(queues, workload.queue)
    most = cap.most_for(workload)
    if workload.priority <= most:
        return
    if cap.queue:
        in_queue = f" in queue {workload.queue}" if cap.queue != workload.queue else ""
        fact = f"queue {cap.queue} allows at most {most}{in_queue}"
        way_out = f"ask an administrator to raise spec.maxPriority of {cap.queue}"
    else:
        fact = f"queue {workload.queue} allows at most {most}, as every queue that has no maxPriority"
        way_out = f"ask an administrator to set spec.maxPriority of {workload.queue}"
    raise RefusedError(
        f"workload {workload.name} asks for priority {workload.priority}, and {fact}; lower it, or {way_out}",
        "priority",
    )


def check_shares(queues: Mapping[str, Queue], name: str, queue: str, requests: Sequence[Request]) -> None:
    """Raise RefusedError if a share asks for more threads or memory than its queue allows."""
    check_threads(queues, name, queue, requests)
    _check_share_memory(queues, name, queue, requests)


def check_threads(queues: Mapping[str, Queue], name: str, queue: str, requests: Iterable[Request]) -> None:
    """Raise RefusedError if a share asks for more threads than it has of the GPU, and than its queue allows."""
    asking = [request for request in requests if request.threads_milli]  # hardly any does
    if not asking:
        return
    bound = thread_bound(queues, queue)
    by = bound.queue or queue
    for request in asking:
        if (most := bound.capped(request)) == request.threads_milli:
            continue
        asked = (
            f"{request.threads_milli // 10} % of the multiprocessors with a share of {thousandths(request.gpu_milli)}"
        )
        raise RefusedError(
            f"workload {name} asks for {asked}, and queue {by} allows at most {most / 10:g} % for it; "
            f"lower it, or ask an administrator to raise spec.maxThreads of {by}",
            "gpuThreads",
        )


def _check_share_memory(queues: Mapping[str, Queue], name: str, queue: str, requests: Iterable[Request]) -> None:
    """The memory of a fraction depends on the GPU: such work waits if it is too large everywhere."""
    limits = share_limits(queues, queue)
    for request in requests:
        if request.is_memory and request.gpu_mib > limits.max_mib:
            asked, most = memory(request.gpu_mib, limits.max_mib), memory(limits.max_mib, request.gpu_mib)
            raise RefusedError(
                f"workload {name} asks for a share of {asked}, and queue {limits.queue} allows at most {most} for one "
                f"share; ask for less, or ask an administrator to raise spec.maxShareMemory of {limits.queue}",
                "gpuMemory",
            )


def queues_of_namespaces(queues: Mapping[str, Queue]) -> dict[str, str]:
    """By namespace, the only leaf queue that lists it: the queue of its work that names none."""
    parents = {queue.parent for queue in queues.values()}
    leaves = [(name, queue.namespaces) for name, queue in queues.items() if name not in parents]
    listed = [(namespace, name) for name, namespaces in leaves for namespace in namespaces]
    counts = Counter(namespace for namespace, _ in listed)
    return {namespace: name for namespace, name in listed if counts[namespace] == 1}


def first_names(names: Iterable[str], most: int = MAX_NAMED) -> str:
    """The first names of a list, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def describe_living(count: int) -> str:
    return "1 living workload" if count == 1 else f"{count} living workloads"
