"""Pods that name a gang of ours and are left to another scheduler: the gang can never start whole.

In:    pods of other schedulers.   Out: by gang, the names of such pods with their schedulers.
Most foreign pods name no gang: one look at the text of their annotations is all that they cost.
"""

from kaiwo.clusters.kubernetes.gangs import Place
from kaiwo.clusters.kubernetes.gangs.groups import Key as GangKey
from kaiwo.clusters.kubernetes.gangs.wishes import read_gang_name
from kaiwo.clusters.kubernetes.seen import Key, SeenPod

_NOTE = b'.ai/gang"'


class Strangers:
    """Those that are there."""

    def __init__(self) -> None:
        self._by_gang: dict[Place, dict[Key, str]] = {}
        self._gang_of: dict[Key, Place] = {}

    def see(self, pod: SeenPod) -> Place | None:
        """A pod of another scheduler is there, or different; the gang that it names."""
        if _NOTE not in pod.notes_text or pod.is_over or pod.is_going:
            return self.forget(pod.key)
        name = read_gang_name((pod.notes,))
        if not name:
            return self.forget(pod.key)
        place = Place("gang", GangKey("gang", pod.namespace, name))
        self._by_gang.setdefault(place, {})[pod.key] = pod.scheduler
        self._gang_of[pod.key] = place
        return place

    def forget(self, key: Key) -> Place | None:
        """It is gone, over, or ours; the gang that it named."""
        place = self._gang_of.pop(key, None)
        if place is not None:
            self._by_gang[place].pop(key)
            if not self._by_gang[place]:
                del self._by_gang[place]
        return place

    def of(self, gang: GangKey) -> dict[str, str]:
        """Names of pods, with the scheduler that each is left to."""
        return {key[1]: scheduler for key, scheduler in sorted(self._by_gang.get(Place("gang", gang), {}).items())}
