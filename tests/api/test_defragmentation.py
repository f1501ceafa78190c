"""/api/v1/defragmentation: plan, run, status and abort on a real loop, with a real worker process for the plans."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kaiwo.api.presenters.defragmentation_view import plan_message
from kaiwo.model.defragmentation import DefragmentationGoal, GoalKind, MovePlan
from kaiwo.model.policy import Policy
from kaiwo.runtime.defragmentation.defragmentation import NamedPlan
from tests.api.world import World, world
from tests.waiting import run, until_answer

SPREAD = Policy(placement="spread")


async def fragmented(it: World, pairs: int = 1) -> None:
    """Every node holds one small workload, so that no large one fits."""
    for number in range(2 * pairs):
        await it.submit(f"small-{number}", gpus=3, simulate="1h")
        await it.until_state(f"small-{number}", "running")
    await it.submit("large", gpus=8, simulate="1h")


async def status_of(it: World) -> dict[str, Any]:
    return (await it.get("/defragmentation")).json()  # type: ignore[no-any-return]


def test_a_plan_changes_nothing_and_a_run_of_it_makes_exactly_its_moves(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=2, policy=SPREAD) as it:
            await fragmented(it)
            planned = await it.post("/defragmentation/plan", {"workload": "default/large"})
            assert planned.status_code == 200, planned.text
            plan = planned.json()
            (step,) = plan["steps"]
            (move,) = step["moves"]
            assert plan["is_smallest"]
            assert [kind["gpus"] for kind in plan["kinds"]] == [8]
            assert (await status_of(it))["run"] is None
            begun = await it.post("/defragmentation/run", {"plan": plan["name"]})
            assert begun.status_code == 201, begun.text
            await it.until_state("large", "running")
            view = await until_answer(lambda: status_of(it), lambda view: view["run"]["state"] == "done")
            assert [each["state"] for each in view["run"]["steps"][0]["moves"]] == ["moved"]
            assert it.loop.state.pods[move["workload"]][move["pod"]].node == move["node"]

            async def actions() -> set[str]:
                return {each["action"] for each in (await it.get("/audit")).json()["items"]}

            await until_answer(actions, lambda found: {"plan-moves", "run-moves", "evict"} <= found)

    run(story())


def test_an_aborted_run_begins_nothing_more(tmp_path: Path) -> None:
    async def story() -> None:
        never = Policy(placement="spread", move_hours=("00:00-00:01", "00:01-00:02"), moves_at_once=1)
        async with world(tmp_path, nodes=2, policy=never) as it:
            await fragmented(it)
            begun = await it.post("/defragmentation/run", {"workload": "default/large"})
            assert begun.status_code == 201, begun.text
            again = await it.post("/defragmentation/run", {"workload": "default/large"})
            assert again.status_code == 409
            assert "is not over" in again.json()["message"]
            assert (await it.post("/defragmentation/abort")).status_code == 200
            view = await until_answer(lambda: status_of(it), lambda view: view["run"]["state"] == "aborted")
            assert view["run"]["moved"] == 0
            assert (await it.post("/defragmentation/abort")).status_code == 404

    run(story())


def test_the_status_says_when_the_hourly_limit_lets_moves_begin_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=4, policy=Policy(placement="spread", moves_per_hour=1)) as it:
            await fragmented(it, pairs=2)
            begun = await it.post("/defragmentation/run", {"free_nodes": 2})
            assert begun.status_code == 201, begun.text
            view = await until_answer(lambda: status_of(it), lambda view: view["run"]["moved"] == 1)
            assert view["message"].startswith("1 of 2 moves made, 0 under way; moves begin again in ")
            assert view["message"].endswith((" 1 h", " min"))

    run(story())


def test_a_bad_request_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            await it.submit("runs", gpus=1, simulate="1h")
            await it.until_state("runs", "running")
            for path, body, code, sentence in (
                ("plan", {"nodes": 3}, 400, "unknown field `nodes`"),
                ("plan", {"balance": True, "free_nodes": 2}, 400, "one plan has one purpose"),
                ("plan", {"workload": "default/nobody"}, 404, "default/nobody"),
                ("plan", {"workload": "default/runs"}, 409, "does not wait for room"),
                ("run", {"plan": "abcdef"}, 404, "no plan abcdef is known any more"),
                ("run", {}, 409, "nothing to run"),
            ):
                answered = await it.post(f"/defragmentation/{path}", body)
                assert answered.status_code == code, answered.text
                assert sentence in answered.json()["message"]

    run(story())


def test_a_plan_says_that_waiting_work_has_a_planned_start() -> None:
    words = plan_message(NamedPlan("p1", 0, MovePlan(planned=1)))
    assert words.startswith("1 waiting workload has a planned start, and no other work waits for room")
    assert "kaiwo defrag plan --for" in words
    assert plan_message(NamedPlan("p1", 0, MovePlan())) == "no work waits for room, so nothing needs to move"


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (
            MovePlan(is_too_little_free=True),
            "no moves can make room for a/big: it asks for more than is free in the whole",
        ),
        (
            MovePlan(too_many=20),
            "room for a/big takes 20 moves, more than may be made; allow them with: --most-moves 20",
        ),
        (
            MovePlan(is_cut_short=True),
            "no moves were found that make room for a/big, but not everything was tried; kaiwo",
        ),
        (MovePlan(), "no moves were found that make room for a/big; kaiwo why says what it waits for"),
    ],
)
def test_a_plan_without_moves_says_why(plan: MovePlan, says: str) -> None:
    goal = DefragmentationGoal(GoalKind.WORKLOAD, "a/big")
    assert plan_message(NamedPlan("p1", 0, replace(plan, goal=goal))).startswith(says)
