"""Read a KaiwoQueue.

In:    a document of that kind.   Out: one Queue, in milli-GPU, milli-CPU and MiB.
An unknown field is an error: a mistyped limit must not become no limit. What is known but not acted on yet is said.
"""

from collections.abc import Callable

from kaiwo.manifests.fields import Fields
from kaiwo.manifests.names import read_name
from kaiwo.manifests.objects import Object
from kaiwo.manifests.places import Place, show
from kaiwo.manifests.priorities import MAX_PRIORITY
from kaiwo.manifests.quantities import read_cpu_milli, read_duration_s, read_memory_bytes, read_quantity, to_mib
from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.queue import UNLIMITED, Amounts, Queue

MAX_WEIGHT = 1_000_000
MAX_QUEUE_GPUS = 1_000_000
MAX_QUEUE_CPU_MILLI = 2_000_000_000
MAX_QUEUE_MEMORY_MIB = 1 << 40  # 1 EiB
POLICIES = ("DRF", "WeightedFair", "StrictPriority", "FIFO")
RECLAIM_STRATEGIES = ("aggressive", "conservative", "none")
NOT_YET = "accepted, but this version does not act on it yet"


def read_queue(item: Object) -> Queue:
    """One KaiwoQueue."""
    spec = item.spec
    queue = Queue(
        name=item.name,
        parent=spec.read("parentQueue", read_name, ""),
        display_name=spec.text("displayName"),
        priority=spec.integer("priority", 100, -MAX_PRIORITY, MAX_PRIORITY),
        **_read_resources(spec.inner("resources")),
    )
    if queue.parent == queue.name:
        raise spec.place("parentQueue").error(
            f"is {show(queue.name)}, the queue itself; name another queue, or leave it out"
        )
    if len(queue.display_name) > 253:
        raise spec.place("displayName").error("has more than 253 signs; shorten it")
    _read_fairness(spec)
    for name in ("namespaces", "users"):
        spec.texts(name)
    spec.ignore(NOT_YET, "fairness", "namespaces", "users")
    spec.finish(strict=True)
    item.read_labels()
    item.metadata.text_map("annotations")
    item.finish(strict=True)
    return queue


def _read_resources(resources: Fields) -> dict[str, Amounts]:
    gpu = resources.inner("gpu")
    for name in gpu.inner("models").names():
        model = gpu.inner("models").inner(name)
        _read_amounts(model, _gpu_milli)
        model.finish(strict=True)
    gpu.ignore(NOT_YET, "models")
    found: dict[str, Amounts] = {}
    for name, reader in (("gpu", _gpu_milli), ("cpu", _cpu_milli), ("memory", _memory_mib)):
        fields = gpu if name == "gpu" else resources.inner(name)
        found[name] = _read_amounts(fields, reader)
        fields.finish(strict=True)
    resources.finish(strict=True)
    return found


def _read_amounts(fields: Fields, reader: Callable[[object, Place], int]) -> Amounts:
    quota = fields.read("quota", reader, 0)
    limit = UNLIMITED if fields.value("limit") in (None, -1, "-1") else fields.read("limit", reader, 0)
    weight = fields.integer("overQuotaWeight", 1, 0, MAX_WEIGHT)
    if limit != UNLIMITED and limit < quota:
        raise fields.place("limit").error(
            f"is {show(fields.value('limit'))}, which is below the quota {show(fields.value('quota'))}; "
            "raise it, lower the quota, or leave it out for no limit"
        )
    return Amounts(quota, limit, weight)


def _gpu_milli(value: object, place: Place) -> int:
    milli = read_quantity(value, place, '"8" or "0.5" (GPUs)') * WHOLE_MILLI
    if milli < 0:
        raise place.error(f"is {show(value)}, which is negative; write 0 or more GPUs")
    if milli > MAX_QUEUE_GPUS * WHOLE_MILLI:
        raise place.error(f"is {show(value)}, which is too much; the most is {MAX_QUEUE_GPUS:,} GPUs")
    if milli != milli.to_integral_value():
        raise place.error(f'is {show(value)}, but GPUs are counted in steps of 0.001; round it, such as "0.5"')
    return int(milli)


def _cpu_milli(value: object, place: Place) -> int:
    return read_cpu_milli(value, place, MAX_QUEUE_CPU_MILLI)


def _memory_mib(value: object, place: Place) -> int:
    return to_mib(read_memory_bytes(value, place, MAX_QUEUE_MEMORY_MIB))


def _read_fairness(spec: Fields) -> None:
    fairness = spec.inner("fairness")
    fairness.choice("policy", POLICIES)
    fairness.choice("reclaimStrategy", RECLAIM_STRATEGIES)
    fairness.read("minRuntime", read_duration_s, 0)
    fairness.finish(strict=True)
