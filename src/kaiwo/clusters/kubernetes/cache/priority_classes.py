"""Cache the priority classes: what a class is worth, and the priority of pods on which the API server wrote none."""

from collections.abc import Iterable

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.decode.wire_objects import PriorityClass

PATH = "/apis/scheduling.k8s.io/v1/priorityclasses"
SYSTEM_PREFIX = "system-"
SYSTEM_NAMESPACE = "kube-system"


class PriorityClasses:
    def __init__(self) -> None:
        self._classes: dict[str, PriorityClass] = {}

    def upsert(self, found: PriorityClass, pods: Iterable[CachedPod] = ()) -> list[Key]:
        """The pods whose priority may have changed."""
        name = found.metadata.name
        before = self._classes.get(name)
        self._classes[name] = found
        is_same = before is not None and (before.value, before.global_default) == (found.value, found.global_default)
        return [] if is_same else _users_of(name, pods)

    def delete(self, found: PriorityClass, pods: Iterable[CachedPod] = ()) -> list[Key]:
        gone = self._classes.pop(found.metadata.name, None)
        return [] if gone is None else _users_of(found.metadata.name, pods)

    def of(self, pod: CachedPod) -> tuple[int, bool]:
        """The pod's priority, and whether it comes from a class: the pod's own, or the global default."""
        if pod.priority is not None:
            return pod.priority, bool(pod.priority_class)
        own = self._class_of(pod)
        return (own.value, True) if own is not None else (0, bool(pod.priority_class))

    def value_of_class(self, pod: CachedPod) -> int:
        """What the pod's class is worth; 0: it has none, or none that counts.

        The class must exist: without the API server's admission of priorities, anybody could write any number. Anybody
        may use the system classes in any namespace, unless a quota forbids it, so they count in one namespace only.
        """
        if pod.priority_class.startswith(SYSTEM_PREFIX) and pod.namespace != SYSTEM_NAMESPACE:
            return 0
        own = self._class_of(pod)
        return own.value if own is not None else 0

    def _class_of(self, pod: CachedPod) -> PriorityClass | None:
        if pod.priority_class:
            return self._classes.get(pod.priority_class)
        if pod.priority is not None:
            return None
        return next((each for _, each in sorted(self._classes.items()) if each.global_default), None)


def _users_of(name: str, pods: Iterable[CachedPod]) -> list[Key]:
    """The pods of this class, and those whose class or priority nobody wrote: the global default may be theirs."""
    return [pod.key for pod in pods if pod.priority_class == name or (not pod.priority_class and pod.priority is None)]
