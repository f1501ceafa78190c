"""`make bench` runs every benchmark, keeps its numbers, and fails at the end when one failed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "bench").mkdir()
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(ROOT / "bench" / name, tmp_path / "bench")
    return tmp_path


def run_bench(checkout: Path, *names: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *names]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)


def add(checkout: Path, name: str, code: str) -> None:
    (checkout / "bench" / f"{name}.py").write_text(code)


def kept(checkout: Path, name: str) -> object:
    return json.loads((checkout / "docs" / "benchmarks" / f"{name}.json").read_text())


def test_every_number_is_kept(checkout: Path) -> None:
    add(checkout, "one", "print('{\"ms\": 1}')")
    add(checkout, "two", 'import sys; print(\'{"args": "%s"}\' % sys.argv[1:])')
    add(checkout, "_shared", "raise SystemExit(1)")
    assert run_bench(checkout).returncode == 0
    assert kept(checkout, "one") == {"ms": 1}
    assert kept(checkout, "two") == {"args": "['--json']"}


def test_a_missed_target_is_kept_and_fails_at_the_end(checkout: Path) -> None:
    add(checkout, "a", "print('{\"ms\": 900}'); raise SystemExit(1)")
    add(checkout, "b", "raise ValueError('broken')")
    add(checkout, "c", "print('{\"ms\": 1}')")
    done = run_bench(checkout)
    assert done.returncode == 1
    assert "1 passed, 2 failed" in done.stdout
    assert kept(checkout, "a") == {"ms": 900}
    assert kept(checkout, "c") == {"ms": 1}


def test_figures_of_another_machine_are_not_lost_where_nothing_can_be_measured(checkout: Path) -> None:
    add(checkout, "gpu", 'print(\'{"is_measured": true, "ratio": 0.4}\')')
    assert run_bench(checkout).returncode == 0
    add(checkout, "gpu", 'print(\'{"is_measured": false, "why": "no GPU here"}\')')
    done = run_bench(checkout)
    assert done.returncode == 0
    assert "not measured: no GPU here" in done.stdout
    assert kept(checkout, "gpu") == {"is_measured": True, "ratio": 0.4}


def test_only_the_named_benchmarks_run(checkout: Path) -> None:
    add(checkout, "one", "print('{\"ms\": 1}')")
    add(checkout, "two", "raise SystemExit(1)")
    assert run_bench(checkout, "one").returncode == 0
    unknown = run_bench(checkout, "three")
    assert unknown.returncode == 2
    assert "there are: one, two" in unknown.stderr
