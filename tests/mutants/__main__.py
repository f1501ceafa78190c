"""Would the tests notice? `python -m tests.mutants [--count 200] [--seed 1] [--jobs 2] [--reached FILE] [--json]`.

Makes random mutants of the pure core and runs the fast tests at quick size against each, those first that were seen to
reach the mutated line. Prints every mutant that survives, and how many were killed. Which test reaches which line takes
a few minutes to find out; `--reached` keeps that in a file for the next time with the same source. A mutant that is
killed takes about a second then. Those in `equivalent.py` change nothing that could be noticed and are left out.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ["KAIWO_TEST_SIZE"] = "quick"  # before the tests' settings are imported

from tests.conftest import ROOT
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.judge import is_killed, preload
from tests.mutants.mutate import Mutant, mutants_of

PACKAGES = ("decide", "queues", "gpus", "snapshot")
FAST = "not (serial or slow or browser)"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--reached", type=Path, help="which test reaches which line, written where it is missing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    chosen, unknown = choose(given.count, given.seed)
    reached = find_tests(given.reached)
    preload()
    with ThreadPoolExecutor(given.jobs) as pool:
        results = list(pool.map(lambda item: judge(*item, reached), chosen))
    survivors = [result for result in results if not result["killed"]]
    killed = len(results) - len(survivors)
    if given.json:
        summary = {"seed": given.seed, "mutants": len(results), "killed": killed, "survivors": survivors}
        print(json.dumps(summary, indent=1))
    else:
        print(f"{killed} of {len(results)} mutants were noticed ({100 * killed // max(1, len(results))} %)")
    for entry in unknown:
        print(f"equivalent.py names a mutant that there is no more: {entry}", file=sys.stderr)
    return 0


def choose(count: int, seed: int) -> tuple[list[tuple[Path, Mutant]], list[Any]]:
    """Every mutant is as likely as any other; and which entries of equivalent.py are out of date."""
    every, known = [], set()
    for package in PACKAGES:
        for path in sorted((ROOT / "src" / "kaiwo" / package).rglob("*.py")):
            name = str(path.relative_to(ROOT / "src" / "kaiwo"))
            for mutant in mutants_of(path.read_text()):
                key = (name, mutant.function, mutant.code, mutant.before, mutant.after)
                if key in EQUIVALENT:
                    known.add(key)
                else:
                    every.append((path, mutant))
    return random.Random(seed).sample(every, min(count, len(every))), sorted(EQUIVALENT.keys() - known)


def find_tests(kept: Path | None) -> dict[str, dict[int, list[str]]]:
    """By file and line: the tests that reach it, quickest first."""
    with tempfile.TemporaryDirectory() as folder:
        where = kept or Path(folder) / "reached.json"
        if not where.exists():
            command = [
                *(sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.reach", "-m", FAST),
                *("-p", "no:cacheprovider"),
            ]
            environment = os.environ | {"KAIWO_REACHED": str(where)}
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                where.unlink(missing_ok=True)
                raise SystemExit(f"the tests fail without a mutant:\n{done.stdout[-2000:]}")
        found: dict[str, Any] = json.loads(where.read_text())
    tests = found["tests"]
    return {
        file: {int(line): [tests[number] for number in some] for line, some in lines.items()}
        for file, lines in found["lines"].items()
    }


def judge(path: Path, mutant: Mutant, reached: dict[str, dict[int, list[str]]]) -> dict[str, Any]:
    """Run the tests against one mutant until one fails."""
    lines = reached.get(str(path), {})
    # What runs only when a module is imported concerns every test that uses the module.
    tests = lines.get(mutant.line) or list(dict.fromkeys(test for some in lines.values() for test in some))
    killed = bool(tests) and is_killed(path, mutant, tests)
    name = str(path.relative_to(ROOT))
    if not killed:
        print(f"survives: {name}:{mutant.line} {mutant.kind}: {mutant.before!r} -> {mutant.after!r}",
              file=sys.stderr, flush=True)  # fmt: skip
    return {"file": name, "line": mutant.line, "function": mutant.function, "kind": mutant.kind, "code": mutant.code,
            "before": mutant.before, "after": mutant.after, "tests": len(tests), "killed": killed}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
