"""The metrics, as Prometheus reads them: computed when they are asked for.

In:    the board (fresh), the last cycle, the loop's lag.   Out: text.
"""

import weakref
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from kaiwo.api.context import Context
from kaiwo.model.gpu import WHOLE_MILLI

_registries: weakref.WeakKeyDictionary[Context, CollectorRegistry] = weakref.WeakKeyDictionary()


def write_metrics(context: Context) -> tuple[bytes, str]:
    """The text and its content type."""
    registry = _registries.get(context)
    if registry is None:
        registry = _registries[context] = CollectorRegistry()
        registry.register(_Collector(context))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Collector:
    """Asked by the registry at each scrape."""

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
        yield from _process(context)


def _cluster(context: Context) -> Iterator[Metric]:
    sums = context.board.sum_nodes()
    yield GaugeMetricFamily("kaiwo_nodes", "Nodes.", sums.nodes)
    yield GaugeMetricFamily("kaiwo_nodes_out", "Nodes that take no work.", sums.nodes_out)
    yield GaugeMetricFamily("kaiwo_gpus", "Schedulable GPU devices.", sums.gpus)
    yield GaugeMetricFamily("kaiwo_gpus_used", "Devices with a tenant.", sums.gpus_used)
    yield GaugeMetricFamily("kaiwo_gpu_capacity_milli", "GPU capacity in milli-GPU.", sums.gpus * WHOLE_MILLI)
    yield GaugeMetricFamily("kaiwo_gpu_allocated_milli", "Allocated milli-GPU.", sums.gpu_used_milli)
    workloads = GaugeMetricFamily("kaiwo_workloads", "Workloads by state.", labels=["state"])
    for state, count in context.board.count_states().items():
        workloads.add_metric([state], count)
    yield workloads


def _queues(context: Context) -> Iterator[Metric]:
    used = GaugeMetricFamily("kaiwo_queue_used_milli", "Milli-GPU used, with the queues below.", labels=["queue"])
    waiting = GaugeMetricFamily("kaiwo_queue_waiting", "Waiting workloads, with the queues below.", labels=["queue"])
    for sums in context.board.sum_queues():
        used.add_metric([sums.queue.name], sums.used[0])
        waiting.add_metric([sums.queue.name], sums.waiting)
    yield used
    yield waiting


def _process(context: Context) -> Iterator[Metric]:
    cycles = context.cycles
    buckets: list[Any] = [(str(bound), count) for bound, count in cycles.buckets()]
    yield HistogramMetricFamily(
        "kaiwo_cycle_seconds", "Time a cycle took.", [*buckets, ("+Inf", cycles.count)], cycles.sum_s
    )
    lag = GaugeMetricFamily("kaiwo_loop_lag_seconds", "Lag of the event loop in the last minute.", labels=["quantile"])
    for quantile, seconds in context.lag.quantiles().items():
        lag.add_metric([quantile], seconds)
    yield lag
    yield GaugeMetricFamily("kaiwo_streams", "Open streams.", context.open_streams)
    yield GaugeMetricFamily("kaiwo_bugs", "Requests that broke something since the start.", context.bugs)
