"""Every field of a case is read: cases of our own, each of which would end differently without its field."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.kai.jobs import NOW_S, RAN_S
from tests.conformance.kai.loader import load
from tests.conformance.kai.machines import load_node
from tests.conformance.kai.report import run_folder
from tests.conformance.kai.scenarios import NotPlayedError, Table, play
from tests.conformance.kai.writing import case, job, node, queue, rounds, task, tree
from tests.conftest import ROOT

Case = dict[str, Any]


def _reclaim(least_s: float | None, at_the_top: bool = False, **expected: str) -> Case:
    """`rich` runs on both GPUs of `x`, one of which `poor` is owed."""
    field = {} if least_s is None else {"reclaim_min_runtime_s": least_s}
    top, own = (field, {}) if at_the_top else ({}, field)
    queues = [queue("top", quota=0, **top), queue("rich", parent="top", **own)]
    queues += [queue("other", quota=1), queue("poor", quota=1, parent="other")]
    running = [
        job(name, "rich", task("Running", "x", gpus=1), age_minutes=age) for name, age in (("old", 5), ("new", 4))
    ]
    return case(
        "reclaim", {"x": node(2)}, queues, [*running, job("claim", "poor", task("Pending", gpus=1))], **expected
    )


NOBODY_GOES = {"old": "Running on x", "new": "Running on x", "claim": "Pending"}
THE_NEWER_GOES = {"old": "Running on x", "new": "Releasing on x", "claim": "Pipelined on x"}


@pytest.mark.parametrize("at_the_top", [False, True])
def test_work_runs_at_least_as_long_as_its_queue_or_the_one_above_says(at_the_top: bool) -> None:
    assert play(_reclaim(7200, at_the_top, **NOBODY_GOES)) == []


def test_work_that_has_run_long_enough_goes() -> None:
    assert play(_reclaim(45, **THE_NEWER_GOES)) == []
    assert play(_reclaim(None, **THE_NEWER_GOES)) == []


def test_what_runs_began_a_minute_ago_however_old_it_is() -> None:
    assert play(_reclaim(100, **NOBODY_GOES)) == []


def test_what_a_round_started_has_run_for_a_minute_in_the_next_one() -> None:
    given = rounds(case("allocate", {"x": node(1)}, [queue("q", quota=1)], [job("a", "q", task("Pending", gpus=1))]))
    table = Table(given, load(given))
    table.round()
    table.settle()
    assert [pod.since_s for pod in table.state.pods["default/a"].values()] == [NOW_S - RAN_S]


def _elastic(gpus: int, *tasks: Case, least: int = 1, **expected: str) -> Case:
    return case(
        "allocate", {"x": node(gpus)}, [queue("q", quota=gpus)], [job("a", "q", *tasks, least=least)], **expected
    )


def test_of_unequal_pods_the_first_must_run_and_the_others_follow_in_their_order() -> None:
    waiting = [task("Pending", gpus=gpus) for gpus in (1, 2, 1)]
    assert play(_elastic(4, *waiting, a="Binding on x")) == []
    assert play(_elastic(3, *waiting, a_0="Binding on x", a_1="Binding on x", a_2="Pending")) == []
    assert play(_elastic(1, *waiting, a_0="Binding on x", a_1="Pending", a_2="Pending")) == []
    assert play(_elastic(2, *waiting, least=2, a="Pending")) == []


def test_of_unequal_pods_those_that_run_are_the_minimum() -> None:
    tasks = [task("Pending", gpus=4), task("Running", "x", gpus=1), task("Pending", gpus=1)]
    assert play(_elastic(2, *tasks, a_0="Pending", a_1="Running on x", a_2="Binding on x")) == []


def test_of_unequal_pods_the_last_are_spared_first() -> None:
    spread = job("a", "rich", *(task("Running", "x", gpus=gpus) for gpus in (2, 1, 1)), least=1)
    claim = job("b", "poor", task("Pending", gpus=2))
    wishes = {"a_0": "Running on x", "a_1": "Releasing on x", "a_2": "Releasing on x", "b": "Pipelined on x"}
    queues = [queue("rich"), queue("poor", quota=2)]
    assert play(case("reclaim", {"x": node(4)}, queues, [spread, claim], **wishes)) == []


def test_unequal_pods_of_a_sub_group_that_need_not_all_run() -> None:
    left = [task("Pending", gpus=gpus, subgroup="left") for gpus in (8, 1)]
    right = [task("Pending", gpus=gpus, subgroup="right") for gpus in (2, 1)]
    both = job("a", "q", *left, *right, subgroups=tree(needs=1, left=1, right=1))
    wishes = {"a_0": "Pending", "a_1": "Pending", "a_2": "Binding on x", "a_3": "Binding on x"}
    assert play(case("allocate", {"x": node(3)}, [queue("q", quota=3)], [both], **wishes)) == []


def test_ids_are_ordered_as_strings() -> None:
    first = {"a_0": "Binding on x", "a_1": "Binding on x", "a_10": "Binding on x", "a_2": "Pending", "a_9": "Pending"}
    assert play(_elastic(3, *(task("Pending", gpus=1) for _ in range(11)), **first)) == []


def test_a_more_important_task_starts_before_its_siblings() -> None:
    tasks = [task("Pending", gpus=1), task("Pending", gpus=1, task_priority=5)]
    assert play(_elastic(1, *tasks, a_0="Pending", a_1="Binding on x")) == []


def test_a_gang_of_which_pods_are_missing_waits_for_them() -> None:
    assert play(_elastic(4, task("Pending", gpus=1), least=2, a="Pending")) == []
    assert play(_elastic(4, task("Pending", gpus=1), task("Gated", gpus=1), least=2, a_0="Pending", a_1="Gated")) == []
    assert play(_elastic(4, task("Pending", gpus=1), task("Gated", gpus=1), a_0="Binding on x", a_1="Gated")) == []


def test_tasks_that_are_over_stay_as_they_are_and_are_compared() -> None:
    tasks = (task("Succeeded", "x", gpus=1), task("Pending", gpus=1))
    assert play(_elastic(1, *tasks, least=2, a_0="Succeeded on x", a_1="Binding on x")) == []
    assert play(_elastic(1, *tasks, least=2, a_0="Running on x")) != []


@pytest.mark.parametrize("state", ["Allocated", "Binding", "Bound"])
def test_what_is_being_placed_holds_its_place(state: str) -> None:
    jobs = [job("a", "q", task(state, "x", gpus=1)), job("b", "q", task("Pending", gpus=1))]
    given = case("allocate", {"x": node(1)}, [queue("q", quota=2)], jobs, a=f"{state} on x", b="Pending")
    assert play(given) == []
    settled = case("allocate", {"x": node(1)}, [queue("q", quota=2)], jobs, a="Running on x", b="Pending")
    assert play(rounds(settled)) == []


def test_what_our_words_cannot_say_is_not_played() -> None:
    with pytest.raises(NotPlayedError, match="tasks that are Pipelined"):
        play(_elastic(1, task("Pipelined", "x", gpus=1)))


def test_a_node_is_chosen_by_its_type_label() -> None:
    nodes = {"x": node(1), "y": node(1, labels={"kai.scheduler/type": "big"})}
    jobs = [job("a", "q", task("Pending", gpus=1, node_affinity_in=["big"]))]
    jobs += [job("b", "q", task("Pending", gpus=1, node_affinity_in=["x"]))]
    jobs += [job("c", "q", task("Pending", gpus=1, node_affinity_in=["y"]))]
    expected = {"a": "Binding on y", "b": "Binding on x", "c": "Pending"}
    assert play(case("allocate", nodes, [queue("q", quota=3)], jobs, **expected)) == []


def test_a_node_takes_no_more_pods_than_it_may() -> None:
    jobs = [job(name, "q", task("Pending")) for name in "ab"]
    wishes = {"a": "Binding on x", "b": "Pending"}
    assert play(case("allocate", {"x": node(max_pods=1)}, [queue("q")], jobs, **wishes)) == []


def test_a_node_says_what_its_gpus_are() -> None:
    assert [gpu.model for gpu in load_node("x", node(2, gpu_name="MI300X"), 1).gpus] == ["MI300X", "MI300X"]


def test_shares_of_no_group_are_never_too_much_for_one_device() -> None:
    running = [job(name, "q", task("Running", "x", gpu_fraction=0.7)) for name in "ab"]
    jobs = [
        *running,
        job("c", "q", task("Pending", gpu_fraction=0.5)),
        job("d", "q", task("Pending", gpu_fraction=0.3)),
    ]
    wishes = {"c": "Pending", "d": "Binding on x"}
    assert play(case("allocate", {"x": node(2)}, [queue("q", quota=4)], jobs, **wishes)) == []


def test_half_a_gpu_is_a_share() -> None:
    jobs = [job(name, "q", task("Pending", gpus=0.5)) for name in "abc"]
    wishes = {"a": "Binding on x", "b": "Binding on x", "c": "Pending"}
    assert play(case("allocate", {"x": node(1)}, [queue("q", quota=2)], jobs, **wishes)) == []


def test_a_share_of_several_devices_holds_them_all() -> None:
    jobs = [
        job("a", "q", task("Running", "x", gpu_fraction=0.6, gpu_groups=["first", "second"])),
        job("b", "q", task("Pending", gpu_fraction=0.5)),
        job("c", "q", task("Pending", gpu_fraction=0.3, gpu_devices=2)),
        job("d", "q", task("Pending", gpu_fraction=0.2)),
    ]
    wishes = {"a": "Running on x", "b": "Pending", "c": "Binding on x", "d": "Pending"}
    assert play(case("allocate", {"x": node(2)}, [queue("q", quota=2)], jobs, **wishes)) == []


def test_weights_need_not_be_whole() -> None:
    jobs = [job(f"{name}{number}", name, task("Pending", gpus=1)) for name in "hw" for number in range(6)]
    wishes = {f"h{number}": "Binding on x" if number < 2 else "Pending" for number in range(6)}
    wishes |= {f"w{number}": "Binding on x" if number < 4 else "Pending" for number in range(6)}
    queues = [queue("h", weight=0.4), queue("w", weight=0.8)]
    assert play(case("allocate", {"x": node(6)}, queues, jobs, **wishes)) == []


@pytest.mark.parametrize(("sleep_s", "ends"), [(0.5, "Running on x"), (9, "Pending")])
def test_time_passes_between_the_rounds_as_the_case_says(sleep_s: float, ends: str) -> None:
    """Two of three pods are left; after 20 seconds of that they go."""
    tasks = [task("Running", "x", gpus=1), task("Failed", gpus=1)]
    gang = job("a", "q", *tasks, stale_for_s=0.0, staleness_grace_s=20.0)
    given = case("stalegangeviction", {"x": node(1)}, [queue("q", quota=2)], [gang], a_0=ends)
    assert play(rounds(given, until=4, after=0, sleep_between_rounds_s=sleep_s)) == []


def test_pods_that_must_be_near_each_other_or_apart() -> None:
    nodes = {name: node(1, labels={"zone": zone}) for name, zone in (("x", "east"), ("y", "east"), ("z", "west"))}
    store = {"pod_labels": {"app": "store"}}
    there = job("there", "q", task("Running", "x", gpus=1, pod_labels={"app": "store", "tier": "hot"}))
    near = job("near", "q", task("Pending", gpus=1, **store, pod_affinity_key="zone"))
    apart = job("apart", "q", task("Pending", gpus=1, **store, pod_anti_affinity_key="zone"))
    wishes = {"near": "Binding on y", "apart": "Binding on z"}
    assert play(case("allocate", nodes, [queue("q", quota=3)], [there, near, apart], **wishes)) == []
    nodes["y"]["gpus"] = nodes["z"]["gpus"] = 0
    assert (
        play(case("allocate", nodes, [queue("q", quota=3)], [there, near, apart], near="Pending", apart="Pending"))
        == []
    )


def test_levels_that_nobody_asks_for_are_in_nobodys_way() -> None:
    racks = {"ObjectMeta": {"Name": "racks"}, "Spec": {"Levels": [{"NodeLabel": "rack"}]}}
    given = _elastic(1, task("Pending", gpus=1), a="Binding on x") | {"topologies": [racks]}
    assert play(given) == []
    given["jobs"][0]["subgroups"]["topology"] = {"Topology": "racks", "RequiredLevel": "rack"}
    assert play(given) != []  # no node has a rack


@pytest.mark.parametrize(("strategy", "second"), [("spread", "y"), ("binpack", "x")])
def test_work_without_gpus_is_placed_as_the_configuration_says_for_cpus(strategy: str, second: str) -> None:
    plugin = {"Name": "nodeplacement", "Arguments": {"cpu": strategy, "gpu": "binpack"}}
    jobs = [job("a", "q", task("Running", "x")), job("b", "q", task("Pending"))]
    given = case("allocate", {"x": node(), "y": node()}, [queue("q")], jobs, b=f"Binding on {second}")
    assert play(given | {"scheduler_conf": {"Tiers": [{"Plugins": [plugin]}]}}) == []


def test_a_case_that_fails_names_the_fields_that_nobody_read() -> None:
    given = _elastic(1, task("Pending", gpus=1, mood="good"), a="Pending")
    given["queues"][0] |= {"colour": "red", "department": True}
    given["session_overrides"] = {"OverrideTaste": 3}
    unread = "not read: queues.colour, session_overrides.OverrideTaste, tasks.mood"
    assert play(given) == ["a-0 is Binding on x, expected Pending", unread]
    given["expected"]["jobs"]["a"]["status"] = "Binding"
    assert play(given) == []


def test_the_runner_takes_cases_from_files_of_any_name(tmp_path: Path) -> None:
    good = case("allocate", {"x": node(1)}, [queue("q")], [job("a", "q", task("Pending", gpus=1))], a="Binding on x")
    (tmp_path / "of-our-own.json").write_text(json.dumps([{"mode": "single_pass"}, good]))
    (tmp_path / "notes.json").write_text(json.dumps({"note": "no cases here"}))
    summary = run_folder(tmp_path).summary()
    assert (summary["total"], summary["passed"], summary["core"]["total"]) == (2, 1, 2)
    assert summary["failed"][0]["id"] == "of-our-own/000"


def test_a_folder_without_cases_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text(json.dumps({"note": "no cases here"}))
    command = [sys.executable, "-m", "tests.conformance.kai", str(tmp_path), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    summary = json.loads(done.stdout)
    assert (done.returncode, summary["total"], summary["failed"]) == (2, 0, [])
    assert "holds no cases" in done.stderr
