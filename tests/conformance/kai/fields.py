"""Which fields of a case are read, and what else stands in it.

In:    a case.   Out: the fields that nobody here reads, so that a case that fails says what was overlooked.
"""

from collections.abc import Iterator
from typing import Any

Case = dict[str, Any]

ABOUT = {
    "id",
    "name",
    "source",
    "group",
    "conversion",
    "tags",
    "core",
    "noop_passes",
}  # about the case, not the cluster
CASE = {
    *ABOUT, "mode", "actions", "nodes", "queues", "jobs", "expected", "max_api_calls", "topologies", "dra",
    "rounds_until_match", "rounds_after_match", "sleep_between_rounds_s", "session_overrides", "scheduler_conf",
}  # fmt: skip
NODE = {
    "gpus", "gpu_name", "gpu_memory_mib", "cpu_millicores", "memory_bytes", "max_pods", "labels",
    "mig_strategy", "mig_instances", "numa",
    "device_plugin_gpus_allocatable",  # what is left for the device plugin where claims hand out the GPUs
}  # fmt: skip
QUEUE = {
    "name", "parent", "priority", "created_order", "gpu", "cpu_millicores", "memory_mb", "reclaim_min_runtime_s",
    "department",  # a queue like any other
}  # fmt: skip
JOB = {
    "name", "namespace", "queue", "priority", "preemptible", "age_minutes", "subgroups", "tasks",
    "stale_for_s", "staleness_grace_s", "preemption_delay_s", "stays_terminating_when_evicted",
    "qos",  # only NUMA placement asks for it
}  # fmt: skip
TASK = {
    "id", "state", "node", "subgroup", "task_priority", "cpu_millicores", "memory_bytes",
    "gpus", "gpu_fraction", "gpu_memory_mib", "gpu_devices", "gpu_groups", "mig", "legacy_mig", "claims",
    "node_affinity_in", "pod_labels", "pod_affinity_key", "pod_anti_affinity_key", "annotations",
}  # fmt: skip
OVERRIDES = {"OverrideGlobalDefaultStalenessGracePeriod"}


def unread_in(case: Case) -> list[str]:
    """`queues.colour` for a field that nobody reads, each once."""
    return sorted(set(_unread(case)))


def _unread(case: Case) -> Iterator[str]:
    yield from _beyond(case, CASE, "")
    yield from _beyond(case.get("session_overrides") or {}, OVERRIDES, "session_overrides.")
    for node in case["nodes"].values():
        yield from _beyond(node, NODE, "nodes.")
    for queue in case["queues"]:
        yield from _beyond(queue, QUEUE, "queues.")
    for job in case["jobs"]:
        yield from _beyond(job, JOB, "jobs.")
        for task in job["tasks"]:
            yield from _beyond(task, TASK, "tasks.")


def _beyond(given: Case, known: set[str], where: str) -> Iterator[str]:
    return (
        f"{where}{name}" for name, value in given.items() if name not in known and value not in (None, False, [], {})
    )
