"""Find jobs that would never start, even on an empty cluster, and say what they lack.

Such a job would wait until the end of the run, and spoil every mean.
"""

from collections import Counter
from collections.abc import Sequence

from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.node import Node
from kaiwo.model.request import Request
from kaiwo.model.workload import Role
from kaiwo.simulate.engine.job import SimulatedJob

NodeSize = tuple[int, int, int, tuple[str, ...]]  # CPU, memory, pods, and the model of each GPU


def impossible_job(jobs: Sequence[SimulatedJob], nodes: Sequence[Node]) -> tuple[SimulatedJob, str] | None:
    """The first job that would never start, and what it lacks."""
    sizes = Counter(
        (node.cpu_milli, node.memory_mib, node.pods, tuple(sorted(gpu.model for gpu in node.gpus))) for node in nodes
    )
    room: dict[Request, int] = {}
    for job in jobs:
        for role in job.roles:
            if role.request not in room:
                room[role.request] = sum(_pods_on(size, role.request) * count for size, count in sizes.items())
            if room[role.request] < role.count:
                return job, _what_it_lacks(role, sizes, room[role.request])
    return None


def _pods_on(size: NodeSize, request: Request) -> int:
    """How many such pods an empty node of this size holds."""
    cpu_milli, memory_mib, pods, _ = size
    most = [pods]
    if request.cpu_milli:
        most.append(cpu_milli // request.cpu_milli)
    if request.memory_mib:
        most.append(memory_mib // request.memory_mib)
    if request.gpus:
        shares = WHOLE_MILLI // request.gpu_milli
        most.append(_accepted(size, request) * shares // request.gpus)
    return max(0, min(most))


def _accepted(size: NodeSize, request: Request) -> int:
    return sum(not request.gpu_models or model in request.gpu_models for model in size[3])


def _what_it_lacks(role: Role, sizes: Counter[NodeSize], room: int) -> str:
    request, nodes, gpus = role.request, sum(sizes.values()), role.request.gpus * role.count
    cluster = f"an empty cluster of {nodes:,} node{'s' if nodes > 1 else ''}"
    if room:
        return f"{gpus or role.count} {'GPUs' if gpus else 'pods'} in {role.count} pods, and {cluster} holds {room}"
    if request.gpu_models and not any(_accepted(size, request) for size in sizes):
        return f"a GPU of {' or '.join(request.gpu_models)}, and no node has one"
    most_cpu, most_mib = max(size[0] for size in sizes), max(size[1] for size in sizes)
    if request.cpu_milli > most_cpu:
        return f"{request.cpu_milli:,} thousandths of a CPU, and no node has more than {most_cpu:,}"
    if request.memory_mib > most_mib:
        return f"{request.memory_mib:,} MiB of memory, and no node has more than {most_mib:,}"
    most = max(_accepted(size, request) for size in sizes)
    if request.gpus > most:
        return f"{request.gpus:,} GPUs on one node, and no node has more than {most:,} that it accepts"
    return "more CPU, memory and GPUs together than any one node has"
