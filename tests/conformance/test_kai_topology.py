"""Levels as KAI-Scheduler states them: cases of our own making, each with the reason for its answer in its name."""

from typing import Any

import pytest

from tests.conformance.kai.loader import load
from tests.conformance.kai.scenarios import Table, play
from tests.conformance.kai.topology_cases import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"].replace(" ", "-"))
def test_levels_are_decided_by_reason(case: dict[str, Any]) -> None:
    assert play(case) == []
    seen = Table(case, load(case)).round()
    for tasks, level in case["together"]:
        assert len({case["nodes"][seen[task][1]]["labels"][level] for task in tasks}) == 1, tasks


def test_the_same_cases_without_levels_are_decided_differently() -> None:
    """Each case is about its levels: taken away, most of them have another outcome."""
    other = 0
    for case in CASES:
        plain = {**case, "jobs": [{**job, "subgroups": _without_levels(job["subgroups"])} for job in case["jobs"]]}
        other += bool(play(plain))
    assert other >= 15


def _without_levels(tree: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in tree.items() if key != "topology"}
    return kept | ({"children": [_without_levels(each) for each in tree["children"]]} if "children" in tree else {})
