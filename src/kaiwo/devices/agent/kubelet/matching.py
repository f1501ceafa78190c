"""Which pod an Allocate is for: the kubelet does not say.

In:    a resource, a number of devices, the pods of the node, what was handed out before.   Out: a pod's container.
Never: hands out what the scheduler did not write on a pod; guesses in silence: `is_certain` says whether it had to.
"""

from collections.abc import Collection, Sequence

import msgspec

from kaiwo.devices.agent.kubelet.pods import BoundPod, Container
from kaiwo.devices.assigned import ANNOTATION, read_assigned, write_assigned
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpu import Share


class Match(msgspec.Struct, frozen=True):
    """A container that waits for devices, and those that are written for it."""

    pod: BoundPod
    container: str
    shares: tuple[Share, ...]
    is_certain: bool = True  # no other pod waits for as many


def find_match(
    resource: str,
    count: int,
    pods: Sequence[BoundPod],
    served: Collection[tuple[str, str]],
    refused: Collection[str] = (),
) -> Match | str:
    """The container that has waited longest, or why there is none. `served`: (pod uid, container) that have theirs.

    `refused`: uids of pods that were told no. The kubelet does not ask for them again, so others come first.
    """
    waiting: list[Match] = []
    odd: list[str] = []
    # Those bound in one second the kubelet takes in the order in which they were made.
    for pod in sorted(pods, key=lambda pod: (pod.uid in refused, pod.bound, pod.created, pod.uid)):
        found = _waiting(resource, count, pod, served)
        if isinstance(found, Match):
            waiting.append(found)
        elif found:
            odd.append(found)
    if waiting:
        return msgspec.structs.replace(waiting[0], is_certain=len(waiting) == 1)
    return "; ".join(odd) or nobody_waits(resource, count)


def nobody_waits(resource: str, count: int) -> str:
    """Why there is no match, when no pod that asks for as many is without them."""
    return (
        f"no pod on this node waits for {count} {resource} with {ANNOTATION} on it; let Kaiwo schedule it: "
        "schedulerName: kaiwo-scheduler"
    )


def same_shape(one: Match, other: Match) -> bool:
    """Two pods could be given each other's devices: as many, as large, kept apart in the same way."""
    return _shape(one) == _shape(other)


def exchanged(mine: Match, theirs: Match) -> tuple[str, str]:
    """What is written on both pods, with these devices in each other's place."""
    written = []
    for match, others in ((mine, theirs.shares), (theirs, mine.shares)):
        places = dict(zip(match.shares, others, strict=True))
        written.append(write_assigned(tuple(places.get(one, one) for one in read_assigned(match.pod.assigned))))
    return written[0], written[1]


def _shape(match: Match) -> tuple[object, ...]:
    amounts = sorted((share.milli, share.mib) for share in match.shares)
    return amounts, match.pod.isolation, match.pod.least_grade


def _waiting(resource: str, count: int, pod: BoundPod, served: Collection[tuple[str, str]]) -> Match | str:
    if pod.is_over:
        return ""
    container = _next_container(resource, count, pod, served)
    if container is None:
        return ""
    if not pod.assigned:
        return f"pod {pod.namespace}/{pod.name} asks for {count} {resource} and has no {ANNOTATION}"
    try:
        shares = read_assigned(pod.assigned)
    except ConfigError as error:
        return f"pod {pod.namespace}/{pod.name}: {error}"
    first = 0 if container.is_init else _before(resource, pod, container)
    mine = shares[first : first + count]
    if len(mine) < count:
        return (
            f"pod {pod.namespace}/{pod.name} asks for {count} {resource}, and {len(shares)} devices are written on it"
        )
    return Match(pod, container.name, mine)


def _next_container(resource: str, count: int, pod: BoundPod, served: Collection[tuple[str, str]]) -> Container | None:
    """The kubelet goes through a pod's containers in order; only the next one can be meant."""
    left = [one for one in pod.containers if one.devices.get(resource) and (pod.uid, one.name) not in served]
    return left[0] if left and left[0].devices[resource] == count else None


def _before(resource: str, pod: BoundPod, container: Container) -> int:
    """How many devices the containers before it have."""
    names = [one for one in pod.containers if not one.is_init]
    place = names.index(container)
    return sum(one.devices.get(resource, 0) for one in names[:place])
