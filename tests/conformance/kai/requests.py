"""What one task of a case asks for, and whom it must be near to or apart from.

In:    a task.   Out: a request in our words.
The labels that a task carries are also those of the pods that it wants near, or does not want beside it.
"""

from collections.abc import Iterable
from typing import Any

from kaiwo.model.affinity import NodeRule, PodAffinity, RequiredPodAffinity, RequiredPodAntiAffinity
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from tests.conformance.kai.machines import NODE_TYPE

Case = dict[str, Any]
NEAR, APART = "pod_affinity_key", "pod_anti_affinity_key"


class Requests:
    """Turns the tasks of one case into requests."""

    def __init__(self, jobs: Iterable[Case], memory_unit: int) -> None:
        self._memory_unit = memory_unit
        tasks = [task for job in jobs for task in job["tasks"] if task.get("pod_labels")]
        self._wanted = sorted({_labels(task) for task in tasks if task.get(NEAR) or task.get(APART)})

    def of(self, task: Case) -> Request:
        """What one task asks for."""
        whole, fraction, memory_mib = task.get("gpus", 0), task.get("gpu_fraction", 0), task.get("gpu_memory_mib", 0)
        if 0 < whole < 1:
            whole, fraction = 0, whole
        shared = task.get("gpu_devices") or len(task.get("gpu_groups") or ()) or 1
        names = task.get("node_affinity_in") or []
        instances = dict(task.get("mig") or {}) | ({"a kind that no node has": 1} if task.get("legacy_mig") else {})
        return Request(
            cpu_milli=task["cpu_millicores"],
            memory_mib=int(task["memory_bytes"]) // self._memory_unit,
            gpus=shared if fraction or memory_mib else int(whole),
            gpu_milli=round(fraction * WHOLE_MILLI) if fraction else WHOLE_MILLI,
            gpu_mib=memory_mib,
            extended=tuple(sorted((name, int(count)) for name, count in instances.items())),
            node_rules=(NodeRule(NODE_TYPE, "In", tuple(sorted(names))),) if names else (),
            neighbours=self._neighbours(task),
        )

    def _neighbours(self, task: Case) -> PodAffinity | None:
        own = _labels(task)
        marks = tuple(" ".join(wanted) for wanted in self._wanted if set(wanted) <= set(own))
        if not marks:
            return None
        mark, near, apart = " ".join(own), task.get(NEAR), task.get(APART)
        return PodAffinity(
            marks,
            RequiredPodAffinity(mark, (near,)) if near else None,
            (RequiredPodAntiAffinity(mark, apart),) if apart else (),
        )


def _labels(task: Case) -> tuple[str, ...]:
    return tuple(sorted(f"{name}={value}" for name, value in (task.get("pod_labels") or {}).items()))
