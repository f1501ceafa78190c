"""The smallest scheduler there is: every workload that fits now, in the order of their names."""

from collections.abc import Iterator

from msgspec.structs import replace

from kaiwo.clusters.happenings import ordered_pods
from kaiwo.clusters.ledger import Use, holds
from kaiwo.model.gpu import WHOLE_MILLI, Share
from kaiwo.model.node import Node
from kaiwo.model.plan import Plan, Start
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod, Workload
from tests.clusters.picture import Picture


def first_fit(picture: Picture, now_s: int) -> Plan:
    """Plan the starts, and put them into the picture as assumed."""
    uses = {name: Use() for name in picture.nodes}
    for pod in picture.pods.values():
        if holds(pod) and pod.node in uses:
            uses[pod.node].add(pod)
    starts: list[Start] = []
    for workload in sorted(picture.workloads.values(), key=lambda each: each.name):
        pods = list(_place_all(picture, uses, workload)) if _may_start(workload, now_s) else []
        for pod in pods:
            picture.pods[pod.workload, pod.name] = pod
            starts.append(Start(pod.workload, pod.name, pod.node, pod.devices))
    return Plan(starts=tuple(starts))


def _may_start(workload: Workload, now_s: int) -> bool:
    return not (workload.held or workload.after or workload.after_failed or workload.not_before_s > now_s)


def _place_all(picture: Picture, uses: dict[str, Use], workload: Workload) -> Iterator[Pod]:
    missing = [(pod, role) for pod, role in ordered_pods(workload) if (workload.name, pod) not in picture.pods]
    taken: list[Pod] = []
    for name, role in missing:
        pod = _place(picture, uses, Pod(workload.name, name, "", Phase.ASSUMED), role.request)
        if pod is None:
            for other in taken:
                uses[other.node].add(other, -1)
            return
        uses[pod.node].add(pod)
        taken.append(pod)
    yield from taken


def _place(picture: Picture, uses: dict[str, Use], pod: Pod, request: Request) -> Pod | None:
    for node in picture.nodes.values():
        use = uses[node.name]
        if node.cordoned or use.cpu_milli + request.cpu_milli > node.cpu_milli:
            continue
        devices = _devices(node, use, request)
        if devices is not None:
            return replace(pod, node=node.name, devices=devices, cpu_milli=request.cpu_milli)
    return None


def _devices(node: Node, use: Use, request: Request) -> tuple[Share, ...] | None:
    free = [gpu for gpu in node.gpus if use.devices.get(gpu.id, (0, 0))[0] + request.gpu_milli <= WHOLE_MILLI]
    if len(free) < request.gpus:
        return None
    return tuple(
        Share(gpu.id, request.gpu_milli, gpu.memory_mib * request.gpu_milli // WHOLE_MILLI)
        for gpu in free[: request.gpus]
    )
