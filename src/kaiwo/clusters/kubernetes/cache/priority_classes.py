"""Cache the priority classes, for pods on which the API server did not write their priority."""

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.decode.wire_objects import PriorityClass

PATH = "/apis/scheduling.k8s.io/v1/priorityclasses"


class PriorityClasses:
    def __init__(self) -> None:
        self._classes: dict[str, PriorityClass] = {}

    def upsert(self, found: PriorityClass) -> None:
        self._classes[found.metadata.name] = found

    def delete(self, found: PriorityClass) -> None:
        self._classes.pop(found.metadata.name, None)

    def of(self, pod: CachedPod) -> tuple[int, bool]:
        """The pod's priority, and whether it comes from a class: the pod's own, or the global default."""
        if pod.priority is not None:
            return pod.priority, bool(pod.priority_class)
        own = self._classes.get(pod.priority_class)
        if own is None and not pod.priority_class:
            own = next((each for _, each in sorted(self._classes.items()) if each.global_default), None)
        return (own.value, True) if own is not None else (0, bool(pod.priority_class))
