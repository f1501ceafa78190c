"""Write the metrics of the cluster, queues, reservations, webhooks and this process for Prometheus, at each scrape."""

import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from kaiwo.api.context import Context
from kaiwo.api.presenters.queue_view import queue_page
from kaiwo.api.views.reservations import ReservationView
from kaiwo.forecast.scale_signal import ModelNeed
from kaiwo.gpus.fragments import StrandedBy
from kaiwo.history.series.integer_codec import MISSING
from kaiwo.history.series.measures import SubjectKind
from kaiwo.history.series.series_writer import Frame, Vector
from kaiwo.model.queue import UNLIMITED
from kaiwo.model.recovery import RecoveryWay
from kaiwo.model.reservation import ReservationPhase
from kaiwo.runtime.alerting.alert_loop import AlertLoop
from kaiwo.runtime.loop.loop_metrics import Allocations, Histogram
from kaiwo.runtime.plugin_worker.plugin_set import PluginStatus
from kaiwo.runtime.recording.own_samples import own_memory_mib
from kaiwo.runtime.recording.stalled_work import idle_gpu_milli
from kaiwo.snapshot.node_table import MILLI, NodeTable

if TYPE_CHECKING:  # `kaiwo up` has no webhooks
    from kaiwo.clusters.kubernetes.webhooks.process_status import WebhookStatus

MIB = 1024 * 1024
_NOTHING: Vector = np.zeros(0, np.int64)
Samples = Mapping[Any, float]  # by the values of the labels, as a tuple


def _family(kind: Any, name: str, help_text: str, labels: Sequence[str], samples: Samples) -> Metric:
    family: Any = kind(name, help_text, labels=labels)
    for values, value in samples.items():
        family.add_metric(values, value)
    return family


_gauges, _counters = partial(_family, GaugeMetricFamily), partial(_family, CounterMetricFamily)


def reservation_metrics(views: Sequence[ReservationView], counts: Allocations) -> Iterator[Metric]:
    phases = Counter(view.phase for view in views)
    by_phase = {(phase.value,): phases[phase] for phase in ReservationPhase}
    yield _gauges("kaiwo_reservations", "Reservations by phase.", ["phase"], by_phase)
    alive = [view for view in views if view.phase is not ReservationPhase.EXPIRED]
    keys = [(view.name, f"{view.owner_kind} {view.owner}".strip(), view.phase.value) for view in alive]
    used, others = [view.used_milli / 1000 for view in alive], [len(view.others) for view in alive]
    for name, help_text, values in (
        ("kaiwo_reservation_gpus", "GPUs that a reservation has, or will have.", [view.gpus for view in alive]),
        ("kaiwo_reservation_gpus_missing", "GPUs asked for that it does not have.", [view.missing for view in alive]),
        ("kaiwo_reservation_used_gpus", "GPUs of a reservation that its owner's work holds.", used),
        ("kaiwo_reservation_strangers", "Workloads of others that still run on its GPUs.", others),
    ):
        samples = dict(zip(keys, values, strict=True))
        yield _gauges(name, help_text, ["reservation", "owner", "phase"], samples)
    made = "Reservations made since the start."
    yield CounterMetricFamily("kaiwo_reservations_made_total", made, counts.reservations)
    yield CounterMetricFamily("kaiwo_reservation_picks_total", "Devices picked for reservations.", counts.picked)
    stages = (
        "The life of allocations since the start: workloads requested, submissions refused, pods allocated, workloads "
        "expired, pods released."
    )
    by_stage = {(stage,): count for stage, count in counts.stages.items()}
    yield _counters("kaiwo_allocations_total", stages, ["stage"], by_stage)


def webhook_metrics(status: "WebhookStatus | None") -> Iterator[Metric]:
    if status is None:
        return
    counts = status.counts
    answers, refusals = dict(sorted(counts.answers.items())), dict(sorted(counts.refusals.items()))
    questions = "Questions of the API server, by webhook and answer."
    yield _counters("kaiwo_webhook_requests_total", questions, ["webhook", "answer"], answers)
    refused = "Refused objects, by webhook and reason."
    yield _counters("kaiwo_webhook_refusals_total", refused, ["webhook", "reason"], refusals)
    times = HistogramMetricFamily("kaiwo_webhook_seconds", "Time an answer took, by webhook.", labels=["webhook"])
    for webhook in counts.endpoints():
        times.add_metric([webhook], list(counts.buckets(webhook)), counts.sums_s[webhook])
    yield times
    up = "1: the webhooks' process answers; 0: it is being restarted."
    yield GaugeMetricFamily("kaiwo_webhook_up", up, int(status.is_serving))
    yield CounterMetricFamily("kaiwo_webhook_restarts_total", "Restarts of the webhooks' process.", status.restarts)
    yield GaugeMetricFamily("kaiwo_webhook_connections", "Open connections to the webhooks.", status.connections)
    dropped = {(cause,): count for cause, count in sorted(status.dropped.items())}
    ended = "Connections to the webhooks that were ended, and requests that were refused, by cause."
    yield _counters("kaiwo_webhook_dropped_total", ended, ["cause"], dropped)


def alert_metrics(alerts: AlertLoop) -> Iterator[Metric]:
    """How many alerts each rule has. The rules bound the label; subjects are not in it."""
    severities = {rule.name: rule.severity.value for rule in alerts.settings.rules}
    counts = {(name, severity, state): 0 for name, severity in severities.items() for state in ("firing", "pending")}
    for alert in alerts.memory.alerts.values():
        if alert.rule in severities:
            counts[alert.rule, severities[alert.rule], alert.state.value] += 1
    yield _gauges("kaiwo_alerts", "Alerts by rule and state.", ["alert", "severity", "state"], counts)
    yield CounterMetricFamily("kaiwo_alerts_fired_total", "Alerts that fired since the start.", alerts.fired)
    yield CounterMetricFamily("kaiwo_alerts_resolved_total", "Alerts that were resolved.", alerts.resolved)
    took = "Processor time of the last evaluation of all rules."
    yield GaugeMetricFamily("kaiwo_alert_evaluation_seconds", took, alerts.evaluation_s)
    channels = sorted(alerts.channels.items())
    outcomes = {
        (name, outcome): getattr(each.status, outcome)
        for name, each in channels
        for outcome in ("delivered", "failures", "dropped")
    }
    told = "Messages that a channel took, attempts that failed, and messages that were given up."
    yield _counters("kaiwo_alert_messages_total", told, ["channel", "outcome"], outcomes)
    waiting = {(name,): each.waiting for name, each in channels}
    yield _gauges("kaiwo_alert_messages_waiting", "Messages that a channel has not taken yet.", ["channel"], waiting)


_registries: weakref.WeakKeyDictionary[Context, CollectorRegistry] = weakref.WeakKeyDictionary()


def plugin_metrics(plugins: Sequence[PluginStatus]) -> Iterator[Metric]:
    """Of the plugins of others, and of ours that an administrator switched on: whether each takes part, what it costs,
    and how often it was set aside."""
    found = {(each.name,): each for each in plugins if each.run != "built-in" or each.calls or each.faults}
    active = {name: int(each.state == "active") for name, each in found.items()}
    yield _gauges("kaiwo_plugin_active", "1 when the plugin takes part in decisions.", ["plugin"], active)
    calls = {name: each.calls for name, each in found.items()}
    yield _counters("kaiwo_plugin_calls_total", "Batches that the plugin answered.", ["plugin"], calls)
    seconds = {name: each.calls * each.mean_us / 1e6 for name, each in found.items()}
    yield _counters("kaiwo_plugin_seconds_total", "Time that its answers took.", ["plugin"], seconds)
    faults = {name: each.faults for name, each in found.items()}
    yield _counters("kaiwo_plugin_faults_total", "How often it was set aside.", ["plugin"], faults)


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
        yield from _work(context)
        yield from _topology(context)
        yield from _fragments(context)
        yield from scale_metrics(context.demand.needs)
        yield from _recovery(context)
        yield from webhook_metrics(context.webhooks)
        yield from plugin_metrics(context.plugins.statuses())
        yield from alert_metrics(context.alerts)
        told = {(name, each.name, each.subject): each.value for name, every in context.edge.metrics.items()
                for each in every}  # fmt: skip
        words = "Numbers that plugins add: see the plugin."
        yield _gauges("kaiwo_plugin_value", words, ["plugin", "name", "subject"], told)


def _cluster(context: Context) -> Iterator[Metric]:
    sums = context.overview.sum_nodes()
    yield GaugeMetricFamily("kaiwo_nodes", "Nodes.", sums.nodes)
    yield GaugeMetricFamily("kaiwo_nodes_out", "Nodes that take no work.", sums.nodes_out)
    yield GaugeMetricFamily("kaiwo_gpus", "Schedulable GPU devices.", sums.gpus)
    yield GaugeMetricFamily("kaiwo_gpus_used", "Devices with a tenant.", sums.gpus_used)
    yield GaugeMetricFamily("kaiwo_gpu_capacity_milli", "GPU capacity in milli-GPU.", sums.gpu_milli)
    yield GaugeMetricFamily("kaiwo_gpu_allocated_milli", "Allocated milli-GPU.", sums.gpu_used_milli)
    yield from device_metrics(context.live.state.nodes, context.series.last_frame)
    by_state = {(state,): count for state, count in context.overview.count_states().items()}
    yield _gauges("kaiwo_workloads", "Workloads by state.", ["state"], by_state)


def device_metrics(table: NodeTable, frame: Frame) -> Iterator[Metric]:
    """Capacity and allocation of each model, and what agents measured, as of the last sample. Numbers of each GPU are
    at the agents and in the API: here they would be 10,000 series of each kind."""
    exists = table.gpu_model >= 0
    held = (table.device_milli - table.gpus[:, MILLI])[exists]
    codes, models = table.gpu_model[exists], [(name,) for name in table.models]
    for name, words, amounts in (
        ("kaiwo_gpu_model_capacity_milli", "GPU capacity of a model in milli-GPU.", table.device_milli[exists]),
        ("kaiwo_gpu_model_allocated_milli", "Allocated milli-GPU of a model.", held),
    ):
        sums = np.bincount(codes, weights=amounts, minlength=len(models)).tolist()
        yield _gauges(name, words, ["model"], dict(zip(models, sums, strict=True)))
    measured = frame[SubjectKind.GPU].values if SubjectKind.GPU in frame else {}
    for name, words, measure, factor in (
        ("kaiwo_gpu_busy", "Busy GPUs, as measured: the sum of their utilisation.", "utilisation_percent", 0.01),
        ("kaiwo_gpu_power_watts", "Power of all measured GPUs.", "power_w", 1),
        ("kaiwo_gpu_memory_used_bytes", "Used memory of all measured GPUs.", "memory_used_mib", MIB),
        ("kaiwo_gpu_memory_measured_bytes", "Memory of all GPUs whose use is measured.", "memory_mib", MIB),
    ):
        values = measured.get(measure, _NOTHING)
        yield GaugeMetricFamily(name, words, float(values[values != MISSING].sum() * factor))
    known = int(np.count_nonzero(measured.get("utilisation_percent", _NOTHING) != MISSING))
    yield GaugeMetricFamily("kaiwo_gpu_measured", "Devices of which an agent said how busy they are.", known)
    heat = measured.get("temperature_c", _NOTHING)
    words = "The hottest GPU; -1 where nothing is measured."
    yield GaugeMetricFamily("kaiwo_gpu_temperature_max_celsius", words, int(heat.max(initial=MISSING)))


def _queues(context: Context) -> Iterator[Metric]:
    """The metrics of each queue with everything below it, in GPUs, CPUs and bytes."""
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
            ("memory", queue.memory_mib, MIB),
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
    evicted = "Pods of a queue that were evicted since the start, by cause."
    by_cause = dict(sorted(context.live.evicted.items()))
    yield _counters("kaiwo_queue_evictions_total", evicted, ["queue", "cause"], by_cause)


def _work(context: Context) -> Iterator[Metric]:
    """How long work waited, what became of planned starts, and how work ended."""
    allocations, outcomes = context.live.allocations, context.series.outcomes
    waited = "Time from a workload's submission until it started."
    yield _histogram("kaiwo_scheduling_seconds", waited, allocations.waits)
    promises = {(outcome,): count for outcome, count in sorted(allocations.promises.items())}
    kept = "Planned starts by what became of them: kept, delayed (each time), dropped."
    yield _counters("kaiwo_planned_starts_total", kept, ["outcome"], promises)
    ended = {(outcome,): count for outcome, count in sorted(outcomes.totals.items())}
    words = "Workloads that succeeded or failed, and pods that failed, as of the last sample."
    yield _counters("kaiwo_outcomes_total", words, ["outcome"], ended)
    decided = {(kind,): count for kind, count in allocations.decisions.items()}
    words = "Decisions of all cycles: start, evict, keep-place, plan-start; wait: what keeps work waiting changed."
    yield _counters("kaiwo_decisions_total", words, ["decision"], decided)
    idle = idle_gpu_milli(context.live.state)
    yield GaugeMetricFamily("kaiwo_gpu_idle_milli", "Free milli-GPU that work and take work.", idle)


def _by_queue(name: str, help_text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, labels=["queue", "resource"])


def _topology(context: Context) -> Iterator[Metric]:
    """The network's domains, and the decisions about them. The names are those that topology schedulers share."""
    took = "Time of a cycle that chose domains of the network."
    yield _histogram("topology_scheduler_latency_seconds", took, context.level_cycles)
    labels = ["topology", "level", "domain"]
    nodes = {use[:3]: use.node_ratio for use in context.domain_use}
    yield _gauges("topology_domain_utilization_ratio", "Part of a domain's nodes with allocated GPUs.", labels, nodes)
    gpus = {use[:3]: use.gpu_ratio for use in context.domain_use}
    yield _gauges("topology_gpu_allocation_ratio", "Part of a domain's GPU capacity that is allocated.", labels, gpus)
    choices = dict(sorted(context.live.allocations.domain_choices.items()))
    made = "Choices of a domain for a workload or a part of it; level is empty where no single domain had room."
    yield _counters("topology_placement_decisions_total", made, ["topology", "level", "strategy"], choices)


def _fragments(context: Context) -> Iterator[Metric]:
    """Free GPU amounts, for the mix of requests that was seen."""
    found = context.fragments
    if found is None:
        return
    ratio = "Mean part of the free GPU amounts that a request of the mix cannot use."
    yield GaugeMetricFamily("kaiwo_gpu_fragmentation_ratio", ratio, found.ratio_permille / 1000)
    stranded = {(reason.value,): found.by_reason.get(reason, 0) for reason in StrandedBy}
    yield _gauges("kaiwo_gpu_stranded_milli", "Free milli-GPU that no request can use.", ["reason"], stranded)
    domains = {(each.topology, each.level, each.domain): each for each in found.domains}
    labels = ["topology", "level", "domain"]
    ratios = {key: each.ratio_permille / 1000 for key, each in domains.items()}
    yield _gauges("kaiwo_domain_fragmentation_ratio", "The same ratio for each domain.", labels, ratios)
    lost = {key: each.stranded_milli for key, each in domains.items()}
    yield _gauges("kaiwo_domain_stranded_milli", "The same amount for each domain.", labels, lost)
    by_node = {(each.node, each.reason.value): each.stranded_milli for each in found.nodes if each.reason is not None}
    words = "The same amount for each node on which something is stranded."
    yield _gauges("kaiwo_node_stranded_milli", words, ["node", "reason"], by_node)


def scale_metrics(needs: Sequence[ModelNeed]) -> Iterator[Metric]:
    """As of the last sample of the demand. The hour that runs is 0 hours ahead."""
    demand = {(each.model,): each.held_gpus + each.waiting_gpus for each in needs}
    yield _gauges("kaiwo_demand_gpus", "GPUs of a model that work holds or waits for.", ["model"], demand)
    hours = {(need.model, str(hour.ahead - 1)): hour for need in needs for hour in need.hours}
    for name, words, of_hour in (
        ("kaiwo_demand_forecast_gpus", "Mean demand that is expected of an hour.", lambda hour: hour.expected_gpus),
        ("kaiwo_demand_forecast_high_gpus", "Demand of an hour seldom exceeds this.", lambda hour: hour.high_gpus),
        ("kaiwo_scale_add_nodes_ahead", "Nodes to add so that this much could run.", lambda hour: hour.add_nodes),
    ):
        samples = {key: of_hour(hour) for key, hour in hours.items()}
        yield _gauges(name, words, ["model", "hours_ahead"], samples)
    add = {(each.model,): each.add_now for each in needs}
    yield _gauges("kaiwo_scale_add_nodes", "Nodes to add for what waits now.", ["model"], add)
    may_go = {(each.model,): len(each.may_go) for each in needs}
    yield _gauges("kaiwo_scale_removable_nodes", "Empty nodes that no forecast hour needs.", ["model"], may_go)


def _recovery(context: Context) -> Iterator[Metric]:
    history, failures = context.live.recoveries, context.live.state.failures
    took = "Time from a failure until a workload had all its pods again, by what failed and how it was recovered."
    family = HistogramMetricFamily("topology_recovery_duration_seconds", took, labels=["cause", "way"])
    for key, buckets, total_s in history.durations:
        family.add_metric([key.cause, key.way], buckets, total_s)
    yield family
    ways = Counter({way.value: 0 for way in RecoveryWay})
    ways.update(each.way.value for each in failures.recoveries.values())
    under_way = "Workloads that lost pods to a failure and do not have them back yet."
    yield _gauges("kaiwo_recoveries", under_way, ["way"], {(way,): count for way, count in sorted(ways.items())})
    pods = {("lost",): history.lost, ("moved",): history.moved}
    stopped = "Pods that recoveries stopped: lost to a failure, or moved from a place that works."
    yield _counters("kaiwo_recovery_pods_total", stopped, ["why"], pods)
    yield GaugeMetricFamily(
        "kaiwo_nodes_failed", "Nodes that do not work, or of which a GPU does not.", len(failures.nodes)
    )
    resting = "Nodes that came and went or are slow, and take no work for a while."
    yield GaugeMetricFamily("kaiwo_nodes_resting", resting, len(failures.resting))
    state = context.live.state
    slow = "Nodes that are far slower than the others, and take no new work for a while."
    yield GaugeMetricFamily("kaiwo_nodes_slow", slow, len(state.speeds.out))
    down = sum(port.was_up and not port.is_up for ports in list(state.ports.values()) for port in ports)
    yield GaugeMetricFamily("kaiwo_network_ports_down", "Network ports of nodes that worked and are down.", down)


def _histogram(name: str, help_text: str, times: Histogram) -> Metric:
    return HistogramMetricFamily(name, help_text, _buckets(times), times.sum_s)


def _buckets(times: Histogram) -> list[Any]:
    return [*((str(bound), count) for bound, count in times.buckets()), ("+Inf", times.count)]


def _process(context: Context) -> Iterator[Metric]:
    yield _histogram("kaiwo_cycle_seconds", "Time a cycle took.", context.cycles)
    words = "Time of the phases of cycles; events may be applied, and nothing be found to decide, without a cycle."
    phases = HistogramMetricFamily("kaiwo_cycle_phase_seconds", words, labels=["phase"])
    for phase, times in context.live.phases.times.items():
        phases.add_metric([phase], _buckets(times), times.sum_s)
    yield phases
    yield CounterMetricFamily("process_cpu_seconds_total", "Processor time of this process.", time.process_time())
    memory = "Resident memory of this process."
    yield GaugeMetricFamily("process_resident_memory_bytes", memory, max(0, own_memory_mib()) * MIB)
    health = context.live.health
    yield CounterMetricFamily("kaiwo_cycle_failures_total", "Cycles that failed and were tried again.", health.failures)
    left_out = health.left_out + context.live.cluster.left_out
    yield CounterMetricFamily("kaiwo_objects_left_out_total", "Objects that could not be applied.", left_out)
    lag_s = {(quantile,): seconds for quantile, seconds in context.lag.quantiles().items()}
    yield _gauges("kaiwo_loop_lag_seconds", "Lag of the event loop in the last minute.", ["quantile"], lag_s)
    leadership = context.leadership
    yield GaugeMetricFamily("kaiwo_leader", "1: this replica decides; 0: it is a standby.", int(leadership.is_held))
    yield CounterMetricFamily(
        "kaiwo_leader_transitions_total", "Changes of the leader, as the Lease counts them.", leadership.transitions
    )
    lost = sum(1 for agent in context.agents if agent.is_lost)
    agents = {("lost",): lost, ("live",): sum(1 for _ in context.agents) - lost}
    yield _gauges("kaiwo_agents", "Node agents by state: live or lost.", ["state"], agents)
    changed = {(status,): count for status, count in sorted(context.partitions.changer.changed.items())}
    modes = "GPUs whose partition mode was changed, by outcome."
    yield _counters("kaiwo_partition_changes_total", modes, ["status"], changed)
    yield GaugeMetricFamily("kaiwo_streams", "Open streams.", context.streams.count)
    connections = context.connections
    yield GaugeMetricFamily("kaiwo_connections", "Open connections to the port.", connections.open)
    closed = "Connections that were closed early or refused, by cause."
    by_cause = {(cause.value,): count for cause, count in connections.closed.items()}
    yield _counters("kaiwo_connections_closed_total", closed, ["cause"], by_cause)
    yield GaugeMetricFamily("kaiwo_bugs", "Requests that failed because of a bug.", context.bugs)
