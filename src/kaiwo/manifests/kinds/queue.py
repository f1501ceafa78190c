"""Read a KaiwoQueue, in milli-GPU, milli-CPU and MiB.

An unknown field is an error: a mistyped limit must not become no limit.
"""

from collections.abc import Callable
from functools import partial

from kaiwo.manifests.kinds.object_metadata import ManifestObject, check_user
from kaiwo.manifests.text.field_errors import FieldPath, show
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.values.gpu_model_names import read_models
from kaiwo.manifests.values.names import read_name, read_namespace
from kaiwo.manifests.values.priorities import MAX_PRIORITY
from kaiwo.manifests.values.quantities import (
    read_cpu_milli,
    read_duration_s,
    read_gpu_mib,
    read_memory_bytes,
    read_quantity,
    to_mib,
)
from kaiwo.model.gpus.gpu import ANYONE, EQUALITIES, NOBODY, WHOLE_MILLI, ShareRule, parse_share_rule
from kaiwo.model.policy import STRATEGY_PLACEMENTS
from kaiwo.model.queue import UNLIMITED, Fairness, GpuModelAmounts, Queue, QueueAmounts, ReclaimStrategy, SharePolicy

MAX_WEIGHT = 1_000_000
MAX_EVICTIONS = 1_000_000
MAX_QUEUE_GPUS = 1_000_000
MAX_QUEUE_CPU_MILLI = 2_000_000_000
MAX_QUEUE_MEMORY_MIB = 1 << 40  # 1 EiB
MAX_LISTED = 1_000  # namespaces or users of one queue


def read_queue(item: ManifestObject) -> Queue:
    if "spec" in item.fields.written:  # without a spec, a queue has all the defaults
        item.require_spec()
    spec = item.spec
    resources = spec.inner("resources")
    gpu = resources.inner("gpu")
    queue = Queue(
        name=item.name,
        parent=spec.read("parentQueue", read_name, ""),
        display_name=spec.text("displayName"),
        priority=spec.integer("priority", 100, -MAX_PRIORITY, MAX_PRIORITY),
        max_priority=_read_max_priority(spec),
        gpu_models=_read_gpu_models(gpu),
        gpu=_read_amounts(gpu, _gpu_milli, 0),
        cpu=_read_amounts(resources.inner("cpu"), partial(read_cpu_milli, most=MAX_QUEUE_CPU_MILLI), UNLIMITED),
        memory=_read_amounts(resources.inner("memory"), _memory_mib, UNLIMITED),
        fairness=_read_fairness(spec.inner("fairness")),
        namespaces=_read_names(spec, "namespaces", read_namespace),
        share_with=read_share_rule(spec, "shareWith"),
        strategy=spec.choice("strategy", tuple(STRATEGY_PLACEMENTS), ""),
        max_threads_milli=10 * spec.integer("maxThreads", 0, 1, 100),
        default_threads_milli=10 * spec.integer("defaultThreads", 0, 1, 100),
        max_share_mib=spec.read("maxShareMemory", read_gpu_mib, 0),
        users=_read_names(spec, "users", lambda value, path: check_user(str(value), path)),
    )
    if queue.parent == queue.name:
        itself = f"is {show(queue.name)}, the queue itself"
        raise spec.path_of("parentQueue").error(f"{itself}; name another queue, or leave it out")
    if len(queue.display_name) > 253:
        raise spec.path_of("displayName").error("has more than 253 characters; shorten it")
    resources.finish(strict=True)
    spec.finish(strict=True)
    item.read_labels()
    item.metadata.text_map("annotations")
    item.finish(strict=True)
    return queue


def _read_max_priority(spec: FieldReader) -> int | None:
    return spec.integer("maxPriority", 0, -MAX_PRIORITY, MAX_PRIORITY) if spec.has("maxPriority") else None


def _read_gpu_models(gpu: FieldReader) -> dict[str, GpuModelAmounts]:
    """Quota and limit of each model, by its name in the table of models."""
    models = gpu.inner("models")
    found: dict[str, GpuModelAmounts] = {}
    for written in models.names():
        fields, path = models.inner(written), models.path_of(written)
        (name,) = read_models((written,), path, "", gpu.warnings)
        if name in found:
            raise path.error(f"is {name}, which appears twice; keep one of them")
        quota, limit = (_read_or_unlimited(fields, bound, _gpu_milli) for bound in ("quota", "limit"))
        _check_limit(fields, quota, limit)
        fields.finish(strict=True)
        found[name] = GpuModelAmounts(quota, limit)
    return found


def _read_amounts(fields: FieldReader, reader: Callable[[object, FieldPath], int], no_quota: int) -> QueueAmounts:
    """`no_quota`: the quota of a queue that does not give one for this resource."""
    quota = fields.read("quota", reader, no_quota)
    limit = _read_or_unlimited(fields, "limit", reader)
    weight = fields.integer("overQuotaWeight", 1, 0, MAX_WEIGHT)
    _check_limit(fields, quota, limit)
    fields.finish(strict=True)
    return QueueAmounts(quota, limit, weight)


def _read_or_unlimited(fields: FieldReader, name: str, reader: Callable[[object, FieldPath], int]) -> int:
    return UNLIMITED if fields.value(name) in (None, -1, "-1") else fields.read(name, reader, 0)


def _check_limit(fields: FieldReader, quota: int, limit: int) -> None:
    if limit != UNLIMITED and limit < quota:
        raise fields.path_of("limit").error(
            f"is {show(fields.value('limit'))}, which is below the quota {show(fields.value('quota'))}; "
            "raise it, lower the quota, or leave it out for no limit"
        )


def _gpu_milli(value: object, path: FieldPath) -> int:
    milli = read_quantity(value, path, '"8" or "0.5" (GPUs)') * WHOLE_MILLI
    if milli < 0:
        raise path.error(f"is {show(value)}, which is negative; write 0 or more GPUs")
    if milli > MAX_QUEUE_GPUS * WHOLE_MILLI:
        raise path.error(f"is {show(value)}, which is too much; the maximum is {MAX_QUEUE_GPUS:,} GPUs")
    if milli != milli.to_integral_value():
        raise path.error(f'is {show(value)}, but GPUs are counted in steps of 0.001; round it, such as "0.5"')
    return int(milli)


def _memory_mib(value: object, path: FieldPath) -> int:
    return to_mib(read_memory_bytes(value, path, MAX_QUEUE_MEMORY_MIB))


def _read_fairness(fairness: FieldReader) -> Fairness:
    policy = fairness.choice("policy", list(SharePolicy))
    strategy = fairness.choice("reclaimStrategy", list(ReclaimStrategy))
    found = Fairness(
        SharePolicy(policy) if policy else None,
        ReclaimStrategy(strategy) if strategy else None,
        fairness.read("minRuntime", read_duration_s, None),
        fairness.integer("evictionsPerHour", 0, 0, MAX_EVICTIONS) if fairness.has("evictionsPerHour") else None,
    )
    fairness.finish(strict=True)
    return found


def read_share_rule(fields: FieldReader, name: str) -> ShareRule:
    """With whom work shares a GPU: a list of what must be equal, or `anyone` or `nobody` alone."""
    words = fields.texts(name)
    rule = parse_share_rule(",".join(words)) if words else ()
    if rule is None or any(word not in (ANYONE, NOBODY, *EQUALITIES) for word in words):
        raise fields.path_of(name).error(
            f"is {show(list(words))}; write [nobody], or what must be equal: [queue], [user], [queue, user], ..."
        )
    return rule


def _read_names(spec: FieldReader, field: str, reader: Callable[[object, FieldPath], str]) -> tuple[str, ...]:
    names = spec.texts(field)
    if len(names) > MAX_LISTED:
        fact = f"lists {len(names):,} names and the maximum is {MAX_LISTED:,}"
        raise spec.path_of(field).error(f"{fact}; use more queues")
    return tuple(sorted({reader(name, spec.path_of(field)) for name in names}))
