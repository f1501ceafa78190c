"""Let short work fill the places of lost gang members until their replacements are due.

The place of a lost member is a nomination (see `Nomination.lost_s`): nothing else starts there. Where it is known that
the replacement does not come before some time, work that ends before that may use the place meanwhile, as in the gap
before a planned start; work that overruns is stopped.
Never: changes what queues are charged. The gang's queue pays for a kept place, filled or not.
"""

from typing import NamedTuple

from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.decide.placement.queue_limits import QueueCharge
from kaiwo.decide.planned_starts.backfill import LEAD_S, ProtectedStart
from kaiwo.decide.planned_starts.future_capacity import usage_of
from kaiwo.model.plan import Nomination
from kaiwo.model.planned_start import PlannedPod, PlannedStart
from kaiwo.snapshot.cluster_state import ClusterState


class FillablePlaces(NamedTuple):
    due: tuple[PlannedStart, ...] = ()  # when each gang may need its places again
    fillable: tuple[Nomination, ...] = ()  # places with a gap before that
    protected: tuple[ProtectedStart, ...] = ()  # the same, for the masks of all other work


def fillable_places(cycle: CycleInput, cycle_state: CycleState) -> FillablePlaces:
    """The places whose replacements have a known time. Those with a gap before it count as free from now on."""
    state, due, fillable, protected = cycle.state, list[PlannedStart](), list[Nomination](), list[ProtectedStart]()
    for name in sorted({name for name, _ in state.lost_places}):
        places = [each for _, each in sorted(state.nominations[name].items()) if each.due_s]
        workload = state.workloads.get(name)
        if not places or workload is None:
            continue
        planned = PlannedStart(name, min(each.due_s for each in places), tuple(map(_planned_pod, places)))
        due.append(planned)
        row = cycle_state.working.queues.row.get(workload.queue)
        usage = usage_of(planned, state, planned.start_s)
        # A gang that is queued has its replacements already: they may start now.
        if row is None or usage is None or planned.start_s - LEAD_S <= cycle.now_s or state.backlog.is_queued(name):
            continue
        charge = QueueCharge(row, (0,) * cycle_state.working.all_used.shape[1], is_non_preemptible=False)
        fillable += places
        protected.append(ProtectedStart(planned, workload, usage, charge, is_lost_place=True))
    for each in fillable:
        cycle_state.working.release_uncharged(each)
    return FillablePlaces(tuple(due), tuple(fillable), tuple(protected))


def has_due_places(state: ClusterState) -> bool:
    return any(state.nominations[workload][pod].due_s for workload, pod in state.lost_places)


def _planned_pod(kept: Nomination) -> PlannedPod:
    return PlannedPod(kept.pod, kept.node, kept.devices, kept.cpu_milli, kept.memory_mib, kept.extended)
