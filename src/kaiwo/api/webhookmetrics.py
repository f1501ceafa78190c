"""What the admission webhooks were asked, answered and took, for Prometheus.

In:    the tally of this replica; None where it serves none.   Out: metrics.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from kaiwo.clusters.kubernetes.webhooks.tally import Tally


def webhook_metrics(tally: Tally | None) -> Iterator[Metric]:
    """By door: work that names Kaiwo, work of namespaces that invited it, queues."""
    if tally is None:
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
    for key, count in sorted(tally.answers.items()):
        requests.add_metric(list(key), count)
    for key, count in sorted(tally.refusals.items()):
        refusals.add_metric(list(key), count)
    for door in tally.doors():
        times.add_metric([door], list(tally.buckets(door)), tally.sums_s[door])
    yield from (requests, refusals, times)
