"""The cases of KAI-Scheduler: its rule tables hold, its scenarios load, and the runner counts them honestly."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kaiwo.model.queue import UNLIMITED, QueueAmounts
from kaiwo.model.workload import Phase
from kaiwo.snapshot.cluster_state import ClusterState
from tests.conformance.kai.jobs import NOW_S
from tests.conformance.kai.loader import load, load_queue
from tests.conformance.kai.report import run_folder
from tests.conformance.kai.scenarios import play
from tests.conformance.kai.tables import check_spec
from tests.conftest import ROOT, find_shared_dir
from tests.worlds import audit

CASES = find_shared_dir() / "cases" / "kai"
TABLES = {"table_fair_share_division.json": 70, "table_reclaimable.json": 39}
SCENARIOS = [
    case
    for path in sorted([*CASES.glob("unit_*.json"), *CASES.glob("integration_*.json")])
    for case in json.loads(path.read_text())
]


@pytest.mark.parametrize("file", TABLES)
def test_every_spec_of_the_rule_tables_holds(file: str) -> None:
    specs = json.loads((CASES / file).read_text())
    wrong = {spec["name"]: differences for spec in specs if (differences := check_spec(spec))}
    assert (len(specs), wrong) == (TABLES[file], {})


def test_a_wrong_number_is_found() -> None:
    (spec, *_) = json.loads((CASES / "table_fair_share_division.json").read_text())
    spec["expect"] = [["queues.1.GPU.FairShare", 99]]
    assert check_spec(spec) == ["queues.1.GPU.FairShare is 2.0, 99 is expected"]


def test_every_scenario_loads_into_a_sound_picture() -> None:
    wrong = {}
    for case in SCENARIOS:
        state = ClusterState()
        state.patch(load(case).events)
        state.snapshot(NOW_S)
        if found := audit(state):
            wrong[case["id"]] = found
    assert wrong == {}


def test_every_task_keeps_its_state() -> None:
    states = {"Running": Phase.RUNNING, "Releasing": Phase.RELEASING, "StuckInReleasing": Phase.STUCK}
    for case in SCENARIOS:
        loaded = load(case)
        state = ClusterState()
        state.patch(loaded.events)
        held = {
            loaded.task_of[workload, pod.name]: (pod.phase, pod.node)
            for workload, pods in state.pods.items()
            for pod in pods.values()
        }
        tasks = [task for job in case["jobs"] for task in job["tasks"]]
        assert held == {t["id"]: (states[t["state"]], t["node"]) for t in tasks if t["state"] in states}, case["id"]
        stale = {task["id"] for job in case["jobs"] if job.get("stale_for_s") for task in job["tasks"]}
        over = [t for t in tasks if t["state"] == "Succeeded" or (t["state"] == "Failed" and t["id"] not in stale)]
        living = len(tasks) - len(over)
        assert sum(workload.pods for workload in state.workloads.values()) == living


def test_unlimited_stays_unlimited() -> None:
    endless = {"quota": -1, "limit": -1, "weight": -1}
    queue: dict[str, Any] = {"name": "q", "parent": None, "priority": 100, "created_order": 3, "gpu": endless}
    queue |= {"cpu_millicores": endless, "memory_mb": {"quota": 5, "limit": 7, "weight": 2}}
    found = load_queue(queue, 1_000)
    assert found.gpu == QueueAmounts(UNLIMITED, UNLIMITED, 0)
    assert found.memory == QueueAmounts(5_000, 7_000, 2)
    assert (found.parent, found.created_s) == ("", 3)


def test_the_runner_prints_what_passed_and_what_was_not_run(tmp_path: Path) -> None:
    specs = json.loads((CASES / "table_reclaimable.json").read_text())[:3]
    specs[0]["expect"] = [["result", False]]
    (tmp_path / "table_some.json").write_text(json.dumps(specs))
    (tmp_path / "unit_broken.json").write_text(json.dumps([{"id": "x", "core": True, "tags": ["t"], "mode": "?"}]))
    command = [sys.executable, "-m", "tests.conformance.kai", str(tmp_path), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    summary = json.loads(done.stdout)
    assert done.returncode == 1
    assert summary["tables"] == {"table_some.json": {"total": 3, "passed": 2}}
    assert (summary["total"], summary["passed"], summary["core"]) == (1, 0, {"total": 1, "passed": 0})
    assert summary["tags"] == {"t": {"total": 1, "passed": 0}}
    assert [failed["id"].split()[0] for failed in summary["failed"]] == ["table_some/000", "x"]


def test_what_is_broken_stops_nothing_else(tmp_path: Path) -> None:
    good = next(case for case in SCENARIOS if case["id"] == "unit_reclaim/reclaim/046")
    spec = json.loads((CASES / "table_reclaimable.json").read_text())[0]
    nameless = {name: value for name, value in spec.items() if name != "name"}
    (tmp_path / "table_a.json").write_text(json.dumps([nameless, 3, spec]))
    (tmp_path / "table_b.json").write_text(json.dumps({"note": "no list, no cases"}))
    (tmp_path / "unit_a.json").write_text("[{")
    jobless = {name: value for name, value in good.items() if name not in ("id", "jobs", "tags")}
    odd = [
        None,
        jobless,
        good | {"tags": "one"},
        good | {"tags": [1, {"a": 2}]},
        good | {"mode": "dance", "actions": ["sing"]},
    ]
    (tmp_path / "unit_b.json").write_text("\ufeff" + json.dumps(odd), encoding="utf-8")
    summary = run_folder(tmp_path).summary()
    assert (summary["total"], summary["passed"], summary["not_run"]) == (6, 2, 1)
    assert summary["tables"] == {"table_a.json": {"total": 3, "passed": 2}}
    assert list(summary["tags"]) == ["1", "one", *good["tags"], "{'a': 2}"]
    failed = {each["id"]: each["difference"] for each in summary["failed"]}
    assert list(failed) == ["table_a/001", "unit_a.json", "unit_b/000", "unit_b/001", good["id"]]
    assert failed["unit_b/001"][0] == "the case says nothing of 'jobs'"
    assert failed[good["id"]] == ["not run: nobody here knows the mode dance and the action sing"]


def test_what_the_form_does_not_name_may_be_left_out() -> None:
    for case in SCENARIOS[::7]:
        less = json.loads(json.dumps(case))
        for job in less["jobs"]:
            job.pop("namespace", None)
        for node in less["nodes"].values():
            if not node["labels"]:
                del node["labels"]
        for part in [name for name, wishes in less["expected"].items() if not wishes]:
            del less["expected"][part]
        assert load(less).missing or play(less) == play(case)


def test_all_scenarios_are_counted() -> None:
    summary = run_folder(CASES).summary()
    assert summary["total"] == len(SCENARIOS) == 194
    assert summary["core"]["total"] == 166
