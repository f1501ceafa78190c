"""Pods that are resized in place: what the kubelet has given them counts beside what they ask for.

In:    a pod's spec and status, both mostly text.   Out: the text of a Standing; empty while both say the same.
A kubelet repeats the resources of every container in the status, nearly always in the words of the spec: equal texts
are told apart from a resize without being read.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from kaiwo.clusters.kubernetes.objects import NOTHING, Condition, PodBody, PodContainer, PodStatus, Wire


class GivenText(Wire, omit_defaults=True):
    """What one container has been given, as text."""

    name: str = ""
    resources: Raw = NOTHING
    allocated_resources: Raw = NOTHING


class StandingText(Wire, omit_defaults=True):
    """Becomes `objects.Standing`."""

    containers: list[GivenText] = []
    pod: GivenText | None = None
    is_infeasible: bool = False


_read_given = msgspec.json.Decoder(list[GivenText]).decode
_read_named = msgspec.json.Decoder(list[PodContainer]).decode
_read_conditions = msgspec.json.Decoder(list[Condition]).decode
_write = msgspec.json.Encoder().encode


def standing_text(body: PodBody, status: PodStatus) -> bytes:
    """Of this pod."""
    if status.container_statuses is NOTHING and status.resources is NOTHING:
        return b""
    found = _differing(body.containers, bytes(status.container_statuses))
    if status.init_container_statuses is not NOTHING and b'"Always"' in bytes(body.init_containers):
        found += _differing(_read_named(body.init_containers), bytes(status.init_container_statuses))
    pod = None
    if body.resources is not NOTHING and status.resources is not NOTHING:
        pod = GivenText("", status.resources, status.allocated_resources)
    if not found and pod is None:
        return b""
    return _write(StandingText(found, pod, _is_infeasible(status)))


def _differing(containers: Sequence[PodContainer], statuses: bytes) -> list[GivenText]:
    if b'"resources":' not in statuses or (len(containers) == 1 and _repeats(statuses, bytes(containers[0].resources))):
        return []
    asked = {each.name: bytes(each.resources) for each in containers}
    return [
        given
        for given in _read_given(statuses)
        if given.resources is not NOTHING and not _is_same(asked.get(given.name, b""), given)
    ]


def _repeats(statuses: bytes, asked: bytes) -> bool:
    """The status of a lone container says the words of its spec, in the order in which a kubelet writes them."""
    requests = asked.partition(b'"requests":')[2][:-1]
    return b'"allocatedResources":' + requests + b',"resources":' + asked in statuses


def _is_same(asked: bytes, given: GivenText) -> bool:
    allocated = bytes(given.allocated_resources)
    return bytes(given.resources) == asked and (not allocated or b'"requests":' + allocated in asked)


def _is_infeasible(status: PodStatus) -> bool:
    """The node can never give what is asked for, so it does not count."""
    conditions = _read_conditions(status.conditions) if status.conditions is not NOTHING else ()
    return next((each.reason == "Infeasible" for each in conditions if each.type == "PodResizePending"), False)
