"""The life of allocations in numbers, since the start: asked for, refused, given, expired, released.

In:    events before they are patched in, and plans.   Out: counts for `/metrics`.
"""

from collections import Counter
from collections.abc import Sequence

from kaiwo.model.event import Event, PodChanged, PodGone, ReservationChanged, WorkloadChanged
from kaiwo.model.plan import Plan
from kaiwo.model.workload import Phase
from kaiwo.snapshot.picture import Picture

STAGES = ("requested", "refused", "allocated", "expired", "released")


class Allocations:
    """Counts that only grow."""

    def __init__(self) -> None:
        self.stages: Counter[str] = Counter(dict.fromkeys(STAGES, 0))
        self.reservations = 0  # made since the start
        self.picked = 0  # devices picked for reservations, and picked anew

    def hear(self, picture: Picture, events: Sequence[Event]) -> None:
        """What a cluster tells, before the picture knows it."""
        for event in events:
            match event:
                case WorkloadChanged(workload):
                    self.stages["requested"] += workload.name not in picture.workloads
                case PodChanged(pod):
                    before = picture.pods.get(pod.workload, {}).get(pod.name)
                    is_over = pod.phase is Phase.DONE and before is not None and before.phase is not Phase.DONE
                    self.stages["released"] += is_over
                case PodGone(workload, name):
                    before = picture.pods.get(workload, {}).get(name)
                    self.stages["released"] += before is not None and before.phase is not Phase.DONE
                case ReservationChanged(reservation):
                    self.reservations += reservation.name not in picture.reserved.objects

    def decided(self, plan: Plan) -> None:
        """What a cycle gives, and what it takes back by the clock."""
        self.stages["allocated"] += len(plan.starts)
        self.stages["expired"] += len(plan.expired)
        self.picked += sum(len(picked.devices) for picked in plan.reserved)

    def refused(self) -> None:
        """A submission that was not let in."""
        self.stages["refused"] += 1
