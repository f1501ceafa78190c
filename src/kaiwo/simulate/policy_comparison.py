"""Put the runs of several policies side by side: means over seeds, and what each gains over the first."""

import statistics
from collections.abc import Sequence

import msgspec

from kaiwo.simulate.job_run import JobRunFigures

ORACLE, BASELINE = "shortest-job-first", "fifo"


class PolicyRow(msgspec.Struct, frozen=True):
    """The means over the seeds of one policy on one workload."""

    workload: str
    policy: str
    restart_s: int
    seeds: int
    average_jct_s: float
    mean_wait_s: float
    p99_wait_s: float
    makespan_s: float
    utilisation_pct: float
    busy_utilisation_pct: float
    fragmentation_pct: float
    fairness: float
    evictions: float
    lost_gpu_h: float
    recovered_pct: float | None = None  # of the gain of shortest-job-first over fifo, by the mean wait


def compare(runs: Sequence[JobRunFigures]) -> list[PolicyRow]:
    """In the order in which they came."""
    together: dict[tuple[str, str, int], list[JobRunFigures]] = {}
    for run in runs:
        together.setdefault((run.workload, run.policy, run.restart_s), []).append(run)
    rows = [_row(*key, found) for key, found in together.items()]
    return [msgspec.structs.replace(row, recovered_pct=_recovered(row, rows)) for row in rows]


def _row(workload: str, policy: str, restart_s: int, runs: Sequence[JobRunFigures]) -> PolicyRow:
    found = [run.figures for run in runs]
    means = {
        name: round(statistics.fmean(float(getattr(each, name)) for each in found), 3)
        for name in PolicyRow.__struct_fields__
        if hasattr(found[0], name) and name != "evictions"
    }
    evictions = round(statistics.fmean(sum(each.evictions.values()) for each in found), 1)
    return PolicyRow(workload, policy, restart_s, len(runs), evictions=evictions, **means)


def _recovered(row: PolicyRow, rows: Sequence[PolicyRow]) -> float | None:
    waits = {each.policy: each.mean_wait_s for each in rows if each.workload == row.workload}
    if row.policy in (ORACLE, BASELINE) or ORACLE not in waits or BASELINE not in waits:
        return None
    gain_s = waits[BASELINE] - waits[ORACLE]
    return round(100 * (waits[BASELINE] - row.mean_wait_s) / gain_s, 2) if gain_s > 0 else None
