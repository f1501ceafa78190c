"""Find the pod that an Allocate call is for, because the kubelet does not say.

Never: allocates devices that the scheduler did not choose; `is_certain` is false if it had to guess.
"""

from collections.abc import Collection, Sequence

import msgspec

from kaiwo.devices.agent.kubelet.bound_pods import GRANTED_DEVICES, BoundPod, Container, decode_granted, encode_granted
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu import Share

BY_KAIWO = "schedulerName: kaiwo-scheduler"


class PodMatch(msgspec.Struct, frozen=True):
    """A container that waits for devices, and the devices in its pod's annotation."""

    pod: BoundPod
    container: str
    shares: tuple[Share, ...]
    is_certain: bool = True  # no other pod waits for the same number
    is_init: bool = False
    held_as: str = ""  # the last container that uses the same devices; empty: this one


def find_match(
    resource: str,
    count: int,
    pods: Sequence[BoundPod],
    served: Collection[tuple[str, str]],
    refused: Collection[str] = (),
) -> PodMatch | str:
    """The container that has waited longest, or why there is none. `served`: (pod uid, container) already allocated.

    `refused`: uids of refused pods. The kubelet does not ask for them again, nor for pods that were deleted before it
    saw them, so other pods come first.
    """
    waiting: list[PodMatch] = []
    problems: dict[str, str] = {}
    # Pods bound in the same second are admitted in the order of their creation.
    late = {pod.uid for pod in pods if pod.uid in refused or pod.is_leaving}
    for pod in sorted(pods, key=lambda pod: (pod.uid in late, pod.bound, pod.created, pod.uid)):
        found = _waiting_match(resource, count, pod, served)
        if isinstance(found, PodMatch):
            waiting.append(found)
        elif found:
            problems[pod.uid] = found
    if waiting:
        return msgspec.structs.replace(waiting[0], is_certain=len(waiting) + len(problems) == 1)
    return "; ".join(text for uid, text in problems.items() if uid not in late) or no_waiting_pod(resource, count)


def containers_on_same_devices(resource: str, pod: BoundPod, container: str) -> list[PodMatch] | str:
    """All containers of a pod that use the devices of this one, one after another; or why there are none."""
    asked = [one for one in pod.containers if one.devices.get(resource)]
    mine = next((one for one in asked if one.name == container), None)
    if mine is None:
        return f"pod {pod.namespace}/{pod.name} has no container {container} that asks for {resource}"
    place = _device_range(resource, pod, mine)
    found = [_match(resource, pod, one) for one in asked if _device_range(resource, pod, one) == place]
    why = [one for one in found if isinstance(one, str)]
    return why[0] if why else [one for one in found if isinstance(one, PodMatch)]


def no_waiting_pod(resource: str, count: int) -> str:
    return f"no pod on this node waits for {count} {resource} with {GRANTED_DEVICES}; let Kaiwo schedule it: {BY_KAIWO}"


def are_interchangeable(one: PodMatch, other: PodMatch) -> bool:
    """True if two pods can swap devices: the same number, sizes and isolation."""
    return _amounts(one) == _amounts(other)


def swapped_devices(mine: PodMatch, theirs: PodMatch) -> dict[str, str]:
    """The annotations of both pods by uid, with these devices swapped. They may be the same pod."""
    places: dict[str, dict[Share, Share]] = {}
    for match, others in ((mine, theirs.shares), (theirs, mine.shares)):
        places.setdefault(match.pod.uid, {}).update(zip(match.shares, others, strict=True))
    assigned = {match.pod.uid: decode_granted(match.pod.assigned) for match in (mine, theirs)}
    return {uid: encode_granted(tuple(places[uid].get(one, one) for one in found)) for uid, found in assigned.items()}


def _amounts(match: PodMatch) -> tuple[object, ...]:
    amounts = sorted((share.milli, share.mib) for share in match.shares)
    return amounts, match.pod.isolation, match.pod.least_grade


def _waiting_match(resource: str, count: int, pod: BoundPod, served: Collection[tuple[str, str]]) -> PodMatch | str:
    """The next container to allocate; the kubelet goes through a pod's containers in order."""
    left = [one for one in pod.containers if one.devices.get(resource) and (pod.uid, one.name) not in served]
    if pod.is_over or not left or left[0].devices[resource] != count:
        return ""
    return _match(resource, pod, left[0])


def _match(resource: str, pod: BoundPod, container: Container) -> PodMatch | str:
    first, count = _device_range(resource, pod, container)
    owner = f"pod {pod.namespace}/{pod.name}"
    if pod.refusal:
        return f"{owner} asks for {count} {resource}, but {pod.refusal}"
    if not pod.assigned:
        return f"{owner} asks for {count} {resource} but has no {GRANTED_DEVICES}; let Kaiwo schedule it: {BY_KAIWO}"
    try:
        shares = decode_granted(pod.assigned)
    except ConfigError as error:
        return f"{owner}: {error}"
    mine = shares[first : first + count]
    if len(mine) < count:
        return f"{owner} asks for {count} {resource}, but its annotation has {len(shares)} devices"
    same = [one.name for one in pod.containers if _device_range(resource, pod, one) == (first, count)]
    return PodMatch(pod, container.name, mine, is_init=container.is_init, held_as=same[-1])


def _device_range(resource: str, pod: BoundPod, container: Container) -> tuple[int, int]:
    """The range of the pod's devices that a container uses: first and count. Only init containers free theirs."""
    before = pod.containers[: pod.containers.index(container)]
    first = sum(one.devices.get(resource, 0) for one in before if not one.is_init)
    return first, container.devices.get(resource, 0)
