"""Run benchmarks, each in its own process, and keep what they print.

In:    names of modules in this folder, or none for all.   Out: docs/benchmarks/NAME.json for each of them.
Never: stops at the first failure; the exit status tells at the end. What was measured on a machine that has what this
       one lacks is kept.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = ROOT / "docs" / "benchmarks"


def main(wanted: list[str]) -> int:
    known = benchmark_names()
    if unknown := sorted(set(wanted) - set(known)):
        print(f"no benchmark named {', '.join(unknown)}; there are: {', '.join(known) or 'none'}", file=sys.stderr)
        return 2
    failures = {name: problem for name in wanted or known if (problem := run(name))}
    for name, problem in failures.items():
        print(f"{name}: {problem}", file=sys.stderr)
    print(f"{len(wanted or known) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


def benchmark_names() -> list[str]:
    """A name that starts with an underscore is shared code, not a benchmark."""
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def run(name: str) -> str:
    """Write the benchmark's JSON, also when it missed its target; the answer is what went wrong, or nothing."""
    print(f"bench {name} ...", flush=True)
    command = [sys.executable, "-m", f"bench.{name}", "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    try:
        result = json.loads(done.stdout)
    except ValueError:
        return f"printed no JSON (exit status {done.returncode})"
    kept = RESULTS / f"{name}.json"
    if not result.get("is_measured", True) and kept.exists():
        why = result.get("why", "this machine lacks what it needs")
        print(f"  not measured: {why}; the kept figures stay", flush=True)
        return ""
    RESULTS.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return f"missed its target (exit status {done.returncode})" if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
