"""Find pods of our scheduler that somebody else bound: he chose his own GPUs, past every queue.

Only what this process saw while it led counts. A grant that cannot be read proves nothing, because keys can be lost.
Where an admission policy lets only schedulers bind, whoever does it nevertheless is an administrator and knows why.
"""

from kaiwo.clusters.kubernetes.cache.in_flight import InFlight
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.model.plan import Eviction, EvictionCause


class ForeignBindings:
    """`is_guarded`: an admission policy lets only schedulers bind; then nothing is looked for."""

    def __init__(self, in_flight: InFlight) -> None:
        self.is_guarded = True
        self._is_leading = False  # and all that other leaders did is known
        self._in_flight = in_flight
        self._found: dict[str, CachedPod] = {}  # by UID

    def note(self, before: CachedPod | None, pod: CachedPod) -> None:
        """A pod of ours is new or changed. `before`: as it was, None if it is new."""
        is_bound_now = pod.node and not (before is not None and before.uid == pod.uid and before.node)
        if not self._is_leading or not is_bound_now or not pod.spec.gpus_by_resource or pod.is_finished:
            return
        if pod.node != self._in_flight.tried_nodes.get(pod.uid):
            self._found[pod.uid] = pod

    def forget(self, uid: str) -> None:
        self._found.pop(uid, None)

    def start(self) -> None:
        """This replica leads."""
        self._is_leading = not self.is_guarded

    def stop(self) -> None:
        """Another replica leads, or has led."""
        self._found, self._is_leading = {}, False

    def pods(self) -> list[CachedPod]:
        return list(self._found.values())


def eviction_of(workload: str, slot: str) -> Eviction:
    return Eviction(workload, slot, EvictionCause.FOREIGN_BINDING)
