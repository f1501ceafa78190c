"""The base name of an array, and a range of its tasks, stand where the name of a workload stands."""

import json
from collections.abc import Iterator

import pytest

from tests.cli.test_end_to_end import Product

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kaiwo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """Two nodes; of `sweep` two tasks run, and the other eight wait."""
    product = Product(tmp_path_factory.mktemp("home"))
    done = product(
        "submit", "sweep[0-18%2:2]", "--gpus", "8", "--", "sh", "-c", "echo task $KAIWO_ARRAY_INDEX; sleep 600"
    )
    assert done.out == "array default/sweep submitted with 10 tasks\n", done
    assert product("wait", "sweep-0", "sweep-2", "--for", "running", "--timeout", "30s").code == 0
    yield product
    product("cancel", "sweep")
    product.stop()


def test_a_base_name_is_one_row_and_its_tasks_are_listed_when_asked_for(kaiwo: Product) -> None:
    header, row = kaiwo("get", "workloads", "sweep").lines()
    assert row.startswith("sweep[0-18:2]")
    assert row.endswith("2 running, 8 waiting")
    assert header.split()[0] == "NAME"
    tasks = kaiwo("get", "workloads", "sweep", "--tasks", "--no-headers").lines()
    assert [line.split()[0] for line in tasks] == [f"sweep-{index}" for index in range(0, 20, 2)]
    assert kaiwo("get", "workloads", "sweep[4-6:2]", "-o", "name").lines() == ["default/sweep-4", "default/sweep-6"]
    assert json.loads(kaiwo("get", "workloads", "sweep", "-o", "json").out)["total"] == 10


def test_describe_shows_the_state_of_each_task(kaiwo: Product) -> None:
    told = kaiwo("describe", "sweep").out
    assert "tasks:       10 (0-18:2)\nstates:      2 running, 8 waiting\n" in told
    assert [line.split()[0] for line in told.splitlines() if line.startswith("sweep-")][:3] == [
        "sweep-0",
        "sweep-2",
        "sweep-4",
    ]


def test_why_explains_the_first_task_that_waits(kaiwo: Product) -> None:
    done = kaiwo("why", "sweep")
    assert done.err == "8 tasks of the array wait; this is the first of them\n"
    assert done.lines()[0].startswith("sweep-4 is waiting: its array runs at most 2 tasks at once")
    assert kaiwo("why", "sweep-*").lines() == done.lines()
    assert kaiwo("why", "sweep[6-18:2]").lines()[0].startswith("sweep-6 is waiting")
    assert kaiwo("why", "sweep[0-2:2]").lines()[0] == "It is not waiting: it is running."


def test_moves_are_planned_for_the_first_task_that_waits(kaiwo: Product) -> None:
    for name in ("sweep", "sweep-*", "sweep[4-18:2]"):
        first, second = kaiwo("defrag", "plan", "--for", name).err.splitlines()
        assert first == "8 tasks of the array wait; this is the first of them"
        assert second.startswith("kaiwo: default/sweep-4 does not wait for room")
    assert "workload default/nope does not exist" in kaiwo("defrag", "plan", "--for", "nope").err


def test_logs_and_set_take_the_base_name(kaiwo: Product) -> None:
    assert sorted(kaiwo("logs", "sweep").lines()) == ["[sweep-0] task 0", "[sweep-2] task 2"]
    assert kaiwo("logs", "sweep[10-12:2]").err == "none of these 2 logs has any output\n"
    assert kaiwo("set", "sweep", "priority=7").out == "array default/sweep: priority 50 -> 7 (10 tasks)\n"
    assert kaiwo("set", "sweep[10-12:2]", "hold=true").code == 0
    assert "2 held" in kaiwo("get", "workloads", "sweep").out


def test_verbs_about_one_workload_name_a_task(kaiwo: Product) -> None:
    for verb in ("history", "seff", "checkpoint"):
        done = kaiwo(verb, "sweep")
        assert done.code == 1
        assert "it is an array: name one of its tasks, such as sweep-" in done.err


def test_a_name_that_nothing_has_is_an_error(kaiwo: Product) -> None:
    for line in ("get workloads nope", "describe nope", "why nope", "logs nope", "set nope priority=1"):
        done = kaiwo(*line.split())
        assert done.code == 1, line
        assert "nope" in done.err
