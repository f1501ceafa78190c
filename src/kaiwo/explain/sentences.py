"""Obstacles into sentences: the same words in the CLI, on the page, and later in Events and conditions.

In:    one Obstacle.   Out: what is in the way, with numbers, and what would remove it.
"""

from collections.abc import Callable

from kaiwo.model.reason import Obstacle, Reason


def amount(value: int, unit: str) -> str:
    """A quantity as people say it."""
    match unit:
        case "milli-gpu":
            return _count(value / 1000, "GPU")
        case "gpus":
            return _count(value, "GPU")
        case "milli-cpu":
            return _count(value / 1000, "CPU")
        case "mib":
            return f"{value} MiB" if value < 10 * 1024 else f"{value / 1024:.4g} GiB"
        case "pods" | "nodes" | "queues" | "workloads":
            return _count(value, unit[:-1])
        case "s":
            return f"{value} s"
    return str(value)


def _count(value: float, noun: str) -> str:
    plain = f"{value:g}"
    return f"{plain} {noun}" if plain in ("1", "0.5") or (value < 1 and value > 0) else f"{plain} {noun}s"


def sentence(obstacle: Obstacle) -> str:
    """What is in the way."""
    return _WORDS[obstacle.reason][0](obstacle)


def remedy(obstacle: Obstacle) -> str:
    """What would remove it."""
    return _WORDS[obstacle.reason][1](obstacle)


def _need(o: Obstacle) -> str:
    return amount(o.need, o.unit)


def _have(o: Obstacle) -> str:
    return amount(o.have, o.unit)


def _less(o: Obstacle) -> str:
    return (
        f"ask for {_have(o)} or less, or wait for running work to end" if o.have > 0 else "wait for running work to end"
    )


def _smaller(o: Obstacle) -> str:
    return (
        f"ask for {_have(o)} or less; waiting does not help" if o.have > 0 else "no node of this cluster can serve it"
    )


Words = Callable[[Obstacle], str]

_WORDS: dict[Reason, tuple[Words, Words]] = {
    Reason.HELD: (lambda o: "it is held", lambda o: f"release it: kaiwo release {o.subject}"),
    Reason.DEPENDENCY: (
        lambda o: f"it waits until {o.subject} has succeeded",
        lambda o: f"wait for {o.subject}, or submit it without --after",
    ),
    Reason.DEPENDENCY_FAILED: (
        lambda o: f"{o.subject}, which had to succeed first, did not",
        lambda o: f"requeue {o.subject}, or submit this without --after",
    ),
    Reason.NOT_BEFORE: (
        lambda o: (
            f"it is not tried before second {o.need} of the cluster's clock" + (f": {o.detail}" if o.detail else "")
        ),
        lambda o: "wait; it is tried again by itself",
    ),
    Reason.NO_QUEUE: (
        lambda o: f"there is no queue '{o.subject}'",
        lambda o: "create it with kaiwo apply, or submit to another queue (kaiwo queue lists them)",
    ),
    Reason.QUEUE_NOT_LEAF: (
        lambda o: f"queue '{o.subject}' has queues below it and takes no work itself",
        lambda o: f"submit to one of the queues below '{o.subject}'",
    ),
    Reason.QUEUE_LIMIT: (
        lambda o: f"queue '{o.subject}' has {_have(o)} left of its limit, and this needs {_need(o)}",
        lambda o: f"raise its limit by {amount(o.need - o.have, o.unit)}, or wait for work in it to end",
    ),
    Reason.QUEUE_QUOTA: (
        lambda o: (
            f"queue '{o.subject}' has {_have(o)} left of its quota, and this may not be preempted and needs {_need(o)}"
        ),
        lambda o: "let it be preempted, or raise the quota",
    ),
    Reason.NO_NODES: (lambda o: "the cluster has no nodes", lambda o: "add a node"),
    Reason.NODE_NOT_READY: (lambda o: f"{o.detail} are not ready", lambda o: "look at kaiwo nodes for the reason"),
    Reason.NODE_CORDONED: (lambda o: f"{o.detail} are cordoned", lambda o: "uncordon one: kaiwo nodes uncordon NODE"),
    Reason.NODE_RULES: (
        lambda o: f"{o.detail} do not match its node selector or affinity",
        lambda o: "loosen the node selector, or label a node",
    ),
    Reason.NODE_TAINTED: (
        lambda o: f"{o.detail} have taints that it does not tolerate",
        lambda o: "add a toleration, or remove the taint",
    ),
    Reason.NODE_AVOIDED: (
        lambda o: f"it failed to start on {o.detail} and avoids them",
        lambda o: "mend the node, then requeue the workload",
    ),
    Reason.GPU_MODEL: (
        lambda o: f"no node has {o.subject}: {o.detail}",
        lambda o: "ask for a model that the cluster has, or for any",
    ),
    Reason.GPU_UNHEALTHY: (
        lambda o: "every GPU that it could use is unhealthy",
        lambda o: "look at kaiwo gpus for the reason",
    ),
    Reason.NOT_ENOUGH_GPUS: (
        lambda o: f"it asks for {_need(o)} on one node, and the largest node has {_have(o)}",
        _smaller,
    ),
    Reason.NOT_ENOUGH_GPU_MEMORY: (
        lambda o: f"it asks for {_need(o)} of one GPU, and the largest GPU has {_have(o)}",
        _smaller,
    ),
    Reason.NOT_ENOUGH_FREE_GPUS: (
        lambda o: f"it needs {_need(o)} free on one node, and the best node has {_have(o)} free",
        _less,
    ),
    Reason.NOT_ENOUGH_FREE_GPU_SHARE: (
        lambda o: f"it needs {_need(o)} free{_on_each(o)}, and the best has {_have(o)} free",
        _less,
    ),
    Reason.NOT_ENOUGH_FREE_GPU_MEMORY: (
        lambda o: f"it needs {_need(o)} of GPU memory free{_on_each(o)}, and the best has {_have(o)} free",
        _less,
    ),
    Reason.NOT_ENOUGH_CPU: (
        lambda o: f"it needs {_need(o)} free on one node, and the best node has {_have(o)} free",
        _less,
    ),
    Reason.NOT_ENOUGH_MEMORY: (
        lambda o: f"it needs {_need(o)} of memory free on one node, and the best node has {_have(o)} free",
        _less,
    ),
    Reason.NOT_ENOUGH_PODS: (
        lambda o: "every node that it could use runs as many pods as it may",
        lambda o: "wait for running work to end",
    ),
    Reason.NOT_ENOUGH_EXTENDED: (
        lambda o: f"it needs {o.need} of {o.subject} on one node, and the best node has {o.have} free",
        lambda o: f"ask for less of {o.subject}, or wait for running work to end",
    ),
    Reason.GANG: (
        lambda o: (
            f"its {_need(o)} must start together, and there is room for {o.have}"
            if o.have < o.need
            else f"its {_need(o)} must start together, and do not fit beside each other"
        ),
        lambda o: (
            f"ask for {_have(o)} or fewer, or wait for running work to end"
            if 0 < o.have < o.need
            else "wait for running work to end"
        ),
    ),
    Reason.NOMINATED: (
        lambda o: f"{_need(o)} are kept for {o.subject}",
        lambda o: "wait; the space is given out again when it is not used",
    ),
    Reason.RELEASING: (
        lambda o: f"{_need(o)} of its last run are still being stopped",
        lambda o: "wait a moment; it is tried again when they are gone",
    ),
    Reason.PLUGIN: (
        lambda o: "no node is left after all filters",
        lambda o: "look at the filters of the policy",
    ),
    Reason.NOT_TRIED: (
        lambda o: "it has not been tried yet",
        lambda o: "wait; the next cycles try it",
    ),
}


def _on_each(o: Obstacle) -> str:
    return f" on each of {o.subject}" if o.subject else " on one GPU"
