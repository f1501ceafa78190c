"""The table columns of each kind of object. The web page uses the same titles."""

from collections.abc import Callable, Sequence
from typing import Any

from kaiwo.api.views.nodes import GpuView, NodeView, TenantView
from kaiwo.api.views.queues import AmountView
from kaiwo.api.views.workloads import WorkloadView
from kaiwo.cli.output.formatting import limit_or_dash, short_name
from kaiwo.cli.output.table_layout import Column
from kaiwo.model.amounts import rounded_memory, short_duration, thousandths

NUMBER, WIDE = True, True
MAX_NODES = 3


def _where_or_why(w: WorkloadView, _: float) -> str:
    if w.reason or len(w.nodes) <= MAX_NODES:
        return w.reason or ", ".join(w.nodes)
    return f"{', '.join(w.nodes[:2])} and {len(w.nodes) - 2} more"


def _run_time(w: WorkloadView, now: float) -> str:
    return short_duration((w.ended_s or now) - w.started_s) if w.started_s else "-"


def _expected(w: WorkloadView, now: float) -> str:
    """When it is planned or expected to start."""
    start_s = w.planned_s or w.expected_s
    return f"in {short_duration(start_s - now)}" if start_s else "-"


def _label_text(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _workload_name(w: WorkloadView, _: float) -> str:
    """`sweep[0-9999]` for an array, as the verbs take it."""
    name = short_name(w.name)
    return name if w.array is None else f"{name.removesuffix('-*')}[{w.array.indices}]"


WORKLOAD: Sequence[Column] = (
    Column("NAME", _workload_name),
    Column("QUEUE", lambda w, _: w.queue),
    Column("STATE", lambda w, _: w.state.value, is_state=True),
    Column("WANTS", lambda w, _: w.wants, min_width=10),
    Column("PODS", lambda w, _: f"{w.pods.used}/{w.pods.total}", NUMBER, WIDE),
    Column("AGE", lambda w, now: short_duration(now - w.submitted_s), NUMBER),
    Column("RAN", _run_time, NUMBER, WIDE, is_roomy=True),
    Column("USER", lambda w, _: w.user or "-", False, WIDE, is_roomy=True),
    Column("TYPE", lambda w, _: w.kind, False, WIDE),
    Column("PRIORITY", lambda w, _: str(w.priority), NUMBER, WIDE),
    Column("EXPECTED", _expected, False, WIDE),
    Column("STARTS", lambda w, _: str(w.attempt), NUMBER, WIDE),
    Column("LABELS", lambda w, _: _label_text(w.labels) or "-", False, WIDE),
    Column("WHERE OR WHY", _where_or_why, is_prose=True),
)


def _models(n: NodeView, _: float) -> str:
    return ", ".join(sorted({gpu.model for gpu in n.gpus})) or "-"


NODE: Sequence[Column] = (
    Column("NAME", lambda n, _: n.name),
    Column("STATE", lambda n, _: n.state, is_state=True),
    Column("MODEL", _models),
    Column("GPUS", lambda n, _: f"{thousandths(n.gpu_milli.used)}/{thousandths(n.gpu_milli.total)}", NUMBER),
    Column("CPU", lambda n, _: f"{thousandths(n.cpu_milli.used)}/{thousandths(n.cpu_milli.total)}", NUMBER),
    Column("MEMORY", lambda n, _: f"{rounded_memory(n.memory_mib.used)}/{rounded_memory(n.memory_mib.total)}", NUMBER),
    Column("PODS", lambda n, _: f"{n.pods.used}/{n.pods.total}", NUMBER),
    Column("LABELS", lambda n, _: _label_text(n.labels) or "-", False, WIDE),
    Column("TAINTS", lambda n, _: ", ".join(n.taints) or "-", False, WIDE),
    Column("REASON", lambda n, _: n.reason, is_prose=True),
)


def _used_and_quota(amounts: AmountView, write: Callable[[int], str]) -> str:
    return f"{write(amounts.used)}/{limit_or_dash(amounts.quota, write)}"


QUEUE: Sequence[Column] = (
    Column("NAME", lambda q, _: "  " * q.depth + q.name),
    Column("USED", lambda q, _: thousandths(q.gpu_milli.used), NUMBER),
    Column("SHARE", lambda q, _: thousandths(q.gpu_milli.share), NUMBER),
    Column("QUOTA", lambda q, _: limit_or_dash(q.gpu_milli.quota, thousandths), NUMBER),
    Column("LIMIT", lambda q, _: limit_or_dash(q.gpu_milli.limit, thousandths), NUMBER),
    Column("ASKED", lambda q, _: thousandths(q.gpu_milli.waiting), NUMBER),
    Column("RUNNING", lambda q, _: str(q.running), NUMBER),
    Column("WAITING", lambda q, _: str(q.waiting), NUMBER),
    Column("FIXED", lambda q, _: thousandths(q.gpu_milli.fixed), NUMBER, WIDE),
    Column("WEIGHT", lambda q, _: str(q.gpu_milli.weight), NUMBER, WIDE),
    Column("PRIORITY", lambda q, _: str(q.priority), NUMBER, WIDE),
    Column("POLICY", lambda q, _: q.policy.value, False, WIDE),
    Column("RECLAIM", lambda q, _: q.reclaim_strategy.value, False, WIDE),
    Column("CPU", lambda q, _: _used_and_quota(q.cpu_milli, thousandths), NUMBER, WIDE),
    Column("MEMORY", lambda q, _: _used_and_quota(q.memory_mib, rounded_memory), NUMBER, WIDE),
    Column("TITLE", lambda q, _: q.display_name),
)


def gpu_state(g: GpuView) -> str:
    if not g.healthy:
        return g.change or "unhealthy"
    if not g.tenants:
        return "free"
    return "shared" if g.free_milli > 0 and g.free_mib > 0 else "full"


def _tenants(g: GpuView, _: float) -> str:
    tenants = ", ".join(f"{short_name(t.workload)}{_tenant_share(t)}" for t in g.tenants)
    if g.reason and not g.healthy:
        return f"{tenants}; {g.reason}" if tenants else g.reason
    return tenants


def _tenant_share(t: TenantView) -> str:
    """The fraction and isolation grade; empty for a whole GPU or partition."""
    if t.milli >= 1000 or t.grade == "partition":
        return ""
    return f" ({thousandths(t.milli)}{f', {t.grade}' if t.grade else ''})"


def _granted_and_measured(g: GpuView, _: float) -> str:
    texts = []
    for t in g.tenants:
        if t.measured is not None:
            busy = "-" if t.measured.busy_percent is None else f"{t.measured.busy_percent} %"
            granted = f"{thousandths(t.milli)}/{rounded_memory(t.mib)}"
            texts.append(f"{short_name(t.workload)} {granted} uses {busy}/{_memory(t.measured.memory_mib)}")
    return ", ".join(texts)


def _memory(value: int | None) -> str:
    return "-" if value is None else rounded_memory(value)


def _measured_value(field: str, unit: str) -> Callable[[Any, float], str]:
    def text(g: GpuView, _: float) -> str:
        value = getattr(g.measured, field) if g.measured is not None else None
        return "" if value is None else f"{value} {unit}"

    return text


GPU: Sequence[Column] = (
    Column("NODE", lambda g, _: g.node),
    Column("GPU", lambda g, _: g.id),
    Column("MODEL", lambda g, _: g.model),
    Column("STATE", lambda g, _: gpu_state(g), is_state=True),
    Column("FREE", lambda g, _: thousandths(g.free_milli), NUMBER),
    Column("FREE MEMORY", lambda g, _: rounded_memory(g.free_mib), NUMBER),
    Column("MEMORY", lambda g, _: rounded_memory(g.memory_mib), NUMBER, WIDE),
    Column("PARTITION", lambda g, _: g.profile, False, WIDE),
    Column("BUSY", _measured_value("busy_percent", "%"), NUMBER, WIDE),
    Column("USED MEMORY", lambda g, _: _memory(g.measured.memory_mib) if g.measured else "", NUMBER, WIDE),
    Column("POWER", _measured_value("power_w", "W"), NUMBER, WIDE),
    Column("TEMP", _measured_value("temperature_c", "C"), NUMBER, WIDE),
    Column("PODS", lambda g, _: ", ".join(t.pod for t in g.tenants), False, WIDE),
    Column("GRANTED AND MEASURED", _granted_and_measured, False, WIDE),
    Column("WORKLOADS", _tenants, is_prose=True),
)


def _relative_time(at_s: int, now: float) -> str:
    if not at_s:
        return "-"
    return f"in {short_duration(at_s - now)}" if at_s > now else f"{short_duration(now - at_s)} ago"


RESERVATION: Sequence[Column] = (
    Column("NAME", lambda r, _: r.name),
    Column("PHASE", lambda r, _: r.phase.value, is_state=True),
    Column("FOR", lambda r, _: f"{r.owner_kind} {short_name(r.owner)}".strip()),
    Column("GPUS", lambda r, _: f"{r.gpus}/{r.gpus + r.missing}" if r.missing else str(r.gpus), NUMBER),
    Column("USED", lambda r, _: thousandths(r.used_milli), NUMBER),
    Column("STARTS", lambda r, now: _relative_time(r.start_s or r.created_s, now), NUMBER),
    Column("ENDS", lambda r, now: _relative_time(r.end_s, now), NUMBER),
    Column("MODELS", lambda r, _: ", ".join(r.gpu_models) or "-", False, WIDE),
    Column("AT END", lambda r, _: r.at_end.value, False, WIDE),
    Column("WHERE", lambda r, _: ", ".join(dict.fromkeys(device.node for device in r.devices)) or "-", False, WIDE),
    Column("NOTE", lambda r, _: r.message, is_prose=True),
)

CYCLE: Sequence[Column] = (
    Column("CYCLE", lambda c, _: str(c.number), NUMBER),
    Column("AGE", lambda c, now: short_duration(now - c.at_s), NUMBER),
    Column("STARTED", lambda c, _: str(c.starts), NUMBER),
    Column("EVICTED", lambda c, _: str(c.evictions), NUMBER),
    Column("WAITS", lambda c, _: str(c.waits), NUMBER),
    Column("STEPS", lambda c, _: str(c.steps), NUMBER),
    Column("TOOK", lambda c, _: f"{c.took_ms:.1f} ms", NUMBER),
    Column("NOTES", lambda c, _: "; ".join(c.notes), is_prose=True),
)


def shown_columns(columns: Sequence[Column], output: str) -> list[Column]:
    """The columns that this output format shows."""
    return [column for column in columns if output == "wide" or not column.is_wide]


def columns_with_room(columns: Sequence[Column]) -> list[Column]:
    """The columns of the plain table, and those that are shown where the terminal has room."""
    return [column for column in columns if column.is_roomy or not column.is_wide]


def table_row(columns: Sequence[Column], item: Any, now: float) -> list[str]:
    return [column.text(item, now) for column in columns]
