"""What a new reservation would do to running work, before it is created: `decide` itself tries it on a fork."""

from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.decide.cycle import decide
from kaiwo.decide.reservations import matching_gpus
from kaiwo.model.amounts import count
from kaiwo.model.events import ReservationChanged
from kaiwo.model.plan import EvictionCause
from kaiwo.model.policy import Policy
from kaiwo.model.reservation import Reservation, ReservationPhase
from kaiwo.snapshot.cluster_state import ClusterState

MAX_NAMED = 8


class ReservationEffect(NamedTuple):
    """As if the reservation started now: what runs at a later start is not known."""

    name: str
    stops: tuple[str, ...]  # workloads that it would stop
    asked: int  # GPUs
    matching: int  # GPUs of the cluster that it could ever have

    @property
    def is_harmless(self) -> bool:
        return not self.stops and self.asked <= self.matching

    @property
    def sentence(self) -> str:
        facts = []
        if self.asked > self.matching:
            facts.append(f"asks for {self.asked} GPUs, but the cluster has {self.matching} that match")
        if self.stops:
            more = f" and {len(self.stops) - MAX_NAMED} more" if len(self.stops) > MAX_NAMED else ""
            running = count(len(self.stops), "running workload")
            facts.append(f"stops {running}: {', '.join(self.stops[:MAX_NAMED])}{more}")
        return f"reservation {self.name} {', and '.join(facts)}"


def reservation_effect(state: ClusterState, reservation: Reservation, policy: Policy, now_s: int) -> ReservationEffect:
    matching = matching_gpus(state.node_objects, reservation) if reservation.gpus else 0
    if reservation.phase(now_s) is ReservationPhase.EXPIRED:
        return ReservationEffect(reservation.name, (), reservation.gpus, matching)
    before = state.reservations.objects.get(reservation.name)
    picked = before.picked if before is not None and reservation.gpus else ()
    fork = state.fork()
    fork.patch([ReservationChanged(replace(reservation, start_s=0, picked=picked))])
    evictions = decide(fork.snapshot(now_s), policy).evictions
    stopped = {
        each.workload
        for each in evictions
        if each.cause is EvictionCause.RESERVATION and each.beneficiary == reservation.name
    }
    return ReservationEffect(reservation.name, tuple(sorted(stopped)), reservation.gpus, matching)
