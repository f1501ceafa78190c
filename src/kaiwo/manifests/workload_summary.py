"""Describe what a workload requests in a few words: "8 pods x 4 GPUs", "0.5 GPU", "16000 MiB of a GPU", "4 CPUs"."""

from collections import Counter

from kaiwo.model.amounts import count, cpus, gpus, memory
from kaiwo.model.gpus.gpu import rule_words
from kaiwo.model.gpus.gpu_models import VENDOR_MODELS
from kaiwo.model.request import ANY_PARTITION, Request
from kaiwo.model.workload import Role, Workload, subgroup_tree

_VENDOR_NAMES = {"amd": "AMD", "nvidia": "NVIDIA"}


def describe_workload(workload: Workload) -> str:
    """The `wants` column: the pods and the main resource of each."""
    if not workload.groups:
        return " + ".join(_describe_pods(role) for role in workload.roles)
    parts = Counter(_describe_pods(role) for role in workload.roles)
    every = " + ".join(f"{times} x ({text})" if times > 1 else text for text, times in parts.items())
    root = subgroup_tree(workload.groups, workload.roles)
    below = len(root.children)
    return every if root.minimum == below else f"{every}, at least {root.minimum} of {below} sub-groups"


def describe_request(request: Request) -> str:
    """The main resource of one pod: its GPUs, or its CPUs if it has none."""
    times = "" if request.gpus == 1 else f"{request.gpus} x "
    if request.is_memory:
        fraction = f"{gpus(request.fraction_milli)} with at least " if request.fraction_milli else ""
        return times + fraction + (memory(request.gpu_mib) if fraction else f"{memory(request.gpu_mib)} of a GPU")
    if request.is_fraction:
        return times + gpus(request.gpu_milli)
    if request.is_partition:
        return count(
            request.gpus, "partition" if request.partition == ANY_PARTITION else f"{request.partition} partition"
        )
    if request.gpus:
        return count(request.gpus, "GPU")
    if request.cpu_milli:
        return cpus(request.cpu_milli)
    if request.memory_mib:
        return memory(request.memory_mib)
    return ", ".join(f"{amount} {name}" for name, amount in request.extended) or "nothing"


def describe_role(role: Role) -> str:
    """All that a role's pods ask for, as one sentence."""
    request = role.request
    parts = [describe_request(request)] if request.gpus else []
    if request.isolation and (request.is_fraction or request.is_memory):
        parts[0] += f" by {request.isolation}"
    if request.threads_milli:
        parts[0] += f" with {request.threads_milli // 10} % of the multiprocessors"
    if request.share_with and not request.is_exclusive:
        parts[0] += f", shared with {rule_words(request.share_with)}"
    if request.gpu_models and request.gpus:
        parts[0] += f" ({_models(request.gpu_models)})"
    parts += [cpus(request.cpu_milli)] if request.cpu_milli else []
    parts += [f"{memory(request.memory_mib)} memory"] if request.memory_mib else []
    parts += [f"{amount} {name}" for name, amount in request.extended]
    pods = count(role.count, "pod")
    at_least = "" if role.needed == role.count else f" (at least {role.needed})"
    each = " each" if role.count > 1 else ""
    rules = f" on nodes that match {count(len(request.node_rules), 'rule')}"
    return f"{role.name}: {pods}{at_least},{each} {', '.join(parts) or 'nothing'}{rules if request.node_rules else ''}"


def _describe_pods(role: Role) -> str:
    wants = describe_request(role.request)
    if role.count == 1:
        return wants
    pods = f"{role.count} pods" if role.needed == role.count else f"{role.needed}-{role.count} pods"
    return f"{pods} x {wants}"


def _models(models: tuple[str, ...]) -> str:
    for vendor, names in VENDOR_MODELS.items():
        if models == names:
            return f"any {_VENDOR_NAMES[vendor]}"
    return " or ".join(models)
