"""Write the Grafana dashboards of deploy/grafana with Grafana's own library: `make dashboards`.

In:    the table of panels below.   Out: one JSON file for each dashboard, to be provisioned; the chart has them, too.
Every query names its data source by a variable, so the files work in any Grafana.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, gauge, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

OUT = Path(__file__).parents[1] / "deploy/grafana"
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
HEIGHT = 8


class Query(NamedTuple):
    expr: str
    legend: str = ""


class Panel(NamedTuple):
    title: str
    help: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"  # or stat, gauge
    width: int = 8
    stacks: bool = False


class Row(NamedTuple):
    title: str
    panels: tuple[Panel, ...]


class Board(NamedTuple):
    uid: str
    title: str
    help: str
    rows: tuple[Row, ...]
    variables: tuple[tuple[str, str], ...] = ()  # name, and the query that lists its values


def rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))"


def quantile(part: float, metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({part}, sum by ({labels}) (rate({metric}_bucket[$__rate_interval])))"


def of_queue(metric: str, resource: str = "gpu", only: str = "") -> str:
    return f'max by (queue) ({metric}{{resource="{resource}", queue=~"$queue"}}{only})'


def each_queue(title: str, text: str, expr: str, width: int = 8, unit: str = "short") -> Panel:
    return Panel(title, text, unit, (Query(expr, "{{queue}}"),), width=width)


FINITE = " < +Inf"  # a graph cannot show what is unlimited
EVICTIONS = 'kaiwo_queue_evictions_total{queue=~"$queue"}'
OURS = "and on (instance) kaiwo_leader"  # other programs have processes, too

CLUSTER = Board(
    "kaiwo-cluster", "Kaiwo / Cluster", "GPUs, nodes, work and alerts of a cluster that Kaiwo schedules.",
    (
        Row("Now", (
            Panel("GPUs allocated", "Part of the GPU capacity that work holds.", "percentunit",
                  (Query("max(kaiwo_gpu_allocated_milli) / max(kaiwo_gpu_capacity_milli)"),), "gauge", 4),
            Panel("GPUs busy", "Mean utilisation of the GPUs that agents measure; nothing where no agent reports.",
                  "percentunit", (Query("max(kaiwo_gpu_busy) / (max(kaiwo_gpu_measured) > 0)"),), "gauge", 4),
            Panel("Running", "Workloads that run.", "short",
                  (Query('sum(max by (state) (kaiwo_workloads{state="running"}))'),), "stat", 4),
            Panel("Waiting", "Workloads that wait.", "short",
                  (Query('sum(max by (state) (kaiwo_workloads{state=~"waiting|held"}))'),), "stat", 4),
            Panel("Nodes out", "Nodes that take no work, and nodes that failed.", "short",
                  (Query("max(kaiwo_nodes_out)", "take no work"), Query("max(kaiwo_nodes_failed)", "failed")),
                  "stat", 4),
            Panel("Alerts firing", "Alerts that Kaiwo itself raised.", "short",
                  (Query('sum(max by (alert) (kaiwo_alerts{state="firing"}))'),), "stat", 4),
        )),
        Row("GPUs", (
            Panel("Capacity and allocation", "In whole GPUs.", "short",
                  (Query("max(kaiwo_gpu_capacity_milli) / 1000", "capacity"),
                   Query("max(kaiwo_gpu_allocated_milli) / 1000", "allocated"),
                   Query("max(kaiwo_gpu_idle_milli) / 1000", "free and usable"),
                   Query("max(kaiwo_gpu_busy)", "busy, as measured"))),
            Panel("Allocation by model", "Part of the GPUs of each model.", "percentunit",
                  (Query("max by (model) (kaiwo_gpu_model_allocated_milli)"
                         " / max by (model) (kaiwo_gpu_model_capacity_milli)", "{{model}}"),)),
            Panel("Stranded", "Free GPU capacity that no request of the mix can use, by what is in its way.", "short",
                  (Query("max by (reason) (kaiwo_gpu_stranded_milli) / 1000", "{{reason}}"),), stacks=True),
            Panel("Fragmentation", "Mean part of the free amounts that a request of the mix cannot use.", "percentunit",
                  (Query("max(kaiwo_gpu_fragmentation_ratio)", "cluster"),)),
            Panel("Power", "Of all measured GPUs.", "watt", (Query("max(kaiwo_gpu_power_watts)", "GPUs"),)),
            Panel("Memory and heat", "Used part of the memory of measured GPUs.", "percentunit",
                  (Query("max(kaiwo_gpu_memory_used_bytes) / (max(kaiwo_gpu_memory_measured_bytes) > 0)", "used"),)),
        )),
        Row("Work", (
            Panel("Workloads", "By state.", "short",
                  (Query("max by (state) (kaiwo_workloads)", "{{state}}"),), stacks=True),
            Panel("Time until work starts", "From submission to the first start.", "s",
                  (Query(quantile(0.5, "kaiwo_scheduling_seconds"), "half"),
                   Query(quantile(0.9, "kaiwo_scheduling_seconds"), "9 of 10"),
                   Query(quantile(0.99, "kaiwo_scheduling_seconds"), "99 of 100"))),
            Panel("Outcomes", "Workloads that ended, and pods that failed, in each second.", "ops",
                  (Query(rate("kaiwo_outcomes_total", "outcome"), "{{outcome}}"),)),
        )),
        Row("Health", (
            Panel("Nodes", "Nodes that need somebody.", "short",
                  (Query("max(kaiwo_nodes_failed)", "failed"), Query("max(kaiwo_nodes_slow)", "slow"),
                   Query("max(kaiwo_nodes_resting)", "resting"), Query("max(kaiwo_network_ports_down)", "ports down"))),
            Panel("Recoveries", "Workloads that lost pods and do not have them back yet.", "short",
                  (Query("max by (way) (kaiwo_recoveries)", "{{way}}"),)),
            Panel("Alerts", "Firing alerts by rule.", "short",
                  (Query('max by (alert, severity) (kaiwo_alerts{state="firing"})', "{{alert}} ({{severity}})"),)),
        )),
    ),
)  # fmt: skip

QUEUES = Board(
    "kaiwo-queues", "Kaiwo / Queues", "What each queue uses, may use, and waits for.",
    (
        Row("GPUs", (
            each_queue("Used", "With the queues below each.", of_queue("kaiwo_queue_used"), 12),
            each_queue("Fair share", "As of now.", of_queue("kaiwo_queue_fair_share"), 12),
            each_queue("Used of the fair share", "Below 1 while work waits, a queue is owed something.",
                       f"{of_queue('kaiwo_queue_used')} / ({of_queue('kaiwo_queue_fair_share')} > 0)",
                       12, "percentunit"),
            Panel("Quota and limit", "Guaranteed, and the most; nothing where it is unlimited.", "short",
                  (Query(of_queue("kaiwo_queue_quota", only=FINITE), "{{queue}} quota"),
                   Query(of_queue("kaiwo_queue_limit", only=FINITE), "{{queue}} limit")), width=12),
        )),
        Row("Work", (
            each_queue("Running", "Workloads.", 'max by (queue) (kaiwo_queue_running{queue=~"$queue"})'),
            each_queue("Waiting", "Workloads.", 'max by (queue) (kaiwo_queue_waiting{queue=~"$queue"})'),
            each_queue("Asked for", "GPUs that waiting work asks for and could have.", of_queue("kaiwo_queue_asked")),
        )),
        Row("CPUs, memory and evictions", (
            each_queue("CPUs used", "With the queues below each.", of_queue("kaiwo_queue_used", "cpu")),
            each_queue("Memory used", "With the queues below each.", of_queue("kaiwo_queue_used", "memory"),
                       unit="bytes"),
            Panel("Evictions", "Pods of each queue in each second, by cause.", "ops",
                  (Query(rate(EVICTIONS, "queue, cause"), "{{queue}}: {{cause}}"),)),
        )),
    ),
    (("queue", "label_values(kaiwo_queue_used, queue)"),),
)  # fmt: skip

SCHEDULER = Board(
    "kaiwo-scheduler", "Kaiwo / Scheduler", "Whether Kaiwo itself is well: cycles, decisions, planned starts, process.",
    (
        Row("Cycles", (
            Panel("Cycle time", "From the snapshot to the plan.", "s",
                  (Query(quantile(0.5, "kaiwo_cycle_seconds"), "half"),
                   Query(quantile(0.99, "kaiwo_cycle_seconds"), "99 of 100"))),
            Panel("Phases", "Time that each phase took in each second.", "percentunit",
                  (Query(rate("kaiwo_cycle_phase_seconds_sum", "phase"), "{{phase}}"),), stacks=True),
            Panel("Decisions", "In each second, by kind.", "ops",
                  (Query(rate("kaiwo_decisions_total", "decision"), "{{decision}}"),)),
            Panel("Cycles that failed", "In each second; the log has each.", "ops",
                  (Query("sum(rate(kaiwo_cycle_failures_total[$__rate_interval]))", "failed"),
                   Query("sum(rate(kaiwo_objects_left_out_total[$__rate_interval]))", "objects left out"))),
            Panel("Planned starts", "By what became of them, in each second.", "ops",
                  (Query(rate("kaiwo_planned_starts_total", "outcome"), "{{outcome}}"),)),
            Panel("Life of allocations", "In each second.", "ops",
                  (Query(rate("kaiwo_allocations_total", "stage"), "{{stage}}"),)),
        )),
        Row("Process", (
            Panel("Processor", "Cores.", "short",
                  (Query(f"rate(process_cpu_seconds_total[$__rate_interval]) {OURS}", "{{instance}}"),)),
            Panel("Memory", "Resident.", "bytes",
                  (Query(f"process_resident_memory_bytes {OURS}", "{{instance}}"),)),
            Panel("Lag of the event loop", "In the last minute.", "s",
                  (Query("max by (quantile) (kaiwo_loop_lag_seconds)", "{{quantile}}"),)),
            Panel("Leader", "1: this replica decides.", "short", (Query("kaiwo_leader", "{{instance}}"),)),
            Panel("Connections and streams", "Open ones.", "short",
                  (Query("sum(kaiwo_connections)", "connections"), Query("sum(kaiwo_streams)", "streams"))),
            Panel("Node agents", "By state.", "short", (Query("max by (state) (kaiwo_agents)", "{{state}}"),)),
        )),
        Row("Alerts", (
            Panel("Fired and resolved", "In each second.", "ops",
                  (Query("sum(rate(kaiwo_alerts_fired_total[$__rate_interval]))", "fired"),
                   Query("sum(rate(kaiwo_alerts_resolved_total[$__rate_interval]))", "resolved")), width=12),
            Panel("Evaluation", "Processor time of the last evaluation of all rules.", "s",
                  (Query("max(kaiwo_alert_evaluation_seconds)", "all rules"),), width=12),
        )),
    ),
)  # fmt: skip

BOARDS = (CLUSTER, QUEUES, SCHEDULER)


def build(board: Board) -> dashboard.Dashboard:
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.help)
        .tags(["kaiwo", "gpu"])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone(common_models.TimeZoneBrowser)
        .editable()
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for name, query in board.variables:
        variable = dashboard.QueryVariable(name).query(query).datasource(SOURCE).multi(True).include_all(True)
        made = made.with_variable(variable.all_value(".*").refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED))
    number = 0
    for row in board.rows:
        made = made.with_row(dashboard.Row(row.title).id(number := number + 1))
        for panel in row.panels:
            made = made.with_panel(_panel(panel).id(number := number + 1))
    return made


def _panel(panel: Panel) -> timeseries.Panel | stat.Panel | gauge.Panel:
    if panel.kind == "timeseries":
        made: timeseries.Panel | stat.Panel | gauge.Panel = _graph(panel.stacks).height(HEIGHT)
    else:
        made = (gauge.Panel().min(0).max(1) if panel.kind == "gauge" else stat.Panel()).height(HEIGHT // 2)
        made = made.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    made = made.title(panel.title).description(panel.help).unit(panel.unit).datasource(SOURCE).span(panel.width)
    for at, query in enumerate(panel.queries):
        asked = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(chr(ord("A") + at))
        made = made.with_target(asked if panel.kind == "timeseries" else asked.instant())
    return made


def _graph(stacks: bool) -> timeseries.Panel:
    legend = common.VizLegendOptions().display_mode(common_models.LegendDisplayMode.LIST)
    legend = legend.placement(common_models.LegendPlacement.BOTTOM).show_legend(True)
    tooltip = common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI)
    made = timeseries.Panel().min(0).fill_opacity(30 if stacks else 5).line_width(1).legend(legend).tooltip(tooltip)
    if stacks:
        made = made.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    return made


def texts(boards: Sequence[Board] = BOARDS) -> dict[str, str]:
    """By file name."""
    encode = JSONEncoder(sort_keys=True, indent=2).encode
    return {f"{board.uid}.json": encode(build(board).build()) + "\n" for board in boards}


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (OUT / name).write_text(text, encoding="utf-8")
