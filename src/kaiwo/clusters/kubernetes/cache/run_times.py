"""Measure how long work ran, from its pods' own times.

In:    pods that finished or are gone, one by one: the pods of a gang leave before the last of them is done.
Out:   seconds, for work of which every pod succeeded at the first attempt; else 0.
"""

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod


class RunTimes:
    """The finished pods of workloads that still exist."""

    def __init__(self) -> None:
        self._began_s: dict[str, int] = {}  # by workload: when the first pod that succeeded began
        self._failed: set[str] = set()

    def record_end(self, name: str, pod: CachedPod) -> None:
        """A pod finished, or is gone before it did."""
        if pod.phase == "Succeeded" and pod.started_s:
            self._began_s[name] = min(pod.started_s, self._began_s.get(name, pod.started_s))
        else:
            self._failed.add(name)

    def take_ran_s(self, name: str, now_s: int) -> int:
        """The last pod is gone: how long the workload ran."""
        began_s = self._began_s.pop(name, 0)
        if name in self._failed:
            self._failed.discard(name)
            return 0
        return max(0, now_s - began_s) if began_s else 0
