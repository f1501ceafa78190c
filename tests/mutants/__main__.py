"""Would the tests notice? `python -m tests.mutants [--count 200] [--seed 1] [--jobs 2] [--json]`.

Makes random mutants of the pure core and runs the fast tests at quick size against each, those first that were seen to
reach the mutated line. Prints every mutant that survives, and how many were killed. Takes about a minute for five.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.mutants.mutate import Mutant, mutants_of

PACKAGES = ("decide", "queues", "gpus", "snapshot")
FAST = "not (serial or slow or browser)"
NOTICED_LATE_S = 240  # a mutant that hangs is noticed, too
FIRST = 60  # tests in the first round: most mutants die there


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        reached = find_tests(Path(folder))
        chosen = choose(given.count, given.seed)
        with ThreadPoolExecutor(given.jobs) as pool:
            results = list(pool.map(lambda item: judge(*item, reached, Path(folder)), enumerate(chosen)))
    survivors = [result for result in results if not result["killed"]]
    killed = len(results) - len(survivors)
    summary = {"seed": given.seed, "mutants": len(results), "killed": killed, "survivors": survivors}
    if given.json:
        print(json.dumps(summary, indent=1))
    else:
        print(f"{killed} of {len(results)} mutants were noticed ({100 * killed // max(1, len(results))} %)")
    return 0


def choose(count: int, seed: int) -> list[tuple[Path, Mutant]]:
    """Every mutant is as likely as any other."""
    every = [
        (path, mutant)
        for package in PACKAGES
        for path in sorted((ROOT / "src" / "kaiwo" / package).rglob("*.py"))
        for mutant in mutants_of(path.read_text())
    ]
    return random.Random(seed).sample(every, min(count, len(every)))


def find_tests(folder: Path) -> dict[str, dict[int, list[str]]]:
    """By file and line: the tests that reach it, quickest first."""
    where = folder / "reached.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.reach", "-m", FAST, "-p", "no:cacheprovider"]
    environment = os.environ | {"KAIWO_TEST_SIZE": "quick", "KAIWO_REACHED": str(where)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the tests fail without a mutant:\n{done.stdout[-2000:]}")
    found: dict[str, Any] = json.loads(where.read_text())
    return {file: {int(line): tests for line, tests in lines.items()} for file, lines in found.items()}


def judge(
    number: int, item: tuple[Path, Mutant], reached: dict[str, dict[int, list[str]]], folder: Path
) -> dict[str, Any]:
    """Run the tests against one mutant until one fails."""
    path, mutant = item
    name = str(path.relative_to(ROOT))
    lines = reached.get(str(path), {})
    # What runs only when a module is imported concerns every test that uses the module.
    tests = lines.get(mutant.line) or list(dict.fromkeys(test for some in lines.values() for test in some))
    source = folder / f"mutant-{number}"
    shutil.copytree(ROOT / "src", source, copy_function=os.link, ignore=shutil.ignore_patterns("__pycache__", "static"))
    (source / path.relative_to(ROOT / "src")).unlink()
    (source / path.relative_to(ROOT / "src")).write_text(mutant.text)
    killed = any(fails(source, some) for some in (tests[:FIRST], tests[FIRST:]) if some)
    shutil.rmtree(source)
    if not killed:
        print(f"survives: {name}:{mutant.line} {mutant.kind}: {mutant.before!r} -> {mutant.after!r}", flush=True)
    return {"file": name, "line": mutant.line, "kind": mutant.kind, "before": mutant.before, "after": mutant.after,
            "tests": len(tests), "killed": killed}  # fmt: skip


def fails(source: Path, tests: list[str]) -> bool:
    """Some of the tests fail, or do not come to an end."""
    environment = os.environ | {
        "KAIWO_TEST_SIZE": "quick",
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    chosen = source / "tests.txt"
    chosen.write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", f"@{chosen}"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=NOTICED_LATE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
