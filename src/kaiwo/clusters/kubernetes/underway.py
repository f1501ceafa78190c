"""What we have begun and the API server has not confirmed, and what it refused.

In:    starts and evictions as they begin, succeed and fail.   Out: who is assumed to be where.
"""

from typing import NamedTuple

from kaiwo.clusters.kubernetes.names import Names
from kaiwo.clusters.kubernetes.roll import Roll
from kaiwo.clusters.kubernetes.seen import SeenPod
from kaiwo.clusters.kubernetes.told import Told
from kaiwo.clusters.lifecycle import back_off_s
from kaiwo.model.plan import Start
from kaiwo.model.workload import Pod


class Refusal(NamedTuple):
    """A start that could not be carried out."""

    times: int  # in a row
    until_s: int
    why: str


class Underway:
    """Starts and evictions by the UID of their pod, refusals by workload."""

    def __init__(self, roll: Roll, names: Names, told: Told) -> None:
        self.starts: dict[str, Start] = {}
        self.evictions: set[str] = set()
        self.refusals: dict[str, Refusal] = {}
        self._roll, self._names, self._told = roll, names, told

    def see(self, pod: SeenPod) -> None:
        """The API server says how a pod is now."""
        if pod.node:
            self.starts.pop(pod.uid, None)
        if pod.is_going or pod.is_over:
            self.evictions.discard(pod.uid)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self.starts.pop(uid, None)
        self.evictions.discard(uid)

    def begin_start(self, start: Start, pod: SeenPod, assumed: Pod) -> None:
        """A Binding is under way. The scheduler assumes it already."""
        self.starts[pod.uid] = start
        self._told.assume(assumed)
        self._roll.touch(pod.key)

    def end_start(self, pod: SeenPod) -> None:
        """The Binding came to nothing, as far as we know."""
        if self.starts.pop(pod.uid, None) is not None:
            self._roll.touch(pod.key)

    def begin_eviction(self, workload: str, slot: str, pod: SeenPod) -> None:
        """An Eviction is under way. The scheduler assumes it already."""
        self.evictions.add(pod.uid)
        self._told.release(workload, slot)
        self._roll.touch(pod.key)

    def end_eviction(self, pod: SeenPod) -> None:
        """The Eviction was refused."""
        if pod.uid in self.evictions:
            self.evictions.discard(pod.uid)
            self._roll.touch(pod.key)

    def refuse(self, workload: str, now_s: int, why: str) -> None:
        """Its workload waits longer each time."""
        times = self.refusals[workload].times + 1 if workload in self.refusals else 1
        self.refusals[workload] = Refusal(times, now_s + back_off_s(times - 1), why)
        if workload in self._names.unit_of:
            self._roll.touch_unit(self._names.unit_of[workload])

    def calm(self, workload: str) -> None:
        """A start went well, or the workload is gone: its refusals are forgotten."""
        if self.refusals.pop(workload, None) is not None and workload in self._names.unit_of:
            self._roll.touch_unit(self._names.unit_of[workload])
