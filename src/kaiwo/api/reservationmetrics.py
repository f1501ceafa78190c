"""Metrics of reservations and of the life of allocations.

In:    how the reservations stand, the counts of the loop.   Out: Prometheus families.
"""

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kaiwo.api.reservationviews import ReservationView
from kaiwo.model.reservation import ReservationPhase
from kaiwo.runtime.allocations import Allocations


def reservation_metrics(views: Sequence[ReservationView], counts: Allocations) -> Iterator[Metric]:
    """By phase, by reservation, and by stage of an allocation's life."""
    phases = GaugeMetricFamily("kaiwo_reservations", "Reservations by phase.", labels=["phase"])
    for phase in ReservationPhase:
        phases.add_metric([phase.value], sum(1 for view in views if view.phase is phase))
    yield phases
    labels = ["reservation", "owner", "phase"]
    gpus = GaugeMetricFamily("kaiwo_reservation_gpus", "GPUs that a reservation has, or will have.", labels=labels)
    missing = GaugeMetricFamily(
        "kaiwo_reservation_gpus_missing", "GPUs asked for that it does not have.", labels=labels
    )
    used = GaugeMetricFamily("kaiwo_reservation_used_gpus", "Of its GPUs: held by its owner's work.", labels=labels)
    others = GaugeMetricFamily("kaiwo_reservation_strangers", "Workloads of others still in its place.", labels=labels)
    for view in views:
        if view.phase is ReservationPhase.EXPIRED:
            continue
        who = [view.name, f"{view.owner_kind} {view.owner}".strip(), view.phase.value]
        gpus.add_metric(who, view.gpus)
        missing.add_metric(who, view.missing)
        used.add_metric(who, view.used_milli / 1000)
        others.add_metric(who, len(view.others))
    yield from (gpus, missing, used, others)
    yield CounterMetricFamily(
        "kaiwo_reservations_made_total", "Reservations made since the start.", counts.reservations
    )
    yield CounterMetricFamily("kaiwo_reservation_picks_total", "Devices picked for reservations.", counts.picked)
    stages = CounterMetricFamily(
        "kaiwo_allocations_total",
        "The life of allocations since the start: workloads requested, submissions refused, pods allocated, workloads "
        "expired, pods released.",
        labels=["stage"],
    )
    for stage, count in counts.stages.items():
        stages.add_metric([stage], count)
    yield stages
