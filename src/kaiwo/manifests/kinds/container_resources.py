"""Sum up what the containers of a pod request, by the rules of Kubernetes.

In:    the containers of a pod's spec.   Out: amounts by resource: milli-CPU, bytes, whole numbers.
A limit stands in for a request that is not given. Containers and sidecars (init containers with `restartPolicy:
Always`) are summed; another init container counts only as far as it asks for more than the rest.
"""

from collections.abc import Iterable

from kaiwo.manifests.text.field_errors import FieldPath, show
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.values.gpu_model_names import likely_gpu_resource
from kaiwo.manifests.values.names import check_label_key
from kaiwo.manifests.values.quantities import read_cpu_milli, read_memory_bytes, read_quantity, read_whole_gpus
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu_models import RESOURCE_VENDORS

MAX_EXTENDED = 1 << 31
NOT_COUNTED = ("ephemeral-storage", "storage")

Amounts = dict[str, int]
Requirements = tuple[Amounts, Amounts]  # requests, limits


def pod_amounts(spec: FieldReader, defaults: Requirements) -> Amounts:
    """What the whole pod asks for. `defaults` are for what a container does not request."""
    main = [effective(read_requirements(item), defaults) for item in spec.items("containers")]
    sidecars: list[Amounts] = []
    peak: Amounts = {}
    for item in spec.items("initContainers"):
        amounts = effective(read_requirements(item), defaults)
        if item.choice("restartPolicy", ("Always",)):
            sidecars.append(amounts)
        else:
            peak = largest(peak, total([*sidecars, amounts]))
    asked = largest(total([*main, *sidecars]), peak)
    pod_level = effective(read_requirements(spec), ({}, {}))
    return total([asked | pod_level, read_amounts(spec, "overhead")])


def effective(own: Requirements, defaults: Requirements) -> Amounts:
    """For each resource the first that is given: its request, the default request, its limit, the default limit."""
    requests, limits = own
    default_requests, default_limits = defaults
    return default_limits | limits | default_requests | requests


def read_requirements(owner: FieldReader) -> Requirements:
    """`resources` of a container, or of anything that has the same form."""
    resources = owner.inner("resources")
    requests, limits = read_amounts(resources, "requests"), read_amounts(resources, "limits")
    for name, asked in requests.items():
        if name in limits and asked > limits[name]:
            path = FieldPath(resources.owner, f"{resources.prefix}.requests.{name}")
            raise path.error("is more than the limit beside it; lower it, or raise the limit")
        if name in RESOURCE_VENDORS and limits.get(name, asked) != asked:
            path = FieldPath(resources.owner, f"{resources.prefix}.limits.{name}")
            fact = f"is {limits[name]} and the request is {asked}, but for GPUs they must be equal"
            raise path.error(f"{fact}; change one")
    if resources.has("claims"):
        raise resources.path_of("claims").error("asks for a device claim, which is not supported; ask with amd.com/gpu")
    resources.skip("claims")
    resources.finish()
    return requests, limits


def read_amounts(owner: FieldReader, name: str) -> Amounts:
    fields = owner.inner(name)
    fields.ignore("not counted: disk space is not scheduled", *NOT_COUNTED)
    found = {key: _read_amount(key, fields) for key in fields.names() if key not in NOT_COUNTED}
    fields.finish()
    return found


def total(parts: Iterable[Amounts]) -> Amounts:
    found: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found.get(name, 0) + amount
    return found


def largest(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one | other}


def _read_amount(name: str, fields: FieldReader) -> int:
    value, path = fields.value(name), fields.path_of(name)
    if isinstance(value, str) and value.strip().startswith("($"):
        raise path.error(f"is {show(value)}, which is a template; fill it in first")
    if name == "cpu":
        return read_cpu_milli(value, path)
    if name == "memory":
        return read_memory_bytes(value, path)
    if name in RESOURCE_VENDORS:
        return read_whole_gpus(value, path, "kaiwo.ai/gpu-fraction")
    if "/" not in name and not name.startswith("hugepages-"):
        raise ConfigError(
            f"{path.sentence('is not a known resource')}; write cpu, memory, amd.com/gpu or nvidia.com/gpu", path.field
        )
    if meant := likely_gpu_resource(name):
        raise path.error(f"is not a resource that a node can have; write {meant}")
    check_label_key(name, path)
    amount = read_quantity(value, path, '"1"')
    most = MAX_EXTENDED << 20 if name.startswith("hugepages-") else MAX_EXTENDED
    if amount != amount.to_integral_value() or not 0 <= amount <= most:
        raise path.error(f'is {show(value)}, but must be a whole number from 0 to {most:,}; write "1"')
    return int(amount)
