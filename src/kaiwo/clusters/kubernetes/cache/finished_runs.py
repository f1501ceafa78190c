"""How long work ran, from what its pods said at their ends.

In:    pods that ended or are gone, one by one: those of a gang leave it before the last of them is done.
Out:   seconds, of work that did what it was for, all of it, at the first attempt; else 0.
"""

from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod


class FinishedRuns:
    """The pods of living work that ended already."""

    def __init__(self) -> None:
        self._began_s: dict[str, int] = {}  # when the first of those that succeeded began, by workload
        self._failed: set[str] = set()

    def note(self, name: str, pod: CachedPod) -> None:
        """A pod ended, or is gone before it did."""
        if pod.phase == "Succeeded" and pod.started_s:
            self._began_s[name] = min(pod.started_s, self._began_s.get(name, pod.started_s))
        else:
            self._failed.add(name)

    def ran_s(self, name: str, now_s: int) -> int:
        """The last pod is gone: so long it ran."""
        began_s = self._began_s.pop(name, 0)
        if name in self._failed:
            self._failed.discard(name)
            return 0
        return max(0, now_s - began_s) if began_s else 0
