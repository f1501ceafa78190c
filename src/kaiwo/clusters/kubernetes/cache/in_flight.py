"""Track the Bindings and Evictions that have begun and that the API server has not confirmed yet."""

from collections.abc import Mapping

from kaiwo.clusters.kubernetes.cache.gang_index import GangIndex
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.model.plan import Start


class InFlight:
    """Starts and evictions by the UID of their pod. Each change touches the pod's unit."""

    def __init__(self, gang_index: GangIndex) -> None:
        self.starts: dict[str, Start] = {}
        self.settled: dict[str, Mapping[str, str]] = {}  # of these, the annotations that say who pays
        self.tried_nodes: dict[str, str] = {}  # where we last bound a pod: a Binding may take effect late
        self.evictions: set[str] = set()
        self.refused_evictions: dict[str, str] = {}  # refused for good, with the server's message
        self._gang_index = gang_index

    def upsert_pod(self, pod: CachedPod) -> None:
        """A pod is new or changed: what the API server has confirmed is no longer in flight."""
        if pod.node:
            self.starts.pop(pod.uid, None)
            self.settled.pop(pod.uid, None)
        if pod.is_terminating or pod.is_finished:
            self.evictions.discard(pod.uid)

    def delete_pod(self, uid: str) -> None:
        self.starts.pop(uid, None)
        self.settled.pop(uid, None)
        self.tried_nodes.pop(uid, None)
        self.evictions.discard(uid)
        self.refused_evictions.pop(uid, None)

    def begin_start(self, start: Start, pod: CachedPod, settled: Mapping[str, str] | None = None) -> None:
        """`settled`: what was decided counts until the pod is bound, whatever is written on it meanwhile."""
        self.starts[pod.uid] = start
        if settled:
            self.settled[pod.uid] = settled
        self.tried_nodes[pod.uid] = start.node
        self._gang_index.touch(pod.key)

    def end_start(self, pod: CachedPod) -> None:
        """The Binding failed, or the pod was read again and shows its outcome."""
        self.settled.pop(pod.uid, None)
        if self.starts.pop(pod.uid, None) is not None:
            self._gang_index.touch(pod.key)

    def begin_eviction(self, pod: CachedPod) -> None:
        self.evictions.add(pod.uid)
        self._gang_index.touch(pod.key)

    def end_eviction(self, pod: CachedPod, why: str = "") -> None:
        """The Eviction failed. `why`: it was refused for good, and is not tried again until `retry_eviction`."""
        if pod.uid in self.evictions:
            self.evictions.discard(pod.uid)
            if why:
                self.refused_evictions[pod.uid] = why
            self._gang_index.touch(pod.key)

    def retry_eviction(self, pod: CachedPod) -> None:
        if self.refused_evictions.pop(pod.uid, None) is not None:
            self._gang_index.touch(pod.key)
