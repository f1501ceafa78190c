"""POST /api/v1/what-if and the expected start in `why`: a real loop, a real worker process."""

from pathlib import Path
from typing import Any

from tests.api.world import world
from tests.waiting import run, until_answer


def test_a_what_if_question_changes_nothing_and_shows_the_difference(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            for number in range(3):
                await it.submit(f"job-{number}", gpus=8, estimate="1h", simulate="1h")
            await it.until_state("job-0", "running")
            answered = await it.post("/what-if", {"add_nodes": [{"count": 1}], "manifests": "name: probe\ngpus: 1\n"})
            assert answered.status_code == 200, answered.text
            view = answered.json()
            (queue,) = [each for each in view["queues"] if each["queue"] == "default"]
            assert view["gpus"] == [8, 16]
            assert queue["waiting"][1] == queue["waiting"][0] + 1
            assert queue["wait_s"][1] < queue["wait_s"][0]
            assert view["added"]["default/probe"] > 0
            assert (await it.get("/workloads/default/probe")).status_code == 404
            assert len((await it.get("/nodes")).json()["items"]) == 1

    run(story())


def test_a_bad_question_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            for body, sentence in (
                ({"quota": {}}, "unknown field `quota`"),
                ({"quotas": {"defualt": 1}}, "there is no queue 'defualt'; did you mean default?"),
                ({"policy": "placment: pack"}, "placment is not a known field"),
                ({"manifests": "name: x\ngpus: many"}, "gpus"),
            ):
                answered = await it.post("/what-if", body)
                assert answered.status_code == 400, answered.text
                assert sentence in answered.json()["message"]

    run(story())


def test_why_tells_the_expected_start_and_lists_show_it_afterwards(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            for number in range(9):  # of one GPU each: too small for a planned start
                await it.submit(f"job-{number}", gpus=1, estimate="1h", simulate="1h")
            await it.until_state("job-7", "running")

            async def ask() -> dict[str, Any]:
                return (await it.get("/workloads/default/job-8/why")).json()  # type: ignore[no-any-return]

            why = await until_answer(
                ask, lambda why: why["position"] == 1 and why["expected"]
            )  # a busy machine takes longer
            assert why["expected"].startswith("it is expected to start in ")
            assert why["expected_low_s"] <= why["expected_s"] <= why["expected_high_s"]
            (row,) = [w for w in (await it.get("/workloads")).json()["items"] if w["name"] == "default/job-8"]
            assert row["expected_s"] == why["expected_s"]

    run(story())
