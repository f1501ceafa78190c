"""Write the metrics of the cluster, queues, reservations, webhooks and this process for Prometheus, at each scrape."""

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from kaiwo.api.context import Context
from kaiwo.api.presenters.queue_view import queue_page
from kaiwo.api.views import ReservationView
from kaiwo.clusters.kubernetes.webhooks.request_counts import RequestCounts
from kaiwo.model.queue import UNLIMITED
from kaiwo.model.reservation import ReservationPhase
from kaiwo.runtime.loop.loop_metrics import Allocations


def reservation_metrics(views: Sequence[ReservationView], counts: Allocations) -> Iterator[Metric]:
    phases = GaugeMetricFamily("kaiwo_reservations", "Reservations by phase.", labels=["phase"])
    for phase in ReservationPhase:
        phases.add_metric([phase.value], sum(1 for view in views if view.phase is phase))
    yield phases
    labels = ["reservation", "owner", "phase"]
    gpus, missing, used, others = (
        GaugeMetricFamily(f"kaiwo_reservation_{name}", help_text, labels=labels)
        for name, help_text in (
            ("gpus", "GPUs that a reservation has, or will have."),
            ("gpus_missing", "GPUs asked for that it does not have."),
            ("used_gpus", "Of its GPUs: held by its owner's work."),
            ("strangers", "Workloads of others still in its place."),
        )
    )
    for view in views:
        if view.phase is ReservationPhase.EXPIRED:
            continue
        values = [view.name, f"{view.owner_kind} {view.owner}".strip(), view.phase.value]
        gpus.add_metric(values, view.gpus)
        missing.add_metric(values, view.missing)
        used.add_metric(values, view.used_milli / 1000)
        others.add_metric(values, len(view.others))
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


def webhook_metrics(counts: RequestCounts | None) -> Iterator[Metric]:
    if counts is None:
        return
    requests = CounterMetricFamily(
        "kaiwo_webhook_requests_total",
        "Questions of the API server, by webhook and answer.",
        labels=["webhook", "answer"],
    )
    refusals = CounterMetricFamily(
        "kaiwo_webhook_refusals_total", "Refused objects, by webhook and reason.", labels=["webhook", "reason"]
    )
    times = HistogramMetricFamily("kaiwo_webhook_seconds", "Time an answer took, by webhook.", labels=["webhook"])
    for key, count in sorted(counts.answers.items()):
        requests.add_metric(list(key), count)
    for key, count in sorted(counts.refusals.items()):
        refusals.add_metric(list(key), count)
    for webhook in counts.endpoints():
        times.add_metric([webhook], list(counts.buckets(webhook)), counts.sums_s[webhook])
    yield from (requests, refusals, times)


_registries: weakref.WeakKeyDictionary[Context, CollectorRegistry] = weakref.WeakKeyDictionary()


def write_metrics(context: Context) -> tuple[bytes, str]:
    registry = _registries.get(context)
    if registry is None:
        registry = _registries[context] = CollectorRegistry()
        registry.register(_Collector(context))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Collector:
    def __init__(self, context: Context) -> None:
        self._context = weakref.ref(context)

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        context = self._context()
        if context is None:
            return
        yield from _cluster(context)
        yield from _queues(context)
        yield from reservation_metrics(context.reservations, context.live.allocations)
        yield from _process(context)
        yield from webhook_metrics(context.webhooks)


def _cluster(context: Context) -> Iterator[Metric]:
    sums = context.overview.sum_nodes()
    yield GaugeMetricFamily("kaiwo_nodes", "Nodes.", sums.nodes)
    yield GaugeMetricFamily("kaiwo_nodes_out", "Nodes that take no work.", sums.nodes_out)
    yield GaugeMetricFamily("kaiwo_gpus", "Schedulable GPU devices.", sums.gpus)
    yield GaugeMetricFamily("kaiwo_gpus_used", "Devices with a tenant.", sums.gpus_used)
    yield GaugeMetricFamily("kaiwo_gpu_capacity_milli", "GPU capacity in milli-GPU.", sums.gpu_milli)
    yield GaugeMetricFamily("kaiwo_gpu_allocated_milli", "Allocated milli-GPU.", sums.gpu_used_milli)
    workloads = GaugeMetricFamily("kaiwo_workloads", "Workloads by state.", labels=["state"])
    for state, count in context.overview.count_states().items():
        workloads.add_metric([state], count)
    yield workloads


def _queues(context: Context) -> Iterator[Metric]:
    """In GPUs, CPUs and bytes; a queue with everything below it."""
    below = "a queue and those below it"
    amounts = {
        "quota": _by_queue("kaiwo_queue_quota", "What a queue is guaranteed; +Inf: unlimited."),
        "limit": _by_queue("kaiwo_queue_limit", "The most that a queue may use; +Inf: no limit."),
        "used": _by_queue("kaiwo_queue_used", f"What {below} use, with the space that is kept for its waiting work."),
        "fixed": _by_queue("kaiwo_queue_fixed", f"The part of what {below} use that may not be preempted."),
        "share": _by_queue("kaiwo_queue_fair_share", "The fair share of a queue as of now."),
        "waiting": _by_queue("kaiwo_queue_asked", f"What waiting work of {below} asks for and could have."),
    }
    running = GaugeMetricFamily("kaiwo_queue_running", f"Running workloads of {below}.", labels=["queue"])
    waiting = GaugeMetricFamily("kaiwo_queue_waiting", f"Waiting workloads of {below}.", labels=["queue"])
    for queue in queue_page(context.overview).items:
        running.add_metric([queue.name], queue.running)
        waiting.add_metric([queue.name], queue.waiting)
        for resource, view, unit in (
            ("gpu", queue.gpu_milli, 1 / 1000),
            ("cpu", queue.cpu_milli, 1 / 1000),
            ("memory", queue.memory_mib, 1024 * 1024),
        ):
            for name, family in amounts.items():
                amount = getattr(view, name)
                family.add_metric([queue.name, resource], float("inf") if amount == UNLIMITED else amount * unit)
        for model, bound in sorted(queue.gpu_models.items()):
            for name in ("quota", "limit", "used", "fixed", "share"):
                amount = getattr(bound, name)
                gpus = float("inf") if amount == UNLIMITED else amount / 1000
                amounts[name].add_metric([queue.name, f"gpu/{model}"], gpus)
    yield from amounts.values()
    yield from (running, waiting)
    yield _evictions(context)


def _by_queue(name: str, help_text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, labels=["queue", "resource"])


def _evictions(context: Context) -> Metric:
    evictions = CounterMetricFamily(
        "kaiwo_queue_evictions_total",
        "Pods of a queue that were evicted since the start, by cause.",
        labels=["queue", "cause"],
    )
    for (queue, cause), pods in sorted(context.live.evicted.items()):
        evictions.add_metric([queue, cause], pods)
    return evictions


def _process(context: Context) -> Iterator[Metric]:
    cycles = context.cycles
    buckets: list[Any] = [(str(bound), count) for bound, count in cycles.buckets()]
    yield HistogramMetricFamily(
        "kaiwo_cycle_seconds", "Time a cycle took.", [*buckets, ("+Inf", cycles.count)], cycles.sum_s
    )
    health = context.live.health
    yield CounterMetricFamily("kaiwo_cycle_failures_total", "Cycles that failed and were tried again.", health.failures)
    left_out = health.left_out + context.live.cluster.left_out
    yield CounterMetricFamily("kaiwo_objects_left_out_total", "Objects that could not be taken in.", left_out)
    lag = GaugeMetricFamily("kaiwo_loop_lag_seconds", "Lag of the event loop in the last minute.", labels=["quantile"])
    for quantile, seconds in context.lag.quantiles().items():
        lag.add_metric([quantile], seconds)
    yield lag
    leadership = context.leadership
    yield GaugeMetricFamily("kaiwo_leader", "1: this replica decides; 0: it is a standby.", int(leadership.is_held))
    yield CounterMetricFamily(
        "kaiwo_leader_transitions_total", "Changes of the leader, as the Lease counts them.", leadership.transitions
    )
    yield from _devices(context)
    yield GaugeMetricFamily("kaiwo_streams", "Open streams.", context.streams.count)
    yield GaugeMetricFamily("kaiwo_bugs", "Requests that broke something since the start.", context.bugs)


def _devices(context: Context) -> Iterator[Metric]:
    agents = GaugeMetricFamily("kaiwo_agents", "Node agents, by whether they are still heard.", labels=["state"])
    lost = sum(1 for heard in context.agents if heard.is_lost)
    agents.add_metric(["lost"], lost)
    agents.add_metric(["live"], sum(1 for _ in context.agents) - lost)
    yield agents
    changes = CounterMetricFamily(
        "kaiwo_partition_changes_total", "GPUs whose partition mode was changed, by outcome.", labels=["status"]
    )
    for status, count in sorted(context.partitions.changer.changed.items()):
        changes.add_metric([status], count)
    yield changes
