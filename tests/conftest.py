"""What every test may use: the size of the run, the shared cases, and skips that say why.

`make test` runs at CI size, where Hypothesis repeats the same examples each time; `make test-long` sets
KAIWO_TEST_SIZE=full and draws ten times as many new ones; `make check` sets KAIWO_TEST_SIZE=quick, looks at few and
leaves out LIVE and LONG.
"""

import atexit
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import coverage
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
IS_FULL = os.environ.get("KAIWO_TEST_SIZE") == "full"
IS_QUICK = os.environ.get("KAIWO_TEST_SIZE") == "quick"
SIZE = 10 if IS_FULL else 1  # multiply counts by this

# These start servers and processes, fill disks or wait for clocks; without them, and without the long searches below,
# `make check` takes less than a minute.
LIVE = (
    *("api", "clusters/local", "crash", "devices", "cli/test_run_and_logs.py", "cli/test_live_screen.py"),
    *(
        "history/test_damage.py",
        "history/test_reader.py",
        "clusters/kubernetes/test_chart.py",
        "manifests/test_documents.py",
    ),
    *("runtime/test_partitions.py", "runtime/test_partitions_serve.py", "runtime/test_past_use.py"),
    *("runtime/test_replay.py", "runtime/test_reservation_replay.py"),
)
LONG = (
    *(
        "conformance/test_kai.py",
        "decide/test_step_budget.py",
        "explain/test_valid_proposals.py",
        "explain/test_changes_that_evict_laws.py",
    ),
    *(
        "explain/test_verify_change.py",
        "explain/test_why_laws.py",
        "gpus/test_planner.py",
        "properties/test_backfill_laws.py",
    ),
    *(
        "properties/test_reclaim_bound_laws.py",
        "properties/test_same_plan_in_any_process.py",
        "properties/test_sub_group_laws.py",
    ),
    "project/test_imports.py",  # `make check` asks the import linter itself
)
collect_ignore = [*LIVE, *LONG] if IS_QUICK else []

if os.environ.get("KAIWO_COVERAGE"):  # in each worker, before it imports anything of ours
    _coverage = coverage.Coverage(data_suffix=True)
    _coverage.start()
    atexit.register(lambda: (_coverage.stop(), _coverage.save()))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background: Ctrl-C must still reach what we start
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no reason to fail a law: no deadlines. A failure prints the line that reproduces it.
_always = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", _always, max_examples=100, derandomize=True, database=None)
settings.register_profile("full", _always, max_examples=1000)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=8)
settings.load_profile("full" if IS_FULL else "quick" if IS_QUICK else "ci")


def find_shared_dir() -> Path:
    """The folder of shared cases, fixtures and traces beside the checkout; skips the test where there is none."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"the shared cases are not at {folder}", allow_module_level=True)
    return folder


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    return find_shared_dir()


@pytest.fixture(scope="session")
def test_size() -> int:
    """1 at CI size, 10 in a full run."""
    return SIZE


@pytest.fixture(scope="session")
def chromium() -> str:
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    return path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _tell_apart(items)
    if find_chromium():
        return
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason="no Chromium on this machine (Debian: apt-get install chromium)"))


def _tell_apart(items: list[pytest.Item]) -> None:
    """Of tests with the same id only one would run beside other workers, and schemathesis gives many the same."""
    for item in items:
        name = item.nodeid.rpartition("::")[2]
        if item.name.startswith(f"{name}["):
            item._id = item.id.with_params(item.name[len(name) + 1 : -1])
    twice = [name for name, count in Counter(item.nodeid for item in items).items() if count > 1]
    assert not twice, f"several tests have the id {twice[0]}"
