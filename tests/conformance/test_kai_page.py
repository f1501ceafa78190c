"""What docs/fairness.md says of KAI-Scheduler's scenarios is what the runner finds."""

import re
from typing import Any

import pytest

from tests.conformance.kai.report import run_folder
from tests.conftest import ROOT, find_shared_dir

CASES = find_shared_dir() / "cases" / "kai"
PAGE = (ROOT / "docs" / "fairness.md").read_text()
BESIDE = {"numa", "dra", "mig"}  # the page explains these by what they need

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    return run_folder(CASES).summary()


def test_every_scenario_that_differs_is_listed_with_its_reason(summary: dict[str, Any]) -> None:
    listed = set(re.findall(r"`(\w+/\w+/\d+)`", PAGE))
    differ = {each["id"] for each in summary["failed"] if not BESIDE & set(each["tags"])}
    assert differ == listed


def test_the_figures_are_right(summary: dict[str, Any]) -> None:
    core, levels = summary["core"], summary["tags"]["topology"]
    told = re.search(r"(\d+) of the (\d+) core scenarios, (\d+) of the (\d+) with topology\s+levels", PAGE)
    assert told is not None
    found = (core["passed"], core["total"], levels["passed"], levels["total"])
    assert tuple(map(int, told.groups())) == found
    for file, name in (("table_fair_share_division.json", "divisions"), ("table_reclaimable.json", "reclaim rules")):
        sums = summary["tables"][file]
        assert f"{sums['passed']} of {sums['total']} {name}" in PAGE
