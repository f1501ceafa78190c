"""How good the forecasts of run times and demand are, on real traces and on a generated one.

In:    Philly's jobs in the order of submission; at each submission only jobs that have ended by then are known.
       Philly's active nodes and the running GPUs of Helios' virtual clusters, a sample a minute. A generated trace with
       users, names and images. `--traces` names the folder; `../shared/traces` by default.
Out:   how many unseen jobs the 80 % range holds; how much of the gain of shortest-job-first with known run times over
       first come, first served the learned run times recover, against the mean of the jobs of the same virtual cluster
       and size, on pools of several sizes; the error (SMAPE) of the hourly demand 1 and 3 hours ahead, against the
       demand of the last hour.

The queue is simulated by `bench/_queue_simulation.py`; the forecasts are the shipped ones.
"""

import argparse
import heapq
import json
import sys
from pathlib import Path
from typing import Any

from bench._forecast_traces import demand_series, generated_jobs, muri_jobs, openb_pods, philly_jobs, without
from bench._queue_simulation import FirstComeFirstServed, GroupMean, Job, Learned, ShortestFirst, waits_s
from kaiwo.forecast.demand_forecast import HOUR_S, DemandForecast
from kaiwo.forecast.run_time_forecast import RunTimeForecast

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
POOLS = (420, 480, 520, 560)  # GPUs; Philly's jobs need 374 on average
GENERATED_GPUS = 300
MIN_HELD, MAX_HELD = 0.75, 0.85
SKIPPED = 10  # the first part in ten of a trace only teaches
WARM_UP = 3  # the first third of a series of demand
AHEAD = (1, 3)
MURI = ("trace1", "trace3")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder with the traces (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=0, help="only the first jobs of each trace (default: all)")
    options = parser.parse_args()
    result = measure(options.traces, options.jobs or None)
    print(json.dumps(result, indent=None if options.json else 2))
    missed = misses(result)
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


def measure(traces: Path, most: int | None) -> dict[str, Any]:
    generated = generated_jobs(seed=1)[:most]
    result: dict[str, Any] = {
        "generated": {
            "queue and size": range_figures(without(generated, "user", "name", "image")),
            "with user": range_figures(without(generated, "name", "image")),
            "with user and name": range_figures(without(generated, "image")),
            "with user, name and image": range_figures(generated),
            "recovered": recovered(generated, GENERATED_GPUS),
        }
    }
    if (traces / "philly").is_dir():
        philly = philly_jobs(traces)[:most]
        result["philly"] = range_figures(philly)
        result["philly"]["recovered"] = {gpus: recovered(philly, gpus) for gpus in POOLS}
        # The constants were chosen on Philly: these are other jobs, or at least later ones.
        result["held_out"] = {
            "second half of philly": range_figures(philly, skipped=2),
            "openb": range_figures(openb_pods(traces)[:most], skipped=3),
            **{f"muri {name}": range_figures(muri_jobs(traces, name)[:most], skipped=3) for name in MURI},
        }
        result["demand"] = {name: demand_errors(samples) for name, samples in demand_series(traces).items()}
    return result


def range_figures(jobs: list[Job], skipped: int = SKIPPED) -> dict[str, Any]:
    """Play the jobs as if none had waited; each range is asked for at the submission. One part in `skipped` teaches."""
    forecast, ends, held, unknown, widths = RunTimeForecast(), [], [], 0, []  # type: ignore[var-annotated]
    for number, job in enumerate(jobs):
        while ends and ends[0][0] <= job.submitted_s:
            ended = jobs[heapq.heappop(ends)[1]]
            forecast.learn(ended.key, ended.run_s, ended.submitted_s)
        heapq.heappush(ends, (job.submitted_s + job.run_s, number))
        if number * skipped < len(jobs):
            continue
        expected = forecast.expect(job.key, job.submitted_s)
        if expected is None:
            unknown += 1
            continue
        held.append(expected.low_s <= job.run_s <= expected.high_s)
        widths.append(expected.high_s / max(1, expected.low_s))
    widths.sort()
    return {
        "held": round(sum(held) / len(held), 4),
        "jobs": len(held),
        "unknown": unknown,
        "median_width": round(widths[len(widths) // 2], 1),  # the end of the range over its beginning
    }


def recovered(jobs: list[Job], gpus: int) -> dict[str, float]:
    first, known, mean, learned = (
        sum(waits_s(jobs, gpus, ranking)) / len(jobs)
        for ranking in (FirstComeFirstServed(), ShortestFirst(), GroupMean(), Learned())
    )
    gain_s = max(1e-9, first - known)
    return {"group_mean": round((first - mean) / gain_s, 4), "learned": round((first - learned) / gain_s, 4)}


def demand_errors(samples: list[tuple[int, int]]) -> dict[str, dict[str, float]]:
    """The errors over the last two thirds; a forecast is made at the end of each hour."""
    hours: dict[int, list[int]] = {}
    for at_s, demand in samples:
        hours.setdefault(at_s // HOUR_S, []).append(demand)
    means = {hour: sum(each) / len(each) for hour, each in hours.items()}
    first = min(hours) + len(hours) // WARM_UP
    forecast = DemandForecast()
    errors: dict[int, list[tuple[float, float]]] = {ahead: [] for ahead in AHEAD}
    hour = samples[0][0] // HOUR_S
    for at_s, demand in samples:
        forecast.observe(at_s, demand)
        if at_s // HOUR_S == hour:
            continue
        ended, hour = hour, at_s // HOUR_S
        for ahead in AHEAD:
            actual, expected = means.get(ended + ahead), forecast.expect(ahead)
            if actual is not None and expected is not None and ended + ahead >= first:
                errors[ahead].append((_smape(actual, expected), _smape(actual, means[ended])))
    return {
        f"{ahead} h": {
            "forecast": round(100 * sum(ours for ours, _ in each) / len(each), 3),
            "persistence": round(100 * sum(theirs for _, theirs in each) / len(each), 3),
        }
        for ahead, each in errors.items()
    }


def _smape(actual: float, expected: float) -> float:
    return 2 * abs(actual - expected) / (actual + expected) if actual + expected else 0.0


def misses(result: dict[str, Any]) -> list[str]:
    found = []
    if "philly" not in result:
        return ["the traces were not found: name their folder with --traces"]
    if not MIN_HELD <= result["philly"]["held"] <= MAX_HELD:
        found.append(f"the 80 % range holds {result['philly']['held']:.1%} of the unseen jobs, not 75 to 85 %")
    for gpus, each in result["philly"]["recovered"].items():
        if each["learned"] <= each["group_mean"]:
            found.append(f"{gpus} GPUs: learned run times recover no more than the group mean: {each}")
    for name, by_hours in result["demand"].items():
        for ahead, each in by_hours.items():
            if each["forecast"] >= each["persistence"]:
                found.append(f"{name}: the forecast {ahead} ahead is no better than persistence: {each}")
    generated = result["generated"]
    if generated["with user, name and image"]["median_width"] * 2 > generated["queue and size"]["median_width"]:
        found.append("user, name and image do not halve the range of the generated trace")
    return found


if __name__ == "__main__":
    sys.exit(main())
