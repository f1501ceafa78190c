"""Gangs that come in waves, and whose first wave was stopped because the next one found no room.

In:    who was stopped, and when.   Out: until when nobody tries it again, a longer time after each time in a row.
Where followers are made only after their leader is bound, nobody can see beforehand whether there is room for all.
Without a pause the leader would start and be stopped for ever.
Never: holds back a gang of which all pods exist; it starts when there is room for the whole.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.gangs import Group
from kaiwo.model.workload import Phase, Pod, Workload

FIRST_S, LONGEST_S = 60, 600
FORGOTTEN_S = 3600  # after so long without another one it begins anew
WHY = "its first pods were stopped, because those that come after them found no room in time"


class Relapse(NamedTuple):
    times: int  # in a row
    until_s: int


class Relapses:
    """By workload. They outlive its pods: a controller makes those anew at once."""

    def __init__(self) -> None:
        self._by_name: dict[str, Relapse] = {}

    def note(self, name: str, now_s: int) -> None:
        """What ran of it is stopped, since it was not whole for too long."""
        known = {each: found for each, found in self._by_name.items() if now_s < found.until_s + FORGOTTEN_S}
        times = known[name].times if name in known else 0
        known[name] = Relapse(times + 1, now_s + min(FIRST_S << min(times, 10), LONGEST_S))
        self._by_name = known

    def hold_off(self, workload: Workload, group: Group | None, holding: Sequence[Pod]) -> Workload:
        """The workload with the time before which it is not tried; who is whole has nothing to fear any more."""
        found = self._by_name.get(workload.name)
        if found is None or group is None:
            return workload
        if holding:
            running = sum(pod.phase is Phase.RUNNING for pod in holding)  # not those that were told to go
            if running >= group.minimum and not (group.waits or group.later):
                del self._by_name[workload.name]
            return workload
        if not group.later or group.key.kind == "Job":  # the later pods of a Job come when others are done
            return workload
        return replace(workload, not_before_s=max(workload.not_before_s, found.until_s), not_before_why=WHY)
