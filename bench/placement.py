"""How well Kaiwo places the openb trace: its policy beside published ones, their published figures and the ceilings.

In:    the openb trace (`--data`).   Out: allocated GPUs at 100 % and 130 % arrived load, by variant, policy and seed.
The judged policy is the shipped default unless `--policy` names another. The baselines must reproduce their published
figures, which proves the replay. Ceilings are bounds of a configuration LP, from the notes of the trace.
"""

import argparse
import csv
import gzip
import io
import json
import statistics
import sys
from pathlib import Path

from kaiwo.cli.verbs.operate.simulate import seed_numbers
from kaiwo.simulate.openb_run import MEASURED_AT, OpenbFigures
from kaiwo.simulate.parallel_seeds import OpenbOrder, run_seeds
from kaiwo.simulate.placement_policies import DEFAULT_STRATEGY
from kaiwo.simulate.trace_files import find_file

DATA = Path(__file__).parents[2] / "shared" / "traces" / "openb"
CEILINGS = {
    "default": 96.89, "cpu050": 96.91, "cpu250": 96.90, "gpushare40": 95.64, "gpushare100": 89.21, "gpuspec10": 96.84,
    "gpuspec33": 96.33, "multigpu20": 97.36, "multigpu50": 98.28,
}  # fmt: skip
PUBLISHED = {"fgd": "06-FGD", "best-fit": "05-BestFit"}
TOLERANCE = 0.1  # of a baseline against its published figure, per seed
LEAST = {"learned": {"gap_closed": 0.5, "default": 95.9}, "known": {"gap_closed": 0.6, "default": 96.2}}
AT_MOST = {"p50_ms": 1.0, "p99_ms": 10.0, "peak_rss_mb": 400.0}

Published = dict[tuple[str, str, int], dict[str, float]]  # by variant, policy and seed: the value at each load


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--variants", nargs="+", default=["default"], help="of the trace; the gap needs a ceiling")
    parser.add_argument("--seeds", default="42-46")
    parser.add_argument("--policy", default=DEFAULT_STRATEGY, help="the policy that is judged")
    parser.add_argument("--mix", default="learned", choices=sorted(LEAST))
    options = parser.parse_args()
    if not options.data.is_dir():
        print(json.dumps({"is_measured": False, "why": f"the openb trace is not at {options.data}"}))
        return 0
    seeds = seed_numbers(options.seeds)
    allocated = read_published(options.data, "published_allo.csv")
    ratios = read_published(options.data, "published_frag_ratio.csv")
    found: dict[str, dict[str, list[OpenbFigures]]] = {}
    for variant in options.variants:
        policies = (options.policy, *PUBLISHED)
        found[variant] = {
            name: run_seeds(OpenbOrder(options.data, variant, name, options.mix), seeds)[0] for name in policies
        }
    missed = missed_targets(found, options.policy, options.mix, allocated, ratios)
    print(json.dumps(summary(found, options.policy, options.mix, allocated), indent=None if options.json else 2))
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


def read_published(folder: Path, name: str) -> Published:
    path = find_file(folder, name)
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    known = {title: policy for policy, title in PUBLISHED.items()}
    found: Published = {}
    for row in csv.DictReader(io.StringIO(data.decode())):
        if row["sc_policy"] in known:
            variant = row["workload"].removeprefix("openb_pod_list_")
            values = {load: float(row[load]) for load in ("60", "80", "90", "100", "130") if row.get(load)}
            found[variant, known[row["sc_policy"]], int(row["seed"])] = values
    return found


def gap_closed(runs: list[OpenbFigures], variant: str, allocated: Published) -> float:
    """How much of the way from FGD's published value to the ceiling, as the mean over these seeds."""
    ours = statistics.fmean(run.allocated_at_100 or 0.0 for run in runs)
    fgd = statistics.fmean(allocated[variant, "fgd", run.seed]["100"] for run in runs)
    return (ours - fgd) / (CEILINGS[variant] - fgd)


def mean_gap_closed(found: dict[str, dict[str, list[OpenbFigures]]], policy: str, allocated: Published) -> float | None:
    """Over the variants whose ceiling is known; None: there are none."""
    closed = [gap_closed(runs[policy], variant, allocated) for variant, runs in found.items() if variant in CEILINGS]
    return statistics.fmean(closed) if closed else None


def summary(
    found: dict[str, dict[str, list[OpenbFigures]]], policy: str, mix: str, allocated: Published
) -> dict[str, object]:
    variants = {
        variant: {
            "ceiling": CEILINGS.get(variant),
            "gap_closed": round(gap_closed(by_policy[policy], variant, allocated), 3) if variant in CEILINGS else None,
            "policies": {name: [run_data(run) for run in runs] for name, runs in by_policy.items()},
            "published_at_100": {
                name: {str(run.seed): allocated[variant, name, run.seed]["100"] for run in by_policy[name]}
                for name in PUBLISHED
            },
        }
        for variant, by_policy in found.items()
    }
    closed = mean_gap_closed(found, policy, allocated)
    mean = None if closed is None else round(closed, 3)
    return {"policy": policy, "mix": mix, "mean_gap_closed": mean, "variants": variants}


def run_data(run: OpenbFigures) -> dict[str, object]:
    return {name: getattr(run, name) for name in run.__struct_fields__}


def missed_targets(
    found: dict[str, dict[str, list[OpenbFigures]]], policy: str, mix: str, allocated: Published, ratios: Published
) -> list[str]:
    missed: list[str] = []
    for variant, by_policy in found.items():
        for name in PUBLISHED:
            for run in by_policy[name]:
                due = allocated[variant, name, run.seed]["100"]
                if run.allocated_at_100 is None or abs(run.allocated_at_100 - due) > TOLERANCE:
                    missed.append(f"{variant} {run.seed}: {name} gives {run.allocated_at_100}, published is {due}")
        for run in by_policy[policy]:
            missed += _missed_by_run(variant, run, allocated, ratios)
        if variant == "default":
            mean = statistics.fmean(run.allocated_at_100 or 0.0 for run in by_policy[policy])
            if mean < LEAST[mix]["default"]:
                missed.append(f"default: {policy} gives {mean:.2f}, at least {LEAST[mix]['default']} is due")
    closed = mean_gap_closed(found, policy, allocated)
    if closed is not None and closed < LEAST[mix]["gap_closed"]:
        missed.append(f"{policy} closes {closed:.0%} of the gap to the ceilings, at least 50 % is due (60 % if known)")
    return missed


def _missed_by_run(variant: str, run: OpenbFigures, allocated: Published, ratios: Published) -> list[str]:
    fgd, at = allocated[variant, "fgd", run.seed], f"{variant} {run.seed}"
    missed = []
    if run.allocated_at_100 is None or run.allocated_at_100 <= fgd["100"]:
        missed.append(f"{at}: {run.allocated_at_100} at 100 %, above FGD's {fgd['100']} is due")
    if run.allocated_at_130 is None or run.allocated_at_130 < fgd["130"]:
        missed.append(f"{at}: {run.allocated_at_130} at 130 %, at least FGD's {fgd['130']} is due")
    for load in map(str, MEASURED_AT) if variant == "default" else ():
        ratio, due = run.fragmentation_ratio[load], ratios[variant, "fgd", run.seed][load]
        if ratio is None or ratio > due:
            missed.append(f"{at}: fragmentation {ratio} at {load} %, at most FGD's {due:.2f} is due")
    for name, most in AT_MOST.items():
        if getattr(run, name) > most:
            missed.append(f"{at}: {name} is {getattr(run, name)}, at most {most} is due")
    return missed


if __name__ == "__main__":
    sys.exit(main())
